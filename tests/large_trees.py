"""Trees of a size that breaks what recurses or keeps everything in memory: very deep, and very wide.

``python -m tests.large_trees --levels 10000 --children 1000000`` does both and prints time and memory.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from schemas.answers import ListedEntry
from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteDirectory,
    DeleteSnapshot,
    MakeDirectory,
    PutKey,
    RenameDirectory,
    Settle,
)
from services.client.plane import NamespaceCommand
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane

LEVELS_PER_COMMAND = 200
PUTS_AT_ONCE = 2_000
PAGE = 10_000
SIZE_BYTES = 100


@dataclass
class LargeTree:
    """A plane in memory with one bucket."""

    client: InMemoryClient = field(default_factory=lambda: InMemoryClient(InMemoryPlane()))

    def __post_init__(self) -> None:
        self.do(CreateVolume("vol", "owner"))
        self.do(CreateBucket("vol", "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED))

    def do(self, *commands: NamespaceCommand) -> None:
        """Carry out commands, which must succeed."""
        numbers = [self.client.submit(0, command) for command in commands]
        for number in numbers:
            reply = self.client.answer(0, number)
            if reply.error:
                raise AssertionError(f"{reply.error}: {reply.message}")

    def snapshot(self, name: str) -> str:
        """Take a snapshot; says its id."""
        reply = self.client.request(0, CreateSnapshot("vol", "tree", name))
        if reply.error:
            raise AssertionError(reply.message)
        return reply.snapshot_id

    def drop(self, name: str) -> None:
        """Delete a snapshot."""
        reply = self.client.request(0, DeleteSnapshot("vol", "tree", name))
        if reply.error:
            raise AssertionError(reply.message)

    def settle(self) -> None:
        """Let the plane do all that it can."""
        reply = self.client.request(0, Settle("tree"))
        if reply.error:
            raise AssertionError(reply.message)

    def entries(self, snapshot_id: str = "") -> Iterator[ListedEntry]:
        """All of the bucket, page by page."""
        after = ""
        while True:
            page = self.client.metadata(0).entries(
                "vol", "tree", snapshot_id=snapshot_id, start_after=after, limit=PAGE
            )
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].path

    def stored_bytes(self) -> int:
        """What the block store has."""
        return self.client.scm(0).totals().inventory_bytes


def make_deep(tree: LargeTree, levels: int) -> str:
    """A tree of so many levels with a key at its bottom, and the path of its top; grown from the bottom upwards.

    A path is at most 4,096 bytes, so a deeper tree is moved below what is made above it.
    """
    tree.do(MakeDirectory("vol", "tree", "t0"), PutKey("vol", "tree", "t0/bottom", SIZE_BYTES))
    made, number = 1, 0
    while made < levels:
        number += 1
        above = min(LEVELS_PER_COMMAND, levels - made)
        chain = "/".join([f"t{number}", *["d"] * (above - 1)])
        tree.do(MakeDirectory("vol", "tree", chain), RenameDirectory("vol", "tree", f"t{number - 1}", f"{chain}/d"))
        made += above
    return f"t{number}"


def make_wide(tree: LargeTree, children: int) -> None:
    """A directory with so many keys in it."""
    for start in range(0, children, PUTS_AT_ONCE):
        numbers = range(start, min(start + PUTS_AT_ONCE, children))
        tree.do(*(PutKey("vol", "tree", f"wide/{number:07}", SIZE_BYTES) for number in numbers))


def live_deep(levels: int) -> None:
    """Make, list, stat, rename, snapshot, delete and free a deep tree."""
    tree = LargeTree()
    with timed(f"make {levels} levels"):
        top = make_deep(tree, levels)
    with timed("take a snapshot, rename, list both"):
        snapshot_id = tree.snapshot("before")
        tree.do(RenameDirectory("vol", "tree", top, "renamed"))
        deepest = max(tree.entries(), key=lambda entry: entry.path.count("/"))
        check(deepest.path.count("/") == levels and deepest.path.endswith("/bottom"), "the key is at the bottom")
        check(deepest.path.startswith("renamed/"), "its path follows the rename")
        held = [entry.path.count("/") for entry in tree.entries(snapshot_id)]
        check(held == list(range(levels + 1)), "the snapshot lists every level")
    with timed("stat the bottom"):
        tree.client.metadata(0).stat("vol", "tree", deepest.path)
    with timed("delete the tree, expand it to the end"):
        tree.do(DeleteDirectory("vol", "tree", "renamed", is_recursive=True))
        tree.settle()
        check(tree.stored_bytes() == SIZE_BYTES, "the snapshot keeps the blocks")
        check(next(tree.entries(), None) is None, "nothing is left in the namespace")
    with timed("drop the snapshot, free all"):
        tree.drop("before")
        tree.settle()
        check_freed(tree, SIZE_BYTES)


def live_wide(children: int) -> None:
    """Make, list, delete and free a wide directory."""
    tree = LargeTree()
    with timed(f"make {children} children"):
        make_wide(tree, children)
    with timed("list them"):
        check(sum(1 for _ in tree.entries()) == children + 1, "every child is listed once")
    with timed("delete the directory, expand and free all"):
        tree.do(DeleteDirectory("vol", "tree", "wide", is_recursive=True))
        tree.settle()
        check_freed(tree, SIZE_BYTES * children)


def check_freed(tree: LargeTree, size_bytes: int) -> None:
    """Everything is freed to the last block, and nothing waits."""
    space = tree.client.metadata(0).space("vol", "tree")
    check((space.live_bytes, space.held_bytes, space.pending_bytes, space.claimed_bytes) == (0, 0, 0, 0), str(space))
    check((space.freed_bytes, space.unexpanded_directories) == (size_bytes, 0), str(space))
    check((space.live_namespace, space.deleted_namespace) == (0, 0), str(space))
    check(tree.stored_bytes() == 0, "the block store is empty")
    check(not tree.client.snapshots(0).dead_letters(), "nothing was put aside")


def check(is_so: bool, what: str) -> None:
    """Raise if it is not so."""
    if not is_so:
        raise AssertionError(what)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say how long something took, and the most memory that this process ever had."""
    started = time.perf_counter()
    yield
    peak_mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what}: {time.perf_counter() - started:.1f} s, peak {peak_mebibytes:.0f} MiB", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", type=int, default=0)
    parser.add_argument("--children", type=int, default=0)
    options = parser.parse_args()
    if options.levels:
        live_deep(options.levels)
    if options.children:
        live_wide(options.children)
