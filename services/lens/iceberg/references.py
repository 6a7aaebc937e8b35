"""The references of a table in the lens's order: its snapshots, and the current one of main as the active namespace."""

from __future__ import annotations

from services.lens.iceberg.metadata import MAIN, TableMetadata
from services.lens.iceberg.order import in_order
from services.lens.iceberg.retention import expired_now, protectors
from services.lens.relation import Ref, RefKind

EXPIRABLE = "EXPIRABLE"
"""Status of a snapshot that ``expire_snapshots`` without arguments removes."""


def references(metadata: TableMetadata, now_ms: int) -> tuple[Ref, ...]:
    """Return the snapshots as references.

    Branches and tags are no references of their own, since each shows a snapshot: they protect it, also the current
    one of main, which is the last reference. A table that has none shows nothing, and its last reference has no id.
    """
    main = metadata.references.get(MAIN)
    current = main.snapshot_id if main and main.snapshot_id in metadata.by_id else None
    protected = protectors(metadata, now_ms)
    expired = expired_now(metadata, now_ms)
    found = [
        Ref(
            name=str(one.snapshot_id),
            id=str(one.snapshot_id),
            time_ms=one.timestamp_ms,
            protected_by=protected.get(one.snapshot_id, ()),
            status=EXPIRABLE if one.snapshot_id in expired else "",
        )
        for one in in_order(metadata.snapshots, current)
        if one.snapshot_id != current
    ]
    if current is None:
        active = Ref(MAIN, "", RefKind.ACTIVE, is_droppable=False)
    else:
        time_ms = metadata.by_id[current].timestamp_ms
        others = tuple(name for name in protected.get(current, ()) if name != MAIN)
        active = Ref(MAIN, str(current), RefKind.ACTIVE, time_ms, is_droppable=False, protected_by=others)
    return (*found, active)
