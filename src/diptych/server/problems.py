"""One JSON shape for every error, whoever found it: routes, validation, the router or the unexpected.

    {"error": {"code": "not_found", "message": "one clear line", "detail": …}}

Codes are for programs and never change; messages are for people. Knows HTTP and `diptych.errors`; no path of this
machine leaves through here.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from diptych.errors import ArchiveError, ArchiveLockedError, DiptychError, InputError, TooLargeError, UsageError
from diptych.volumes.layout import one_line

CODES = {
    400: "bad_request",
    401: "token_needed",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    409: "conflict",
    413: "too_large",
    416: "range_not_satisfiable",
    422: "invalid",
    429: "too_many",
    500: "internal",
    503: "unavailable",
    507: "disk_full",
}
"""A code for each status; some problems have a more telling one."""

PLAIN = {
    "Not Found": "there is nothing at this address; /api/v1/docs lists what there is",
    "Method Not Allowed": "this address does not take that method; /api/v1/docs lists what there is",
}
"""What the router says, for people."""

STATUS_OF: tuple[tuple[type[DiptychError], int, str], ...] = (
    (UsageError, 422, "invalid"),
    (TooLargeError, 413, "too_large"),
    (InputError, 422, "unreadable_input"),
    (ArchiveLockedError, 409, "archive_locked"),
    (ArchiveError, 503, "archive_unavailable"),
)
"""The first that fits; any other error is ours, not the client's."""

MAX_MESSAGE = 500
log = logging.getLogger("diptych.server")


class Problem(DiptychError):
    """Something a request asked for that cannot be, with the HTTP status it becomes."""

    def __init__(self, status: int, message: str, *, code: str | None = None, detail: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code or CODES[status]
        self.detail = detail


def not_found(what: str) -> Problem:
    return Problem(404, what)


def problem_response(
    status: int, code: str, message: str, *, detail: Any = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """The one shape."""
    error: dict[str, Any] = {"code": code, "message": one_line(message)[:MAX_MESSAGE]}
    if detail is not None:
        error["detail"] = detail
    return JSONResponse({"error": error}, status, headers=headers)


def describe(error: DiptychError, private: str = "") -> tuple[int, str, str]:
    """Status, code and message of an error; `private` is a path that the message must not show."""
    message = str(error).replace(private, "archive") if private else str(error)
    for kind, status, code in STATUS_OF:
        if isinstance(error, kind):
            return status, code, message
    return 500, "internal", message


def add_problem_handlers(app: FastAPI, *, private: str) -> None:
    """Teach an application the one shape; `private` is the archive's path."""

    @app.exception_handler(Problem)
    async def problem(_: Request, error: Problem) -> JSONResponse:
        return problem_response(error.status, error.code, str(error), detail=error.detail)

    @app.exception_handler(DiptychError)
    async def known(_: Request, error: DiptychError) -> JSONResponse:
        status, code, message = describe(error, private)
        if status >= 500:
            log.error("%s: %s", type(error).__name__, error)
        return problem_response(status, code, message)

    @app.exception_handler(OSError)
    async def failed(_: Request, error: OSError) -> JSONResponse:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise error
        log.error("the disk is full: %s", error.filename or "no name")
        return problem_response(507, CODES[507], "the service's disk is full; try again later, or tell its owner")

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        detail = [{"where": _place(one["loc"]), "message": one["msg"]} for one in error.errors()[:20]]
        first = detail[0]
        return problem_response(422, "invalid", f"{first['where']}: {first['message']}", detail=detail)

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        message = PLAIN.get(str(error.detail), str(error.detail))
        code = CODES.get(error.status_code, "error")
        return problem_response(error.status_code, code, message, headers=error.headers)


def _place(location: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in location) or "request"
