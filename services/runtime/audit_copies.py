"""Copies of a shard's database for audits: made over HTTP, kept until they are given back, or too old.

::

    <shard's directory>/audits/<audit id>/<copy>     a database of hard-linked files that never change

A copy needs nobody to keep it: whatever is written or dropped meanwhile, its files stay. They are removed when the
audit gives them back, when a later audit finds them older than a day, and at the next start of the service.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from starlette.routing import Route

from schemas.answers import AuditCopy
from services.runtime.errors import StoreError
from services.runtime.reads import Question, ReadError, Stores, read_route
from services.storage.rocks import RocksStore
from services.storage.store import Store

DIRECTORY = "audits"
MAX_AUDITS = 4
"""Audits of one shard that may have copies at a time: each holds on to what is compacted away meanwhile."""
LONGEST_SECONDS = 24 * 3600
_NAME = re.compile(r"[a-z0-9-]{1,64}")

MakeCopy = Callable[[RocksStore, Path], AuditCopy]
"""Makes a copy below a directory and says what it is."""


def remove_copies(store: Store) -> None:
    """Remove what audits have left behind: at the start of a service, when none is under way."""
    if isinstance(store, RocksStore):
        shutil.rmtree(_directory_of(store), ignore_errors=True)


def audit_routes(stores: Stores, make: MakeCopy) -> list[Route]:
    """Making the copy ``name`` of an audit, and giving all of its copies back."""

    def made(question: Question) -> AuditCopy:
        store = _rocks(question)
        directory = _directory_of(store) / _name(question, "audit_id") / _name(question, "name")
        if directory.exists():
            raise ReadError("INVALID_REQUEST", f"audit {directory.parent.name} has a copy {directory.name} already")
        _make_room(directory.parent)
        try:
            return make(store, directory)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def given_back(question: Question) -> bool:
        directory = _directory_of(_rocks(question)) / _name(question, "audit_id")
        was_there = directory.exists()
        shutil.rmtree(directory, ignore_errors=True)
        return was_there

    return [
        read_route("/audit-copies", stores, made, AuditCopy, method="POST"),
        read_route("/audit-copies", stores, given_back, bool, method="DELETE"),
    ]


def _directory_of(store: RocksStore) -> Path:
    return store.path.parent / DIRECTORY


def _rocks(question: Question) -> RocksStore:
    if not isinstance(question.store, RocksStore):
        raise ReadError("INVALID_REQUEST", "this shard is kept in memory: there are no files to be copied")
    return question.store


def _name(question: Question, parameter: str) -> str:
    text = question.text(parameter)
    if not _NAME.fullmatch(text):
        raise ReadError(
            "INVALID_REQUEST", f"{parameter} is {text!r}; small letters, digits and - are allowed, up to 64"
        )
    return text


def _make_room(wanted: Path) -> None:
    """Remove copies that nobody can still be reading; refuse when there are too many others."""
    try:
        wanted.parent.mkdir(exist_ok=True)
        for found in wanted.parent.iterdir():
            if found != wanted and time.time() - found.stat().st_mtime > LONGEST_SECONDS:
                shutil.rmtree(found, ignore_errors=True)
        others = [found for found in wanted.parent.iterdir() if found != wanted]
    except OSError as error:
        raise StoreError(f"{wanted.parent} cannot be used: free some space there or mend the disk ({error})") from error
    if len(others) >= MAX_AUDITS:
        raise ReadError(
            "AUDITS_RUNNING",
            f"{len(others)} audits of this shard have copies: let one end, or start the service again to remove them",
        )
