"""The codec's reading and writing, never compiled: what the compiled one has to equal."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from schemas import avro_binary
from schemas.codec import codec


@cache
def interpreted() -> ModuleType:
    """The module ``schemas.avro_binary``, never compiled."""
    file = Path(avro_binary.__file__).parent / "avro_binary.py"
    spec = importlib.util.spec_from_file_location("interpreted_avro_binary", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def in_python(kind: Any) -> Any:
    """The same kind, interpreted."""
    if kind is None:
        return None
    same = getattr(interpreted(), type(kind).__name__)
    if same.__name__ == "Record":
        return same(kind.record_class, kind.names, [in_python(inner) for inner in kind.kinds])
    if same.__name__ == "Union":
        classes = [
            None if cls is type(None) else cls for cls, _ in sorted(kind.numbers.items(), key=lambda one: one[1])
        ]
        return same(classes, [in_python(branch) for branch in kind.branches])
    if same.__name__ == "Array":
        return same(in_python(kind.item))
    if same.__name__ == "Enumeration":
        return same(kind.members)
    return same(kind.label) if same.__name__ == "Int" else same()


_KINDS: dict[type[Any], Any] = {}


def interpreted_kind(record: type[Any]) -> Any:
    """How a record is read and written, interpreted; made once."""
    if record not in _KINDS:
        _KINDS[record] = in_python(codec(record)._kind)
    return _KINDS[record]
