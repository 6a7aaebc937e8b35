"""``deepclean tenant``: tenants, and the access ids by which users work in them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from schemas.credentials import write_secret
from schemas.records import (
    AccessIdRow,
    AssignTenantAdmin,
    AssignUserToTenant,
    CreateTenant,
    DeleteTenant,
    RevokeS3Secret,
    RevokeUserFromTenant,
    SetS3Secret,
)
from services.cli.operate.secret import security_of
from services.cli.output import print_json, print_result, print_table
from services.cli.session import JsonOption, Session, session_of
from services.client.errors import PlaneError
from services.plane.broker.security import SIGNING_BYTES
from services.wording.figures import time_text

app = typer.Typer(no_args_is_help=True, help="Create tenants, and give users access to them.")
TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="Name of the tenant.")]
AccessIdArgument = Annotated[str, typer.Argument(metavar="ACCESS_ID", help="The access id, such as TENANT$USER.")]


@app.command()
def create(
    context: typer.Context,
    tenant: TenantArgument,
    volume: Annotated[str, typer.Option(help="Name of the new volume; by default the tenant's.")] = "",
    owner: Annotated[str, typer.Option(help="Owner of the volume.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Create a tenant and its volume."""
    with session_of(context) as session:
        name = volume or tenant
        session.execute(session.volumes().shard_for_new(name, None), CreateTenant(tenant, name, owner))
    print_result({"tenant": tenant, "volume": name}, f"tenant {tenant} has the volume {name}", as_json=as_json)


@app.command()
def delete(context: typer.Context, tenant: TenantArgument, as_json: JsonOption = False) -> None:
    """Delete a tenant without access ids; its volume stays."""
    with session_of(context) as session:
        session.execute(_shard_of(session, tenant), DeleteTenant(tenant))
    print_result({"tenant": tenant}, f"tenant {tenant} deleted", as_json=as_json)


@app.command("list")
def show(context: typer.Context, as_json: JsonOption = False) -> None:
    """List all tenants."""
    with session_of(context) as session:
        plane = session.connected()
        found = [row for shard in range(plane.shards) for row in plane.metadata(shard).tenants()]
    if as_json:
        print_json(found)
        return
    rows = ((row.tenant, row.volume, row.access_ids, time_text(row.creation_time_ms)) for row in found)
    print_table(["TENANT", "VOLUME", "ACCESS IDS", "CREATED"], rows, numbers=["ACCESS IDS"])


@app.command()
def users(context: typer.Context, tenant: TenantArgument, as_json: JsonOption = False) -> None:
    """List the access ids of a tenant."""
    with session_of(context) as session:
        found = session.connected().metadata(_shard_of(session, tenant)).access_ids(tenant)
    if as_json:
        print_json(found)
        return
    print_table(["ACCESS ID", "USER", "ADMINISTRATOR"], ((row.access_id, row.user, _role(row)) for row in found))


def _role(row: AccessIdRow) -> str:
    return "delegated" if row.is_delegated_admin else "yes" if row.is_admin else ""


@app.command()
def assign(
    context: typer.Context,
    tenant: TenantArgument,
    user: Annotated[str, typer.Argument(metavar="USER", help="User who gets the access id TENANT$USER.")],
    as_json: JsonOption = False,
) -> None:
    """Give a user an access id of a tenant, and write its secret to a file."""
    access_id = f"{tenant}${user}"
    with session_of(context) as session:
        security = security_of(session)
        fresh = secrets.token_hex(SIGNING_BYTES)
        command = AssignUserToTenant(tenant, user, access_id, bytes.fromhex(fresh))
        session.execute(_shard_of(session, tenant), command)
        write_secret(security.signing_file(access_id), fresh)
    _print_secret(access_id, security.signing_file(access_id), as_json=as_json)


def _print_secret(access_id: str, file: Path, *, as_json: bool) -> None:
    found = {"access_id": access_id, "secret_file": file}
    print_result(found, f"{access_id} signs with {file}: keep this file secret", as_json=as_json)


@app.command()
def revoke(context: typer.Context, access_id: AccessIdArgument, as_json: JsonOption = False) -> None:
    """Remove an access id and its secret."""
    with session_of(context) as session:
        session.execute(_shard_of_id(session, access_id), RevokeUserFromTenant(access_id))
    print_result({"access_id": access_id}, f"{access_id} is revoked", as_json=as_json)


@app.command()
def admin(
    context: typer.Context,
    access_id: AccessIdArgument,
    is_delegated: Annotated[bool, typer.Option("--delegated", help="Let it make others administrators, too.")] = False,
    is_ended: Annotated[bool, typer.Option("--end", help="Remove its administrator rights.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make an access id an administrator of its tenant."""
    with session_of(context) as session:
        command = AssignTenantAdmin(access_id, not is_ended, is_delegated and not is_ended)
        session.execute(_shard_of_id(session, access_id), command)
    sentence = f"{access_id} is {'no ' if is_ended else 'an '}administrator of its tenant"
    print_result({"access_id": access_id, "is_admin": not is_ended}, sentence, as_json=as_json)


@app.command("secret")
def change_secret(
    context: typer.Context,
    access_id: AccessIdArgument,
    is_revoked: Annotated[bool, typer.Option("--revoke", help="Remove the secret.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Give an access id a new secret, or remove it."""
    with session_of(context) as session:
        security, shard = security_of(session), _shard_of_id(session, access_id)
        file = security.signing_file(access_id)
        if is_revoked:
            session.execute(shard, RevokeS3Secret(access_id))
            file.unlink(missing_ok=True)
        else:
            fresh = secrets.token_hex(SIGNING_BYTES)
            session.execute(shard, SetS3Secret(access_id, bytes.fromhex(fresh)))
            write_secret(file, fresh)
    if is_revoked:
        print_result({"access_id": access_id}, f"{access_id} has no secret", as_json=as_json)
    else:
        _print_secret(access_id, file, as_json=as_json)


def _shard_of(session: Session, tenant: str) -> int:
    plane = session.connected()
    for shard in range(plane.shards):
        if any(row.tenant == tenant for row in plane.metadata(shard).tenants()):
            return shard
    raise PlaneError("TENANT_NOT_FOUND", f"there is no tenant {tenant}")


def _shard_of_id(session: Session, access_id: str) -> int:
    plane = session.connected()
    for shard in range(plane.shards):
        if any(row.access_id == access_id for row in plane.metadata(shard).access_ids()):
            return shard
    raise PlaneError("ACCESS_ID_NOT_FOUND", f"there is no access id {access_id}")
