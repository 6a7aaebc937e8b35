"""Makes known to a running plane what its services and users sign commands with."""

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
    """Tell every shard of the plane's own: services first, since an administrator is what switches the demand on.

    What is known already is told again, after which the secret before it is no longer good.
    """
    roles = dict.fromkeys(sorted(SERVICES), SecretRole.SERVICE) | {ADMINISTRATOR: SecretRole.ADMINISTRATOR}
    files = {name: security.signing_file(name) for name in roles}
    send_secrets(plane, [SetSecret(name, role, read_signing_secret(files[name])) for name, role in roles.items()])


def change_secret(plane: Plane, security: BrokerSecurity, name: str, role: SecretRole) -> None:
    """Give somebody a new secret: first the plane knows it, then it is in the file; the one before stays good."""
    fresh = secrets.token_hex(SIGNING_BYTES)
    send_secrets(plane, [SetSecret(name, role, bytes.fromhex(fresh))])
    write_secret(security.signing_file(name), fresh)


def remove_secret(plane: Plane, security: BrokerSecurity, name: str) -> None:
    """Have somebody sign no more."""
    role = SecretRole.SERVICE if name in SERVICES else SecretRole.USER
    send_secrets(plane, [SetSecret(name, role, b"")])
    security.signing_file(name).unlink(missing_ok=True)


def send_secrets(plane: Plane, known: Iterable[SetSecret]) -> None:
    """Send secrets to both services that take commands, in every shard.

    Raises:
        StackError: one is refused.
    """
    for secret in known:
        for shard in range(plane.shards):
            replies = plane.answer(shard, plane.submit(shard, secret)), plane.request(shard, secret)
            for reply in replies:
                if reply.error:
                    raise StackError(f"The secret of {secret.name} is refused ({reply.error}): {reply.message}.")
