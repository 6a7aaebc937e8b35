"""Reads a git repository: snapshots of the first-parent history, as the workload of ``deepclean git`` takes them.

A thing is the content of one path: a blob that two paths have counts twice, as it would in a bucket. The bucket
``history`` has a snapshot each so many commits, the bucket ``tags`` one for each tagged commit; the active namespace is
HEAD. What no snapshot shows is not counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from services.domain.run_space import merged
from services.lens.relation import LensBucket, Ref, RefKind
from services.lens.report import Thing
from services.workloads.git_command import GitError, GitRepository, key_of
from services.workloads.git_history import GitHistory
from streaming.lens.writer import THING_COLUMNS, ReportWriter

HISTORY, TAGS = "history", "tags"
NOT_LOOKED_FOR = ("Nothing is looked for in a git repository: git fsck lists what git itself does not show.",)
ACTIVE = "HEAD"
_ROWS_AT_ONCE = 100_000


def write(location: str, options: argparse.Namespace, writer: ReportWriter) -> None:
    """Add the bucket of a repository.

    Raises:
        GitError: git cannot read the repository, or it has no such bucket.
    """
    bucket, things = read(Path(location), options.bucket or HISTORY)
    writer.add_bucket(bucket)
    rows = [(one.bucket, one.path, one.id, one.kind, one.bytes, one.replicated_bytes, one.runs) for one in things]
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        writer.add_things(writer.session.createDataFrame(rows[start : start + _ROWS_AT_ONCE], THING_COLUMNS))


def read(path: Path, bucket: str) -> tuple[LensBucket, list[Thing]]:
    """Return the bucket and its things.

    Raises:
        GitError: git cannot read the repository, or it has no such bucket.
    """
    if bucket not in (HISTORY, TAGS):
        raise GitError(f"a git repository has no bucket {bucket}: name {HISTORY} or {TAGS}")
    GitRepository(path).check_history()
    history = GitHistory(path, uses_tags=bucket == TAGS)
    times_ms = history.repository.times_ms()
    refs = [Ref(point.name, point.commit, time_ms=times_ms[point.commit]) for point in history.snapshots]
    head = history.last_commit
    refs.append(Ref(ACTIVE, head, RefKind.ACTIVE, times_ms[head], is_droppable=False))
    places: dict[tuple[str, str, int], list[int]] = {}
    unnamed = 0
    for place, ref in enumerate(refs):
        for file in history.repository.tree(ref.id):
            key = key_of(file.path)
            if key is None:
                unnamed += 1
            else:
                places.setdefault((key, file.blob, file.size_bytes), []).append(place)
    notes = (f"{unnamed:,} files whose paths are not UTF-8 are left out; all others are counted.",) if unnamed else ()
    return LensBucket(bucket, tuple(refs), notes, not_looked_for=NOT_LOOKED_FOR), list(_things(bucket, places))


def _things(bucket: str, places: dict[tuple[str, str, int], list[int]]) -> Iterator[Thing]:
    for (path, blob, size_bytes), held_at in places.items():
        runs = merged((place, place) for place in held_at)
        yield Thing(bucket, path, blob, "blob", size_bytes, size_bytes, runs)
