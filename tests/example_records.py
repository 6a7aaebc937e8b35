"""A record of any kind, with something in each field."""

from __future__ import annotations

import typing
from enum import StrEnum
from types import UnionType
from typing import Any

from schemas import records


def example(record: type[Any]) -> Any:
    """A small record with something in its arrays."""

    def value(hint: Any) -> Any:
        if isinstance(hint, UnionType):
            return value(next(branch for branch in typing.get_args(hint) if branch is not type(None)))
        if typing.get_origin(hint) is tuple:
            return (value(typing.get_args(hint)[0]),) * 2
        simple: dict[Any, Any] = {int: 3, str: "name", bytes: b"bytes", bool: True}
        if hint in simple:
            return simple[hint]
        if issubclass(hint, StrEnum):
            return next(iter(hint))
        return hint(**{name: value(kind) for name, kind in typing.get_type_hints(hint, vars(records)).items()})

    return value(record)
