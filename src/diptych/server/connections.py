"""Connections that do not come to the point: limits in number and time below HTTP, where no request is seen yet.

Knows uvicorn's protocol and the clock. A connection that has not sent a whole header in time is closed; when there are
too many, the longest idle one makes room, so that idle strangers never shut out somebody who asks. Bodies have their
time limit in the guards.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from diptych.server.settings import ServerSettings


def limited_protocol(settings: ServerSettings) -> type[H11Protocol]:
    """uvicorn's protocol under the limits of a service."""

    class Limited(H11Protocol):
        """One connection; `since` is when it last finished something, or began."""

        since = 0.0
        late: asyncio.TimerHandle | None = None

        @property
        def active(self) -> bool:
            """Whether a request is being answered."""
            return self.cycle is not None and not self.cycle.response_complete

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.since = self.loop.time()
            self._expect_header()
            if len(self.connections) > settings.max_connections:
                idle = [one for one in self.connections if isinstance(one, Limited) and not one.active]
                oldest = min(idle, key=lambda one: one.since, default=self)
                oldest.transport.abort()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.active:
                self._stop_waiting()
            elif not self.transport.is_closing():
                self._expect_header()

        def on_response_complete(self) -> None:
            self.since = self.loop.time()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _expect_header(self) -> None:
            """Begin to wait, unless we do already: a byte now and then buys no time."""
            if self.late is None:
                self.late = self.loop.call_later(settings.header_seconds, self._give_up)

        def _stop_waiting(self) -> None:
            if self.late is not None:
                self.late.cancel()
                self.late = None

        def _give_up(self) -> None:
            self.late = None
            if not self.active:
                self.transport.abort()

    return Limited
