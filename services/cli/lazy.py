"""Sub-commands that are imported when they are called: the command starts without the plane, Spark and RocksDB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand


class SubCommand(NamedTuple):
    """A sub-command in the listing of the command."""

    name: str
    place: str
    """Module and attribute, as in ``services.cli.store.key:app``: a Typer, or a function."""
    summary: str
    """The first sentence of its help, which the listing shows without an import."""


class LazyCommand(TyperCommand):
    """Stands for a sub-command in the listing, and loads it to parse its words."""

    def __init__(self, entry: SubCommand) -> None:
        super().__init__(entry.name, help=entry.summary)
        self._place = entry.place

    @cached_property
    def loaded(self) -> Any:
        """The command itself."""
        module, _, attribute = self._place.partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(found)
        return typer.main.get_command(alone)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the command itself, in which it is carried out."""
        return self.loaded.make_context(info_name, args, parent=parent, **extra)


def lazy_commands(entries: Iterable[SubCommand]) -> dict[str, LazyCommand]:
    """Return the commands by name, in the order of the listing."""
    return {entry.name: LazyCommand(entry) for entry in entries}


def loaded_commands(group: Any) -> Sequence[tuple[str, Any]]:
    """The sub-commands of a group by name, each loaded: for tests and documents that look at all of them."""
    commands = getattr(group, "commands", {})
    return [(name, getattr(command, "loaded", command)) for name, command in commands.items()]
