"""Sub-commands that are imported only when called, so that the command starts without the plane, Spark and RocksDB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand


class SubCommand(NamedTuple):
    """An entry of the command's listing."""

    name: str
    place: str
    """Module within ``services.cli`` and attribute, as in ``store.key:app``: a Typer, or a function."""
    summary: str
    """The first sentence of its help, which the listing shows without an import."""


class LazyCommand(TyperCommand):
    """Represents a sub-command in the listing, and imports it when its arguments are parsed."""

    def __init__(self, entry: SubCommand, group: str) -> None:
        super().__init__(entry.name, help=entry.summary, rich_help_panel=group)
        self._place = entry.place

    @cached_property
    def loaded(self) -> Any:
        """The imported command."""
        module, _, attribute = self._place.partition(":")
        found = getattr(import_module(f"services.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(found)
        return typer.main.get_command(alone)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return the context of the imported command, in which it is executed."""
        return self.loaded.make_context(info_name, args, parent=parent, **extra)


def lazy_commands(groups: Mapping[str, Iterable[SubCommand]]) -> dict[str, LazyCommand]:
    """Return the commands by name, in the order of the listing."""
    return {entry.name: LazyCommand(entry, group) for group, entries in groups.items() for entry in entries}


def loaded_commands(group: Any) -> Sequence[tuple[str, Any]]:
    """Return the sub-commands of a group by name, each imported. For tests and generated documents."""
    commands = getattr(group, "commands", {})
    return [(name, getattr(command, "loaded", command)) for name, command in commands.items()]
