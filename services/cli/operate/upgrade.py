"""``deepclean upgrade``: show the programs that a plane runs, and raise its feature level."""

from __future__ import annotations

import typer

from services.cli.confirmation import DryRunOption, YesOption, confirm
from services.cli.output import print_json, print_result, print_table
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say
from services.domain.words import counted
from services.plane.broker.quiet_admin import quiet_admin
from services.plane.broker.topics import publish_schemas
from services.plane.stack.plane_file import running_plane
from services.plane.stack.secrets import administrator, person, plane_security
from services.plane.upkeep.upgrades import UpgradeStatus, finish_upgrade, require_known, upgrade_status

app = typer.Typer(no_args_is_help=True, help="Show which programs a plane runs, and make an upgrade final.")


@app.command()
def status(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show the program of each process, and the feature level of each shard."""
    found = upgrade_status(running_plane(made_session(context).home))
    if as_json:
        print_json(found)
        return
    print_table(
        ["PROCESS", "ADDRESS", "VERSION", "KNOWS LEVEL"],
        ((part.name, part.url.removeprefix("http://"), part.version, str(part.feature_level)) for part in found.parts),
        numbers=["KNOWS LEVEL"],
    )
    say("", *_lines(found))


@app.command()
def prepare(context: typer.Context, as_json: JsonOption = False) -> None:
    """Publish the schemas of this program on a running plane, before its first process is upgraded.

    On a secured plane give the processes the rights that this program needs, too.
    """
    home = made_session(context).home
    plane, security = running_plane(home), plane_security(home)
    if security is not None and not plane.credentials_file:
        with quiet_admin(plane.bootstrap_servers, security.administrator) as admin:
            security.admit(admin)
    count = publish_schemas(plane.bootstrap_servers, plane.shards, administrator(home), person(home))
    print_result(
        {"published_schemas": count},
        f"{counted(count, 'schema')} published: processes of this version can be started beside the older ones.",
        as_json=as_json,
    )


@app.command()
def finish(
    context: typer.Context,
    is_confirmed: YesOption = False,
    is_dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Raise the feature level of every shard to the newest one that all processes know.

    Afterwards no process can run the older program.
    """
    plane = running_plane(made_session(context).home)
    found = upgrade_status(plane)
    level = found.known_level
    if not is_dry_run:
        require_known(found)
    if found.shards_below and not is_dry_run:
        confirm(
            f"Feature level {level} is final: older programs can not go on with this plane.", is_confirmed=is_confirmed
        )
        finish_upgrade(plane, found)
    if as_json:
        print_json({"feature_level": level, "raised_shards": found.shards_below, "is_dry_run": is_dry_run})
    elif found.shards_below and not is_dry_run:
        say(f"Every shard has feature level {level}.")
    else:
        say(*_lines(found))


def _lines(found: UpgradeStatus) -> list[str]:
    levels = sorted(set(found.shard_levels.values()))
    having = f"Every shard has feature level {levels[0]}." if len(levels) == 1 else "Shards have different levels."
    if not levels:
        having = "No shard tells its feature level."
    if found.unknown:
        return [having, *(f"Not known: {one}." for one in found.unknown), "The upgrade can not be finished yet."]
    if not found.shards_below:
        return [having, "There is no upgrade to finish."]
    shards = ", ".join(map(str, found.shards_below))
    return [
        having,
        f"All processes know level {found.known_level}: deepclean upgrade finish raises shards {shards} to it.",
    ]
