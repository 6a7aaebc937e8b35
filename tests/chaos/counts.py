"""What has happened in chaos runs, and whether all of it did that was meant to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from services.plane.stack.process_names import BROKER, HTTP_PROCESSES
from tests.chaos.schedule import POINTS_OF_SERVICES

POINTS = tuple(f"{service} {point.value}" for service, point in POINTS_OF_SERVICES)


@dataclass(slots=True)
class Counts:
    """What has happened, over all schedules."""

    schedules: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    """By process."""
    armed: Counter[str] = field(default_factory=Counter)
    """Processes started so that they die at a named point, by ``service point``."""
    points: Counter[str] = field(default_factory=Counter)
    """Deaths at a named point."""
    missed: Counter[str] = field(default_factory=Counter)
    """Armed points that did not strike: the process never passed there so often, or another fault ended it first."""
    cuts: Counter[str] = field(default_factory=Counter)
    """By process and kind."""
    twins: Counter[str] = field(default_factory=Counter)
    """Second processes of a service."""
    restarts: int = 0
    broker_restarts: int = 0
    pauses: int = 0
    clock_jumps: int = 0
    full_disks: int = 0
    lost_databases: int = 0
    trims: int = 0
    """How often the log was trimmed, after backups of all hosts."""
    restored: int = 0
    """Databases that processes have restored from a backup by themselves."""
    repeated_messages: int = 0
    lost_workers: int = 0
    """Workers of Spark that were killed."""
    fenced: int = 0
    """Owners that ended because another host had taken their shards over."""
    trips: int = 0
    """Breakers that have tripped, and were reset."""

    def lines(self) -> list[str]:
        """A summary to be printed."""
        figures = {
            "kills": self.kills.total() + self.points.total(),
            "restarts": self.restarts,
            "broker restarts": self.broker_restarts,
            "messages repeated": self.repeated_messages,
            "pauses": self.pauses,
            "cuts": self.cuts.total(),
            "twins": self.twins.total(),
            "clock jumps": self.clock_jumps,
            "full disks": self.full_disks,
            "databases lost": self.lost_databases,
            "trims": self.trims,
            "databases restored": self.restored,
            "workers lost": self.lost_workers,
            "owners fenced": self.fenced,
            "breakers tripped": self.trips,
        }
        return [
            f"{self.schedules} schedules: {', '.join(f'{count} {name}' for name, count in figures.items())}",
            f"  killed at random moments: {_listed(self.kills)}",
            f"  died at named points ({self.points.total()}): {_listed(self.points)}",
            f"  armed and did not strike ({self.missed.total()}): {_listed(self.missed)}",
            f"  cut off from the broker: {_listed(self.cuts)}",
        ]

    def never_struck(self) -> list[str]:
        """Points at which nothing has died, over all that was played."""
        return [point for point in POINTS if not self.points[point]]

    def table(self) -> list[str]:
        """How often each point was armed and struck, and each process killed at any moment, as a table in Markdown."""
        rows = [f"| {point} | {self.armed[point]} | {self.points[point]} |" for point in POINTS]
        kills = [f"| {name}, at any moment | | {self.kills[name]} |" for name in (BROKER, *HTTP_PROCESSES)]
        return ["| point | armed | struck |", "| --- | --- | --- |", *rows, *kills]

    def to_json(self) -> dict[str, Any]:
        """All of it, to be kept."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}

    def add(self, kept: Mapping[str, Any]) -> Self:
        """Add what another process has counted and kept."""
        for one in fields(self):
            before, more = getattr(self, one.name), kept.get(one.name, 0)
            setattr(self, one.name, before + (Counter(more or {}) if isinstance(before, Counter) else more))
        return self


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counted.items())) or "none"
