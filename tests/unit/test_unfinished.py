"""What is begun and not ended pins the log where it began."""

from __future__ import annotations

from schemas.records import (
    AcceptLostTail,
    BucketLayout,
    CountRow,
    CreateBucket,
    CreateVolume,
    DeleteKey,
    MetadataCommand,
    PutKey,
    PutKeys,
    RollbackRow,
    ShardState,
)
from schemas.stored_rows import row_codec
from schemas.topics import METADATA_COMMANDS
from services.domain.table_keys import ascending_death_key, descending_death_key
from services.metadata.checkpoints import rollback
from services.metadata.checkpoints.unfinished import first_offset_of_txn, oldest_unfinished_txn
from services.metadata.reads.queries import shard_state
from services.metadata.state.tables import TRANSACTION_INFO_KEY
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader
from tests.unit.test_put_keys import new_shard


def test_the_oldest_of_all_kinds_counts() -> None:
    store = MemoryStore()
    assert oldest_unfinished_txn(store) is None
    count = row_codec(CountRow).encode(CountRow(1))
    keys = [key(5, death) for death in (40, 30) for key in (ascending_death_key, descending_death_key)]
    store.write({"unexpandedTable": dict.fromkeys(keys, count)})
    assert oldest_unfinished_txn(store) == 30
    rollbacks = {
        b"/5/ended": RollbackRow("s1", 1, 2, _last_phase(), b"", 0, 0),
        b"/5/going-on": RollbackRow("s2", 20, 2, 0, b"", 0, 0),
    }
    store.write({"rollbackTable": {key: row_codec(RollbackRow).encode(row) for key, row in rollbacks.items()}})
    assert oldest_unfinished_txn(store) == 20


def _last_phase() -> int:
    return next(phase for phase in range(99) if rollback.is_finished(RollbackRow("s", 1, 1, phase, b"", 0, 0)))


def test_a_claim_without_a_confirmation_counts() -> None:
    plane = InMemoryPlane()
    client = InMemoryClient(plane)
    for body in (
        CreateVolume("vol"),
        CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE),
        PutKey("vol", "bucket", "key", 5),
        DeleteKey("vol", "bucket", "key"),
    ):
        client.answer(0, client.submit(0, body))
    store = plane.processes["metadata", 0].store
    plane.processes = {address: one for address, one in plane.processes.items() if address[0] != "mock_scm"}
    plane.run_until(lambda: oldest_unfinished_txn(store) is not None)
    assert oldest_unfinished_txn(store) == 5
    plane.start("mock_scm", 0)
    plane.run_until(lambda: oldest_unfinished_txn(store) is None)
    assert oldest_unfinished_txn(store) is None


def test_a_txn_is_never_looked_for_behind_its_command_after_many_keys_were_put_at_a_txn_each() -> None:
    plane = InMemoryPlane()
    client = InMemoryClient(plane)
    client.answer(0, client.submit(0, CreateVolume("vol")))
    client.answer(0, client.submit(0, CreateBucket("vol", "bucket", BucketLayout.OBJECT_STORE)))
    client.answer(
        0, client.submit(0, PutKeys("vol", "bucket", ("/", *(f"key-{place}" for place in range(8))), (1,) * 9))
    )
    offset = plane.log.end_offset(METADATA_COMMANDS.name, 0)
    deleted = client.answer(0, client.submit(0, DeleteKey("vol", "bucket", "key-0")))
    assert deleted.txn > offset + 1
    store = plane.processes["metadata", 0].store
    skipped = shard_state(TablesReader(store)).skipped_txns
    assert skipped == 8, "a key has a txn of its own, refused or not, and the first one that of the command"
    assert 0 < first_offset_of_txn(store, deleted.txn) <= offset


def test_an_accepted_loss_does_not_forget_how_far_txns_were_ahead_of_offsets() -> None:
    shard = new_shard()
    keys = tuple(f"key-{place}" for place in range(9))
    first = shard.log.end_offset(METADATA_COMMANDS.name, 0)
    put = shard.do(PutKeys("vol", "flat", keys, (1,) * 9))
    assert put.committed
    assert put.committed.keys_put
    for _ in range(30):
        assert shard.refusal(DeleteKey("vol", "flat", "missing"))
    state = shard_state(TablesReader(shard.store))
    end = shard.log.end_offset(METADATA_COMMANDS.name, 0)
    accepted = AcceptLostTail(
        end, state.txn, state.log_time_ms, state.epoch + 1, state.txn, state.chain_version + 1, reason=""
    )
    shard.send(MetadataCommand(0, "", 0, accepted, wants_reply=False))
    shard.runner.step()
    assert shard_state(TablesReader(shard.store)).epoch == state.epoch + 1
    assert first_offset_of_txn(shard.store, put.txn) <= first


def test_a_txn_is_never_looked_for_behind_its_command() -> None:
    store = MemoryStore()
    assert first_offset_of_txn(store, 7) == 6
    state = ShardState(1_000_050, 1, 1, 1, 0, "", skipped_txns=1_000_000)
    store.write({"transactionInfoTable": {TRANSACTION_INFO_KEY: row_codec(ShardState).encode(state)}})
    assert first_offset_of_txn(store, 1_000_031) == 30
    assert first_offset_of_txn(store, 12) == 0
