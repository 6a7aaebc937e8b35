"""Reads tenants, access ids and delegation tokens, without their secrets."""

from __future__ import annotations

from itertools import islice

from schemas.answers import ListedToken
from schemas.records import AccessIdRow, TenantRow
from services.domain.table_keys import principal_key
from services.metadata.state.tables import ACCESS_ID_TABLE, PRINCIPAL_TABLE, TENANT_TABLE, TOKEN_TABLE
from services.storage.store import prefix_end
from services.storage.tables import TablesReader


def _after(position: str) -> bytes:
    """Return the first key of a page."""
    return position.encode() + b"\0" if position else b""


def list_tenants(tables: TablesReader, after: str = "", limit: int = 1_000) -> list[TenantRow]:
    """Return a page of tenants by name."""
    return [row for _, row in islice(tables.table(TENANT_TABLE).scan(_after(after)), limit)]


def list_access_ids(
    tables: TablesReader, tenant: str = "", user: str = "", after: str = "", limit: int = 1_000
) -> list[AccessIdRow]:
    """Return a page of access ids: all, those of a tenant (which reads all), or those of a user."""
    ids = tables.table(ACCESS_ID_TABLE)
    if user:
        prefix = principal_key(user, "")
        start = principal_key(user, after) + b"\0" if after else prefix
        own = tables.table(PRINCIPAL_TABLE).scan(start, prefix_end(prefix))
        found = (row for _, one in own if (row := ids.get(one.access_id.encode())) is not None and row.user == user)
    else:
        found = (row for _, row in ids.scan(_after(after)))
    return list(islice((row for row in found if tenant in ("", row.tenant)), limit))


def list_tokens(tables: TablesReader, owner: str = "", after: str = "", limit: int = 1_000) -> list[ListedToken]:
    """Return a page of delegation tokens by id: all, or those of an owner, which reads all."""
    rows = (row for _, row in tables.table(TOKEN_TABLE).scan(_after(after)) if owner in ("", row.owner))
    return [
        ListedToken(row.token_id, row.owner, row.renewer, row.issue_time_ms, row.expiry_time_ms, row.max_time_ms)
        for row in islice(rows, limit)
    ]
