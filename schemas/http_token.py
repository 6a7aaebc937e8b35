"""The HTTP token: when a server requires it, and the check of a request."""

from __future__ import annotations

import base64
import hmac
import ipaddress

from schemas.credentials import CredentialsError

SHORTEST_TOKEN = 16
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Answered without a token, so that whoever restarts processes needs no secret. The reasons need the token."""
UNAUTHORIZED = "send the plane's token: Authorization: Bearer <token>"


def bearer(token: str) -> dict[str, str]:
    """Return the header of a request with a token; empty without a token."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def is_authorized(token: str, header: str) -> bool:
    """Return whether a request with this ``Authorization`` header is allowed, in a time independent of the token."""
    if not token:
        return True
    scheme, _, given = header.partition(" ")
    if scheme.lower() == "basic":  # registry clients have nothing else; the name before the token is any
        given = _decoded(given).partition(":")[2]
    is_same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
    return is_same and scheme.lower() in ("bearer", "basic")


def _decoded(given: str) -> str:
    try:
        return base64.b64decode(given, validate=True).decode("utf-8", "replace")
    except ValueError:
        return ""


def check_address(host: str, token: str) -> None:
    """Check that a server on an address other than loopback has a token, and that a token is long enough.

    Raises:
        CredentialsError: the token is missing, or is shorter than ``SHORTEST_TOKEN``.
    """
    if token and len(token) < SHORTEST_TOKEN:
        raise CredentialsError(f"the HTTP token has {len(token)} letters: take at least {SHORTEST_TOKEN}")
    if not token and not _is_loopback(host):
        raise CredentialsError(
            f"{host} is reached from other machines: name a token (--http-token-file), or serve on 127.0.0.1"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
