"""The JSON files of a Paimon table: snapshots, tags, long-lived changelogs, consumers and schemas.

Only what decides who holds which file is read. A tag and a changelog are copies of a snapshot with more fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from services.domain.durations import HOUR_MS
from services.domain.errors import DeepcleanError

NEWEST_SNAPSHOT_VERSION = 3
_UNLIMITED = 2**31 - 1
_UNITS_MS = {"": 1, "ms": 1, "milli": 1, "millisecond": 1, "s": 1_000, "sec": 1_000, "second": 1_000, "m": 60_000}
_UNITS_MS |= {"min": 60_000, "minute": 60_000, "h": HOUR_MS, "hour": HOUR_MS, "d": 24 * HOUR_MS, "day": 24 * HOUR_MS}


class PaimonError(DeepcleanError):
    """The table cannot be read; the message says what is missing and what to do."""


def no_table(directory: str) -> PaimonError:
    """Return the error for a directory without a schema."""
    return PaimonError(f"{directory} has no schema/schema-0: name the directory of a Paimon table.")


class SnapshotFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file ``snapshot-N``, ``tag-NAME`` or ``changelog-N``."""

    version: int
    id: int
    base_manifest_list: str
    delta_manifest_list: str
    time_millis: int
    commit_kind: str
    schema_id: int = 0
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    index_manifest: str | None = None
    statistics: str | None = None

    @property
    def is_newer(self) -> bool:
        """Whether a newer Paimon has written it, whose files may be more than those known here."""
        return self.version > NEWEST_SNAPSHOT_VERSION


class ConsumerFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file ``consumer-NAME``: the snapshot that a reader of the stream reads next."""

    next_snapshot: int


class Column(msgspec.Struct, frozen=True):
    """A column of the table. The type of a nested column is an object."""

    name: str
    type: Any


T = TypeVar("T", bound=msgspec.Struct)


class SchemaFile(msgspec.Struct, frozen=True, rename="camel"):
    """A file ``schema-N``."""

    fields: tuple[Column, ...]
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = {}

    @property
    def partition_columns(self) -> tuple[Column, ...]:
        """The partition's columns in the order of the partition's keys."""
        columns = {column.name: column for column in self.fields}
        return tuple(columns[key] for key in self.partition_keys)

    @property
    def has_changelog_producer(self) -> bool:
        """Whether commits write changelog files; if not, level-0 data files are the changelog."""
        return self.options.get("changelog-producer", "none").lower() != "none"

    def retention(self) -> dict[str, int]:
        """Return the options of expiry that the table has or gets by default, with times in milliseconds.

        Raises:
            PaimonError: a value is no number or no duration.
        """
        kept = {}
        defaults = {"num-retained.min": "10", "num-retained.max": str(_UNLIMITED), "time-retained": "1 h"}
        for name, default in {**defaults, "expire.limit": "50"}.items():
            kept[f"snapshot.{name}"] = self._number(f"snapshot.{name}", default)
        for name in defaults:
            kept[f"changelog.{name}"] = self._number(f"changelog.{name}", str(kept[f"snapshot.{name}"]))
        return kept

    def own_policy(self) -> str:
        """Return a sentence with the table's own policy, and the options by which the lens applies it.

        Raises:
            PaimonError: a value is no number or no duration.
        """
        limits = {name: value for name, value in self.retention().items() if name.startswith("snapshot.")}
        least, most, age_ms, limit = limits.values()
        options = (
            f"--num-retained-min {least} --num-retained-max {0 if most == _UNLIMITED else most} "
            f"--time-retained {-(-age_ms // 1000)}s --expire-limit {limit}"
        )
        said = ", ".join(f"{name}={value}" for name, value in limits.items())
        return f"The table's own policy ({said}) is not applied. To apply it, use {options}."

    def _number(self, option: str, default: str) -> int:
        """Return a count, or a time in milliseconds: a time without a unit is in milliseconds."""
        text = self.options.get(option, default)
        parts = re.fullmatch(r"\s*([0-9]+)\s*([a-z]*?)\s*", text.lower())
        unit_ms = _UNITS_MS.get(parts[2]) or _UNITS_MS.get(parts[2].removesuffix("s")) if parts else None
        if parts is None or unit_ms is None:
            raise PaimonError(
                f"The option {option} in the table's schema is {text!r}: correct it, as in '1 h' or '10'."
            )
        return int(parts[1]) * unit_ms

    @property
    def is_changelog_decoupled(self) -> bool:
        """Whether changelogs outlive their snapshots: one of their own limits is the larger one."""
        kept = self.retention()
        return any(
            kept[f"changelog.{name}"] > kept[f"snapshot.{name}"]
            for name in ("num-retained.min", "num-retained.max", "time-retained")
        )


def decoded(content: bytes, kind: type[T], path: str) -> T:
    """Return the content of a JSON file of the table.

    Raises:
        PaimonError: it is truncated, or not what its name says.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PaimonError(f"{path} cannot be read ({error}).") from None
