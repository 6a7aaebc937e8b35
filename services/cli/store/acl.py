"""``deepclean acl``: show and change the access lists of volumes, buckets, prefixes, keys and directories."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from schemas.records import Acl, AclIdentity, AclObject, AclRight, AclScope, AddAcl, RemoveAcl, SetAcl
from services.cli.output import print_json, print_result, print_table
from services.cli.session import JsonOption, execute, session_of

app = typer.Typer(no_args_is_help=True, help="Show and change who may do what with an object.")
ObjectArgument = Annotated[
    str, typer.Argument(metavar="OBJECT", help="VOLUME, VOLUME/BUCKET or VOLUME/BUCKET/PATH; a prefix ends with a /.")
]
EntryArgument = Annotated[
    str,
    typer.Argument(
        metavar="ENTRY",
        help="user:NAME:RIGHTS, group:NAME:RIGHTS or world::RIGHTS, then [DEFAULT] if new objects inherit it. "
        "Rights: r read, w write, c create, d delete, l list, x read the list, y change the list, a all, n none.",
    ),
]
_LETTERS = {
    "r": AclRight.READ,
    "w": AclRight.WRITE,
    "c": AclRight.CREATE,
    "d": AclRight.DELETE,
    "l": AclRight.LIST,
    "x": AclRight.READ_ACL,
    "y": AclRight.WRITE_ACL,
    "a": AclRight.ALL,
    "n": AclRight.NONE,
}
_ENTRY = re.compile(r"(user|group|world|anonymous):([^:]*):([a-z]+)(\[(?:ACCESS|DEFAULT)\])?", re.IGNORECASE)
_Object = tuple[AclObject, str, str, str]


@app.command("list")
def show(context: typer.Context, name: ObjectArgument, as_json: JsonOption = False) -> None:
    """List the entries of an object."""
    kind, volume, bucket, path = _object(name)
    with session_of(context) as session:
        found = session.metadata(volume).acl(kind, volume, bucket, path)
    if as_json:
        print_json(found)
        return
    print_table(
        ["IDENTITY", "NAME", "RIGHTS", "SCOPE"],
        ((acl.identity, acl.name, ", ".join(acl.rights), acl.scope) for acl in found),
    )


@app.command()
def add(context: typer.Context, name: ObjectArgument, entry: EntryArgument, as_json: JsonOption = False) -> None:
    """Give rights to an object."""
    named = _object(name)
    reply = execute(context, named[1], AddAcl(*named, _entry(entry)))
    print_result({"object": name, "txn": reply.txn}, f"{name}: {entry} added", as_json=as_json)


@app.command()
def remove(context: typer.Context, name: ObjectArgument, entry: EntryArgument, as_json: JsonOption = False) -> None:
    """Take rights to an object away."""
    named = _object(name)
    reply = execute(context, named[1], RemoveAcl(*named, _entry(entry)))
    print_result({"object": name, "txn": reply.txn}, f"{name}: {entry} removed", as_json=as_json)


@app.command("set")
def replace(
    context: typer.Context,
    name: ObjectArgument,
    entries: Annotated[
        list[str] | None, typer.Argument(metavar="ENTRY...", help="The new entries; none: remove the list.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replace all entries of an object."""
    named, acls = _object(name), tuple([_entry(entry) for entry in entries or ()])
    reply = execute(context, named[1], SetAcl(*named, acls))
    print_result({"object": name, "txn": reply.txn}, f"{name} has {len(acls)} entries", as_json=as_json)


def _object(text: str) -> _Object:
    """Return kind, volume, bucket and path of an object."""
    volume, _, rest = text.removeprefix("/").partition("/")
    bucket, _, path = rest.partition("/")
    if not volume or (path and not bucket):
        raise typer.BadParameter(f"{text!r} is not VOLUME, VOLUME/BUCKET or VOLUME/BUCKET/PATH")
    if not bucket:
        return AclObject.VOLUME, volume, "", ""
    if not path:
        return AclObject.BUCKET, volume, bucket, ""
    return AclObject.PREFIX if path.endswith("/") else AclObject.KEY, volume, bucket, path


def _entry(text: str) -> Acl:
    """Return the entry that a text stands for."""
    found = _ENTRY.fullmatch(text)
    if found is None or not set(found[3]) <= _LETTERS.keys():
        raise typer.BadParameter(f"{text!r} is no entry such as user:ann:rw or group:staff:r[DEFAULT]")
    rights = tuple([_LETTERS[letter] for letter in found[3]])
    scope = AclScope(found[4].strip("[]").upper()) if found[4] else AclScope.ACCESS
    return Acl(AclIdentity(found[1].upper()), found[2], rights, scope)
