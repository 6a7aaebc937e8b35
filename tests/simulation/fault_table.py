"""Writes the tables of faults: ``python -m tests.simulation.fault_table``.

Each fault of the simulator is played until its oracle finds it. Of the defects in ``tests/faults`` the table says which
test has to catch them; ``make faults`` sees that it does.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence

import pytest

from tests.faults.fault import all_faults
from tests.simulation.all_mutants import ALL_MUTANTS
from tests.simulation.mutant import FIRST_SEED, Mutant, first_find
from tests.simulation.oracles import ORACLES
from tests.simulation.run_seeds import silence

HEAD = "| fault | oracle | what it says | found in |\n| --- | --- | --- | --- |"


def row_of(name: str, mutant: Mutant) -> str | None:
    """A line of the table; None when nothing, or something else, was found."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        found = first_find(mutant)
    if found is None or not re.search(mutant.message, str(found[1])):
        return None
    runs = "a script" if mutant.script else f"run {found[0] - FIRST_SEED + 1}"
    return f"| {name} | {mutant.oracle} | {mutant.message.replace('|', ' or ')} | {runs} |"


def defect_rows() -> Iterator[str]:
    """A line for each defect that ``make faults`` puts back."""
    for faults in all_faults().values():
        for fault in faults:
            text = " ".join((fault.apply.__doc__ or "").replace("``", "`").split())
            yield f"| {text} | `{fault.caught_by.rpartition('::')[2]}` |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print all lines, or those of some faults; fails when one of them was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.fault_table", description=__doc__)
    parser.add_argument("--only", default="", help="a part of the names of faults")
    options = parser.parse_args(arguments)
    silence()
    print(HEAD)
    missing = []
    for name, mutant in ALL_MUTANTS.items():
        if options.only in name:
            row = row_of(name, mutant)
            print(row or f"| {name} | {mutant.oracle} | | not found in {mutant.runs} |", flush=True)
            missing += [] if row else [name]
    print("\n| defect | caught by |\n| --- | --- |")
    print(*defect_rows(), sep="\n")
    print("\n| oracle | what it holds |\n| --- | --- |")
    for oracle, holds in ORACLES.items():
        print(f"| {oracle} | {holds} |")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
