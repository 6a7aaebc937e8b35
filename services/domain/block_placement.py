"""On which datanodes a container is, and what happens to its copies: rules without state.

The facts are what mock_scm knows at one moment. A datanode is *alive* if it has reported lately, and *dead* if not.
While mock_scm has not listened long enough to tell, nothing is decided about those that it has not heard.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from schemas.records import ContainerReplica, ContainerRow, ContainerState


@dataclass(frozen=True, slots=True)
class LiveCopy:
    """A copy of a container in the last report of a datanode that is alive."""

    is_open: bool
    is_recovering: bool
    block_count: int
    damaged_blocks: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one container beside its row."""

    copies: Mapping[str, LiveCopy]
    """By datanode the copies on datanodes that are alive."""
    load: Mapping[str, int]
    """The number of containers on each datanode that is alive and has a disk that works."""
    alive: Collection[str]
    is_sure: bool
    """Whether a datanode that is not alive is dead: mock_scm has listened long enough, and has read its log."""
    is_pending: bool = False
    """Whether transactions of deletions have not ended."""

    def sources(self, row: ContainerRow) -> list[str]:
        """Return the datanodes from which the whole container can be read."""
        nodes = [one.node for one in row.replicas]
        return [node for node in nodes if node in self.copies and not self.copies[node].is_recovering]

    def is_dead(self, node: str) -> bool:
        """Return whether a datanode is known to be dead."""
        return self.is_sure and node not in self.alive


def choose_nodes(load: Mapping[str, int], count: int, without: Collection[str] = ()) -> tuple[str, ...]:
    """Return ``count`` datanodes for copies, those with the fewest containers first; none if there are not as many."""
    fitting = sorted((containers, node) for node, containers in load.items() if node not in without)
    return tuple([node for _, node in fitting[:count]]) if len(fitting) >= count else ()


def reviewed(row: ContainerRow, facts: Facts, count: int) -> ContainerRow:
    """Return the row of a container after all that follows from the facts; ``count`` copies are wanted."""
    for rule in (_adopted, _seen, _closed, _emptied):
        row = rule(row, facts)
    return _replicated(row, facts, count)


def _adopted(row: ContainerRow, facts: Facts) -> ContainerRow:
    """Copies of a container of which nothing is known are its copies: the database was made again from the log."""
    found = [node for node in sorted(facts.copies) if not facts.copies[node].is_recovering]
    if row.replicas or row.state is ContainerState.DELETED or not (found and facts.is_sure):
        return row
    state = ContainerState.CLOSING if row.state is ContainerState.OPEN else row.state
    return replace(row, replicas=tuple([ContainerReplica(node, is_complete=True) for node in found]), state=state)


def _seen(row: ContainerRow, facts: Facts) -> ContainerRow:
    """Record which copies are complete. A copy that was lost or whose datanode is dead ends the writing."""
    replicas = tuple([_seen_copy(one, facts) for one in row.replicas])
    if row.state is not ContainerState.OPEN:
        return replace(row, replicas=replicas)
    was_lost = any(one.is_complete and one not in replicas for one in row.replicas)
    is_short = any(facts.is_dead(one.node) for one in row.replicas)
    is_closed = any(not copy.is_open for copy in facts.copies.values())
    state = ContainerState.CLOSING if was_lost or is_short or is_closed else row.state
    return replace(row, replicas=replicas, state=state)


def _seen_copy(one: ContainerReplica, facts: Facts) -> ContainerReplica:
    if one.node not in facts.alive:  # it may come back with its copy
        return one
    copy = facts.copies.get(one.node)
    return replace(one, is_complete=copy is not None and not copy.is_recovering)


def _closed(row: ContainerRow, facts: Facts) -> ContainerRow:
    """A container is closed once no datanode that may be alive accepts blocks."""
    if row.state is not ContainerState.CLOSING:
        return row
    is_known = facts.is_sure or all(one.node in facts.alive for one in row.replicas)
    is_open = any(copy.is_open for copy in facts.copies.values())
    return replace(row, state=ContainerState.CLOSED) if is_known and not is_open else row


