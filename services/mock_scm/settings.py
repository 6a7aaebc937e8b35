"""Settings of the mock storage container manager, and switches that can be changed while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

GIBIBYTE = 1 << 30


@dataclass(frozen=True, slots=True)
class MockScmSettings:
    """Limits of one mock storage container manager."""

    container_size_bytes: int = 5 * GIBIBYTE
    """Bytes in the newest container after which metadata is granted the next one."""
    max_deletion_rows_per_tick: int = 1_000
    """Transactions of the deletedBlocks log that a datanode gets at a time; without datanodes, transactions that end in
    one step of the loop.
    """
    deletion_interval_ms: int = 1_000
    """Interval after which unacknowledged transactions are sent to the datanodes again. Each time counts as a try."""
    max_deletion_retries: int = 4_096
    """Tries after which a transaction is parked until an operator retries it (deepclean blocks retry)."""
    replication: int = 0
    """Number of datanodes that keep a copy of a container of replication RATIS_ONE; a container of RATIS_THREE has
    three copies. 0: there are no datanodes, and blocks are an inventory only.
    """
    dead_after_ms: int = 30_000
    """Time without a heartbeat after which a datanode counts as dead, and its containers are copied to others."""
    max_deletions_per_tick: int = 100
    """Delayed deletions that are carried out in one step when they are due."""


@dataclass(slots=True)
class MockScmSwitches:
    """Ways to misbehave. Read at every deletion, so that they may change while the service runs."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    delay_ms: Annotated[int, Field(ge=0)] = 0
    """How long a deletion lies before it is looked at."""
    fail_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of groups that fail, from 0 to 1: the same group of the same attempt always fails or never."""
    failing_buckets: frozenset[int] = frozenset()
    """Buckets of which every group fails until they are taken out again."""
    is_failing: bool = False
    """Whether every group of every bucket fails."""
    answers_twice: bool = False
    """Whether every answer is sent twice."""
