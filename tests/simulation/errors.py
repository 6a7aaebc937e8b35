"""What a simulated run can fail with: each error names the promise that was broken."""

from __future__ import annotations


class SimulationError(AssertionError):
    """A promise of the plane was broken."""

    oracle: str = ""
    """Name of the oracle that has said it."""


class SafetyError(SimulationError):
    """A block that something live refers to was given away, or is gone."""


class LivenessError(SimulationError):
    """Something that nobody refers to is still there, or the plane does not come to rest."""


class AccountError(SimulationError):
    """Bytes, rows, sizes or flags do not add up."""


class AnswerError(SimulationError):
    """An answer or a listing differs from the model's."""


class DefectError(SimulationError):
    """A service met something that cannot be: a refused claim, a dead letter of its own making, a stop."""


class FlagError(DefectError):
    """A clean flag says what is not so."""


class SweepError(DefectError):
    """A sweep was cut short, or is put off."""
