"""The oracles of a run, by name. Each can be switched off, to see whether it is what finds a fault.

An oracle says that a promise was broken by raising a SimulationError while it is asked. Switched off it says nothing,
and the run goes on; or it ends there, where nothing could be compared behind such an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from tests.simulation.errors import SimulationError

ORACLES: Mapping[str, str] = {
    "given_away": "no claim and no deletion names blocks that somebody holds",
    "claimed_stays": "what was claimed is never held again",
    "claimed_first": "the block store hears only of rows that were claimed",
    "inventory": "the block store has all that is held, after each step of it",
    "inventory_at_rest": "at rest the block store has what is held, and nothing else",
    "finish": "metadata forgets a row only when the block store has deleted its blocks",
    "chain_order": "a marker of the chain can be read before anything that knows of it",
    "log_time": "the time of a shard never goes back",
    "rollback_target": "the snapshot that a rollback goes to stays until that is done",
    "undo_window": "what was deleted is neither claimed nor expanded before its undo window is over",
    "pauses": "nothing goes that is paused, no more an hour than the limits say, nothing is held back for no reason",
    "refusals": "nobody asks for what a snapshot holds: the judges before metadata were right",
    "holes": "nobody judges with a view of the chain that has a hole",
    "services": "no service stops, refuses to start or finds its own figures wrong, in a sound log",
    "owners": "nobody publishes for a shard but its owner: no standby, and no former owner once another has started",
    "standbys": "at rest a standby has what its owner has",
    "dead_letters": "nobody puts aside what the plane itself has said, and everybody what nobody can read",
    "repeats": "a metadata that catches up says nothing new",
    "answers": "every answer is the model's",
    "protections": "what a tag or a consumer holds stays, and what expires is what the rules say",
    "accounts": "at any moment all that was written is live, held, pending, claimed or freed",
    "quotas": "at any moment what quotas count is what is written and not forgotten",
    "space": "what is said about space is what a recount gives",
    "liveness": "within a bound everything that nobody holds goes by itself, and everybody knows it",
    "flags": "a clean flag is true of what its store held at the flag's version of the chain",
    "sweeps": "no sweep is put off, cut short or begun again",
    "settling": "a healed plane comes to rest",
    "at_rest": "at rest nothing is on its way, and no garbage is left that nobody holds",
    "listings": "at rest the active namespace and every snapshot list what the model lists",
    "diffs": "at rest what changed between two states is all that differs",
    "figures": "at rest every figure and flag of buckets and snapshots is what a recount gives",
}


class RunOver(Exception):  # noqa: N818 it is no error
    """An oracle that is switched off had something to say, and nothing behind it can be looked at."""


class Oracles:
    """Who is asked in a run."""

    def __init__(self, without: Collection[str] = ()) -> None:
        unknown = set(without) - ORACLES.keys()
        if unknown:
            raise ValueError(f"no such oracles: {sorted(unknown)}")
        self._without = frozenset(without)
        self.unheard: list[SimulationError] = []
        """What those that are switched off would have said."""

    def are_asked(self, name: str) -> bool:
        """Whether an oracle is switched on."""
        return name not in self._without

    @contextmanager
    def asked(self, name: str, *, ends_run: bool = False) -> Iterator[None]:
        """Let an oracle speak: what it raises has its name, or is passed over when it is switched off."""
        try:
            yield
        except SimulationError as error:
            error.oracle = error.oracle or name
            if error.oracle not in self._without:
                raise
            self.unheard.append(error)
            if ends_run:
                raise RunOver from error

    def say(self, name: str, error: SimulationError, *, ends_run: bool = False) -> None:
        """Raise an error in the name of an oracle, unless that is switched off."""
        with self.asked(name, ends_run=ends_run):
            raise error


def all_but(*names: str) -> frozenset[str]:
    """All oracles but these: what to switch off to see what these find alone."""
    return frozenset(ORACLES) - set(names)
