"""Delegation tokens: a program signs by one as the user who has made it, for at most seven days.

Times are log times. A token acts as its owner without the rights of an administrator, as long as the owner has a
secret. An expired one is refused at once, and its row is removed within an hour.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.error_codes import ErrorCode
from schemas.records import (
    CancelDelegationToken,
    Committed,
    DelegationTokenRow,
    GetDelegationToken,
    RenewDelegationToken,
)
from services.domain.durations import HOUR_MS
from services.domain.refusals import CommandError
from services.metadata.namespace.access import is_administrator
from services.metadata.state.tables import TOKEN_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.parts.signers import check_secret

RENEWED_FOR_MS = 24 * HOUR_MS
"""How long a token is valid after its creation and after each renewal."""
MAX_LIFE_MS = 7 * RENEWED_FOR_MS
"""How long a token is valid at most."""


def get_token(transaction: Transaction, command: GetDelegationToken) -> Committed:
    """Make a token for the user who has signed the command by its own secret."""
    owner, signers = transaction.user, transaction.signers
    if signers.role_of(owner) is None or signers.principal_of(owner) != owner:
        raise CommandError(
            ErrorCode.INVALID_AUTH_METHOD, "only a user who signs by its own secret gets a delegation token"
        )
    check_secret(command.secret)
    if signers.role_of(command.renewer) is None:
        raise CommandError(ErrorCode.INVALID_REQUEST, f"the renewer {command.renewer[:64]!r} has no secret")
    token_id, now = f"{transaction.shard}-{transaction.txn}", transaction.log_time_ms
    row = DelegationTokenRow(
        token_id=token_id,
        owner=owner,
        renewer=command.renewer,
        secret=command.secret,
        issue_time_ms=now,
        expiry_time_ms=now + RENEWED_FOR_MS,
        max_time_ms=now + MAX_LIFE_MS,
    )
    transaction.work.table(TOKEN_TABLE).put(token_id.encode(), row)
    return Committed(0, token_id=token_id)


def _token(transaction: Transaction, token_id: str) -> DelegationTokenRow:
    row = transaction.work.table(TOKEN_TABLE).get(token_id.encode()) if token_id else None
    if row is None:
        raise CommandError(ErrorCode.INVALID_TOKEN, f"there is no delegation token {token_id[:64]}")
    return row


def renew_token(transaction: Transaction, command: RenewDelegationToken) -> Committed:
    """Let a token be valid for another day, at most until the end of its life."""
    row, now = _token(transaction, command.token_id), transaction.log_time_ms
    if transaction.user != row.renewer:
        raise CommandError(ErrorCode.PERMISSION_DENIED, f"only {row.renewer} may renew the token {row.token_id}")
    if row.expiry_time_ms <= now:
        raise CommandError(ErrorCode.TOKEN_EXPIRED, f"the token {row.token_id} has expired: get another one")
    renewed = replace(row, expiry_time_ms=min(now + RENEWED_FOR_MS, row.max_time_ms))
    transaction.work.table(TOKEN_TABLE).put(row.token_id.encode(), renewed)
    return Committed(0, token_id=row.token_id)


def cancel_token(transaction: Transaction, command: CancelDelegationToken) -> Committed:
    """End a token."""
    row = _token(transaction, command.token_id)
    if transaction.user not in (row.owner, row.renewer) and not is_administrator(transaction):
        raise CommandError(
            ErrorCode.PERMISSION_DENIED, f"only owner, renewer and administrators may cancel the token {row.token_id}"
        )
    transaction.work.table(TOKEN_TABLE).delete(row.token_id.encode())
    return Committed(0, token_id=row.token_id)
