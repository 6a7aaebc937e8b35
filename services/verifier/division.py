"""How a log divides into parts that are replayed apart: which commands each part needs, and which logs do not divide.

All commands on a bucket belong to one part; so do buckets that a link has ever joined. Commands that all buckets share
go to every part. What the commands before it have left to a command, beside its bucket, is a ``Place``: every part gets
it with the command.

What would need more than this does not divide: the log is then replayed as one part.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas import records
from schemas.records import MetadataCommand, RowNames
from services.verifier.replay import BY_ANSWER, BY_ANSWER_WITH_A_QUOTA, CLIENT_COMMANDS, STEERING
from services.verifier.rights import RIGHTS_COMMANDS

Name = tuple[str, str]
"""A volume and a bucket."""

SHARED = frozenset(
    {
        *(records.CreateVolume, records.DeleteVolume, records.CreateBucket, records.CreateBucketLink),
        *(records.DeleteBucket, records.SetDefaultReplication, records.SetSecret),
        *(records.CaptureSnapshot, records.DropSnapshot, records.RollbackPage, records.ExpireWrites),
        *(records.SetQuota, *RIGHTS_COMMANDS),
        *STEERING,
    }
)
"""Commands that go to every part. Snapshots of all buckets count in the chain version."""
INDIVISIBLE = frozenset({records.AcceptLostTail, records.RequeueOrphans})
"""Commands that end the replay of all buckets, or need the blocks of all of them."""
UNNUMBERED = frozenset(STEERING) - {records.StopClaims}
"""Commands that never get a txn."""
BY_NUMBER = frozenset(
    {
        *(records.PutKeyIf, records.OpenKey, records.AllocateBlocks, records.SyncKey, records.CommitKey),
        *(records.RecoverLease, records.AbandonKey, records.CompleteUpload, records.AbortUpload),
        records.DeleteKeyVersion,
        *BY_ANSWER,
    }
)
"""Commands that name a txn, or whose answer is found by one: with wrong txns before them they look refused."""
_OF_ROWS = frozenset({records.ClaimRows, records.FinishRows})
_SPREAD = 512
"""Offsets in a row that go to the same part, of commands that need none."""


class IndivisibleError(Exception):
    """The log does not divide; the text says why."""


@dataclass(frozen=True, slots=True)
class Division:
    """Which part each command goes to."""

    parts: int
    heads: Mapping[Name, Name] = field(default_factory=dict)
    """Of the buckets that links join, one that stands for them all."""
    by_head: Mapping[Name, int] = field(default_factory=dict)
    """The part of each of these, so that parts have about as many commands; others go where their names fall."""
    by_id: Mapping[int, int] = field(default_factory=dict)
    """The part of each bucket by its id."""
    with_quota: frozenset[Name] = frozenset()
    """Names by which a bucket has ever got a quota, as those that stand for them."""
    is_secured: bool = False
    """Whether commands have had to be signed at any time."""

    def head_of(self, volume: str, bucket: str) -> Name:
        """Return the name that stands for a bucket and all that links join with it."""
        return self.heads.get((volume, bucket), (volume, bucket))

    def of_name(self, volume: str, bucket: str) -> int:
        """Return the part of a bucket."""
        head = self.head_of(volume, bucket)
        if head in self.by_head:
            return self.by_head[head]
        return zlib.crc32("/".join(head).encode("utf-8", "surrogatepass")) % self.parts

    def needs_answer(self, body: Any) -> bool:
        """Return whether metadata's answer may decide if a command is refused."""
        kind = type(body)
        if kind in BY_ANSWER or (self.is_secured and kind in CLIENT_COMMANDS):
            return True
        return kind in BY_ANSWER_WITH_A_QUOTA and self.head_of(body.volume, body.bucket) in self.with_quota

    def of_buckets(self, bucket_ids: Iterable[int]) -> list[int]:
        """Return the parts of some buckets. Ids that no command of the log made are left out."""
        return sorted({self.by_id[one] for one in set(bucket_ids) if one in self.by_id})

    def parts_of(self, command: MetadataCommand, offset: int) -> tuple[int, Iterable[int]]:
        """Return the part that decides whether a command gets a txn, and all parts that replay it."""
        body: Any = command.body
        kind = type(body)
        if kind in SHARED:
            owner = self.of_name(body.volume, body.bucket) if kind is records.DeleteBucket else 0
            return owner, range(self.parts)
        if kind in CLIENT_COMMANDS:
            owner = self.of_name(getattr(body, "volume", ""), getattr(body, "bucket", ""))
            return owner, (owner,)
        found = self.of_buckets(_bucket_ids(body.rows)) if kind in _OF_ROWS else []
        found = found or [offset // _SPREAD % self.parts]
        return found[0], found


def _bucket_ids(rows: Iterable[RowNames]) -> Iterable[int]:
    return (one for names in rows for one in names.bucket_ids)


def joined(links: Iterable[tuple[Name, Name]]) -> dict[Name, Name]:
    """Return for each name that a link has led from or to the one that stands for all that it is joined with."""
    heads: dict[Name, Name] = {}

    def head_of(name: Name) -> Name:
        while heads.setdefault(name, name) != name:
            name = heads[name]
        return name

    for source, target in links:
        heads[head_of(source)] = head_of(target)
    return {name: head_of(name) for name in list(heads)}


def shared_out(sizes: Mapping[Name, int], parts: int) -> dict[Name, int]:
    """Return a part for each bucket, the largest first to the part that has least."""
    loads = [(0, part) for part in range(parts)]
    found: dict[Name, int] = {}
    for name, size in sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0])):
        load, found[name] = heapq.heappop(loads)
        heapq.heappush(loads, (load + size, found[name]))
    return found


def why_indivisible(kinds: Iterable[type[Any]]) -> str:
    """Return why a log with these kinds of commands does not divide; empty if it does."""
    found = sorted(kind.__name__ for kind in INDIVISIBLE.intersection(kinds))
    return f"the log has {', '.join(found)}" if found else ""


def counts_number(command: MetadataCommand) -> bool:
    """Return whether the number of a command is one of its client's, which come in rising order."""
    kind = type(command.body)
    if kind in CLIENT_COMMANDS:
        return command.number != 0
    return kind in STEERING and command.sender in STEERING[kind] and command.user != ""
