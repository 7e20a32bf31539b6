"""Coming in: a browser shows a token or a link's key once and gets a cookie, so that no address ever holds a secret."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from diptych.server.requests import TokenRequest
from diptych.server.schemas import SessionResource
from diptych.server.service import TheService
from diptych.server.sign_in import COOKIE, WHO
from diptych.server.users import ROLES

router = APIRouter(prefix="/session", tags=["Session"])


@router.post("", operation_id="openSession", status_code=204, response_class=Response)
def open_session(service: TheService, request: Request, asked: TokenRequest) -> Response:
    """Exchange a token, or the key of a link, for a cookie that scripts cannot read."""
    answer = Response(status_code=204)
    if service.sign_in.needed:
        client = request.client.host if request.client else ""
        cookie, who = service.sign_in.open_session(asked.token, request.headers, client)
        request.state.who = who.name
        secure = service.sign_in.is_secure(request.headers, client, request.url.scheme)
        answer.set_cookie(
            COOKIE, cookie, path=service.settings.cookie_path, httponly=True, samesite="strict", secure=secure
        )
    return answer


@router.get("", operation_id="getSession")
def get_session() -> SessionResource:
    """Who is asking, and what they may do."""
    who = WHO.get()
    return SessionResource(user=who.name, roles=[role for role in ROLES if who.may(role)])


@router.delete("", operation_id="closeSession", status_code=204, response_class=Response)
def close_session(service: TheService, request: Request) -> Response:
    """End the session: its cookie opens nothing any more."""
    service.sign_in.close_session(request.headers)
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, path=service.settings.cookie_path, httponly=True, samesite="strict")
    return answer
