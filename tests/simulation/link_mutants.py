"""Faults in links, and the scripts that show them: a name that leads half the way, or to what was there once."""

from __future__ import annotations

from schemas import records
from schemas.records import BucketLayout, BucketRow
from services.domain.table_keys import bucket_key
from services.metadata.state import bucket_links
from services.metadata.state.tables import BUCKET_TABLE
from services.storage.tables import Tables
from tests.simulation.mutant import Mutant, scripted
from tests.simulation.mutants import Patch
from tests.simulation.scripts import BUCKET, Stage
from tests.simulation.simulator import Simulation


class _Linked(Stage):
    """A bucket with links to it."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation, BucketLayout.FILE_SYSTEM_OPTIMIZED)

    def link(self, name: str, source: str) -> None:
        """Make a link."""
        self.submit(records.CreateBucketLink(self.volume, name, self.volume, source))

    def put_through(self, link: str) -> None:
        """Write a key by the name of a link."""
        self.submit(records.PutKey(self.volume, link, "key", 100, "tag", 1_024))
        self.run()


def _a_link_to_a_link(simulation: Simulation) -> None:
    stage = _Linked(simulation)
    stage.link("link-1", "link-2")
    stage.link("link-2", BUCKET)
    stage.put_through("link-1")


def _a_bucket_made_again(simulation: Simulation) -> None:
    stage = _Linked(simulation)
    stage.link("link-1", BUCKET)
    stage.put_through("link-1")
    stage.delete("key")
    stage.submit(records.DeleteBucket(stage.volume, BUCKET))
    stage.submit(records.CreateBucket(stage.volume, BUCKET, BucketLayout.FILE_SYSTEM_OPTIMIZED))
    stage.put_through("link-1")


def _a_circle(simulation: Simulation) -> None:
    stage = _Linked(simulation)
    stage.link("link-1", "link-2")
    stage.link("link-2", "link-1")
    stage.put_through("link-1")


def _next(tables: Tables, link: BucketRow) -> BucketRow | None:
    return tables.table(BUCKET_TABLE).get(bucket_key(link.source_volume, link.source_bucket))


def one_hop(patch: Patch) -> None:
    """A link leads one step far, to whatever has that name."""
    patch.setattr(bucket_links, "_followed", _next)


def first_found(patch: Patch) -> None:
    """A link leads for ever to what it has led to first."""
    original, found = bucket_links._followed, dict[str, BucketRow | None]()

    def followed(tables: Tables, link: BucketRow) -> BucketRow | None:
        if found.get(link.bucket) is None:
            found[link.bucket] = original(tables, link)
        return found[link.bucket]

    patch.setattr(bucket_links, "_followed", followed)


def circles_lead_nowhere(patch: Patch) -> None:
    """Of links round in a circle it is said that the bucket is missing, as of a link into nothing."""

    def followed(tables: Tables, link: BucketRow) -> BucketRow | None:
        row: BucketRow | None = link
        for _ in range(bucket_links.MAX_LINKS):
            row = None if row is None or not row.source_bucket else _next(tables, row)
            if row is not None and not row.source_bucket:
                return row
        return None

    patch.setattr(bucket_links, "_followed", followed)


LINK_MUTANTS: dict[str, Mutant] = {
    "links: one hop": scripted(one_hop, _a_link_to_a_link, "listings", "lists .* expected"),
    "links: the first that was found": scripted(first_found, _a_bucket_made_again, "listings", "lists .* expected"),
    "links: circles lead nowhere": scripted(
        circles_lead_nowhere, _a_circle, "answers", r"DETECTED_LOOP_IN_BUCKET_LINKS'\)\], answered"
    ),
}
