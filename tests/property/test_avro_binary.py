"""The codec's own reading and writing, compiled or not, against each other and against fastavro."""

from __future__ import annotations

import io
import struct
from dataclasses import is_dataclass
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hatch_build import why_not_compiled
from schemas import avro_binary, records, topics
from schemas.codec import Codec, DecodeError, codec, frame
from schemas.compiled import COMPILED, is_stale, unused_modules
from schemas.schema_files import resolved_schema
from tests.contract.test_schemas import record_values
from tests.interpreted_codec import in_python, interpreted, interpreted_kind

TOPIC_RECORDS = sorted({topic.record for topic in topics.TOPICS}, key=lambda record: record.__name__)
ROWS = (records.KeyRow, records.DeletedKeyRow, records.ClaimedRow, records.DirectoryRow)
NUMBERS = {
    "type": "record",
    "name": "Numbers",
    "fields": [{"name": "values", "type": {"type": "array", "items": "long"}}],
}


def outcome(module: Any, kind: Any, body: bytes) -> Any:
    """What is read, and how much of it; or what is said against it."""
    try:
        return module.read_all(kind, body)
    except (DecodeError, interpreted().DecodeError) as error:
        return str(error)


@pytest.mark.parametrize("record", [*TOPIC_RECORDS, *ROWS], ids=lambda record: record.__name__)
def test_bytes_are_those_of_fastavro(record: type[Any]) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(record_values(record))
    def check(value: Any) -> None:
        body = codec(record).encode(value)
        assert interpreted().write_all(interpreted_kind(record), value) == body
        schema = fastavro.parse_schema(resolved_schema(record.__name__))
        fields = fastavro.schemaless_reader(io.BytesIO(body), schema, None, return_record_name=True)
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schema, fields)
        assert buffer.getvalue() == body

    check()


@pytest.mark.parametrize("record", [*TOPIC_RECORDS, *ROWS], ids=lambda record: record.__name__)
def test_compiled_and_interpreted_read_the_same(record: type[Any]) -> None:
    compiled = codec(record)

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(record_values(record), st.data())
    def check(value: Any, data: st.DataObject) -> None:
        body = bytearray(compiled.encode(value))
        for _ in range(data.draw(st.integers(0, 3))):  # broken a little, so that much of it is still read
            place = data.draw(st.integers(0, max(0, len(body) - 1)))
            body[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=10))
        here = outcome(avro_binary, compiled._kind, bytes(body))
        assert outcome(interpreted(), interpreted_kind(record), bytes(body)) == here

    check()


def number_at(record: Any, path: str) -> int:
    """A number of a record as its column has it."""
    for name in path.split("."):
        value = getattr(record, name) if record is not None else None
        if is_dataclass(value) and path.endswith(name):
            return 1
        record = value
    return int(record or 0)


@pytest.mark.parametrize("record", [*TOPIC_RECORDS, *ROWS], ids=lambda record: record.__name__)
def test_numbers_are_those_of_the_decoded_records(record: type[Any]) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(record_values(record), max_size=3), st.data())
    def check(values: list[Any], data: st.DataObject) -> None:
        bodies = [codec(record).encode(value) for value in values]
        found = codec(record).numbers(bodies)
        columns = {path: struct.unpack(f"<{len(values)}q", column) for path, column in found.items()}
        assert columns == {path: tuple(number_at(value, path) for value in values) for path in columns}
        assert interpreted().read_numbers(interpreted_kind(record), bodies, 0) == list(found.values())
        if bodies:
            cut = bodies[-1][: data.draw(st.integers(0, len(bodies[-1]) - 1))] if bodies[-1] else b"\0"
            with pytest.raises(DecodeError):
                codec(record).numbers([*bodies, cut])

    check()


