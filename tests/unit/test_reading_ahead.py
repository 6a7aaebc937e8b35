"""What the commands of a unit of work name is looked up together, and changes nothing of what they do."""

from __future__ import annotations

import pytest

from schemas.records import DeleteKey, MetadataCommand, PutKey
from schemas.topics import METADATA_REPLIES
from tests.unit.test_metadata import Shard

BODIES: tuple[PutKey | DeleteKey, ...] = (
    PutKey("vol", "flat", "old", 1, "again"),
    PutKey("vol", "flat", "new", 1, "first"),
    PutKey("vol", "flat", "new", 1, "second"),
    DeleteKey("vol", "flat", "gone"),
    DeleteKey("vol", "flat", "gone"),
    PutKey("vol", "flat", "gone", 1, "back"),
    PutKey("vol", "tree", "file", 1, "in a tree"),
    DeleteKey("vol", "nowhere", "none"),
)


def _filled() -> Shard:
    shard = Shard()
    for name in ("old", "gone"):
        shard.do(PutKey("vol", "flat", name, 1, "before"))
    return shard


def _commands() -> list[MetadataCommand]:
    return [MetadataCommand(0, "me", number, body) for number, body in enumerate(BODIES, start=100)]


def _do_at_once(shard: Shard) -> None:
    for command in _commands():
        shard.send(command)
    shard.runner.step()


def _seen(shard: Shard) -> object:
    replies = shard.sent(METADATA_REPLIES)[-len(BODIES) :]
    return shard.names("flat"), shard.names("tree"), [reply.error for reply in replies], len(shard.entries())


def test_puts_and_deletes_of_a_unit_are_looked_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = _filled()
    read = shard.store.get
    singly: list[bytes] = []
    together: list[list[bytes]] = []

    def get(family: str, key: bytes) -> bytes | None:
        if family == "keyTable":
            singly.append(key)
        return read(family, key)

    def get_many(family: str, keys: list[bytes]) -> list[bytes | None]:
        together.append(keys)
        return [read(family, key) for key in keys]

    monkeypatch.setattr(shard.store, "get", get)
    monkeypatch.setattr(shard.store, "get_many", get_many)
    _do_at_once(shard)
    assert singly == []
    assert together == [[f"/vol/flat/{name}".encode() for name in ("old", "new", "new", "gone", "gone", "gone")]]
    assert shard.names("flat") == {"old": "again", "new": "second", "gone": "back"}


def test_what_they_do_is_the_same_one_by_one() -> None:
    at_once, one_by_one = _filled(), _filled()
    _do_at_once(at_once)
    for command in _commands():
        one_by_one.send(command)
        one_by_one.runner.step()
    assert _seen(at_once) == _seen(one_by_one)
    assert _seen(at_once) == (
        {"old": "again", "new": "second", "gone": "back"},
        {"file": "in a tree"},
        ["", "", "", "", "KEY_NOT_FOUND", "", "", "BUCKET_NOT_FOUND"],
        3,
    )
