"""`diptych` for tests without a cold start: one process has imported the program and forks for every command.

A script named `diptych` is put first on the PATH. It hands its arguments, folder, environment and the three standard
streams to the waiting process, which forks; the child is a real process of its own that runs the command and hands back
its exit code. A second script, `cells`, is an interpreter that runs one block of Python per line of standard input.
What this does not show, cold starts, signals and worker processes, is left to the tests that start `python -m diptych`.

    python -m tests.warm_command SOCKET      (started by `warm_commands`, ended by its standard input closing)
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

PRELOADED = (
    *("torch", "numba", "nibabel", "matplotlib", "safetensors.torch", "scipy.ndimage", "scipy.optimize", "PIL.Image"),
    *("diptych.cli.app", "diptych.retrieval", "diptych.phantom", "diptych.training", "diptych.evaluation.runner"),
    *("diptych.cli.index_command", "diptych.cli.search_command", "diptych.cli.phantom_command", "pydantic"),
    *("diptych.metrics.label_indexing", "diptych.retrieval.answer_figures", "diptych.server.web_app"),
)

SCRIPT = """#!{python} -SE
import array, json, os, socket, sys, time
server = socket.socket(socket.AF_UNIX)
for patience in range(3000):  # until the program is imported
    try:
        server.connect({address!r})
        break
    except OSError:
        time.sleep(0.1)
arguments = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
order = json.dumps({{"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}}).encode()
streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
server.sendmsg([len(order).to_bytes(8, "big")], streams)
server.sendall(order)
answer = server.recv(4)
os._exit(int.from_bytes(answer, "big") if len(answer) == 4 else 70)
"""


@contextlib.contextmanager
def warm_commands() -> Iterator[Path]:
    """Start the waiting process; give the folder that holds the `diptych` script."""
    with tempfile.TemporaryDirectory(prefix="diptych-warm-") as name:
        folder = Path(name)
        for script in (folder / "diptych", folder / "cells"):
            script.write_text(SCRIPT.format(python=sys.executable, address=f"{name}/socket"), encoding="utf-8")
            script.chmod(0o700)
        command = [sys.executable, "-m", "tests.warm_command", f"{name}/socket"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as waiting:
            assert waiting.stdin
            yield folder  # whoever is quick waits for it
            waiting.stdin.close()


def serve(address: str) -> None:
    """Import the program, then fork once per connection until standard input closes."""
    for name in PRELOADED:
        __import__(name)
    from numba.core.registry import cpu_target

    from diptych import processes
    from diptych.phantom.atlas import load_atlas

    cpu_target.typing_context.refresh()  # what every command that runs a numerical loop would do again
    cpu_target.target_context.refresh()
    load_atlas()  # two seconds that every command about phantoms would spend again
    processes.cores = lambda: 1  # tests fill all cores by themselves; workers of workers would only start cold
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        while True:
            readable, _, _ = select.select([listener, sys.stdin], [], [], 1.0)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass  # children that have ended
            if sys.stdin in readable:
                return
            if listener in readable:
                connection, _ = listener.accept()
                if os.fork() == 0:
                    listener.close()
                    answer(connection)
                connection.close()


def answer(connection: socket.socket) -> None:
    """Run the one command that `connection` asks for, in this forked process, and end it."""
    head, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    streams = array.array("i", ancillary[0][2])
    length, order = int.from_bytes(head, "big"), b""
    while len(order) < length:
        order += connection.recv(length - len(order))
    told = json.loads(order)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.argv = told["arguments"]
    threading.Thread(target=end_with, args=(connection,), daemon=True).start()
    code = run({"diptych": diptych, "cells": cells}[sys.argv[0]])
    connection.sendall(code.to_bytes(4, "big"))
    os._exit(code)


def end_with(connection: socket.socket) -> None:
    """Whoever ends the script ends the command: a server that a page started in the background, say."""
    if not connection.recv(1):
        os.kill(os.getpid(), signal.SIGTERM)


def run(program: Callable[[], None]) -> int:
    """The program's exit code, whatever happens inside it."""
    try:
        program()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code & 0xFF


def diptych() -> None:
    """The `diptych` command."""
    from diptych.cli.app import main

    main()


def cells() -> None:
    """Run one block of Python per line of standard input, in one namespace; answer each with its trace or nothing."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a block prints must not look like an answer
    warnings.simplefilter("error")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line in sys.stdin:
        try:
            exec(compile(json.loads(line), "<page>", "exec"), namespace)  # noqa: S102 - blocks of our own pages
            failure = ""
        except BaseException:
            failure = traceback.format_exc()[-2000:]
        answers.write(json.dumps(failure) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
