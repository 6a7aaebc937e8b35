"""The search for owners of orphaned blocks takes many commands; whatever moves meanwhile, an owner is never missed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import (
    BlockRun,
    ClaimRows,
    DeleteKey,
    MetadataReply,
    PutKey,
    RenameKey,
    RequeueOrphans,
    Undelete,
)
from schemas.topics import METADATA_COMMANDS
from services.domain.row_columns import by_columns
from services.domain.table_keys import identity_of_garbage_key, local_id
from services.log.memory import MemoryLog
from services.metadata.recovery.digest import digest_shard
from services.metadata.service import MetadataService
from services.metadata.state import orphan_search
from services.metadata.state.tables import CHECKPOINTED, DELETED_TABLE, ORPHAN_SEARCH_TABLE
from services.runtime.loop.runner import Runner
from services.storage.memory import MemoryStore
from services.storage.tables import TablesReader
from tests.unit.test_metadata import Shard

GOES_ON = "SEARCH_IN_PROGRESS"
MANY = 1_000
ROWS_A_PAGE = 2
KEYS = 7
TXN_WITHOUT_BLOCKS = 1
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphan_search, "MAX_ROWS_READ", ROWS_A_PAGE)


@dataclass
class Searched:
    """A shard with some keys, of which one owns blocks that an audit takes for orphans, or none does."""

    shard: Shard
    command: RequeueOrphans

    @classmethod
    def made(cls, owner: int | None) -> Searched:
        """``owner`` is the number of the key that owns the blocks."""
        shard = Shard()
        runs = [shard.do(PutKey("vol", "flat", f"key-{number}", 10)).committed for number in range(KEYS)]
        run = BlockRun(1, local_id(0, TXN_WITHOUT_BLOCKS, 0), 1, 1_024, 5)
        if owner is not None:
            committed = runs[owner]
            assert committed is not None
            assert committed.blocks is not None
            run = committed.blocks
        txn = shard.do(PutKey("vol", "flat", "last", 0)).txn
        return cls(shard, RequeueOrphans(shard.bucket("flat").object_id, txn, (run,), MANY))

    def page(self) -> MetadataReply:
        return self.shard.do(self.command, sender="audit")

    def rows(self) -> list[bytes]:
        return [key for key, _ in self.shard.store.scan(DELETED_TABLE.name, b"/", b"0")]

    def is_searching(self) -> bool:
        return any(self.shard.store.scan(ORPHAN_SEARCH_TABLE.name, b"", b"\xff"))

    def is_as_rebuilt(self) -> bool:
        """Whether the same log gives the same database, in units of other lengths."""
        shard, log = self.shard, MemoryLog(self.shard.clock)
        log.partitions[METADATA_COMMANDS.name, 0] = shard.log.records(METADATA_COMMANDS.name, 0)
        store = MemoryStore(CHECKPOINTED)
        runner = Runner(MetadataService(), 0, store, log, shard.clock, max_batch_messages=3)
        while runner.step():
            pass
        return digest_shard(store) == digest_shard(shard.store)


def test_a_search_of_many_pages_ends_with_a_garbage_row() -> None:
    searched = Searched.made(owner=None)
    answers = [searched.page()]
    while answers[-1].error == GOES_ON:
        answers.append(searched.page())
    assert not answers[-1].error
    assert len(answers) == (KEYS + 1) // ROWS_A_PAGE
    assert len(searched.rows()) == 1
    assert not searched.is_searching()


def _move(searched: Searched, random: Random) -> None:
    """Something that moves rows from one place to another."""
    shard, number = searched.shard, random.randrange(KEYS)
    act = random.choice(["rename", "rename", "delete", "claim", "undelete", "overwrite"])
    if act == "rename":
        shard.do(RenameKey("vol", "flat", f"key-{number}", random.choice("az") + f"-{shard.number}"))
        shard.do(RenameKey("vol", "flat", next(iter(sorted(shard.names("flat")))), f"key-{number}"))
    elif act == "delete":
        shard.do(DeleteKey("vol", "flat", f"key-{number}"))
    elif act == "overwrite":
        shard.do(PutKey("vol", "flat", f"key-{number}", 3))
    elif names := [entry for entry in shard.entries() if not entry.sweep_id]:
        chosen = random.choice(names)
        if act == "claim":
            row = next(shard.row(index) for index, one in enumerate(shard.entries()) if one == chosen)
            shard.internal(ClaimRows(shard.number, 0, by_columns([row])))
        else:
            back = Undelete(
                volume="vol", bucket="flat", path=f"back-{shard.number}", kind=chosen.kind,
                object_id=chosen.object_id, birth=chosen.birth, death=chosen.death,
            )  # fmt: skip
            shard.do(back)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), owner=st.one_of(st.none(), st.integers(0, KEYS - 1)))
def test_an_owner_is_found_wherever_it_moves(seed: int, owner: int | None) -> None:
    random = Random(seed)
    searched = Searched.made(owner)
    reply = searched.page()
    while reply.error == GOES_ON:
        for _ in range(random.choice((0, 0, 1, 2))):
            _move(searched, random)
        reply = searched.page()
    made = [key for key in searched.rows() if identity_of_garbage_key(key)[1] == reply.txn]
    if owner is None:
        assert (reply.error, len(made)) == ("", 1), reply.message
    else:
        assert (reply.error, made) == ("INVALID_REQUEST", [])
    assert not searched.is_searching()
    assert searched.is_as_rebuilt()


def test_an_owner_that_moves_behind_the_search_ends_it() -> None:
    searched = Searched.made(owner=KEYS - 1)
    assert searched.page().error == GOES_ON
    assert not searched.shard.refusal(RenameKey("vol", "flat", f"key-{KEYS - 1}", "a"))
    reply = searched.page()
    assert (reply.error, searched.rows()) == ("INVALID_REQUEST", [])
    assert "has an owner" in reply.message
    assert searched.is_as_rebuilt()


def test_a_refused_command_moves_nothing() -> None:
    searched = Searched.made(owner=None)
    assert searched.page().error == GOES_ON
    assert searched.shard.refusal(RenameKey("vol", "flat", "key-1", "key-2")) == "KEY_ALREADY_EXISTS"
    assert searched.page().error == GOES_ON


@pytest.mark.parametrize("is_started_again", [False, True])
def test_a_search_survives_a_start(is_started_again: bool) -> None:
    searched = Searched.made(owner=KEYS - 1)
    assert searched.page().error == GOES_ON
    if is_started_again:
        searched.shard.start()
    assert not searched.shard.refusal(RenameKey("vol", "flat", f"key-{KEYS - 1}", "a"))
    assert searched.page().error == "INVALID_REQUEST"


def test_another_search_waits_until_nobody_goes_on_with_the_first() -> None:
    searched = Searched.made(owner=None)
    assert searched.page().error == GOES_ON
    other = replace(searched.command, max_rows=MANY - 1)
    shard = searched.shard
    shard.clock.advance(orphan_search.IDLE_MS - 1)
    assert shard.refusal(other, sender="audit") == "BUCKET_BUSY"
    shard.clock.advance(1)
    assert shard.refusal(other, sender="audit") == GOES_ON
    assert searched.page().error == "BUCKET_BUSY"
    shard.clock.advance(HOUR_MS)
    shard.do(PutKey("vol", "flat", "an hour later", 0))
    assert not searched.is_searching()
    assert searched.is_as_rebuilt()


def test_a_search_has_its_limit_over_all_pages() -> None:
    for most, error in ((KEYS, "INVALID_REQUEST"), (KEYS + 1, "")):
        searched = Searched.made(owner=None)
        searched.command = RequeueOrphans(
            searched.command.bucket_id, searched.command.audited_txn, searched.command.blocks, most
        )
        reply = searched.page()
        while reply.error == GOES_ON:
            reply = searched.page()
        assert reply.error == error, reply.message
        assert not searched.is_searching()
        tables = TablesReader(searched.shard.store)
        assert bool(list(tables.table(DELETED_TABLE).scan(b"/", b"0"))) == (not error)
