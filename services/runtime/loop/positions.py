"""Where a service is in each of its inputs: kept in its own database, written with what it has taken in."""

from __future__ import annotations

from schemas.records import PositionRow
from services.storage.tables import TableDefinition

POSITIONS = TableDefinition("positions", PositionRow)
