"""The delegation tokens of the shard: who signs by one, and which have expired."""

from __future__ import annotations

from schemas.records import SecretRole, SecretRow
from services.metadata.state.tables import TOKEN_TABLE
from services.runtime.parts.signers import Signers
from services.storage.tables import UnitOfWork

SIGNS_AS = "token "
"""How the name begins by which a token signs. No user's name has a blank."""


def signer_by_token(work: UnitOfWork, signers: Signers, user: str, log_time_ms: int) -> SecretRow | None:
    """Return the secret of the valid token by whose name a command is signed; None for another name."""
    if not user.startswith(SIGNS_AS):
        return None
    row = work.table(TOKEN_TABLE).get(user.removeprefix(SIGNS_AS).encode())
    if row is None or row.expiry_time_ms <= log_time_ms or signers.role_of(row.owner) is None:
        return None
    return SecretRow(user, SecretRole.USER, row.secret, b"", principal=row.owner)


def forget_expired(work: UnitOfWork, log_time_ms: int) -> None:
    """Remove the tokens that have expired."""
    table = work.table(TOKEN_TABLE)
    for key, row in list(table.scan()):
        if row.expiry_time_ms <= log_time_ms:
            table.delete(key)
