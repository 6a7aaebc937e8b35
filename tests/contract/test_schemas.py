"""Schemas, dataclasses and topics agree, and every released schema can be read by every other."""

from __future__ import annotations

import dataclasses
import inspect
import io
import typing
from enum import StrEnum
from types import UnionType
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import generate, published, records, topics
from schemas.codec import Codec, DecodeError, codec, frame
from schemas.schema_files import Released, own_schema, released_index, released_schemas, resolved_schema
from tests.schema_releases import (
    FIRST_ID,
    digests,
    incompatibilities,
    index_lines,
    released_records,
    unreleased,
)

RECORDS = [value for value in vars(records).values() if isinstance(value, type) and dataclasses.is_dataclass(value)]
LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)


def test_the_classes_are_what_the_schemas_say() -> None:
    """Run ``python -m schemas.generate`` after a change of ``schemas/avro``."""
    made = {name: generate.formatted(text) for name, text in generate.generated(generate.folders()).items()}
    assert made == {file.name: file.read_text("utf-8") for file in generate.MODULES.glob("*.py")}


def test_a_field_with_a_default_may_come_before_one_without() -> None:
    """The last field of a claimed row stays the last one, and what is added to the row has a default."""
    names = [("first", {}), ("added", {"default": 7}), ("secret", {"default": 8, "is_secret": True}), ("last", {})]
    fields = [{"name": name, "type": "long", "doc": "A number.", **more} for name, more in names]
    schema = {"type": "record", "name": "Row", "doc": "A row.", "fields": [*fields, {**fields[1], "name": "end"}]}
    module: dict[str, Any] = {"__name__": generate.__name__}
    exec(generate.generated({"space": [schema]})["space.py"], module)  # noqa: S102  made here
    row = module["Row"](1, 2, added=3)
    assert dataclasses.astuple(row) == (1, 3, 8, 2, 7)
    assert repr(row) == "Row(first=1, added=3, last=2, end=7)"
    assert dataclasses.astuple(module["Row"](1, 2, 5)) == (1, 7, 8, 2, 5)


def test_a_record_is_frozen_and_takes_its_fields_as_a_dataclass_does() -> None:
    plain = dataclasses.make_dataclass("Plain", [(one.name, one.type) for one in dataclasses.fields(records.BlockRun)])
    assert str(inspect.signature(records.BlockRun)) == str(inspect.signature(plain))
    run = records.BlockRun(1, 2, 3, 4, size_bytes=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.size_bytes = 6  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"BlockRun.__init__\(\) missing 1 required .*size_bytes"):
        records.BlockRun(1, 2, 3, 4)  # type: ignore[call-arg]
    assert run == dataclasses.replace(run)
    assert hash(run) == hash(dataclasses.replace(run))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_field_is_explained(record: type[Any]) -> None:
    assert all(field["doc"].strip() for field in own_schema(record.__name__)["fields"])


def _values(hint: Any, avro: Any) -> st.SearchStrategy[Any]:
    if isinstance(hint, UnionType):
        return st.one_of(
            *[st.none() if branch is type(None) else record_values(branch) for branch in typing.get_args(hint)]
        )
    if typing.get_origin(hint) is tuple:
        return st.lists(_values(typing.get_args(hint)[0], avro["items"]), max_size=3).map(tuple)
    if hint is int:
        return INT if avro == "int" else LONG
    if hint in (str, bytes, bool):
        return {str: st.text(max_size=20), bytes: st.binary(max_size=20), bool: st.booleans()}[hint]
    if issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    return record_values(hint)


def record_values(record: type[Any]) -> st.SearchStrategy[Any]:
    """Any value of a record."""
    hints = typing.get_type_hints(record, vars(records))
    fields = own_schema(record.__name__)["fields"]
    return st.builds(record, **{field["name"]: _values(hints[field["name"]], field["type"]) for field in fields})


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_what_is_encoded_is_decoded(record: type[Any]) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(record_values(record))
    def round_trip(value: Any) -> None:
        encoded = codec(record).encode(value)
        assert codec(record).decode(encoded) == value
        # The codec's bytes are what any other Avro library reads.
        read = fastavro.schemaless_reader(io.BytesIO(encoded), resolved_schema(record.__name__), None)
        assert isinstance(read, dict)
        assert list(read) == [field.name for field in dataclasses.fields(record)]

    round_trip()


@pytest.mark.parametrize("topic", topics.TOPICS, ids=lambda topic: topic.name)
def test_broken_bytes_are_refused(topic: topics.Topic) -> None:
    @settings(max_examples=50, deadline=None)
    @given(st.binary(max_size=200))
    def refuse(body: bytes) -> None:
        try:
            value = codec(topic.record).decode(body)
        except DecodeError:
            return
        assert isinstance(value, topic.record)

    refuse()


