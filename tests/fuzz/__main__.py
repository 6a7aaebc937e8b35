"""Fuzzes the targets in turns: ``python -m tests.fuzz --seconds 60``; ``--play FILE`` plays one input again.

A seed says which target is next, and begins libFuzzer's random numbers. What an input reaches that none before has is
kept in ``.deepclean/fuzz`` and gone on from the next time; what breaks a promise is kept beside it, in ``found``.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import randrange

from services.plane.machine.signals import stopping_on_signals
from tests.fuzz import corpora
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS
from tests.simulation.run_seeds import silence

DIRECTORY = Path(".deepclean") / "fuzz"
MISSING = "atheris is not installed (make fuzz does it)"
SEEDS = 2**31
SHORTEST_SECONDS = 2
LONGEST_INPUT_SECONDS = 20
MOST_MEBIBYTES = 1_024
MOST_WORD_BYTES = 64
"""Longer ones libFuzzer does not take."""


@dataclass(frozen=True, slots=True)
class Round:
    """What has come of fuzzing one target for a while."""

    target: str
    executions: int
    error: str = ""
    found: Path | None = None


def is_installed() -> bool:
    """Whether there is a fuzzer."""
    return importlib.util.find_spec("atheris") is not None


class Fuzzing:
    """Fuzzes over a directory, in which everything stays but what is checked in."""

    def __init__(self, directory: Path, found: Path) -> None:
        self._directory = directory
        self._found = found
        self._prepared: set[str] = set()

    def fuzz(self, name: str, seed: int, seconds: float) -> Round:
        """Fuzz one target for so long, or until something was found."""
        target, found = TARGETS[name], self._found / name
        self._prepare(target)
        found.mkdir(parents=True, exist_ok=True)
        before = set(found.iterdir())
        options = (
            *(f"-seed={seed % SEEDS or 1}", f"-max_total_time={max(SHORTEST_SECONDS, round(seconds))}"),
            *(f"-max_len={target.most_bytes}", f"-timeout={LONGEST_INPUT_SECONDS}", f"-rss_limit_mb={MOST_MEBIBYTES}"),
            *(f"-artifact_prefix={found}/", "-print_final_stats=1"),
            *((f"-dict={self._words(name)}",) if self._words(name).stat().st_size else ()),
        )
        status, output = self._run(name, options, self._places(target))
        executions = sum(map(int, re.findall(r"^stat::number_of_executed_units: (\d+)", output, re.MULTILINE)))
        if status == 0:
            return Round(name, executions)
        inputs = sorted(set(found.iterdir()) - before)
        return Round(name, executions, _error_of(output), inputs[0] if inputs else self._log(name))

    def minimise(self, name: str) -> int:
        """Keep in this tree the few inputs that reach the most of what all known ones reach; how many those are.

        Where there is room, real inputs are kept beside them: all topics and tables are read by the same code.
        """
        target = TARGETS[name]
        self._prepare(target)
        merged, control = self._directory / "merged" / name, self._directory / f"{name}.reached"
        corpora.write(merged, ())
        control.unlink(missing_ok=True)
        options = ("-set_cover_merge=1", "-use_counters=0", f"-merge_control_file={control}")
        status, output = self._run(name, options, (merged, *self._places(target)))
        if status:
            raise SystemExit(f"{name}: {_error_of(output)}; see {self._log(name)}")
        before = [file for file in corpora.kept(name) if not file.name.startswith(corpora.FOUND)]
        most = corpora.MOST_FILES - len(corpora.kept(name)) + len(before)
        chosen = [file.read_bytes() for file in corpora.reaching_most(control.read_text("utf-8"), most)]
        real = sorted(set(target.seeds()) - set(chosen))
        room = most - len(chosen)
        for file in before:
            file.unlink()
        corpora.write(corpora.CORPUS / name, [*chosen, *(real[len(real) * one // room] for one in range(room))])
        return len(corpora.kept(name))

    def _places(self, target: Target) -> tuple[Path, ...]:
        """Where inputs lie: what was reached before, what is checked in, and real ones."""
        return self._directory / "corpus" / target.name, corpora.CORPUS / target.name, self._seeds(target.name)

    def _prepare(self, target: Target) -> None:
        if target.name in self._prepared:
            return
        self._prepared.add(target.name)
        (corpora.CORPUS / target.name).mkdir(parents=True, exist_ok=True)
        corpora.write(self._directory / "corpus" / target.name, ())
        corpora.write(self._seeds(target.name), target.seeds())
        self._words(target.name).parent.mkdir(parents=True, exist_ok=True)
        self._words(target.name).write_text(_dictionary(target.words()), "ascii")

    def _run(self, name: str, options: Iterable[str], places: Iterable[Path]) -> tuple[int, str]:
        command = [sys.executable, "-m", "tests.fuzz.one_target", name, *options, *map(str, places)]
        with self._log(name).open("wb") as log:
            status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode
        return status, self._log(name).read_text("utf-8", errors="replace")

    def _seeds(self, name: str) -> Path:
        return self._directory / "seeds" / name

    def _words(self, name: str) -> Path:
        return self._directory / "words" / name

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"


def _dictionary(words: Iterable[bytes]) -> str:
    """As libFuzzer reads it: each word in quotes, its bytes as escapes."""
    fitting = sorted({word for word in words if 0 < len(word) <= MOST_WORD_BYTES})
    escapes = ("".join(f"\\x{byte:02x}" for byte in word) for word in fitting)
    return "".join(f'"{escaped}"\n' for escaped in escapes)


def _error_of(output: str) -> str:
    """What the log of a round says of its end, in one line."""
    raised = re.findall(r"=== Uncaught Python exception: ===\s*\n(.*)", output)
    ended = re.findall(r"^SUMMARY: (.*)$", output, re.MULTILINE)
    return (raised or ended or output.strip().splitlines()[-1:] or ["it said nothing"])[0][:300]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, say how it goes, and fail when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--first-seed", type=int, help="by default any")
    parser.add_argument("--count", type=int, default=len(TARGETS), help="how many rounds, each of one target")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long in all")
    parser.add_argument("--only", choices=TARGETS, help="fuzz this target alone")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="where everything is kept")
    parser.add_argument("--found", type=Path, help="where inputs are kept that break a promise")
    parser.add_argument(
        "--play", type=Path, metavar="FILE", help="play this input; its directory is named as its target"
    )
    parser.add_argument("--minimise", action="store_true", help="keep in this tree the inputs that reach the most")
    options = parser.parse_args(arguments)
    silence()
    if options.play:
        if options.play.parent.name not in TARGETS:
            parser.error(f"{options.play} is no input: those of a target are in a directory of its name")
        TARGETS[options.play.parent.name].prepare()(options.play.read_bytes())
        print("no promise is broken")
        return 0
    if not is_installed():
        print(f"left out: {MISSING}")
        return 0
    fuzzing = Fuzzing(options.directory, options.found or options.directory / "found")
    names = [options.only] if options.only else list(TARGETS)
    if options.minimise:
        for name in names:
            print(f"{name}: {fuzzing.minimise(name)} inputs are kept", flush=True)
        return 0
    first = randrange(SEEDS) if options.first_seed is None else options.first_seed
    with stopping_on_signals():  # and the round under way with it
        return _play(fuzzing, names, range(first, first + options.count), options.seconds / options.count)


def _play(fuzzing: Fuzzing, names: Sequence[str], seeds: Sequence[int], seconds: float) -> int:
    failed = 0
    for runs, seed in enumerate(seeds, start=1):
        done = fuzzing.fuzz(names[seed % len(names)], seed, seconds)
        if done.error:
            failed += 1
            print(f"seed {seed}: {done.target}: {done.error}; its input: {done.found}", flush=True)
        print(f"{runs} runs, {failed} failed; {done.target}: {done.executions:,} inputs", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
