"""What several commands ask of one bucket: its view, and what deleting some of its snapshots would free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from schemas.space_answers import FreedSpace
from services.cli.output import print_result
from services.cli.session import Session, bucket_path
from services.client.tasks.space_view import BucketView
from services.wording.space import freed_text


def view_of(session: Session, bucket: str) -> BucketView:
    """Return the view of the bucket named on the command line."""
    volume_name, bucket_name = bucket_path(bucket)
    shard = session.volumes().shard_of(volume_name)
    return BucketView(session.connected(), shard, *session.bucket_of(volume_name, bucket_name))


def print_what_if(names: Sequence[str], freed: FreedSpace, *, as_json: bool) -> None:
    """Print what deleting some snapshots together would free."""
    found = {"snapshots": names, **asdict(freed)}
    print_result(found, f"{what_if_sentence(names, freed)} (txn {freed.txn})", as_json=as_json)


def what_if_sentence(names: Sequence[str], freed: FreedSpace) -> str:
    """Return what deleting some snapshots together would free, as a sentence without its end."""
    sizes = (freed.freed_bytes, freed.freed_replicated_bytes, freed.freed_versions)
    return f"deleting {', '.join(names)} would free {freed_text(*sizes, is_exact=freed.is_exact)}"
