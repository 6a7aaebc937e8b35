"""What is told to the judges: as it was noted, barriers in their place, and nothing of a refused command."""

from __future__ import annotations

from schemas.codec import codec
from schemas.records import Barrier, DeletedEntries, DeletedKind
from services.metadata.state.batch_sums import PresentTxn
from services.metadata.state.sent_entries import Entry, SentEntries
from services.runtime.loop.service import Work
from services.storage.memory import MemoryStore
from services.storage.tables import RowCache


def entry(number: int) -> Entry:
    return 1, number, number, number + 1, 0


def sent(entries: SentEntries) -> list[tuple[int, ...] | str]:
    """The objects of each message, or the id of a barrier."""
    work = Work(0, MemoryStore(), RowCache())
    entries.send(work, 7)
    messages = [codec(DeletedEntries).decode_message(message.value) for message in work.messages]
    assert all(message.chain_version == 7 for message in messages)
    return [one.barrier.barrier_id if one.barrier else one.rows.object_ids for one in messages]


def test_entries_keep_their_pages_and_barriers_stand_between_them() -> None:
    present = PresentTxn(1)
    entries = SentEntries(present)
    entries.add(DeletedKind.KEY, [entry(1)])
    entries.add(DeletedKind.DIRECTORY, [entry(2)])
    present.txn = 2
    entries.add(DeletedKind.KEY, [entry(3), entry(4)])
    entries.add_barrier(Barrier("snapshots", 1, 0, ""))
    entries.add_barrier(Barrier("key_deletion", 1, 0, ""))
    present.txn = 3
    entries.add(DeletedKind.KEY, [entry(5)])
    entries.add(DeletedKind.KEY, [entry(6)], 9, 1)
    assert sent(entries) == [(1, 3, 4), (2,), "snapshots", "key_deletion", (5,), (6,)]
    assert sent(entries) == [], "a batch is sent once"


def test_nothing_of_a_refused_command_is_sent() -> None:
    present = PresentTxn(1)
    entries = SentEntries(present)
    entries.add(DeletedKind.KEY, [entry(1)])
    entries.add_barrier(Barrier("snapshots", 1, 0, ""))
    present.txn = 2
    entries.add(DeletedKind.KEY, [entry(2)])
    entries.add(DeletedKind.RENAME_ENTRY, [entry(3)])
    entries.undo_message()
    entries.undo_message()
    entries.add(DeletedKind.KEY, [entry(4)])  # its txn is the next command's
    assert sent(entries) == [(1,), "snapshots", (4,)]
