"""``deepclean tables``: ranges of keys, keys as text, and conditions, compared with what Python says."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.cli.operate.row_filters import conditions, values_at
from services.metadata.state.tables import KEY_TABLE
from services.plane.upkeep.readable_rows import key_bytes, key_text
from services.plane.upkeep.readable_tables import KeyRange, ReadableRow
from services.plane.upkeep.stored_tables import StoredTables
from services.storage.memory import MemoryStore

KEYS = st.lists(st.sampled_from(b"\0/0a\xff"), max_size=4).map(bytes)
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FIELDS = ["number", "text", "flag", "inner", "inner.number", "parts", "parts.text", "inner.deep", "inner.deep.own"]


@given(st.binary() | st.text().map(str.encode))
def test_a_key_is_shown_as_one_printable_text_and_found_by_it(key: bytes) -> None:
    assert key_text(key).isprintable()
    assert key_bytes(key_text(key)) == key


@given(st.lists(KEYS, max_size=20), KEYS, KEYS, KEYS)
def test_a_range_has_the_keys_that_it_says(keys: list[bytes], prefix: bytes, start: bytes, end: bytes) -> None:
    store: Any = MemoryStore()
    store.families = [KEY_TABLE.name]
    store.write({KEY_TABLE.name: dict.fromkeys(keys, b"")})
    tables, wanted = StoredTables(store, [KEY_TABLE], {}), KeyRange(*map(key_text, (prefix, start, end)))
    found = [key_bytes(row.key) for row in tables.scan(KEY_TABLE.name, wanted)]
    ended = [key for key in sorted(set(keys)) if not end or key < end]
    assert found == [key for key in ended if key.startswith(prefix) and key >= start]
    assert tables.count(KEY_TABLE.name, wanted) == len(found)


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
TEXTS = st.text("ab<=>~! 0", max_size=4)
ROWS = st.fixed_dictionaries(
    {
        "number": NUMBERS,
        "text": TEXTS,
        "flag": st.booleans(),
        "inner": st.none() | st.fixed_dictionaries({"number": NUMBERS, "deep": st.just({"own": "x"})}),
        "parts": st.lists(st.fixed_dictionaries({"text": TEXTS}), max_size=3),
    }
)


def holds(value: dict[str, Any], condition: str) -> bool:
    row = ReadableRow("/key", 1, 9, lambda: value)
    return all(one.holds(row) for one in conditions([condition], FIELDS))


@given(ROWS, st.sampled_from(list(SIGNS)), NUMBERS, TEXTS.map(str.strip))
def test_a_condition_holds_as_python_compares(value: dict[str, Any], sign: str, number: int, text: str) -> None:
    compare = SIGNS[sign]
    assert holds(value, f"number{sign}{number}") is compare(value["number"], number)
    if not text.startswith("="):  # else the sign would be a longer one
        assert holds(value, f"text {sign} {text}") is compare(value["text"], text)
        assert holds(value, f"parts.text {sign} {text}") is any(compare(part["text"], text) for part in value["parts"])
    inner = value["inner"]
    assert holds(value, f"inner.number{sign}{number}") is (inner is not None and compare(inner["number"], number))


@given(ROWS, st.sampled_from(["a", "^a", "b$", "a+b", "^$", "[<=>]"]))
def test_a_pattern_is_searched_in_the_text(value: dict[str, Any], pattern: str) -> None:
    assert holds(value, f"text~{pattern}") is (re.search(pattern, value["text"]) is not None)
    assert holds(value, "@key~^/k")
    assert holds(value, "@version=1")


@given(ROWS)
def test_a_name_means_the_field_that_is_nested_the_least(value: dict[str, Any]) -> None:
    assert holds(value, f"flag={'true' if value['flag'] else 'false'}")
    assert holds(value, "inner=null") is (value["inner"] is None)
    assert holds(value, "own=x") is (value["inner"] is not None)
    row = ReadableRow("/key", 1, 9, lambda: value)
    assert list(values_at(row, "parts.text")) == [part["text"] for part in value["parts"]]
