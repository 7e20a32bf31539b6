"""Reach a Ray cluster, or start a small one on this machine's loopback.

Whoever reaches Ray's ports (and has its token, where Ray asks for one) can run any code as the user that started it. So
what is started here has an address of the loopback, no dashboard, and tells nobody that it is used; a cluster elsewhere
must be given by its address, and belongs on a private network (docs/explanation/scale.md). Knows nothing about shards.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from diptych.errors import ClusterError, MissingExtraError, UsageError
from diptych.processes import cores

LOOPBACK = "127.0.0.2"
"""An address of this machine alone. Ray takes 127.0.0.1 for the address that others reach the machine by."""
REACH_SECONDS = 5.0
STORE_BYTES = 256 << 20
"""Memory that a cluster started here shares between its processes: answers are small."""
SPARE_CPUS = 2
"""Beyond this machine's cores, so that an actor that is restarted always finds room."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_worker_niceness": "0",
}
"""Nothing is sent to Ray's makers, devices stay as they are, no port is opened for measurements, and searches are not
worth less than whatever else the machine does (Ray's own default is)."""


def import_ray() -> Any:
    """Ray, or one line that says how to get it."""
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    try:
        import ray
    except ImportError:
        raise MissingExtraError("--cluster needs Ray: run pip install 'diptych[cluster]', or leave it out") from None
    return ray


def connect(cluster: str) -> Any:
    """Be connected to a cluster: `auto` is the one on this machine, started now if there is none, else host:port."""
    ray = import_ray()
    if ray.is_initialized():
        return ray
    if cluster == "auto":
        try:
            _init(ray, address="auto")
        except ConnectionError:
            start_loopback(ray)
        return ray
    _require_listener(cluster)
    try:
        _init(ray, address=cluster)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise ClusterError(f"--cluster {cluster}: {_first_line(error)}; is it a Ray of the same version?") from None
    return ray


def start_loopback(ray: Any, *, cpus: int | None = None) -> None:
    """A cluster of one node that only this machine reaches; it ends with this process."""
    try:
        _init(
            ray,
            address="local",
            num_cpus=cpus or cores() + SPARE_CPUS,
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            _node_ip_address=LOOPBACK,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise ClusterError(f"--cluster auto: Ray cannot be started here ({_first_line(error)})") from None


@contextmanager
def session(cluster: str) -> Iterator[Any]:
    """A connection that is closed at the end, unless it was there before."""
    own = not import_ray().is_initialized()
    ray = connect(cluster)
    try:
        yield ray
    finally:
        if own:
            ray.shutdown()


def encoding_cores(ray: Any) -> int:
    """How many tasks of one core make good use of a cluster; spare room on this machine is not for them."""
    own = all(node["NodeManagerAddress"] == LOOPBACK for node in ray.nodes() if node["Alive"])
    there = int(ray.cluster_resources().get("CPU", 1))
    return max(1, min(there, cores()) if own else there)


def _init(ray: Any, **options: Any) -> None:
    ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=False, **options)


def _require_listener(address: str) -> None:
    """Refuse at once what nobody answers at: Ray itself would try for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"--cluster {address}: give auto, or an address such as 10.0.0.5:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ClusterError(
            f"--cluster {address}: nobody answers there ({reason}); start Ray on that machine with "
            f"'ray start --head --node-ip-address={host} --port={port} --include-dashboard=false', or give auto"
        ) from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
