"""What a defect is that is put back by hand: the patch, and the test and message that have to catch it."""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import tests.faults

IN_FORCE = "DEEPCLEAN_FAULT"
"""Environment variable with the module and the name of the fault that is put back."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One defect."""

    apply: Callable[[pytest.MonkeyPatch], None]
    """Puts the defect back. Its docstring says in one sentence what the defect was."""
    caught_by: str
    """The test that has to fail, as ``tests/unit/test_x.py::test_y``; of one with parameters, one case is enough."""
    message: str
    """Regular expression that the failure's text has to match: so that no other failure counts."""

    @property
    def name(self) -> str:
        """What the fault is called where it is reported."""
        return self.apply.__name__


def all_faults() -> dict[str, tuple[Fault, ...]]:
    """The faults of each module of this package, by the module's name."""
    names = sorted(module.name for module in pkgutil.iter_modules(tests.faults.__path__))
    modules = {name: importlib.import_module(f"{tests.faults.__name__}.{name}") for name in names}
    return {name: module.FAULTS for name, module in modules.items() if hasattr(module, "FAULTS")}


def apply_in_this_process() -> None:
    """Put back the fault that is in force in the process that started this one; for scripts that a test starts."""
    if named := os.environ.get(IN_FORCE):
        module, _, name = named.partition(".")
        fault = next(one for one in all_faults()[module] if one.name == name)
        fault.apply(pytest.MonkeyPatch())
