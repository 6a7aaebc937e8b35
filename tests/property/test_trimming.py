"""The log is trimmed up to what somebody still needs: never further, and never less."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas.topics import (
    CHANGELOGS,
    CLIENTS,
    DELETED_ENTRIES,
    METADATA_COMMANDS,
    SNAPSHOT_CHAIN,
    SNAPSHOTS_CHANGELOG,
    TOPICS,
)
from services.plane.stack.process_names import METADATA, SERVICES, STREAMING
from services.plane.upkeep.trimming import Place, plan_trims
from services.runtime.copies.manifests import Backup, InputPosition, ServiceCopy

OFFSETS = st.integers(0, 50)


@st.composite
def _copies(draw: st.DrawFn) -> tuple[ServiceCopy, ...]:
    copies = []
    for service in SERVICES:
        if draw(st.integers(0, 9)) == 0:
            continue
        read = [topic.name for topic in TOPICS if service in topic.consumers and draw(st.integers(0, 9))]
        positions = tuple(InputPosition(topic, "id", draw(OFFSETS)) for topic in read)
        unfinished = draw(st.none() | OFFSETS) if service == METADATA else None
        copies.append(ServiceCopy(service, 0, positions, 1, unfinished_txn=unfinished, unfinished_offset=unfinished))
    return tuple(copies)


@given(
    copies=st.lists(_copies(), max_size=3),
    offsets=st.lists(OFFSETS, min_size=60, max_size=60),
    firsts=st.lists(st.integers(0, 20), min_size=len(TOPICS), max_size=len(TOPICS)),
    full_chains=st.lists(OFFSETS, max_size=3),
)
def test_nothing_goes_that_anybody_needs_and_all_else_does(
    copies: list[tuple[ServiceCopy, ...]], offsets: list[int], firsts: list[int], full_chains: list[int]
) -> None:
    backups = [Backup(f"b{number}", number, 1, one) for number, one in enumerate(copies)]
    readers: list[Place] = [(reader, topic.name, 0) for topic in TOPICS for reader in topic.consumers]
    positions = dict(zip(readers, offsets, strict=False))
    first_of = {(topic.name, 0): first for topic, first in zip(TOPICS, firsts, strict=True)}

    def find(_: int, until: int) -> int | None:
        return max((full for full in full_chains if full < until), default=None)

    for trim in plan_trims(1, first_of, positions, backups, find):
        topic = next(one for one in TOPICS if one.name == trim.topic)
        first = first_of[trim.topic, 0]
        assert first == trim.first <= trim.until
        if CLIENTS in topic.consumers:
            assert not trim.messages
            continue
        needed = []
        for reader in topic.consumers:
            if (reader, topic) == (STREAMING, SNAPSHOT_CHAIN):
                continue
            position = positions[reader, topic.name, 0]
            if reader == STREAMING:
                needed.append(position)
                continue
            needed.append(position if topic in CHANGELOGS.values() else max(0, position - 1))
            of_backups = [copy for one in copies for copy in one if copy.service == reader]
            found = [copy.position(topic.name) for copy in of_backups]
            kept = 0 if topic in CHANGELOGS.values() else 1
            needed += [max(0, one.next_offset - kept) if one else 0 for one in found] or [0]
            needed += [
                copy.unfinished_offset
                for copy in of_backups
                if topic is METADATA_COMMANDS and copy.unfinished_offset is not None
            ]
        most = max(min(needed), first)
        if topic is SNAPSHOT_CHAIN:
            usable = [full for full in full_chains if first < full <= most]
            assert trim.until == max(usable, default=first)
        else:
            assert trim.until == most
        assert trim.pinned_by


def test_where_hosts_share_the_shards_only_what_spark_alone_reads_goes_and_that_as_far_as_it_says() -> None:
    read = tuple(InputPosition(topic.name, "id", 50) for topic in TOPICS)
    whole = tuple(ServiceCopy(service, 0, read, 1) for service in SERVICES)
    kept = [Backup("b", 1, 1, whole)]
    firsts = {(topic.name, 0): 0 for topic in TOPICS}
    positions: dict[Place, int] = {(reader, topic.name, 0): 40 for topic in TOPICS for reader in topic.consumers}
    trims = plan_trims(1, firsts, positions, kept, lambda _, until: until, may_move=True)
    assert {trim.topic: trim.until for trim in trims if trim.messages} == {DELETED_ENTRIES.name: 40}
    del positions[STREAMING, DELETED_ENTRIES.name, 0]
    trims = plan_trims(1, firsts, positions, kept, lambda _, until: until, may_move=True)
    assert not any(trim.messages for trim in trims)
    pinned = next(trim.pinned_by for trim in trims if trim.topic == DELETED_ENTRIES.name)
    assert pinned == "streaming, which does not tell its position"


def test_where_hosts_share_the_shards_only_a_backup_that_they_share_lets_what_a_service_reads_go() -> None:
    read = tuple(InputPosition(topic.name, "id", 50) for topic in TOPICS)
    own = Backup("own", 1, 1, tuple(ServiceCopy(service, 0, read, 1) for service in SERVICES))
    shared = Backup("shared", 2, 1, (ServiceCopy("key_deletion", 0, read, 1),))
    firsts = {(topic.name, 0): 0 for topic in TOPICS}
    positions: dict[Place, int] = {(reader, topic.name, 0): 60 for topic in TOPICS for reader in topic.consumers}

    def trimmed(*begins: Backup) -> set[str]:
        found = plan_trims(1, firsts, positions, [own, shared], lambda _, until: until, may_move=True, shared=[*begins])
        return {trim.topic for trim in found if trim.messages}

    read_by_key_deletion_alone = {topic.name for topic in TOPICS if topic.consumers == ("key_deletion",)}
    assert trimmed() == {DELETED_ENTRIES.name}
    assert trimmed(shared) == {DELETED_ENTRIES.name} | read_by_key_deletion_alone
    assert trimmed(own) > {DELETED_ENTRIES.name, METADATA_COMMANDS.name, SNAPSHOTS_CHANGELOG.name}