def _emptied(row: ContainerRow, facts: Facts) -> ContainerRow:
    """A closed container without blocks is removed, once all its datanodes have said that their copies are empty.

    A block that a client has written and not yet committed keeps its container.
    """
    if not row.replicas or any(one.node not in facts.alive for one in row.replicas):
        return row
    copies = [facts.copies[one.node] for one in row.replicas if one.node in facts.copies]
    has_blocks = any(copy.block_count for copy in copies)
    if row.state is ContainerState.CLOSED and not (row.block_count or facts.is_pending or has_blocks):
        return replace(row, state=ContainerState.DELETING)
    if row.state is ContainerState.DELETING and has_blocks:
        return replace(row, state=ContainerState.CLOSED)
    if row.state is ContainerState.DELETING and not copies:
        return replace(row, state=ContainerState.DELETED, replicas=())
    return row


def _replicated(row: ContainerRow, facts: Facts, count: int) -> ContainerRow:
    """A closed container gets another datanode in the place of each dead one, and of each that it is short of.

    Only if there is something to copy from and a datanode to copy to: else the dead one may bring its copy back. If
    nothing is left to copy from, a copy on any datanode is welcome, even an old one.
    """
    if row.state is not ContainerState.CLOSED:
        return row
    if not facts.sources(row):
        found = [node for node in sorted(facts.copies) if not facts.copies[node].is_recovering]
        if not (found and facts.is_sure):
            return row
        return replace(row, replicas=(*row.replicas, *[ContainerReplica(node, is_complete=True) for node in found]))
    for dead in [one.node for one in row.replicas if facts.is_dead(one.node)]:
        row = _moved(row, dead, facts)
    for _ in range(count - len(row.replicas)):
        row = _moved(row, "", facts)
    return _trimmed(row, facts, count)


def _trimmed(row: ContainerRow, facts: Facts, count: int) -> ContainerRow:
    """Give up copies beyond those that are wanted, once as many are whole: a database made again has adopted all."""
    whole = facts.sources(row)
    if len(row.replicas) <= count or len(whole) < count or facts.is_pending:
        return row
    return replace(row, replicas=tuple([one for one in row.replicas if one.node in whole[:count]]))


def _moved(row: ContainerRow, dead: str, facts: Facts) -> ContainerRow:
    """Have a copy on another datanode, not on one with an old copy: that is removed first."""
    chosen = choose_nodes(facts.load, 1, {one.node for one in row.replicas} | facts.copies.keys())
    kept = tuple([one for one in row.replicas if one.node != dead])
    return replace(row, replicas=(*kept, ContainerReplica(chosen[0], is_complete=False))) if chosen else row


def is_under_replicated(row: ContainerRow, complete: int) -> bool:
    """Return whether a container has fewer complete copies than it is to have.

    One without blocks that takes no more is not: if its only datanode is dead, there is nothing to copy.
    """
    return complete < len(row.replicas) and bool(row.block_count or row.state is ContainerState.OPEN)


def is_lost(row: ContainerRow, complete: int) -> bool:
    """Return whether no complete copy of a container's blocks is left."""
    return bool(row.replicas and row.block_count and not complete)


def may_be_copied_to(row: ContainerRow, node: str) -> bool:
    """Return whether a datanode that has no copy of a container may get one from another."""
    return any(one.is_complete and one.node != node for one in row.replicas)


def is_surplus(row: ContainerRow, node: str, facts: Facts) -> bool:
    """Return whether a datanode's copy of a container is not needed: it is to have none, and others have it.

    Such a copy is that of a datanode which was dead: it may have blocks that were deleted since. A mock_scm that was
    made again from the log knows which containers there are only when all datanodes have reported.
    """
    if any(one.node == node for one in row.replicas) or not facts.is_sure:
        return False
    if row.state in (ContainerState.DELETING, ContainerState.DELETED):
        return True
    complete = facts.sources(row)
    awaited = [one for one in row.replicas if one.node in facts.load or one.node in facts.copies]
    if len(complete) < max(1, len(awaited)):
        return False  # it may be one of few until the copies in its place are made
    may_heal = any(facts.copies[one].damaged_blocks for one in complete) and not facts.copies[node].damaged_blocks
    # A block that is lost never heals. Then the copy must not be in the way of a new one, which no other node can have.
    has_no_other = facts.load.keys() <= {one.node for one in row.replicas} | facts.copies.keys()
    return not may_heal or (has_no_other and len(awaited) < len(row.replicas))
