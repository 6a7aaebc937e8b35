"""The token of HTTP: when it is wanted, and whether a request carries it."""

from __future__ import annotations

import hmac
import ipaddress

from schemas.credentials import CredentialsError

SHORTEST_TOKEN = 16
UNAUTHORIZED = "send the plane's token: Authorization: Bearer <token>"


def bearer(token: str) -> dict[str, str]:
    """The header of a request that carries a token; none for none."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def is_authorized(token: str, header: str) -> bool:
    """Whether a request with this ``Authorization`` may pass; how long it takes tells nothing of the token."""
    if not token:
        return True
    scheme, _, given = header.partition(" ")
    is_same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
    return is_same and scheme.lower() == "bearer"


def check_address(host: str, token: str) -> None:
    """Refuse to serve beyond this machine without a token.

    Raises:
        CredentialsError: there is none, or it is so short that it can be tried out.
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
