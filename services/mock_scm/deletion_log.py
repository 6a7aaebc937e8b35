"""The log of deleted blocks: transactions by delTxnId, which the datanodes of a container have to acknowledge.

A transaction has blocks of one container. It ends when each datanode that is to have a copy of the container has
stored it durably; without datanodes in the next unit of work. A transaction that was sent in too many intervals is
*parked*: it is kept, and not sent again until an operator retries it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from schemas.block_store import Acknowledgement, DeletionOrder, digest_of
from schemas.records import DeletedBlocksRow
from services.domain.block_placement import may_be_copied_to
from services.mock_scm.containers import container, remove_blocks
from services.mock_scm.sequences import DELETION_TXN, take_ids
from services.mock_scm.tables import DELETED_BLOCKS_TABLE, number_key
from services.runtime.loop.service import Work
from services.storage.tables import Tables, TablesReader

PARKED = -1
"""The retry count of a parked transaction, as in Ozone."""
RemovedRun = tuple[int, int, int]
"""First local id, number of blocks and bytes of a run."""


def log_deletion(removed: dict[int, list[RemovedRun]], work: Work) -> list[bytes]:
    """Write a transaction for each container. Return the keys of the rows."""
    first_txn = take_ids(DELETION_TXN, len(removed), work)
    keys = []
    for deletion_txn, (container_id, runs) in enumerate(sorted(removed.items()), start=first_txn):
        keys.append(number_key(deletion_txn))
        first_local_ids, block_counts, sizes_bytes = zip(*runs, strict=True)
        row = DeletedBlocksRow(deletion_txn, container_id, first_local_ids, block_counts, sizes_bytes, 0)
        work.table(DELETED_BLOCKS_TABLE).put(keys[-1], row)
    return keys


def carry_out(key: bytes, work: Work) -> None:
    """End a transaction: remove its blocks from their container, once."""
    row = work.table(DELETED_BLOCKS_TABLE).get(key)
    if row is None:
        return
    remove_blocks(row.container_id, sum(row.block_counts), sum(row.sizes_bytes), work)
    work.table(DELETED_BLOCKS_TABLE).delete(key)


class DeletionLog:
    """The transactions that have not ended, in memory by who has to do something; derived from the table."""

    def __init__(self, tables: Tables | None = None) -> None:
        self.local: list[bytes] = []
        """Keys of those whose container is on no datanode."""
        self._by_node: dict[str, dict[bytes, None]] = defaultdict(dict)
        """For each datanode, in the order of the ids, the keys of those that it has not acknowledged."""
        self._by_container: dict[int, dict[bytes, None]] = defaultdict(dict)
        self._parked: set[bytes] = set()
        if tables is not None:
            for key, row in tables.table(DELETED_BLOCKS_TABLE).scan():
                self._add(key, row, tables)

    def add(self, keys: Iterable[bytes], work: Work) -> None:
        """Take in transactions that were just written."""
        for key in keys:
            row = work.table(DELETED_BLOCKS_TABLE).get(key)
            if row is not None:
                self._add(key, row, work)

    def _add(self, key: bytes, row: DeletedBlocksRow, tables: Tables) -> None:
        nodes = waits_for(row, tables)
        if not nodes:
            self.local.append(key)
            return
        self._by_container[row.container_id][key] = None
        if row.retry_count == PARKED:
            self._parked.add(key)
            return
        for node in nodes:
            self._by_node[node][key] = None

    def _forget(self, key: bytes, container_id: int) -> None:
        self._parked.discard(key)
        self._by_container[container_id].pop(key, None)
        if not self._by_container[container_id]:
            del self._by_container[container_id]
        for keys in self._by_node.values():
            keys.pop(key, None)

    def left(self) -> int:
        """Return the number of transactions that have not ended and are not parked."""
        waiting = sum(map(len, self._by_container.values()))
        return len(self.local) + waiting - len(self._parked)

    def parked(self) -> int:
        """Return the number of parked transactions."""
        return len(self._parked)

    def is_pending(self, container_id: int) -> bool:
        """Return whether a container has transactions that have not ended, parked ones among them."""
        return container_id in self._by_container

    def rows_of(self, container_id: int, tables: Tables) -> Iterator[DeletedBlocksRow]:
        """Yield the transactions of a container that have not ended."""
        for key in self._by_container.get(container_id, ()):
            row = tables.table(DELETED_BLOCKS_TABLE).get(key)
            if row is not None:
                yield row

    def acknowledge(
        self, node: str, acknowledged: Iterable[Acknowledgement], there: Collection[int], work: Work
    ) -> int:
        """Record that a datanode has stored transactions; ``there`` are the containers that it has. Return how many
        have ended by it.

        A datanode without a copy stores nothing. That is no acknowledgement if it may get a copy: the blocks could be
        copied to it from a datanode that has yet to delete them.
        """
        ended = 0
        for one in acknowledged:
            key = number_key(one.deletion_txn)
            row = work.table(DELETED_BLOCKS_TABLE).get(key)
            if row is None or node in row.acknowledged_by:
                continue
            if one.digest != digest_of(row.container_id, row.first_local_ids, row.block_counts):
                continue
            is_stored = one.is_stored and row.container_id in there
            if not is_stored and may_be_copied_to(container(row.container_id, work), node):
                continue
            row = replace(row, acknowledged_by=(*row.acknowledged_by, node))
            work.table(DELETED_BLOCKS_TABLE).put(key, row)
            self._by_node[node].pop(key, None)
            ended += self._end_if_done(key, row, work)
        return ended

    def _end_if_done(self, key: bytes, row: DeletedBlocksRow, work: Work) -> bool:
        if key not in self._by_container.get(row.container_id, ()) or waits_for(row, work):
            return False
        self._forget(key, row.container_id)
        carry_out(key, work)
        return True

    def void(self, container_id: int, node: str, work: Work) -> None:
        """A datanode has lost its copy of a container, and the deletions that it had stored with it."""
        if not may_be_copied_to(container(container_id, work), node):
            return
        for key in self._by_container.get(container_id, ()):
            row = work.table(DELETED_BLOCKS_TABLE).get(key)
            if row is not None and node in row.acknowledged_by:
                left = tuple([one for one in row.acknowledged_by if one != node])
                work.table(DELETED_BLOCKS_TABLE).put(key, replace(row, acknowledged_by=left))
                if key not in self._parked:
                    self._by_node[node][key] = None

    def replicas_changed(self, container_id: int, work: Work) -> None:
        """Ask the datanodes of a container anew, since others are to have copies than before."""
        found = {key: work.table(DELETED_BLOCKS_TABLE).get(key) for key in self.local}
        here = [key for key, row in found.items() if row is not None and row.container_id == container_id]
        self.local = [key for key in self.local if key not in here]
        self.add(here, work)
        for key in list(self._by_container.get(container_id, ())):
            row = work.table(DELETED_BLOCKS_TABLE).get(key)
            if row is None or self._end_if_done(key, row, work):
                continue
            self._forget(key, container_id)
            self._add(key, row, work)
        for keys in self._by_node.values():
            if list(keys) != sorted(keys):
                ordered = sorted(keys)
                keys.clear()
                keys.update(dict.fromkeys(ordered))

    def batch(self, node: str, limit: int, written: TablesReader) -> list[DeletionOrder]:
        """Return the oldest transactions that a datanode has to store, of those that are on disk."""
        rows = (written.table(DELETED_BLOCKS_TABLE).get(key) for key in islice(self._by_node.get(node, ()), limit))
        return [
            DeletionOrder(row.deletion_txn, row.container_id, row.first_local_ids, row.block_counts)
            for row in rows
            if row is not None
        ]

    def count_tries(self, limit: int, most: int, work: Work) -> None:
        """Count an interval for the transactions in the batches of all datanodes; park those that had too many."""
        sent = {key for keys in self._by_node.values() for key in islice(keys, limit)}
        for key in sorted(sent):
            row = work.table(DELETED_BLOCKS_TABLE).get(key)
            if row is None:
                continue
            retry_count = row.retry_count + 1 if row.retry_count < most else PARKED
            work.table(DELETED_BLOCKS_TABLE).put(key, replace(row, retry_count=retry_count))
            if retry_count == PARKED:
                self._parked.add(key)
                for keys in self._by_node.values():
                    keys.pop(key, None)

    def retry(self, deletion_txns: Iterable[int] | None, work: Work) -> int:
        """Send parked transactions again: some, or all (None). Return their number."""
        wanted = sorted(self._parked) if deletion_txns is None else map(number_key, deletion_txns)
        retried = [key for key in wanted if key in self._parked]
        for key in retried:
            row = work.table(DELETED_BLOCKS_TABLE).get(key)
            self._parked.discard(key)
            if row is not None:
                row = replace(row, retry_count=0)
                work.table(DELETED_BLOCKS_TABLE).put(key, row)
                self._add(key, row, work)
        return len(retried)


def waits_for(row: DeletedBlocksRow, tables: Tables) -> list[str]:
    """Return the datanodes that have yet to acknowledge a transaction."""
    replicas = container(row.container_id, tables).replicas
    return [one.node for one in replicas if one.node not in row.acknowledged_by]
