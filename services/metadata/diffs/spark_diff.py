"""Keeps two snapshot checkpoints open for the Spark job that compares them in a process of its own.

An open checkpoint is not removed, even if its snapshot is dropped. For the active namespace a checkpoint is made for
the diff only. If a crash leaves it behind, the next start removes it, like every checkpoint without a live snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from schemas.answers import DiffJob
from schemas.records import BucketLayout
from services.metadata.reads.queries import get_bucket, missing_snapshot
from services.storage.rocks import RocksStore
from services.storage.tables import TablesReader


@contextmanager
def kept_for(job: DiffJob, store: RocksStore) -> Iterator[Mapping[str, Any]]:
    """Yield the job's arguments. The checkpoints stay readable while the context is open.

    Raises:
        CommandError: SNAPSHOT_EXPIRED, the checkpoint of a snapshot was removed.
    """
    with ExitStack() as kept:
        states = []
        for snapshot_id in (job.from_snapshot_id, job.to_snapshot_id):
            name = snapshot_id or f"diff-{job.job_id}"
            if not snapshot_id:
                store.checkpoint(name)
                kept.callback(store.remove_checkpoint, name)
            try:
                view = store.open_checkpoint(name)
            except KeyError:
                raise missing_snapshot(TablesReader(store), snapshot_id) from None
            kept.callback(view.close)
            states.append(view)
        row = get_bucket(TablesReader(states[0]), job.volume, job.bucket)
        yield {
            "checkpoints": [str(view.path) for view in states],
            "volume": row.volume,
            "bucket": row.bucket,
            "volume_id": row.volume_id,
            "bucket_id": row.object_id,
            "is_tree": row.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED,
        }
