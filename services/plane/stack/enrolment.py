"""Register the signing secrets of services and users with a running plane."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from schemas.access import ADMINISTRATOR
from schemas.credentials import write_secret
from schemas.records import SecretRole, SetSecret
from services.client.plane import Plane
from services.domain.authorization import SERVICES
from services.log.signing import read_signing_secret
from services.plane.broker.security import SIGNING_BYTES, BrokerSecurity
from services.plane.machine.errors import StackError


def enrol(plane: Plane, security: BrokerSecurity) -> None:
    """Send the secrets of the services and then of the administrator to every shard.

    The services come first, because a shard requires signatures as soon as it knows an administrator. Sending a secret
    that is already known revokes the previous secret of that name.
    """
    roles = dict.fromkeys(sorted(SERVICES), SecretRole.SERVICE) | {ADMINISTRATOR: SecretRole.ADMINISTRATOR}
    files = {name: security.signing_file(name) for name in roles}
    send_secrets(plane, [SetSecret(name, role, read_signing_secret(files[name])) for name, role in roles.items()])


def change_secret(plane: Plane, security: BrokerSecurity, name: str, role: SecretRole) -> None:
    """Give a user or service a new secret: send it to the plane, then write its file. The previous one stays valid."""
    fresh = secrets.token_hex(SIGNING_BYTES)
    send_secrets(plane, [SetSecret(name, role, bytes.fromhex(fresh))])
    write_secret(security.signing_file(name), fresh)


def remove_secret(plane: Plane, security: BrokerSecurity, name: str) -> None:
    """Remove the secret of a user or service from the plane, and delete its file."""
    role = SecretRole.SERVICE if name in SERVICES else SecretRole.USER
    send_secrets(plane, [SetSecret(name, role, b"")])
    security.signing_file(name).unlink(missing_ok=True)


def send_secrets(plane: Plane, known: Iterable[SetSecret]) -> None:
    """Send secrets to both services that take commands, in every shard. Raise StackError if one is refused."""
    for secret in known:
        for shard in range(plane.shards):
            replies = plane.answer(shard, plane.submit(shard, secret)), plane.request(shard, secret)
            for reply in replies:
                if reply.error:
                    raise StackError(f"The secret of {secret.name} is refused ({reply.error}): {reply.message}.")
