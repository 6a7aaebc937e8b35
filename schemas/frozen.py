"""The decorator of the generated records: frozen dataclasses with slots, made in about half of the time.

The ``__init__`` of a frozen dataclass calls ``object.__setattr__`` with the name of each field. This one sets each
slot by its descriptor, which knows its place. Making records is a tenth of what metadata does for a put.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a class with annotated fields a frozen dataclass with slots. Its defaults are values, never factories."""
    made: type[Any] = dataclass(frozen=True, slots=True, init=False)(cls)
    made.__init__ = _init_of(made)
    return made


def _init_of(made: type[Any]) -> Callable[..., None]:
    """Return a function that sets every slot, with the parameters that the dataclass's own ``__init__`` would have."""
    known: dict[str, Any] = {}
    placed, named, body = list[str](), list[str](), list[str]()
    for number, one in enumerate(fields(made)):
        known[f"set_{number}"] = getattr(made, one.name).__set__
        parameter = one.name
        if one.default is not MISSING:
            known[f"default_{number}"] = one.default
            parameter = f"{one.name}=default_{number}"
        (named if one.kw_only else placed).append(parameter)
        body.append(f"    set_{number}(self, {one.name})")
    parameters = ", ".join(["self", *placed, *(["*", *named] if named else [])])
    lines = [
        f"def make({', '.join(known)}):",
        f"  def __init__({parameters}):",
        *(body or ["    pass"]),
        "  return __init__",
    ]
    made_in: dict[str, Any] = {}
    exec("\n".join(lines), vars(sys.modules[made.__module__]), made_in)  # noqa: S102  made of the names of fields
    init: Callable[..., None] = made_in["make"](**known)
    init.__annotations__ = {**{one.name: one.type for one in fields(made)}, "return": None}
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init
