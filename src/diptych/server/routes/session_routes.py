"""Coming in: a browser shows the token once and gets a cookie for it, so that no address ever holds the token."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from diptych.server.guards import API, COOKIE, cookie_value, same_secret
from diptych.server.problems import Problem
from diptych.server.requests import TokenRequest
from diptych.server.service import TheService

router = APIRouter(prefix="/session", tags=["Session"])


@router.post("", operation_id="openSession", status_code=204, response_class=Response)
def open_session(service: TheService, request: Request, asked: TokenRequest) -> Response:
    """Exchange the token for a cookie that scripts cannot read."""
    token = service.settings.token
    if token is not None and not service.tries.allowed():
        raise Problem(429, "too many wrong tokens; wait a minute")
    if token is not None and not same_secret(asked.token, token):
        service.tries.count()
        raise Problem(401, "this is not the service's token")
    answer = Response(status_code=204)
    if token is not None:
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, cookie_value(token), path=API, httponly=True, samesite="strict", secure=secure)
    return answer


@router.delete("", operation_id="closeSession", status_code=204, response_class=Response)
def close_session() -> Response:
    """Forget the cookie."""
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, path=API, httponly=True, samesite="strict")
    return answer
