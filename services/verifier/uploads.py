"""Replays uploads in parts. The blocks of a part belong to no version, and no snapshot sees them, until the upload is
completed. Those of other parts, and of parts that were replaced or aborted, never belong to one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from schemas import records
from services.domain.names import MAX_KEY_TAG_LENGTH, check_length
from services.domain.table_keys import upload_key
from services.verifier.namespace import Namespace
from services.verifier.open_writes import OpenKey, OpenWrites, Part, Run, Upload
from services.verifier.present import MAX_OBJECTS, Bucket, Present
from services.verifier.refusals import require, required
from services.verifier.taken_bytes import blocks_of, taken_bytes

MAX_RUNS = 10_000


class Uploads:
    """Replays the commands on uploads over the shard as it is."""

    def __init__(self, present: Present, writes: OpenWrites, namespace: Namespace) -> None:
        self._present = present
        self._writes = writes
        self._namespace = namespace
        self.commands: Mapping[type[Any], Callable[[Any], None]] = {
            records.InitiateUpload: self._initiate,
            records.CompleteUpload: self._complete,
            records.AbortUpload: self._abort,
        }

    def find(self, bucket: Bucket, path: str, upload_id: str) -> Upload:
        """Return the upload of a key. Refuse the command if there is none."""
        upload = required(self._writes.upload(upload_id))
        require((upload.bucket_id, upload.path) == (bucket.bucket_id, path))
        return upload

    def _initiate(self, body: records.InitiateUpload) -> None:
        bucket = self._present.bucket(body)
        parent_id, missing, _, _ = self._present.place_for_file(bucket, body.key)
        parent_id = self._present.add_directories(bucket, parent_id, missing)
        upload_id = f"{self._present.shard}-{self._present.now.txn}"
        key = upload_key(bucket.volume, bucket.name, body.key, upload_id)
        self._writes.put_upload(Upload(key, upload_id, bucket.bucket_id, body.key, parent_id, self._present.time_ms))

    def commit_part(self, bucket: Bucket, opened: OpenKey, size_bytes: int) -> Sequence[Run]:
        """Make what was written the part of its number. Return the blocks left over."""
        upload = self.find(bucket, opened.path, opened.upload_id)
        require(size_bytes >= 0)
        runs, unused, _ = with_content(opened.runs, size_bytes, self._present.new_object_id)
        replaced_runs = self._writes.run_count(upload, opened.part_number)
        require(self._writes.run_count(upload) + len(runs) - replaced_runs <= MAX_RUNS)
        self._present.stored_bytes += filled_bytes(runs) - whole_bytes(runs)
        replaced = self._writes.put_part(upload, Part(opened.part_number, size_bytes, tuple(runs)))
        free(self._present, bucket.bucket_id, replaced)
        return unused

    def _complete(self, body: records.CompleteUpload) -> None:
        bucket, numbers = self._present.bucket(body), body.part_numbers
        check_length("a tag", body.tag, MAX_KEY_TAG_LENGTH)
        upload = self.find(bucket, body.key, body.upload_id)
        require(bool(numbers) and all(first < second for first, second in pairwise(numbers)))
        require(set(numbers) <= self._writes.part_numbers(upload))
        parent_id, missing, name, there = self._present.place_for_file(bucket, body.key)
        require(len(missing) + (there is None) <= MAX_OBJECTS)
        self._namespace.require_replaceable(bucket, there)
        parent_id = self._present.add_directories(bucket, parent_id, missing)
        parts = self._writes.end_upload(upload)
        joined = [part for part in parts if part.number in numbers]
        runs = [run for part in joined for run in part.runs]
        length = sum(part.size_bytes for part in joined)
        first = runs[0].blocks if runs else None
        entry = self._namespace.replace(bucket, (parent_id, name), there, length, first)
        for run in runs[1:]:
            whole = (entry.object_id, entry.birth)
            self._present.history.add_run(whole, bucket.bucket_id, run.object_id, run.blocks, self._present.now)
        for part in parts:
            if part.number not in numbers:
                free(self._present, bucket.bucket_id, part.runs)

    def _abort(self, body: records.AbortUpload) -> None:
        self.end(self.find(self._present.bucket(body), body.key, body.upload_id))

    def end(self, upload: Upload) -> int:
        """End an upload and free its parts. Return the number of these and of their runs."""
        parts = self._writes.end_upload(upload)
        for part in parts:
            free(self._present, upload.bucket_id, part.runs)
        return len(parts) + sum(len(part.runs) for part in parts)


def free(present: Present, bucket_id: int, runs: Sequence[Run]) -> None:
    """Record blocks that never belonged to a version: they are born and die now."""
    for run in runs:
        name = (run.object_id, present.now.txn)
        present.history.write(bucket_id, *name, run.blocks.size_bytes, run.blocks, present.now)
        present.history.die(*name, present.now)


def whole_bytes(runs: Sequence[Run]) -> int:
    """Return what all blocks of some runs take when they are filled."""
    wholes = [(run.blocks, run.blocks.block_count * run.blocks.block_size_bytes) for run in runs]
    return sum(taken_bytes(blocks_of(blocks)._replace(size_bytes=size_bytes)) for blocks, size_bytes in wholes)


def filled_bytes(runs: Sequence[Run]) -> int:
    """Return what the blocks of some runs take."""
    return sum(taken_bytes(blocks_of(run.blocks)) for run in runs)


def with_content(
    runs: Sequence[Run], size_bytes: int, new_object_id: Callable[[], int]
) -> tuple[list[Run], list[Run], int]:
    """Fill blocks one after the other. Return those with content, those without, and the room in the last one.

    A run of which only the first blocks are filled is divided, and the rest of it gets an objectID of its own. Refuse a
    command for whose bytes the blocks are too few.
    """
    filled, empty, room = list[Run](), list[Run](), 0
    for object_id, blocks in runs:
        needed = -(-size_bytes // blocks.block_size_bytes)
        used = min(needed, blocks.block_count)
        content = min(size_bytes, used * blocks.block_size_bytes)
        if used:
            filled.append(Run(object_id, replace(blocks, block_count=used, size_bytes=content)))
            room = used * blocks.block_size_bytes - content
        rest = blocks.block_count - used
        if rest:
            unfilled = replace(
                blocks,
                first_local_id=blocks.first_local_id + used,
                block_count=rest,
                size_bytes=rest * blocks.block_size_bytes,
            )
            empty.append(Run(new_object_id() if used else object_id, unfilled))
        size_bytes -= content
    require(size_bytes == 0)
    return filled, empty, room
