"""Refusals of the services, as clients of the plane in memory get them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from services.client.errors import PlaneError
from services.domain.refusals import CommandError
from services.metadata.diffs.jobs import DiffNotFoundError, DiffStateError
from services.runtime.http.reads import ReadError


@contextmanager
def refusals() -> Iterator[None]:
    """Convert a refusal into the PlaneError that a client gets."""
    try:
        yield
    except (CommandError, ReadError, DiffNotFoundError, DiffStateError) as error:
        raise PlaneError(str(error.code), str(error), getattr(error, "next_snapshot", "")) from error