def lengths_and_numbers(body: bytes) -> tuple[Any, Any]:
    kind = avro_binary.Array(avro_binary.Long())
    return outcome(avro_binary, kind, body), outcome(interpreted(), in_python(kind), body)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_numbers_are_those_of_fastavro(numbers: list[int]) -> None:
    kind = avro_binary.Array(avro_binary.Long())
    body = avro_binary.write_all(kind, tuple(numbers))
    assert interpreted().write_all(in_python(kind), tuple(numbers)) == body
    assert fastavro.schemaless_reader(io.BytesIO(body), NUMBERS, None) == {"values": numbers}
    assert lengths_and_numbers(body) == ((tuple(numbers), len(body)),) * 2


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**80])
def test_what_has_more_than_64_bits_is_not_written(number: int) -> None:
    for module, kind in ((avro_binary, avro_binary.Long()), (interpreted(), interpreted().Long())):
        with pytest.raises(OverflowError, match="more than 64 bits"):
            module.write_all(kind, number)


def test_a_barrier_of_more_than_32_bits_is_not_written() -> None:
    with pytest.raises(OverflowError, match=r"Barrier\.round is 2147483648, beyond 32 bits"):
        codec(records.Barrier).encode(records.Barrier("b", 2**31, 0, ""))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\xff" * 9 + b"\x01", "the bytes end early"),  # an array of -2^63 items
        (b"\xfe" + b"\xff" * 8 + b"\x01", "the bytes end early"),  # of 2^63 - 1
        (b"\x02" + b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (b"\x02" + b"\xff" * 20, "more than 64 bits"),
        (b"\x80\x80", "the bytes end early"),
        (b"", "the bytes end early"),
        (b"\x02", "the bytes end early"),
    ],
)
def test_lengths_are_not_believed(body: bytes, said: str) -> None:
    for here in lengths_and_numbers(body):
        assert said in here


def test_blocks_of_an_array_with_their_sizes_are_read() -> None:
    """Other libraries write them: a negative count, and the size of the block in bytes."""
    body = b"\x03" + b"\x04" + b"\x02\x04" + b"\x02\x06" + b"\x00"
    assert lengths_and_numbers(body) == (((1, 2, 3), len(body)),) * 2


@pytest.mark.parametrize("body", [b"\x02", b"\xff"])
def test_a_boolean_is_one_or_nothing(body: bytes) -> None:
    for module in (avro_binary, interpreted()):
        assert "neither true nor false" in outcome(module, module.Boolean(), body)


def test_a_text_that_is_no_utf_8_is_refused() -> None:
    for module in (avro_binary, interpreted()):
        assert "no UTF-8" in outcome(module, module.String(), b"\x04\xff\xfe")


@pytest.mark.parametrize("value", [1, None, b"bytes"])
def test_what_is_no_text_is_not_written_as_one(value: Any) -> None:
    for module in (avro_binary, interpreted()):
        with pytest.raises((TypeError, AttributeError)):
            module.write_all(module.String(), value)


def test_what_an_older_schema_wrote_is_read_with_its_defaults() -> None:
    older = resolved_schema("MetadataCommand")
    older["fields"] = [field for field in older["fields"] if field["name"] != "user"]
    reader: Codec[records.MetadataCommand] = Codec(records.MetadataCommand)
    reader._writers[1] = fastavro.parse_schema(older)
    command = records.MetadataCommand(0, "client", 7, records.DeleteVolume("vol"), wants_reply=False)
    fields = {
        "shard": 0,
        "client_id": "client",
        "number": 7,
        "body": ("deepclean.DeleteVolume", {"volume": "vol"}),
        "sender": "",
        "wants_reply": False,
        "issued_at_ms": 0,
        "signature": "",
    }
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(older), fields)
    assert reader.decode_message(frame(1) + buffer.getvalue()) == command
    for broken in (buffer.getvalue()[:-1], buffer.getvalue() + b"\0"):
        with pytest.raises(DecodeError):
            reader.decode_message(frame(1) + broken)


def test_what_is_compiled_is_what_is_written() -> None:
    if missing := why_not_compiled():
        assert not COMPILED.exists(), missing
        return
    assert COMPILED.is_file(), "run make setup"
    assert not is_stale(), "schemas/avro_binary.py has changed since it was compiled: run make setup"
    assert avro_binary.__file__ == str(COMPILED)
    assert unused_modules() == ()
