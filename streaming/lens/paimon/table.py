"""Reads the small metadata of a table: what its branches, snapshots, tags, changelogs and consumers say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.lens.paimon.metadata import ConsumerFile, PaimonError, SchemaFile, SnapshotFile, T, decoded, no_table
from services.lens.paimon.references import MAIN, Line, Place, places_of
from streaming.lens.paimon.directory import TableDirectory
from streaming.lens.table_files import TableNotes

_LEFT_OUT = "What only this file names is left out of all figures."
CHANGELOGS_NEED_TAGS = (
    "When Paimon deletes a tag it also removes files that only changelogs still hold: a what-if of a tag counts those "
    "as held."
)


@dataclass(frozen=True, slots=True)
class Table:
    """The references of a table in their order, and its schema."""

    schema: SchemaFile
    places: list[Place]
    other_files: list[str]
    """Schemas, hints, consumers and marks of all branches: small files that no expiry removes."""
    notes: TableNotes


def read_table(directory: TableDirectory) -> Table:
    """Read the small metadata of a table.

    Raises:
        PaimonError: the directory is no table, or its newest schema cannot be read.
    """
    notes = TableNotes()
    schemas = _numbered(directory, "", "schema")
    if not schemas:
        raise no_table(directory.root)
    _, content = next(directory.contents([schemas[-1]]))
    schema = decoded(content or b"", SchemaFile, schemas[-1])
    main = _line(directory, MAIN, "", schema, notes)
    branches = [
        _line(directory, path.removeprefix("branch-"), f"branch/{path}/", schema, notes)
        for path in sorted({path.split("/")[1] for path in directory.files if path.startswith("branch/branch-")})
    ]
    if not main.snapshots:
        notes.remarks.append("The main branch has no snapshot, so nothing is live.")
    if main.tags and (main.is_changelog_decoupled or main.changelogs) and not main.has_changelog_producer:
        notes.notes.append(CHANGELOGS_NEED_TAGS)
    prefixes = ["", *(f"branch/branch-{line.branch}/" for line in branches)]
    return Table(schema, places_of(main, branches), _other_files(directory, prefixes), notes)


def _line(directory: TableDirectory, branch: str, prefix: str, schema: SchemaFile, notes: TableNotes) -> Line:
    own_schemas = _numbered(directory, prefix, "schema")
    if prefix and own_schemas:
        said = "The branch is read by the schema of main."
        own = _read(directory, own_schemas[-1:], SchemaFile, said, notes.notes)
        schema = next(iter(own.values()), schema)

    def read(paths: list[str]) -> dict[str, SnapshotFile]:
        return _read(directory, paths, SnapshotFile, _LEFT_OUT, notes.losses)

    snapshots = read(_numbered(directory, prefix, "snapshot"))
    changelogs = read(_numbered(directory, prefix, "changelog"))
    tags = read(directory.below(f"{prefix}tag", "tag-"))
    names = directory.below(f"{prefix}consumer", "consumer-")
    consumers = _read(directory, names, ConsumerFile, "What this consumer protects is not known.", notes.notes)
    newer = sorted(
        {file.version for file in (*snapshots.values(), *changelogs.values(), *tags.values()) if file.is_newer}
    )
    if newer:
        notes.losses.append(
            f"Snapshots of format version {newer[-1]} are newer than this program: they may hold files that are "
            f"left out of all figures, so use a newer version of it."
        )
    return Line(
        branch,
        snapshots,
        tags,
        changelogs,
        {path.rpartition("/consumer-")[2]: consumer.next_snapshot for path, consumer in consumers.items()},
        schema.is_changelog_decoupled,
        schema.has_changelog_producer,
    )


def _numbered(directory: TableDirectory, prefix: str, kind: str) -> list[str]:
    """Return the files ``KIND/KIND-N`` of a branch by their numbers; others are left from writers that stopped."""
    start = f"{prefix}{kind}/{kind}-"
    paths = [path for path in directory.below(f"{prefix}{kind}", f"{kind}-") if path[len(start) :].isdecimal()]
    return sorted(paths, key=lambda path: int(path[len(start) :]))


def _other_files(directory: TableDirectory, prefixes: Iterable[str]) -> list[str]:
    found = []
    for prefix in prefixes:
        found += _numbered(directory, prefix, "schema")
        found += [f"{prefix}{kind}/{hint}" for kind in ("snapshot", "changelog") for hint in ("EARLIEST", "LATEST")]
        found += directory.below(f"{prefix}consumer", "consumer-")
        found += directory.below(f"{prefix}tag/tag-success-file", "")
    return [path for path in found if path in directory.files]


def _read(directory: TableDirectory, paths: list[str], kind: type[T], said: str, notes: list[str]) -> dict[str, T]:
    """Return what can be read; of the rest it is noted what it means, ``said``."""
    found = {}
    for path, content in directory.contents(paths):
        if content is None:
            notes.append(f"{path} was removed while the table was read: make the report again to leave it out.")
            continue
        try:
            found[path] = decoded(content, kind, path)
        except PaimonError as error:
            notes.append(f"{error} {said} Restore it, or remove it if it is not needed.")
    return found
