"""Writes the reference of the library from its docstrings, and the tree of its errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import deepclean
from deepclean.filesystem import DeepcleanFileSystem
from deepclean.namespace import Namespace
from services.client.errors import CODES
from services.domain.errors import DeepcleanError

FUNCTIONS = (deepclean.connect, deepclean.connect_async)
CLASSES = (
    *(deepclean.Connection, deepclean.Volume, deepclean.Bucket, deepclean.Snapshot, Namespace, deepclean.BulkWriter),
    *(deepclean.KeyFailure, deepclean.BulkWriteError, deepclean.Plan, DeepcleanFileSystem),
)
"""In the order of the reference."""
NO_OWN_PART = (DeepcleanFileSystem,)
"""Classes whose methods are those of another library."""
MEANINGS = {
    "Namespace": "The reads of `Bucket` and `Snapshot`.",
    "DeepcleanFileSystem": "In the module `deepclean.filesystem`, with the extra `deepclean[fsspec]`.",
}
"""A sentence before the docstring."""


def errors() -> str:
    """Return the tree of the exceptions, each with its meaning and its codes."""
    rows = ["| exception | means | codes |", "| --- | --- | --- |"]
    public = {getattr(deepclean, name) for name in deepclean.__all__}
    for depth, cls in _tree(DeepcleanError, public, 0):
        codes = ", ".join(f"`{code}`" for code, of in CODES.items() if of is cls)
        text = " ".join(_paragraphs(inspect.getdoc(cls) or "")[0].split())
        rows.append(f"| {'· ' * depth}`{cls.__name__}` | {_plain(text)} | {codes} |")
    return "\n".join(rows)


def _tree(cls: type[Any], public: set[Any], depth: int) -> Iterator[tuple[int, type[Any]]]:
    yield depth, cls
    for below in sorted(cls.__subclasses__(), key=lambda one: one.__name__):
        if below in public:
            yield from _tree(below, public, depth + 1)


def reference() -> str:
    """Return the functions and classes of the library, with their docstrings."""
    parts = [_function(function.__name__, function) for function in FUNCTIONS]
    parts += [_class(cls) for cls in CLASSES]
    return "\n\n".join(parts)


def _class(cls: type[Any]) -> str:
    document = inspect.getdoc(cls) or ""
    parts = [f"### {cls.__name__}", *([MEANINGS[cls.__name__]] if cls.__name__ in MEANINGS else []), _text(document)]
    own = () if cls in NO_OWN_PART else vars(cls).items()
    for name, member in own:
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            parts.append(f"**`{name}`**: {_text(inspect.getdoc(member) or '')}")
        elif inspect.isfunction(member):
            parts.append(_method(name, member))
    return "\n\n".join(parts)


def _function(name: str, function: Any) -> str:
    return f"### {name}\n\n`{name}{_signature(function)}`\n\n{_text(inspect.getdoc(function) or '')}"


def _method(name: str, method: Any) -> str:
    return f"**`{name}{_signature(method)}`**\n\n{_text(inspect.getdoc(method) or '')}"


def _signature(function: Any) -> str:
    """Return parameters and result as they are written."""
    signature = inspect.signature(function)
    parts, is_star_written = [], False
    for one in signature.parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not is_star_written:
            is_star_written = True
            parts.append("*")
        default = "" if one.default is one.empty else f" = {_value(one.default)}"
        parts.append(f"{one.name}: {one.annotation}{default}")
    return f"({', '.join(parts)}) -> {signature.return_annotation}"


def _value(default: object) -> str:
    return f"{type(default).__name__}.{default.name}" if isinstance(default, Enum) else repr(default)


def _text(document: str) -> str:
    """Return a docstring as Markdown: paragraphs on a line each, and the errors as a list."""
    said, _, raised = document.partition("Raises:\n")
    parts = [_plain(paragraph) for paragraph in _paragraphs(said)]
    if raised:
        errors = re.findall(r"^    (\w+): (.*(?:\n {6,}.*)*)", raised, re.MULTILINE)
        parts.append("\n".join(f"- raises `{name}`: {_plain(reason)}" for name, reason in errors))
    return "\n\n".join(parts)


def _paragraphs(text: str) -> list[str]:
    return [paragraph for paragraph in re.split(r"\n\s*\n", text.strip()) if paragraph]


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")
