"""Owners and access lists as metadata has them, held against the model's, object by object."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from services.domain.table_keys import flat_key, object_txn
from services.metadata.state.tables import ACL_TABLE, BUCKET_TABLE, PREFIX_TABLE, VOLUME_TABLE
from services.storage.tables import TablesReader
from tests.simulation.access_lists import Entries
from tests.simulation.errors import AnswerError
from tests.simulation.model import ShardModel


def check_rights(tables: TablesReader, model: ShardModel) -> None:
    """Everything that is there has the owner and the list of the model.

    Raises:
        AnswerError: they differ.
    """
    names = dict(_named(tables, model))
    owners = {names[row.object_id]: row.owner for _, row in tables.table(VOLUME_TABLE).scan() if row.owner}
    owners |= {names[row.object_id]: row.owner for _, row in tables.table(BUCKET_TABLE).scan() if row.owner}
    expected_owners = {name: owner for name, owner in model.rights.owners.items() if owner}
    if owners != expected_owners:
        raise AnswerError(f"shard {model.shard}: the owners are {owners}, expected {expected_owners}")
    live = {thing for one in model.live_buckets() for thing in model.things_in(one)}
    lists = _lists(tables, model, names)
    for name in (*names.values(), *live, *_prefixes(model)):
        found, expected = lists.get(name, ()), model.rights.lists.of(name)
        if expected is not None and found != expected:
            raise AnswerError(f"shard {model.shard}: the access list of {name} is {found}, expected {expected}")


def _named(tables: TablesReader, model: ShardModel) -> Iterator[tuple[int, Hashable]]:
    """Ids of volumes, buckets and links, with what they are in the model."""
    for _, volume in tables.table(VOLUME_TABLE).scan():
        yield volume.object_id, volume.volume
    for _, bucket in tables.table(BUCKET_TABLE).scan():
        yield bucket.object_id, model.rights.name_of(bucket.volume, bucket.bucket)


def _prefixes(model: ShardModel) -> list[Hashable]:
    lists = model.rights.lists
    return [prefix for one in model.live_buckets() for prefix in lists.names("prefix", id(one))]


def _lists(tables: TablesReader, model: ShardModel, names: dict[int, Hashable]) -> dict[Hashable, Entries]:
    """All lists of metadata. Those of what was deleted with its directory, and is not expanded, are among them."""
    found: dict[Hashable, Entries] = {}
    for key, row in tables.table(ACL_TABLE).scan():
        bucket_id, object_id = int(key.split(b"/")[1]), int(key.split(b"/")[2], 16)
        thing = model.objects.get((object_txn(object_id), object_id & 255))
        found[names.get(object_id) if bucket_id == object_id else thing] = row.acls
    prefixes = {key: row.acls for key, row in tables.table(PREFIX_TABLE).scan()}
    for one in model.live_buckets():
        start = flat_key(one.volume, one.name, "")
        for key, acls in prefixes.items():
            if key.startswith(start):
                found["prefix", id(one), key.removeprefix(start).decode()] = acls
    return found
