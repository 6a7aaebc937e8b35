"""What is said about space, held against a recount by sets: at any moment of metadata's log, and when all is quiet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from schemas.space_answers import ExplainedVersion, FreedSpace, PlanSpace, SnapshotSpace, VersionStage, WhatIf
from services.domain.space_matrix import SpaceError
from services.metadata.reads import queries
from services.plane.in_memory.space_reads import InMemorySpaceReads
from services.storage.tables import TablesReader
from tests.simulation.errors import AccountError
from tests.simulation.model import CapturedView, Incarnation, ShardModel
from tests.simulation.plane import SimulatedPlane

MOST_PATHS = 6


@dataclass(slots=True)
class SpaceCheck:
    """The questions that one shard is asked. What it calls inexact is let pass, but not when all is quiet."""

    plane: SimulatedPlane
    model: ShardModel
    random: Random
    is_quiet: bool

    def run(self) -> None:
        """Ask about every bucket that is there."""
        for incarnation in self.model.live_buckets():
            try:
                BucketSpaceCheck(self, incarnation).run()
            except SpaceError as error:
                raise AccountError(f"shard {self.model.shard}: {error}") from error

    def expect(self, what: str, found: Any, expected: Any) -> None:
        """Two figures that have to be the same."""
        if found != expected:
            raise AccountError(f"shard {self.model.shard}: {what} is {found}, a recount gives {expected}")


class BucketSpaceCheck:
    """The questions about one bucket."""

    def __init__(self, check: SpaceCheck, incarnation: Incarnation) -> None:
        self._check = check
        self._model = check.model
        self._incarnation = incarnation
        self._name = (incarnation.volume, incarnation.name)
        self._views = list(incarnation.snapshots.values())
        self._active = check.model.active_numbers(incarnation)
        self._live = check.model.active_versions(incarnation)
        self._reads = InMemorySpaceReads(check.plane, check.model.shard)

    def run(self) -> None:
        """Ask all of it."""
        self._check_snapshots()
        for _ in range(3):
            self._check_what_if()
        self._check_plan()
        for path in self._paths():
            self._check_path(path)

    def bytes_of(self, numbers: set[int] | frozenset[int]) -> int:
        """Their sum."""
        return self._model.pieces.bytes_of(numbers)

    def both(self, numbers: set[int] | frozenset[int]) -> tuple[int, int]:
        """Their sum, and what they take on disks."""
        return self.bytes_of(numbers), self._model.pieces.replicated_bytes_of(numbers)

    def freed(self, dropped: list[CapturedView]) -> set[int]:
        """Pieces that these snapshots show, and nobody else does."""
        others = set(self._active).union(*(view.numbers for view in self._views if view not in dropped))
        return set[int]().union(*(view.numbers for view in dropped)) - others

    def what_if(self, dropped: list[CapturedView]) -> FreedSpace:
        """What the plane says of a set."""
        return self._reads.what_if(*self._name, WhatIf(tuple(view.snapshot_id for view in dropped)))

    def _is_counted(self, is_exact: bool) -> bool:
        if self._check.is_quiet and not is_exact:
            raise AccountError(f"shard {self._model.shard}: all is quiet, and a figure is said to be inexact")
        return is_exact

    # ---- snapshots

    def _check_snapshots(self) -> None:
        found = self._reads.snapshot_spaces(*self._name).snapshots
        self._check.expect("the list", [space.snapshot_id for space in found], [v.snapshot_id for v in self._views])
        for index, space in enumerate(found):
            self._check_snapshot(space, index)

    def _check_snapshot(self, space: SnapshotSpace, index: int) -> None:
        view = self._views[index]
        before = self._views[index - 1].numbers if index else frozenset[int]()
        after = self._views[index + 1].numbers if index + 1 < len(self._views) else self._active
        mine, expect = view.numbers, self._check.expect
        if self._is_counted(space.is_referenced_exact):
            expect("referenced", (space.referenced_bytes, space.referenced_replicated_bytes), self.both(mine))
            shared = space.shared_with_previous_bytes, space.shared_with_previous_replicated_bytes
            expect("shared with previous", shared, self.both(mine & before))
        if self._is_counted(space.is_exclusive_exact):
            alone = self.freed([view])
            figures = space.exclusive_bytes, space.exclusive_replicated_bytes, space.exclusive_versions
            expect("exclusive", figures, (*self.both(alone), len(alone)))
        if self._is_counted(space.is_shared_with_next_exact):
            shared = space.shared_with_next_bytes, space.shared_with_next_replicated_bytes
            expect("shared with next", shared, self.both(mine & after))
        if self._is_counted(space.is_referenced_exact and space.is_exclusive_exact):
            expect("held", (space.held_bytes, space.held_replicated_bytes), self.both(mine - self._active))
        if self._check.is_quiet:
            sharers = [v.txn for v in self._views if v is view or self.bytes_of(v.numbers & mine)]
            expect("the sharers", (space.oldest_sharer, space.newest_sharer), (sharers[0], sharers[-1]))

    # ---- sets

    def _check_what_if(self) -> None:
        dropped = [view for view in self._views if self._check.random.random() < 0.5]
        found, expected = self.what_if(dropped), self.freed(dropped)
        if self._is_counted(found.is_exact):
            figures = (found.freed_bytes, found.freed_replicated_bytes, found.freed_versions)
            self._check.expect("what would be freed", figures, (*self.both(expected), len(expected)))

    def _check_plan(self) -> None:
        protected = [view for view in self._views if self._check.random.random() < 0.2]
        leaving = [view for view in self._views if view not in protected and self._check.random.random() < 0.1]
        free_bytes = self._check.random.choice((0, 1, 1_000, 5_000, 20_000, 10**9))
        is_replicated = self._check.random.random() < 0.3
        kept, going = (tuple(view.snapshot_id for view in views) for views in (protected, leaving))
        asked = PlanSpace(free_bytes, kept, going, is_replicated)
        found = self._reads.plan(*self._name, asked)
        chosen = [view for view in self._views if view.snapshot_id in found.snapshot_ids]
        self._check.expect("the order", found.snapshot_ids, tuple(view.snapshot_id for view in chosen))
        if any(view in protected or view in leaving for view in chosen):
            raise AccountError(f"a plan has what must stay, or goes already: {asked}, {found}")
        expected = self.freed([*chosen, *leaving]) - self.freed(leaving)
        most = self.freed([view for view in self._views if view not in protected]) - self.freed(leaving)
        if self._is_counted(found.is_exact):
            figures = (found.freed_bytes, found.freed_replicated_bytes, found.freed_versions)
            self._check.expect("what the plan frees", figures, (*self.both(expected), len(expected)))
            most_bytes, freed_bytes = self.both(most)[is_replicated], figures[is_replicated]
            self._check.expect("is_enough", found.is_enough, most_bytes >= free_bytes)
            self._check.expect("enough", freed_bytes >= min(free_bytes, most_bytes), True)

    # ---- paths and blocks

    def _paths(self) -> list[str]:
        known = set(self._incarnation.bucket.view().keys).union(*(view.keys for view in self._views))
        chosen = self._check.random.sample(sorted(known), min(len(known), MOST_PATHS))
        return [path for path in chosen if "//" not in path]

    def _check_path(self, path: str) -> None:
        found = self._reads.explain_path(*self._name, path)
        if not self._is_counted(found.is_exact):
            return
        # Blocks that were added later, and those that died unseen, are told of by themselves.
        told = {
            self._model.put_numbers.get(version.birth, -1): version
            for version in found.versions
            if version.birth != version.death
        }
        said = {number: version for number, version in told.items() if number >= 0}
        shown = {view.keys[path].number for view in self._views if path in view.keys}
        active = self._incarnation.bucket.view().keys.get(path)
        missing = shown.union({active.number} if active else ()) - said.keys()
        self._check.expect(f"missing of {path}", missing, set())
        for number, version in said.items():
            if self._model.contents[number] in ((), (number,)):  # one put has made it
                self._check_version(path, number, version)

    def _check_version(self, path: str, number: int, version: ExplainedVersion) -> None:
        made, expect = self._model.names.versions[number], self._check.expect
        expect(f"a size of {path}", version.size_bytes, made.size_bytes)
        if made.size_bytes:
            expect(f"a size on disks of {path}", version.replicated_bytes, self.both({number})[1])
        if not made.size_bytes and version.stage is VersionStage.HELD:
            return  # without a row only those are known that show it under this path
        held = [view.txn for view in self._views if number in view.contents]
        expect(f"the holders of {path}", (version.first_holder, version.last_holder), _ends(held))
        expect(f"whether {path} is live", version.stage is VersionStage.LIVE, number in self._live)
        if self._check.is_quiet:
            expect(f"the stage of {path}", version.stage in (VersionStage.LIVE, VersionStage.HELD), True)
        expect(f"the tag of {path}", version.tag, made.tag)
        run = self._model.runs.get(number)
        if run is not None:
            block = self._reads.explain_block(run.first_local_id + run.block_count - 1)
            # A snapshot may show it under another name than it has now, and as it was before a later sync.
            modified = version.modification_time_ms
            owner = block.version and replace(block.version, name=version.name, modification_time_ms=modified)
            expect(f"the owner of a block of {path}", owner, version)


def _ends(txns: list[int]) -> tuple[int, int]:
    return (txns[0], txns[-1]) if txns else (0, 0)


def deleted_bytes(plane: SimulatedPlane, shard: int, incarnation: Incarnation) -> tuple[int, int]:
    """Bytes and versions of a bucket that the block store has confirmed, ever."""
    tables = TablesReader(plane.processes["metadata", shard].store)
    space = queries.bucket_space(tables, queries.get_bucket(tables, incarnation.volume, incarnation.name))
    return space.freed_bytes, space.freed_versions