def test_trailing_bytes_are_refused() -> None:
    body = codec(records.Settle).encode(records.Settle("one"))
    with pytest.raises(DecodeError, match="1 bytes follow"):
        codec(records.Settle).decode(body + b"\0")


def test_a_number_beyond_its_range_is_refused() -> None:
    too_long = {"type": "record", "name": "Barrier", "namespace": "deepclean", "fields": [
        {"name": "barrier_id", "type": "string"},
        {"name": "round", "type": "long"},
        {"name": "work", "type": "long"},
        {"name": "origin", "type": "string"},
    ]}  # fmt: skip
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, too_long, {"barrier_id": "b", "round": 2**31, "work": 0, "origin": ""})
    with pytest.raises(DecodeError, match="beyond 32 bits"):
        codec(records.Barrier).decode(buffer.getvalue())


@pytest.mark.parametrize("message", [b"", b"\0", b"\1abcd", frame(7) + b"body"])
def test_a_message_of_no_known_schema_is_refused(message: bytes) -> None:
    with pytest.raises(DecodeError, match=r"not 00 and an id|nobody has published a schema with the id 7"):
        codec(records.MetadataCommand).decode_message(message)


def test_every_schema_is_released_as_it_is() -> None:
    """Docs and defaults, too: run ``python -m tests.schema_releases`` after a change."""
    assert [name for name, _ in unreleased()] == []


def test_no_released_schema_has_changed() -> None:
    """A file of ``schemas/released`` stays as it is for ever: put it back, and add the next version."""
    assert digests() == {name: digest for name, (_, digest) in released_index().items()}


def test_no_two_released_schemas_have_the_same_id() -> None:
    ids = [schema_id for schema_id, _ in released_index().values()]
    assert len(set(ids)) == len(ids)
    assert min(ids) == FIRST_ID


def test_a_new_file_gets_the_next_id_and_the_others_keep_theirs() -> None:
    known = {"b.v1.avsc": (FIRST_ID, "one"), "c.v1.avsc": (FIRST_ID + 1, "two")}
    lines = index_lines(known, {"a.v1.avsc": "three", "b.v1.avsc": "one", "c.v1.avsc": "changed"})
    assert lines[:2] == [f"{FIRST_ID} one b.v1.avsc\n", f"{FIRST_ID + 1} two c.v1.avsc\n"]
    assert lines[2:] == [f"{FIRST_ID + 2} three a.v1.avsc\n"]


@pytest.mark.parametrize("record", released_records(), ids=lambda record: record.__name__)
def test_every_version_reads_every_other(record: type[Any]) -> None:
    assert not incompatibilities(record.__name__, list(released_schemas(record.__name__)))


