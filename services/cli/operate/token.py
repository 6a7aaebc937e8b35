"""``deepclean token``: delegation tokens, by which a program signs as a user for some days."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from schemas.credentials import write_secret
from schemas.records import CancelDelegationToken, GetDelegationToken, RenewDelegationToken
from services.cli.operate.secret import security_of
from services.cli.output import print_json, print_result, print_table
from services.cli.session import JsonOption, session_of
from services.plane.broker.security import SIGNING_BYTES
from services.wording.figures import time_text

app = typer.Typer(no_args_is_help=True, help="Get, renew and cancel delegation tokens.")
TokenArgument = Annotated[str, typer.Argument(metavar="TOKEN", help="Id of the token, such as 0-512.")]


@app.command()
def get(
    context: typer.Context,
    renewer: Annotated[str, typer.Argument(metavar="RENEWER", help="User who may renew the token.")],
    shard: Annotated[int, typer.Option(help="The shard whose commands the token signs.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Make a token that signs as you for a day, and write its secret to a file."""
    with session_of(context) as session:
        security = security_of(session)
        fresh = secrets.token_hex(SIGNING_BYTES)
        reply = session.execute(shard, GetDelegationToken(renewer, bytes.fromhex(fresh)))
        token_id = reply.committed.token_id if reply.committed else ""
        file = security.signing_file(f"token {token_id}")
        write_secret(file, fresh)
    print_result(
        {"token_id": token_id, "secret_file": file},
        f"token {token_id} signs with {file}, as DEEPCLEAN_USER='token {token_id}': keep this file secret",
        as_json=as_json,
    )


@app.command()
def renew(context: typer.Context, token: TokenArgument, as_json: JsonOption = False) -> None:
    """Renew a token for another day, up to seven days from its creation."""
    with session_of(context) as session:
        session.execute(_shard(token), RenewDelegationToken(token))
    print_result({"token_id": token}, f"token {token} is renewed", as_json=as_json)


@app.command()
def cancel(context: typer.Context, token: TokenArgument, as_json: JsonOption = False) -> None:
    """End a token."""
    with session_of(context) as session:
        session.execute(_shard(token), CancelDelegationToken(token))
    print_result({"token_id": token}, f"token {token} is cancelled", as_json=as_json)


@app.command("list")
def show(
    context: typer.Context,
    owner: Annotated[str, typer.Option(help="Only the tokens of this user.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the tokens of all shards, without their secrets."""
    with session_of(context) as session:
        plane = session.connected()
        found = [row for shard in range(plane.shards) for row in plane.metadata(shard).delegation_tokens(owner)]
    if as_json:
        print_json(found)
        return
    rows = ((row.token_id, row.owner, row.renewer, time_text(row.expiry_time_ms)) for row in found)
    print_table(["TOKEN", "OWNER", "RENEWER", "VALID UNTIL"], rows)


def _shard(token: str) -> int:
    shard, _, txn = token.partition("-")
    if not (shard.isdecimal() and txn.isdecimal()):
        raise typer.BadParameter(f"{token!r} is no id of a token such as 0-512")
    return int(shard)
