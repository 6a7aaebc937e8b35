"""``deepclean secret``: manage the secrets with which users and services sign their commands on a secured plane."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.records import SecretRole, SetGroups
from services.cli.output import print_result
from services.cli.session import JsonOption, Session, session_of
from services.domain.authorization import SERVICES
from services.domain.words import counted
from services.plane.broker.security import BrokerSecurity
from services.plane.machine.errors import StackError
from services.plane.stack.enrolment import change_secret, remove_secret
from services.plane.stack.secrets import plane_security

app = typer.Typer(no_args_is_help=True, help="Register the secrets that may sign commands on a secure plane.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A user or a service.")]


@app.command("set")
def set_secret(
    context: typer.Context,
    name: NameArgument,
    is_administrator: Annotated[
        bool, typer.Option("--administrator", help="The user is an administrator; without it a plain user.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Register a user or a service, or change its secret. The previous secret stays valid until the next change."""
    with session_of(context) as session:
        security = security_of(session)
        role = SecretRole.ADMINISTRATOR if is_administrator else SecretRole.USER
        change_secret(session.connected(), security, name, SecretRole.SERVICE if name in SERVICES else role)
    file = security.signing_file(name)
    print_result(
        {"name": name, "secret_file": file}, f"{name} signs with {file}: keep this file secret", as_json=as_json
    )


@app.command()
def remove(context: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """Revoke the right of a user or a service to sign commands."""
    with session_of(context) as session:
        remove_secret(session.connected(), security_of(session), name)
    print_result({"name": name}, f"{name} can no longer sign commands", as_json=as_json)


@app.command()
def groups(
    context: typer.Context,
    name: NameArgument,
    named: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP...", help="All its groups; none: no group.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Set the groups of a user, which access lists can name."""
    with session_of(context) as session:
        for shard in range(session.connected().shards):
            session.execute(shard, SetGroups(name, tuple(named or ())))
    print_result(
        {"name": name, "groups": named or []}, f"{name} has {counted(len(named or ()), 'group')}", as_json=as_json
    )


def security_of(session: Session) -> BrokerSecurity:
    """Return the files of a secured plane. Raise StackError for an open one."""
    security = plane_security(session.home)
    if security is None:
        raise StackError(
            f"The plane on {session.home} does not authenticate clients: start it with deepclean up --secure."
        )
    return security
