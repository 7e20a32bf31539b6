"""`Observation`: what the service says about itself: figures for monitoring, the audit log, the access log.

Knows operations, times and counts; never a patient's data. Volumes that a request touches are noted by their keys, for
the audit log only.
"""

from __future__ import annotations

import bisect
import json
import logging
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from contextvars import ContextVar
from threading import Lock
from typing import Any

from diptych.archive.audit import AuditLog

API = "/api/v1"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MAX_TOUCHED = 50
VIEW_SECONDS = 60.0
"""A reader who scrolls through a volume is one view."""
REFUSALS_PER_MINUTE = 120
"""Refusals that are written to the audit log: a flood must not fill the disk."""

TOUCHED: ContextVar[set[str] | None] = ContextVar("touched", default=None)
"""Keys of volumes and uploads that the request at hand looks at, in whatever thread."""

_EVENTS: dict[str, tuple[str, ...]] = {
    "search": ("search", "findComparators", "findSimilarVolumes", "findSimilarPatients", "getVolume"),
    "view": (
        "viewSubject", "explainMatch", "getVolumeSlice", "getVolumeChannel", "getVolumeLabels",
        "getUploadSlice", "getUploadChannel", "getUploadLabels", "getPacsPlace",
    ),
    "send": ("sendResults",),
    "export": ("exportAnswer", "exportVolumePrediction", "exportUploadPrediction"),
    "upload": ("uploadPatient", "correctUpload"),
    "delete": ("deleteUpload",),
    "change": ("archiveUpload",),
    "sign in": ("openSession",),
    "sign out": ("closeSession",),
}  # fmt: skip
EVENT_OF = {operation: event for event, operations in _EVENTS.items() for operation in operations}
log = logging.getLogger("diptych.server")


class Observation:
    """Counts requests and tells the audit log; safe to use from many threads."""

    def __init__(self, audit: AuditLog | None, *, json_log: bool = False) -> None:
        self.audit = audit
        self.json_log = json_log
        self._lock = Lock()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._refusals: Counter[int] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._total: Counter[str] = Counter()
        self._views: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._refused: deque[float] = deque(maxlen=REFUSALS_PER_MINUTE)

    def finished(self, request: Mapping[str, Any], *, status: int, seconds: float, who: str, client: str) -> None:
        """A request was answered."""
        route = request.get("route")
        operation = getattr(route, "operation_id", None) or ""
        name = operation or ("page" if route is not None else "unknown")
        with self._lock:
            self._requests[name, f"{status // 100}xx"] += 1
            buckets = self._seconds.setdefault(name, [0] * (len(BUCKETS) + 1))
            buckets[bisect.bisect_left(BUCKETS, seconds)] += 1
            self._total[name] += seconds  # type: ignore[assignment]
            if status in (401, 403, 408, 413, 429, 503):
                self._refusals[status] += 1
        self._write_line(request, route, status, seconds, who)
        if self.audit is not None:
            self._tell(request, operation, status, who, client)

    def _write_line(self, request: Mapping[str, Any], route: Any, status: int, seconds: float, who: str) -> None:
        """One line without any key, query, body or name: the route, not the address."""
        path = getattr(route, "path", "(unknown)")
        if str(request["path"]).startswith(API) and not path.startswith(API):
            path = API + path  # a router may know only its own part
        if self.json_log:
            line = {
                "method": request["method"],
                "route": path,
                "status": status,
                "ms": round(seconds * 1e3),
                "who": who,
            }
            log.info(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **line}))
        else:
            log.info("%s %s %s %.0f ms", request["method"], path, status, seconds * 1e3)

    def _tell(self, request: Mapping[str, Any], operation: str, status: int, who: str, client: str) -> None:
        assert self.audit is not None
        event = EVENT_OF.get(operation)
        keys = sorted(TOUCHED.get() or ())
        if status in (401, 403, 429):
            event = event if event == "sign in" else "refused"
            if not self._may_tell_refusal():
                return
        if event is None or (event == "view" and status < 400 and self._seen(who, keys)):
            return
        what = {"operation": operation, "volumes": keys, "client": client, "status": status}
        self.audit.record(event, who, what, outcome="done" if status < 400 else "refused" if status < 500 else "failed")

    def _may_tell_refusal(self) -> bool:
        now = time.monotonic()
        with self._lock:
            if len(self._refused) == REFUSALS_PER_MINUTE and now - self._refused[0] < 60:
                return False
            self._refused.append(now)
            return True

    def _seen(self, who: str, keys: list[str]) -> bool:
        """Whether this reader was told of with these volumes a moment ago."""
        now, known = time.monotonic(), True
        with self._lock:
            for key in keys:
                known &= now - self._views.get((who, key), -VIEW_SECONDS) < VIEW_SECONDS
                if not known:
                    self._views[who, key] = now
            while len(self._views) > 10_000:
                self._views.popitem(last=False)
        return known and bool(keys)

    def lines(self) -> list[str]:
        """Requests, latencies and refusals as OpenMetrics."""
        with self._lock:
            out = ["# TYPE diptych_requests counter"]
            out += [
                f'diptych_requests_total{{operation="{name}",status="{status}"}} {count}'
                for (name, status), count in sorted(self._requests.items())
            ]
            out.append("# TYPE diptych_request_seconds histogram")
            for name, buckets in sorted(self._seconds.items()):
                below = 0
                for bound, count in zip((*BUCKETS, "+Inf"), buckets, strict=True):
                    below += count
                    out.append(f'diptych_request_seconds_bucket{{operation="{name}",le="{bound}"}} {below}')
                out.append(f'diptych_request_seconds_count{{operation="{name}"}} {below}')
                out.append(f'diptych_request_seconds_sum{{operation="{name}"}} {self._total[name]:.6f}')
            out.append("# TYPE diptych_refusals counter")
            out += [f'diptych_refusals_total{{status="{s}"}} {count}' for s, count in sorted(self._refusals.items())]
        return out


def touch(key: str) -> None:
    """Note that the request at hand looks at a volume."""
    touched = TOUCHED.get()
    if touched is not None and len(touched) < MAX_TOUCHED:
        touched.add(key)
