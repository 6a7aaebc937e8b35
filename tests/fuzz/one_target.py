"""Fuzzes one target: ``python -m tests.fuzz.one_target NAME [options and directories of libFuzzer]``.

What guides it is the coverage of the product's own code, which is instrumented as it is imported.
"""

from __future__ import annotations

import shlex
import sys
import types
from collections.abc import Iterator

import atheris

with atheris.instrument_imports(include=["schemas", "services"]):
    from tests.fuzz.targets import TARGETS
    from tests.interpreted_codec import interpreted
    from tests.simulation.run_seeds import silence


def _functions(module: types.ModuleType) -> Iterator[types.FunctionType]:
    """Those that a module defines, also in its classes."""
    for owner in (module, *(one for one in vars(module).values() if isinstance(one, type))):
        for value in list(vars(owner).values()):
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
                yield value


def main() -> None:
    """Fuzz until libFuzzer ends the process."""
    name, *options = sys.argv[1:]
    silence()
    for function in _functions(interpreted()):
        atheris.instrument_func(function)
    play = TARGETS[name].prepare()

    def test_one_input(data: bytes) -> int:
        return 0 if play(data) else -1

    again = f"{shlex.quote(sys.executable)} -m tests.fuzz.one_target {name}"  # as libFuzzer has a shell start it
    atheris.Setup([again, *options], test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
