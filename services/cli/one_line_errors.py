"""A group of commands that prints errors as one line. What it prints is imported with the first error."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


class OneLineErrors(TyperGroup):
    """A group of commands whose errors are one line, or with --json an object, and have a status of their kind."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note how errors are to be printed, since a mistake of usage comes before the command's own options."""
        self._is_json = "--json" in args
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            from services.cli.errors import said  # noqa: PLC0415  only an error needs it, and it is 5 % of --help

            status = said(error, is_json=self._is_json)
            if status is None:
                raise
            raise typer.Exit(status) from error
