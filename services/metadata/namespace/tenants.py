"""Tenants: a volume each, and access ids by which users work in it.

An access id signs commands as its user, in the tenant's volume alone and without the rights of an administrator. Its
secret is a row of s3SecretTable, as those of users and services. Secrets are made by the client, since a random number
in a command would not follow from the log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from schemas.error_codes import ErrorCode
from schemas.records import (
    AccessIdRow,
    AssignTenantAdmin,
    AssignUserToTenant,
    Committed,
    CreateTenant,
    CreateVolume,
    DeleteTenant,
    PrincipalAccessIdRow,
    RevokeS3Secret,
    RevokeUserFromTenant,
    SecretRole,
    SetS3Secret,
    TenantRow,
)
from services.domain.authorization import why_not_named
from services.domain.names import MAX_OWNER_LENGTH, check_length, check_tenant_name
from services.domain.refusals import CommandError
from services.domain.table_keys import principal_key, volume_key
from services.metadata.namespace.buckets import create_volume, volume_row
from services.metadata.state.tables import ACCESS_ID_TABLE, PRINCIPAL_TABLE, SECRET_TABLE, TENANT_TABLE, VOLUME_TABLE
from services.metadata.state.transaction import Transaction
from services.storage.store import prefix_end

_OF_ACCESS_ID = AssignTenantAdmin | RevokeUserFromTenant | SetS3Secret | RevokeS3Secret


def may_manage_tenant(transaction: Transaction, user: str, signed_by: str, body: Any) -> bool:
    """Return whether a user who is no administrator may send a command about a tenant or an access id.

    An access id by which the user has signed counts in its own tenant alone. The administrators of a tenant can make
    one for every user: it must not give them what the user may do in other tenants.
    """
    row = None if isinstance(body, AssignUserToTenant) else _row(transaction, getattr(body, "access_id", ""))
    tenant = body.tenant if isinstance(body, AssignUserToTenant) else row.tenant if row else ""
    signer = _row(transaction, signed_by)
    if signer is not None and signer.tenant != tenant:
        return False
    if isinstance(body, SetS3Secret | RevokeS3Secret) and row is not None and row.user == user:
        return True
    own = _access_id_of(transaction, user, tenant)
    if own is None or isinstance(body, CreateTenant | DeleteTenant):
        return False
    return own.is_delegated_admin if isinstance(body, AssignTenantAdmin) else own.is_admin


def is_access_id(transaction: Transaction, name: str) -> bool:
    """Return whether there is an access id of this name, with a secret or without one."""
    return _row(transaction, name) is not None


def _row(transaction: Transaction, access_id: str) -> AccessIdRow | None:
    return transaction.work.table(ACCESS_ID_TABLE).get(access_id.encode()) if access_id else None


def _access_id_of(transaction: Transaction, user: str, tenant: str) -> AccessIdRow | None:
    """Return the access id that a user has of a tenant. A user has one of each tenant."""
    prefix = principal_key(user, "")
    for key, row in transaction.work.table(PRINCIPAL_TABLE).scan(prefix, prefix_end(prefix)):
        if row.tenant == tenant and key == principal_key(user, row.access_id):
            return _row(transaction, row.access_id)
    return None


def volume_of_access_id(transaction: Transaction, access_id: str) -> str:
    """Return the volume in which an access id works."""
    row = _row(transaction, access_id)
    return "" if row is None else _tenant(transaction, row.tenant).volume


def _tenant(transaction: Transaction, name: str) -> TenantRow:
    row = transaction.work.table(TENANT_TABLE).get(name.encode()) if name else None
    if row is None:
        raise CommandError(ErrorCode.TENANT_NOT_FOUND, f"there is no tenant {name[:64]}")
    return row


def _put_tenant(transaction: Transaction, row: TenantRow) -> None:
    transaction.work.table(TENANT_TABLE).put(row.tenant.encode(), row)


def create_tenant(transaction: Transaction, command: CreateTenant) -> Committed:
    """Create a tenant and its volume."""
    check_tenant_name(command.tenant)
    if transaction.work.table(TENANT_TABLE).get(command.tenant.encode()) is not None:
        raise CommandError(ErrorCode.TENANT_ALREADY_EXISTS, f"there is a tenant {command.tenant} already")
    made = create_volume(transaction, CreateVolume(command.volume, command.owner))
    _set_tenant_of_volume(transaction, command.volume, command.tenant)
    _put_tenant(transaction, TenantRow(command.tenant, command.volume, 0, transaction.log_time_ms))
    return made


def _set_tenant_of_volume(transaction: Transaction, volume: str, tenant: str) -> None:
    row = replace(volume_row(transaction.work, volume), tenant=tenant, update_id=transaction.txn)
    transaction.work.table(VOLUME_TABLE).put(volume_key(volume), row)


def delete_tenant(transaction: Transaction, command: DeleteTenant) -> Committed:
    """Delete a tenant without access ids. Its volume stays."""
    row = _tenant(transaction, command.tenant)
    if row.access_ids:
        raise CommandError(
            ErrorCode.TENANT_NOT_EMPTY, f"tenant {row.tenant} has {row.access_ids} access ids: revoke them first"
        )
    transaction.work.table(TENANT_TABLE).delete(command.tenant.encode())
    _set_tenant_of_volume(transaction, row.volume, "")
    return Committed(0)


def assign_user(transaction: Transaction, command: AssignUserToTenant) -> Committed:
    """Give a user an access id with a secret."""
    tenant, access_id = _tenant(transaction, command.tenant), command.access_id
    check_length("a user", command.user, MAX_OWNER_LENGTH)
    reason = why_not_named(access_id, SecretRole.USER)
    if not command.user or reason:
        raise CommandError(ErrorCode.INVALID_REQUEST, reason or "an access id belongs to a user: name one")
    is_used = transaction.signers.role_of(access_id) is not None or is_access_id(transaction, access_id)
    if is_used or _access_id_of(transaction, command.user, command.tenant) is not None:
        raise CommandError(
            ErrorCode.TENANT_USER_ACCESS_ID_ALREADY_EXISTS,
            f"{access_id} is in use, or {command.user} has an access id of {command.tenant} already",
        )
    work = transaction.work
    row = AccessIdRow(access_id, command.tenant, command.user, is_admin=False, is_delegated_admin=False)
    work.table(ACCESS_ID_TABLE).put(access_id.encode(), row)
    principal = PrincipalAccessIdRow(access_id, command.tenant)
    work.table(PRINCIPAL_TABLE).put(principal_key(command.user, access_id), principal)
    _put_tenant(transaction, replace(tenant, access_ids=tenant.access_ids + 1))
    transaction.signers.set_of_access_id(access_id, command.user, command.secret, work.table(SECRET_TABLE))
    return Committed(0)


def _found(transaction: Transaction, command: _OF_ACCESS_ID) -> AccessIdRow:
    row = _row(transaction, command.access_id)
    if row is None:
        raise CommandError(ErrorCode.ACCESS_ID_NOT_FOUND, f"there is no access id {command.access_id[:64]}")
    return row


def revoke_user(transaction: Transaction, command: RevokeUserFromTenant) -> Committed:
    """Remove an access id and its secret."""
    row, work = _found(transaction, command), transaction.work
    if row.is_admin:
        raise CommandError(
            ErrorCode.PERMISSION_DENIED, f"{row.access_id} is an administrator of {row.tenant}: end that first"
        )
    work.table(ACCESS_ID_TABLE).delete(row.access_id.encode())
    work.table(PRINCIPAL_TABLE).delete(principal_key(row.user, row.access_id))
    tenant = _tenant(transaction, row.tenant)
    _put_tenant(transaction, replace(tenant, access_ids=tenant.access_ids - 1))
    transaction.signers.remove_access_id(row.access_id, work.table(SECRET_TABLE))
    return Committed(0)


def assign_admin(transaction: Transaction, command: AssignTenantAdmin) -> Committed:
    """Make an access id an administrator of its tenant, or end that."""
    row = _found(transaction, command)
    if command.is_delegated_admin and not command.is_admin:
        raise CommandError(ErrorCode.INVALID_REQUEST, "only an administrator of a tenant can make others one")
    changed = replace(row, is_admin=command.is_admin, is_delegated_admin=command.is_delegated_admin)
    transaction.work.table(ACCESS_ID_TABLE).put(row.access_id.encode(), changed)
    return Committed(0)


def set_s3_secret(transaction: Transaction, command: SetS3Secret) -> Committed:
    """Change the secret of an access id."""
    row = _found(transaction, command)
    table = transaction.work.table(SECRET_TABLE)
    transaction.signers.set_of_access_id(row.access_id, row.user, command.secret, table)
    return Committed(0)


def revoke_s3_secret(transaction: Transaction, command: RevokeS3Secret) -> Committed:
    """Remove the secret of an access id."""
    row = _found(transaction, command)
    if transaction.signers.role_of(row.access_id) is None:
        raise CommandError(ErrorCode.S3_SECRET_NOT_FOUND, f"the access id {row.access_id} has no secret")
    transaction.signers.remove_access_id(row.access_id, transaction.work.table(SECRET_TABLE))
    return Committed(0)
