"""The counters of one shard, and the ids that it gives out: containers, pipelines and transactions of deletions.

Ids are given out in batches that are written together with what has the ids. So a restart repeats none and leaves no
gap. What datanodes report raises the sequences, so that even a database that was restored from an older copy gives no
id that a datanode knows.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.records import ScmState, SequenceRow
from services.mock_scm.tables import SCM_STATE_TABLE, SEQUENCE_ID_TABLE, STATE_KEY
from services.runtime.loop.service import Work
from services.storage.tables import Tables

CONTAINER_ID = b"containerId"
DELETION_TXN = b"delTxnId"
PIPELINE_ID = b"pipelineId"
NO_STATE = ScmState(0, 0, 0, 0, 0, 0, 0)


def scm_state(tables: Tables, key: bytes = STATE_KEY) -> ScmState:
    """Return the counters of the shard."""
    return tables.table(SCM_STATE_TABLE).get(key) or NO_STATE


def put_state(state: ScmState, work: Work) -> None:
    """Write the counters of the shard."""
    work.table(SCM_STATE_TABLE).put(STATE_KEY, state)


def last_id(name: bytes, tables: Tables) -> int:
    """Return the last id that was given out. The database of an older program has it in the counters only."""
    row = tables.table(SEQUENCE_ID_TABLE).get(name)
    state = scm_state(tables)
    counted = {CONTAINER_ID: state.container_id, DELETION_TXN: state.deletion_txn}.get(name, 0)
    return max(row.last_id if row else 0, counted)


def take_ids(name: bytes, count: int, work: Work) -> int:
    """Give out ``count`` ids and return the first; the others follow it."""
    last = last_id(name, work)
    work.table(SEQUENCE_ID_TABLE).put(name, SequenceRow(last + count))
    return last + 1


def raise_to(name: bytes, seen: int, work: Work) -> None:
    """Give out no id up to ``seen``, which a datanode has reported."""
    if seen > last_id(name, work):
        work.table(SEQUENCE_ID_TABLE).put(name, SequenceRow(seen))


def next_container(work: Work) -> int:
    """Make the next container the newest one, which metadata is to write to. Return its id."""
    container_id = take_ids(CONTAINER_ID, 1, work)
    put_state(replace(scm_state(work), container_id=container_id), work)
    return container_id
