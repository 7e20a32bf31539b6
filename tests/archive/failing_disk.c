/* A disk that fails on demand, for test_disk.py: preload it, and call number FAIL_AT among all writes, truncations
 * and syncs of files whose path holds FAIL_PATH returns FAIL_ERRNO, as do all later ones (or only that one, with
 * FAIL_ONCE). Counting starts when the file named by FAIL_ARMED exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long calls = 0;

static int fails(int descriptor) {
    const char *armed = getenv("FAIL_ARMED"), *path = getenv("FAIL_PATH"), *at = getenv("FAIL_AT");
    if (!armed || !path || !at || access(armed, F_OK) != 0) return 0;
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length <= 0) return 0;
    name[length] = 0;
    if (!strstr(name, path)) return 0;
    calls += 1;
    if (calls < atol(at) || (getenv("FAIL_ONCE") && calls > atol(at))) return 0;
    errno = atoi(getenv("FAIL_ERRNO"));
    return 1;
}

#define WRAP(type, name, parameters, arguments)                        \
    type name parameters {                                             \
        static type(*real) parameters = NULL;                          \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
        return fails(fd) ? -1 : real arguments;                        \
    }

WRAP(ssize_t, write, (int fd, const void *data, size_t count), (fd, data, count))
WRAP(ssize_t, pwrite, (int fd, const void *data, size_t count, off_t offset), (fd, data, count, offset))
WRAP(ssize_t, pwrite64, (int fd, const void *data, size_t count, off64_t offset), (fd, data, count, offset))
WRAP(int, ftruncate, (int fd, off_t length), (fd, length))
WRAP(int, ftruncate64, (int fd, off64_t length), (fd, length))
WRAP(int, fsync, (int fd), (fd))
WRAP(int, fdatasync, (int fd), (fd))
