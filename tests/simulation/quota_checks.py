"""What the quotas of each bucket count, held against the model, at any moment of metadata's log."""

from __future__ import annotations

from services.metadata.state.tables import BUCKET_TABLE
from services.storage.tables import TablesReader
from tests.simulation.errors import AccountError
from tests.simulation.model import ShardModel


def check_what_quotas_count(tables: TablesReader, model: ShardModel) -> None:
    """Bytes and names that are used are those of a recount. While a bucket is rolled back nobody asks for them.

    Raises:
        AccountError: they are not.
    """
    counted_by_plane = {
        row.object_id: (
            row.used_bytes
            + row.snapshot_used_bytes
            - row.spare_bytes
            + row.used_redundancy_bytes
            + row.snapshot_used_redundancy_bytes
            - row.spare_redundancy_bytes,
            row.used_namespace + row.snapshot_used_namespace - row.block_rows,
        )
        for _, row in tables.table(BUCKET_TABLE).scan()
        if not row.source_bucket
    }
    for incarnation in model.live_buckets():
        counted = model.quotas.counted(incarnation)
        found_bytes, found_names = counted_by_plane[incarnation.made_id]
        is_right = found_bytes == counted.bytes and counted.least_names <= found_names <= counted.most_names
        if not is_right and incarnation.rollback is None:
            raise AccountError(
                f"shard {model.shard}: quotas of {incarnation.volume}/{incarnation.name} count {found_bytes} bytes and "
                f"{found_names} names, expected {counted}"
            )
