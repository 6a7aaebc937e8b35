"""``deepclean export``: write the ledger, the snapshots, the space and the inventory as Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from services.cli.amounts import duration_ms
from services.cli.output import print_json, print_table
from services.cli.session import JsonOption, session_of
from services.cli.terminal import say
from services.client.kafka_plane import KafkaPlane
from services.domain.words import counted
from services.plane.upkeep.table_export import DEFAULT_NAMESPACE, TABLES, TableExport, TableExportError, WrittenTables

MS_AN_HOUR = 3_600_000


def export(
    context: typer.Context,
    address: Annotated[
        str, typer.Argument(help="Where the tables are and go: a directory, or an address that Hadoop knows.")
    ],
    table: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this table, of {', '.join(TABLES)}; may be repeated. By default all."),
    ] = None,
    keep: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Keep older states of a table, which readers may use, for this long."),
    ] = "24h",
    namespace: Annotated[
        str, typer.Option(help="Namespace of the tables in the catalog, one for each plane that uses the catalog.")
    ] = DEFAULT_NAMESPACE,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A setting of Spark, for example for another catalog; may be repeated."
        ),
    ] = None,
    is_from_beginning: Annotated[
        bool,
        typer.Option("--from-beginning", help="Read the topics from the beginning again; nothing counts twice."),
    ] = False,
    heap: Annotated[str, typer.Option(help="Heap of Spark's driver.")] = "1g",
    as_json: JsonOption = False,
) -> None:
    """Write changes since the last export to Iceberg tables that any engine reads. Readers see each change whole."""
    _check(table or (), conf or (), namespace)
    place = address if "://" in address else str(Path(address).absolute())
    with session_of(context) as session:
        plane = session.connected()
        if not isinstance(plane, KafkaPlane):
            raise TableExportError("the export needs a plane with a broker: start one (deepclean up)")
        asked = TableExport(
            *(place, table or TABLES, duration_ms(keep) / MS_AN_HOUR, is_from_beginning),
            namespace=namespace,
            conf=conf or (),
            heap=heap,
        )
        written = asked.run(plane.address, session.home)
    if as_json:
        print_json(asdict(written))
    else:
        _print(written)


def _print(written: WrittenTables) -> None:
    if written.rows:
        rows = ((name, f"{number:,}") for name, number in written.rows.items())
        print_table(["TABLE", "ROWS WRITTEN"], rows, numbers=["ROWS WRITTEN"])
    else:
        say("Nothing has changed since the last export.")
    if written.maintained:
        say(f"Compacted: {', '.join(written.maintained)}.")
    if written.unreadable:
        say(f"{counted(written.unreadable, 'message')} could not be read, see the table unreadable: find their writer.")


def _check(tables: Iterable[str], settings: Iterable[str], namespace: str) -> None:
    """Raise BadParameter for a value that cannot be right, before Spark is started."""
    for name in tables:
        if name not in TABLES:
            raise typer.BadParameter(f"{name!r} is no table: choose from {', '.join(TABLES)}", param_hint="--table")
    for setting in settings:
        if "=" not in setting:
            raise typer.BadParameter(f"{setting!r} is not NAME=VALUE", param_hint="--conf")
    if not namespace.isidentifier():
        raise typer.BadParameter(f"{namespace!r} is not a name of letters, digits and _", param_hint="--namespace")
