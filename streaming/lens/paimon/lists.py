"""Reads the manifest lists and index manifests that the references of a table name.

What is missing or damaged is left out, and a note says who needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from services.lens.paimon.holdings import IndexFile, ManifestRow
from services.lens.paimon.metadata import PaimonError
from services.lens.paimon.references import Place
from streaming.lens.paimon.avro_file import rows
from streaming.lens.paimon.directory import TableDirectory
from streaming.lens.table_files import TableNotes

T = TypeVar("T")
_OTHER_COLUMNS = "it has other columns than this program knows"
_LIST_COLUMNS = ("_FILE_NAME", "_FILE_SIZE", "_NUM_ADDED_FILES", "_NUM_DELETED_FILES")
_INDEX_COLUMNS = ("_KIND", "_PARTITION", "_BUCKET", "_INDEX_TYPE", "_FILE_NAME", "_FILE_SIZE", "_EXTERNAL_PATH")


def manifest_lists(
    directory: TableDirectory, places: Sequence[Place], notes: TableNotes
) -> dict[str, list[ManifestRow]]:
    """Return the manifests of each manifest list, by its name; one that cannot be read is noted."""
    users = _users(places, lambda place: place.lists)
    return _read(directory, users, "manifest list", _manifest_rows, notes)


def index_manifests(
    directory: TableDirectory, places: Sequence[Place], notes: TableNotes
) -> dict[str, list[IndexFile]]:
    """Return the index files of each index manifest, by its name; one that cannot be read is noted."""
    users = _users(places, lambda place: (place.index_manifest,) if place.index_manifest else ())
    return _read(directory, users, "index manifest", _index_files, notes)


def _users(places: Sequence[Place], named: Callable[[Place], Iterable[str]]) -> dict[str, list[Place]]:
    users: dict[str, list[Place]] = {}
    for place in places:
        for name in named(place):
            users.setdefault(name, []).append(place)
    return users


def _read(
    directory: TableDirectory,
    users: dict[str, list[Place]],
    what: str,
    decode: Callable[[bytes], list[T]],
    notes: TableNotes,
) -> dict[str, list[T]]:
    found = {}
    paths = {f"manifest/{name}": name for name in users}
    for path, content in directory.contents(paths):
        name = paths[path]
        try:
            if content is None:
                raise PaimonError("it is missing")
            found[name] = decode(content)
        except PaimonError as error:
            # A changelog's lists of data files are its own only as long as nobody else has removed them.
            if not all(place.is_changelog for place in users[name]):
                # Paimon removes a changelog's list after the files that it names, so that it makes no file an orphan.
                is_of_changelogs = content is None and all(place.changelog_list == name for place in users[name])
                (notes.notes if is_of_changelogs else notes.losses).append(
                    f"The {what} {path} of {_names(users[name])} cannot be read: {error}. What only it names is left "
                    f"out of all figures: restore it, or remove these references."
                )
    return found


def _names(users: Sequence[Place]) -> str:
    names = [place.ref.name for place in users]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _manifest_rows(content: bytes) -> list[ManifestRow]:
    try:
        return [
            ManifestRow(row["_FILE_NAME"], row["_FILE_SIZE"], row["_NUM_ADDED_FILES"] + row["_NUM_DELETED_FILES"])
            for row in rows(content, _LIST_COLUMNS)
        ]
    except (KeyError, TypeError):
        raise PaimonError(_OTHER_COLUMNS) from None


def _index_files(content: bytes) -> list[IndexFile]:
    try:
        return [
            IndexFile(
                row["_FILE_NAME"],
                row["_INDEX_TYPE"],
                row["_FILE_SIZE"],
                row["_PARTITION"],
                row["_BUCKET"],
                row.get("_EXTERNAL_PATH"),
            )
            for row in rows(content, _INDEX_COLUMNS)
            if row["_KIND"] == 0
        ]
    except (KeyError, TypeError):
        raise PaimonError(_OTHER_COLUMNS) from None
