"""The examples of the documents in Python, and how they are run: one after the other, as a reader types them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

import deepclean
from deepclean.connection import Connection
from deepclean.filesystem import DeepcleanFileSystem

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("docs/clients.md", "docs/library.md", "deepclean/__init__.py")


def examples(document: str) -> list[str]:
    """The examples of a document, in their order; those with bytes are the last ones but asyncio's."""
    if document.endswith(".py"):
        (block,) = re.findall(r"^    import deepclean\n(?:^(?:    .*)?\n)+", deepclean.__doc__ or "", re.MULTILINE)
        return [re.sub(r"^    ", "", block, flags=re.MULTILINE)]
    text = (ROOT / document).read_text("utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def needs_bytes(example: str) -> bool:
    """Whether an example reads or writes the bytes of keys."""
    return "data=" in example or "fsspec" in example


def run_examples(blocks: list[str], connect: Callable[[], Connection], patch: pytest.MonkeyPatch) -> None:
    """Run examples in one namespace; wherever they connect they get the plane."""
    patch.setattr(deepclean, "connect", lambda *_, **__: connect())
    fsspec.register_implementation("deepclean", DeepcleanFileSystem, clobber=True)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block in blocks:
            exec(compile(block, "an example", "exec"), names)  # noqa: S102  what the documents say
    finally:
        DeepcleanFileSystem.clear_instance_cache()
