"""The relation that every source of the lens produces: references in their order, and the things that they hold.

A *reference* is a snapshot, tag or branch, or the active namespace. References have an order, in which snapshots that
follow each other stand side by side; the index of a reference is its *place*. A *thing* costs bytes: the blocks of a
version of a key, or a file of a table. Its holders are written as *runs* of places, ascending, not overlapping and not
adjacent. In a single line of snapshots each thing has at most one run, from its birth to its death; branches can
make several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

MOST_NAMES = 5
"""Most names of a kind in one sentence."""


def first_names(names: Sequence[str]) -> str:
    """Return names as part of a sentence: the first ones, and how many there are if they are many."""
    more = f" … ({len(names):,} in all)" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


class RefKind(StrEnum):
    """The kind of a reference."""

    SNAPSHOT = "snapshot"
    TAG = "tag"
    BRANCH = "branch"
    CHANGELOG = "changelog"
    """A changelog of Paimon that outlives its snapshot, or will: a snapshot's expiry does not free what it holds."""
    ACTIVE = "active"
    """The active namespace, or what the main branch of a table shows now: always the last place, never droppable."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference that holds things."""

    name: str
    """As people name it on the command line; unique within its bucket."""
    id: str
    kind: RefKind = RefKind.SNAPSHOT
    time_ms: int = -1
    """When it was created; -1 if the source does not say."""
    is_droppable: bool = True
    protected_by: tuple[str, ...] = ()
    """Names of tags, branches or consumers without whose removal it cannot be dropped."""
    status: str = ""
    """The status in the source's own word, as ``SNAPSHOT_ACTIVE``; empty if it has none."""


@dataclass(frozen=True, slots=True)
class LensBucket:
    """A bucket, or a table, and its references in their order."""

    name: str
    """``volume/bucket``, or the name of a table."""
    refs: tuple[Ref, ...]
    notes: tuple[str, ...] = ()
    """One sentence for each thing that is missing or not certain, and what is still right in the answers."""
    remarks: tuple[str, ...] = ()
    """Sentences that explain figures, and make none of them uncertain."""
    figures: dict[str, int] = field(default_factory=dict)
    """Figures that the source itself keeps, by the source's own names, as ``usedBytes`` or ``NAME/exclusiveSize`` of a
    snapshot.
    """
    not_looked_for: tuple[str, ...] = ()
    """One sentence for each kind of finding that was not looked for, and why. It makes no figure uncertain."""
    own_policy: str = ""
    """A sentence: by which policy of its own the source expires snapshots. Empty if it has none."""

    def __post_init__(self) -> None:
        active = [place for place, ref in enumerate(self.refs) if ref.kind is RefKind.ACTIVE]
        if active != [len(self.refs) - 1]:
            raise ValueError(f"{self.name}: the active reference has the last place, and there is one: {active}")
        if len({ref.name for ref in self.refs}) != len(self.refs):
            raise ValueError(f"{self.name}: two references have one name")

    @property
    def active_place(self) -> int:
        """Return the place of the active namespace."""
        return len(self.refs) - 1


DELETED_SNAPSHOT = "deleted-snapshot"
"""The kind of a finding on a snapshot that is deleted, and is no reference any more; its path is the name."""


@dataclass(frozen=True, slots=True)
class LensFinding:
    """Something that the source's own tools do not show: an orphan, a row that is never freed, a wrong figure."""

    kind: str
    """As ``orphaned-file``, ``orphaned-directory``, ``stuck-row``, ``broken-chain``, ``wrong-used-bytes``."""
    bucket: str
    path: str
    id: str
    bytes: int
    replicated_bytes: int
    sentence: str
    """What is wrong, and what to do."""
