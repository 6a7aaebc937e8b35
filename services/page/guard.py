"""Keeps strangers from the page: other hosts' names, other sites' requests, readers without the token.

- *Host.* A request must name an address of the page itself. A name that somebody's DNS points here is refused, so that
  a foreign page cannot read this one by changing its own address to loopback (DNS rebinding).
- *Origin.* A question that a browser says to be of another page is refused, since some cost work, such as a diff. A
  request by POST must be JSON and come from this page, whatever the browser says. No cookie is used, so a browser adds
  nothing by itself that would let a foreign page act.
- *Token.* On a secured plane every answer about data needs the plane's HTTP token: that of the moment, since a home can
  be secured, and its token changed, while the page runs.
- *Acts* need a second token, which the command that allowed them has printed.
- *Headers* allow the page to load its own files only, and forbid others to frame it.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.credentials import CredentialsError
from schemas.http_token import UNAUTHORIZED, is_authorized
from services.domain.errors import DeepcleanError

ACTS_HEADER = "x-deepclean-acts"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "connect", "img")),
        *(f"{kind} 'none'" for kind in ("base-uri", "form-action", "frame-ancestors")),
    ]
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


Refusal = tuple[int, str, str]
"""Status, code and message."""


@dataclass(frozen=True, slots=True)
class Rights:
    """Who may read and act."""

    http_token: Callable[[], str] = str
    """Returns the token of a secured plane; empty if everybody on this machine may read."""
    acts_token: str = ""
    """The token that allows acts; empty if nobody may act."""
    hosts: frozenset[str] = LOOPBACK
    """Names, without a port, by which the page may be called."""


class Guard:
    """Answers what is not allowed itself, and adds the headers to every other answer."""

    def __init__(self, app: ASGIApp, rights: Rights) -> None:
        self._app = app
        self._rights = rights

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = self._refusal(scope["method"], scope["path"], Headers(scope=scope))
        if refused is None:
            await self._app(scope, receive, send_with_headers)
            return
        status, code, message = refused
        await JSONResponse({"code": code, "message": message}, status)(scope, receive, send_with_headers)

    def _refusal(self, method: str, path: str, headers: Headers) -> Refusal | None:
        """Return why a request is not allowed; None if it is."""
        rights, is_question = self._rights, path.startswith("/api/")
        if _without_port(headers.get("host", "")) not in rights.hosts:
            return 421, "WRONG_HOST", "this is the page of a plane: open it by the address that deepclean prints"
        if refused := _refusal_of_origin(method, headers, is_question=is_question):
            return refused
        if (is_question or path == "/metrics") and (refused := self._refusal_to_read(headers.get("authorization", ""))):
            return refused
        return self._refusal_to_act(headers.get(ACTS_HEADER, "")) if path.startswith("/api/acts/") else None

    def _refusal_to_read(self, given: str) -> Refusal | None:
        try:
            wanted = self._rights.http_token()
        except (CredentialsError, DeepcleanError) as error:  # it is not known who may read: nobody
            return 503, "UNREACHABLE", str(error)
        return None if is_authorized(wanted, given) else (401, "UNAUTHORIZED", UNAUTHORIZED)

    def _refusal_to_act(self, given: str) -> Refusal | None:
        wanted = self._rights.acts_token
        if not wanted:
            return 403, "PERMISSION_DENIED", "this page only shows: start another one with deepclean page --allow-acts"
        if not hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode()):
            return 403, "PERMISSION_DENIED", "open the page by the whole address that deepclean page has printed"
        return None


def _refusal_of_origin(method: str, headers: Headers, *, is_question: bool) -> Refusal | None:
    site, own = headers.get("sec-fetch-site", "none"), f"http://{headers.get('host', '')}"
    is_read = method in ("GET", "HEAD")
    is_foreign = (is_question and site not in ("same-origin", "none")) or (
        not is_read and headers.get("origin", own) != own
    )
    if is_foreign:
        return 403, "WRONG_ORIGIN", "another page may not ask this one"
    if not is_read and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "INVALID_REQUEST", "send JSON: Content-Type: application/json"
    return None


def _without_port(host: str) -> str:
    name, separator, port = host.rpartition(":")
    return (name if separator and port.isdigit() else host).lower()
