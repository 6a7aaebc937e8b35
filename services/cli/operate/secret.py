"""``deepclean secret``: manage the secrets with which users and services sign their commands on a secured plane."""

from __future__ import annotations

from typing import Annotated

import typer

from schemas.records import SecretRole, SetGroups
from services.cli.session import Session, session_of
from services.cli.terminal import say
from services.domain.authorization import SERVICES
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
    is_administrator: Annotated[bool, typer.Option("--administrator", help="Make the user an administrator.")] = False,
) -> None:
    """Register a user or a service, or change its secret. The previous secret stays valid until the next change."""
    with session_of(context) as session:
        security = security_of(session)
        role = SecretRole.ADMINISTRATOR if is_administrator else SecretRole.USER
        change_secret(session.connected(), security, name, SecretRole.SERVICE if name in SERVICES else role)
    say(f"{name} signs with {security.signing_file(name)}: keep this file secret")


@app.command()
def remove(context: typer.Context, name: NameArgument) -> None:
    """Revoke the right of a user or a service to sign commands."""
    with session_of(context) as session:
        remove_secret(session.connected(), security_of(session), name)
    say(f"{name} can no longer sign commands")


@app.command()
def groups(
    context: typer.Context,
    name: NameArgument,
    named: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP...", help="All its groups; none: no group.")
    ] = None,
) -> None:
    """Set the groups of a user, which access lists can name."""
    with session_of(context) as session:
        for shard in range(session.connected().shards):
            session.execute(shard, SetGroups(name, tuple(named or ())))
    say(f"{name} has {len(named or ())} groups")


def security_of(session: Session) -> BrokerSecurity:
    """Return the files of a secured plane. Raise StackError for an open one."""
    security = plane_security(session.home)
    if security is None:
        raise StackError(
            f"The plane on {session.home} does not authenticate clients: start it with deepclean up --secure."
        )
    return security
