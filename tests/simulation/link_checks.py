"""Where links lead: each to the bucket, or to the refusal, that the model says, and a reader sees what is in there."""

from __future__ import annotations

from services.domain.refusals import CommandError
from services.metadata.reads import queries
from services.metadata.state.tables import BUCKET_TABLE
from services.storage.tables import TablesReader
from services.workloads.judge.model_bucket import OperationRefusedError
from tests.simulation.errors import AnswerError
from tests.simulation.model import ShardModel

Shown = tuple[int, list[str], str]
"""The id of a bucket and the paths in it, or the code of a refusal."""


def check_links(tables: TablesReader, model: ShardModel) -> None:
    """There are the links of the model, and each shows what the model shows.

    Raises:
        AnswerError: they differ.
    """
    links = {(row.volume, row.bucket) for _, row in tables.table(BUCKET_TABLE).scan() if row.source_bucket}
    if links != model.links:
        raise AnswerError(f"shard {model.shard}: the links are {sorted(links)}, expected {sorted(model.links)}")
    for link in links:
        found, expected = _shown(tables, *link), _expected(model, *link)
        if found != expected:
            raise AnswerError(f"shard {model.shard}: through the link {link} one sees {found}, expected {expected}")


def _shown(tables: TablesReader, volume: str, bucket: str) -> Shown:
    try:
        row = queries.get_bucket(tables, volume, bucket)
    except CommandError as error:
        return 0, [], error.code
    return row.object_id, sorted(entry.path for entry in queries.walk(tables, row)), ""


def _expected(model: ShardModel, volume: str, bucket: str) -> Shown:
    try:
        incarnation = model.found(volume, bucket)
    except OperationRefusedError as refusal:
        return 0, [], refusal.code
    view = incarnation.bucket.view()
    return incarnation.made_id, sorted((*view.keys, *view.directories)), ""