def test_a_message_is_read_by_the_schema_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first version lacks a field: read with the second one the message would end early."""
    second = resolved_schema("MetadataCommand")
    first = {**second, "fields": [field for field in second["fields"] if field["name"] != "signature"]}
    versions = [Released(1, first), Released(2, second)]
    monkeypatch.setattr("schemas.codec.released_versions", lambda _: versions)
    command = records.MetadataCommand(0, "client", 7, records.DeleteVolume("vol"))
    fields = {**dataclasses.asdict(command), "body": ("deepclean.DeleteVolume", {"volume": "vol"})}
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, first, fields)
    reader = Codec(records.MetadataCommand)
    assert reader.encode_message(command)[:5] == b"\0\0\0\0\2"
    assert reader.decode_message(reader.encode_message(command)) == command
    assert reader.decode_message(frame(1) + buffer.getvalue()) == command
    with pytest.raises(DecodeError):
        reader.decode_message(frame(2) + buffer.getvalue())


def test_a_message_of_a_published_schema_is_read() -> None:
    later = resolved_schema("Settle")
    later = {**later, "fields": [*later["fields"], {"name": "added", "type": "long", "default": 0}]}
    reader = Codec(records.Settle)
    message = frame(3) + reader.encode(records.Settle("one")) + b"\x0e"
    published.read_from(lambda: published.learn(3, later))
    assert reader.decode_message(message) == records.Settle("one")
    published.read_from(lambda: published.learn(4, resolved_schema("Barrier")))
    with pytest.raises(DecodeError, match="the schema with the id 4 is of a Barrier, not of a Settle"):
        reader.decode_message(frame(4) + message[5:])


def test_a_later_version_may_add_fields_with_defaults_and_what_is_written_from_a_later_level_on() -> None:
    first = released_schemas("MetadataProgress")[0]
    txn, body, level = first["fields"]

    def later(*fields: Any) -> dict[str, Any]:
        return {**first, "fields": [*fields, level]}

    def with_branch(**more: Any) -> dict[str, Any]:
        branch = {"type": "record", "name": "Later", "namespace": "deepclean", "fields": [], **more}
        return {**body, "type": [*body["type"], branch]}

    added = {"name": "added", "type": "long", "default": 0}
    for second in (later(txn, body, added), later(txn, with_branch(feature_level=2))):
        assert not incompatibilities("MetadataProgress", [first, second])
    symbols = {"type": "enum", "name": "Outcome", "symbols": ["ONE", "TWO"]}
    broken = [
        (first, later(txn, body, {"name": "added", "type": "long"})),
        (first, later(txn, {**body, "type": body["type"][:-1]})),
        (first, later(txn, with_branch())),
        (first, later({**txn, "type": "string"}, body)),
        (later({**txn, "type": symbols}), later({**txn, "type": {**symbols, "symbols": ["ONE"]}})),
    ]
    for versions in broken:
        assert incompatibilities("MetadataProgress", list(versions))


def test_topics_name_services_that_exist() -> None:
    services = {"metadata", "snapshots", "streaming", "key_deletion", "directory_deletion", "mock_scm", topics.CLIENTS}
    for topic in topics.TOPICS:
        assert set(topic.producers) <= services
        assert set(topic.consumers) <= services


def test_a_deletion_reads_and_passes_on_the_beginning_of_rows() -> None:
    """A head is what longer records begin with, at any depth of first fields."""
    head, key = own_schema("KeyHead")["fields"], own_schema("KeyRow")["fields"]
    assert key[: len(head)] == head
    start = own_schema("KeyStart")["fields"]
    assert head[: len(start)] == start
    assert own_schema("DeletedKeyRow")["fields"][0]["type"] == "deepclean.KeyRow"
    *front, version = own_schema("ClaimedRow")["fields"]
    assert front == own_schema("ClaimedHead")["fields"]
    assert version["type"] == "deepclean.DeletedKeyRow"


@given(record_values(records.DeletedKeyRow), st.binary())
def test_what_is_passed_on_encoded_is_the_same(row: records.DeletedKeyRow, facts: bytes) -> None:
    key = codec(records.KeyRow).encode(row.key)
    first, *names = (field["name"] for field in own_schema("DeletedKeyRow")["fields"])
    assert first == "key"
    for number in range(1, len(names)):
        ends = [codec(records.DeletedKeyRow).encoder_of(*some) for some in (names[:number], names[number:])]
        rest = {name: getattr(row, name) for name in names}
        deleted = key + ends[0](rest) + ends[1](rest)
        assert deleted == codec(records.DeletedKeyRow).encode(row)
    claimed = codec(records.ClaimedRow).encode_before_last({"facts": facts, "numbers": b"7"}) + deleted
    assert codec(records.ClaimedRow).decode(claimed) == records.ClaimedRow(facts, b"7", row)
    head = records.KeyHead(row.key.object_id, row.key.birth, row.key.size_bytes, row.key.blocks)
    assert [codec(records.KeyHead).decode_head(encoded) for encoded in (key, deleted)] == [head] * 2
    assert codec(records.ClaimedHead).decode_head(claimed) == records.ClaimedHead(facts, b"7")
    start = records.KeyStart(row.key.object_id, row.key.birth, row.key.size_bytes)
    assert [codec(records.KeyStart).decode_head(encoded) for encoded in (key, deleted)] == [start] * 2


@pytest.mark.parametrize("names", [("death", "is_overwritten"), ("is_overwritten", "death")])
def test_fields_that_do_not_follow_one_another_are_not_encoded_together(names: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match="are not fields of DeletedKeyRow one after the other"):
        codec(records.DeletedKeyRow).encoder_of(*names)


@pytest.mark.parametrize("fields", [{}, {"facts": b"", "numbers": b"", "more": 1}, {"facts": b""}])
def test_a_row_that_does_not_end_with_what_is_passed_on_is_refused(fields: dict[str, Any]) -> None:
    """A field that is added behind the last one would be missing, and the row be taken for another one."""
    with pytest.raises(TypeError, match="ClaimedRow ends with version"):
        codec(records.ClaimedRow).encode_before_last(fields)


def test_a_head_that_is_cut_short_is_refused() -> None:
    key = codec(records.KeyHead).encode(records.KeyHead(1, 2, 3, None))
    for length in range(len(key)):
        with pytest.raises(DecodeError):
            codec(records.KeyHead).decode_head(key[:length])
