"""The secrets of a secured plane, in ``secrets`` under its home.

A home with this directory is secured: every command that starts its broker starts it with authentication.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypedDict

from schemas.access import ADMINISTRATOR
from schemas.credentials import CredentialsError, KafkaCredentials, read_credentials, read_secret
from schemas.topics import CLIENTS
from services.log.signing import Signer, read_signing_secret
from services.plane.broker.security import BrokerSecurity, administrator_of
from services.plane.stack.plane_file import read_plane_file

DIRECTORY_NAME = "secrets"


class ClientSecrets(TypedDict, total=False):
    """The secrets of a client of a secured plane; empty for an open plane."""

    credentials: KafkaCredentials
    signer: Signer
    http_token: str


def plane_security(home: Path, *, is_wanted: bool = False) -> BrokerSecurity | None:
    """Return the secrets of a home, or None for an open plane. ``is_wanted`` secures a home that was open."""
    directory = home / DIRECTORY_NAME
    return BrokerSecurity(directory) if is_wanted or directory.is_dir() else None


def client_secrets(home: Path, credentials_file: Path | None = None) -> ClientSecrets:
    """Return the secrets of the clients of a home's plane; ``credentials_file`` is for a foreign cluster."""
    secrets, security = ClientSecrets(), plane_security(home)
    if security is not None:
        secrets |= {"credentials": security.credentials(CLIENTS), "signer": signer_of(security)}
    if credentials_file is not None:
        secrets["credentials"] = read_credentials(credentials_file)
    if token := http_token(home):
        secrets["http_token"] = token
    return secrets


def signer_of(security: BrokerSecurity) -> Signer:
    """Return the signer of the user who runs a command: DEEPCLEAN_USER, else the administrator.

    Raises:
        CredentialsError: the user has no signing file.
    """
    user = os.environ.get("DEEPCLEAN_USER") or ADMINISTRATOR
    file = security.signing_file(user)
    if not file.exists():
        raise CredentialsError(
            f"{user} has no signing file ({file}): ask an administrator to create it (deepclean secret set {user}), "
            f"or set DEEPCLEAN_USER to another user"
        )
    return Signer(user, read_signing_secret(file))


def person(home: Path) -> Signer | None:
    """Return the signer of the messages that a tool sends to a home's plane, or None for an open plane."""
    security = plane_security(home)
    return None if security is None else signer_of(security)


def administrator(home: Path) -> KafkaCredentials | None:
    """Return the administrator's credentials at a home's broker, or None for an open plane."""
    return administrator_of(plane_security(home))


def http_token(home: Path) -> str:
    """Return the token for HTTP requests to a home's processes; empty for an open plane."""
    plane, security = read_plane_file(home), plane_security(home)
    if plane is not None and plane.http_token_file:
        return read_secret(Path(plane.http_token_file))
    return "" if security is None else read_secret(security.token_file)
