"""A service's position in each of its inputs: stored in its own database, in the write that applies the messages."""

from __future__ import annotations

from schemas.records import PositionRow
from services.storage.tables import TableDefinition

POSITIONS = TableDefinition("positions", PositionRow)
