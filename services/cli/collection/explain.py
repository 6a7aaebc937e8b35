"""``deepclean explain``: the holders of a path, snapshot, bucket or block, its bytes, and the event that frees it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from schemas.space_answers import ExplainedVersion, PathExplanation
from services.cli.bucket_view import view_of
from services.cli.collection.space import print_bucket, suspended_in
from services.cli.holders import print_holders
from services.cli.output import print_fields, print_json, print_table
from services.cli.session import JsonOption, Session, bucket_path, key_path, session_of
from services.cli.terminal import say
from services.client.errors import PlaneError
from services.client.tasks.space_view import (
    BucketView,
    NamedSnapshots,
    find_block,
    held_by_path,
    held_by_snapshot,
    is_held_by,
)
from services.domain.table_keys import local_id_shard
from services.domain.words import counted
from services.wording.collection import suspended_words
from services.wording.figures import amount_in_words, bytes_text, on_disks, size_text, time_text
from services.wording.holders import Holder, holders_of
from services.wording.space import (
    NOTHING_LEFT,
    accounted_bytes,
    block_fields,
    directory_text,
    goes_when,
    names_text,
    snapshot_texts,
    why_it_stays,
)

SNAPSHOT_INDICATOR = "/.snapshot/"
MAX_DIGITS = 19
"""Most digits of a signed 64-bit number."""
_BUCKET_DEPTH = 2


def explain(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="VOLUME/BUCKET/PATH, VOLUME/BUCKET/.snapshot/NAME, VOLUME/BUCKET, or the local id of a block.",
        ),
    ],
    bucket: Annotated[
        str, typer.Option(metavar="VOLUME/BUCKET", help="Search for a block in this bucket only, which is much faster.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Show who holds a path, a snapshot, a bucket or a block, since when, how many bytes, and what frees it."""
    if bucket and not target.isdecimal():
        raise typer.BadParameter("--bucket needs a block as TARGET", param_hint="--bucket")
    if target.isdecimal() and len(target) > MAX_DIGITS:
        raise typer.BadParameter(f"{target[:MAX_DIGITS]}… is not a block: an id has at most {MAX_DIGITS} digits")
    with session_of(context) as session:
        if target.isdecimal():
            _block(session, int(target), bucket, as_json=as_json)
        elif SNAPSHOT_INDICATOR in target:
            place, _, name = target.partition(SNAPSHOT_INDICATOR)
            _snapshot(view_of(session, place), name, as_json=as_json)
        elif len(target.strip("/").split("/")) <= _BUCKET_DEPTH:
            _bucket(view_of(session, target), as_json=as_json)
        else:
            volume_name, bucket_name, path = key_path(target)
            _path(view_of(session, f"{volume_name}/{bucket_name}"), path, as_json=as_json)


# A path


def _path(view: BucketView, path: str, *, as_json: bool) -> None:
    snapshots = view.snapshots()
    found = view.path(path)
    held = held_by_path(snapshots, found)
    names = [info.name for info in held.holders]
    holders = holders_of(view, held.holders)
    suspended = suspended_in(view)
    if as_json:
        shown = {
            "path": path,
            "held_by": names,
            "holders": [asdict(one) for one in holders],
            "bytes": held.bytes,
            "suspended_because": suspended,
        }
        print_json({**shown, **asdict(found)})
        return
    print_fields(
        [
            ("path", f"{view.volume}/{view.bucket}/{path}"),
            ("as of", f"txn {found.txn}, chain version {found.chain_version} of shard {view.shard}"),
            ("held by", names_text(names) or "no snapshot"),
            ("live or held", size_text(held.bytes, held.replicated_bytes, is_exact=found.is_exact)),
        ]
    )
    _print_directories(snapshots, found)
    if found.below_versions:
        below = amount_in_words(found.below_bytes, found.below_versions, found.below_replicated_bytes)
        say(f"below it: {below}, live or held")
    if not found.versions and not found.directories:
        say(f"{NOTHING_LEFT}.")
        say(f"Its last deletion: deepclean trace show {view.volume}/{view.bucket}/{path}")
    if found.versions:
        say("")
        print_table(
            ["COMMITTED", "BYTES", "BORN", "DIED", "STAGE", "HELD BY", "GOES WHEN"],
            (_version_cells(snapshots, version, suspended) for version in found.versions),
            numbers=["BYTES", "BORN", "DIED"],
        )
    print_holders(holders)


def _print_directories(snapshots: NamedSnapshots, found: PathExplanation) -> None:
    for directory in found.directories:
        names = [info.name for info in snapshots.active if is_held_by(info, directory)]
        say(directory_text(directory, names))


def _version_cells(snapshots: NamedSnapshots, version: ExplainedVersion, suspended: str) -> tuple[Any, ...]:
    names = [info.name for info in snapshots.active if is_held_by(info, version)]
    return (
        time_text(version.modification_time_ms),
        bytes_text(version.size_bytes) + on_disks(version.size_bytes, version.replicated_bytes),
        f"txn {version.birth}",
        f"txn {version.death}" if version.death else "",
        version.stage.lower(),
        names_text(names),
        goes_when(version.stage, names, suspended),
    )


# A snapshot


def _snapshot(view: BucketView, name: str, *, as_json: bool) -> None:
    snapshots = view.snapshots()
    (snapshot_id,) = snapshots.ids_of([name])
    spaces = view.spaces()
    held = held_by_snapshot(snapshots, spaces, snapshot_id)
    space = next(one for one in spaces.snapshots if one.snapshot_id == snapshot_id)
    names = [info.name for info in held.holders]
    of_all = view.keep_reasons()
    reasons = next((of_all.of(kept) for kept in of_all.preview.kept if kept.snapshot_id == snapshot_id), ())
    if as_json:
        shown = {
            "name": name,
            "held_by": names,
            "bytes": held.bytes,
            "has_policy": of_all.has_policy,
            "reasons": reasons,
        }
        print_json({**shown, **asdict(space)})
        return
    is_held_exact = space.is_referenced_exact and space.is_exclusive_exact
    referenced, exclusive, before, after = snapshot_texts(space)
    exclusive = f"{exclusive} in {counted(space.exclusive_versions, 'version')}"
    print_fields(
        [
            ("snapshot", f"{name} of {view.volume}/{view.bucket}"),
            ("as of", f"txn {spaces.txn}, chain version {spaces.chain_version} of shard {view.shard}"),
            ("created", f"{time_text(space.creation_time_ms)}, at txn {space.txn}"),
            ("shows", referenced),
            (
                "of that not live any more",
                size_text(space.held_bytes, space.held_replicated_bytes, is_exact=is_held_exact),
            ),
            ("held by it alone", f"{exclusive}: freed when it is deleted"),
            ("shown by the previous too", before),
            ("shown by the next too", after),
            ("what it shows is held by", names_text(names)),
            ("it stays because", why_it_stays(of_all, snapshot_id, reasons)),
        ]
    )


# A bucket


def _bucket(view: BucketView, *, as_json: bool) -> None:
    space = view.plane.metadata(view.shard).space(view.volume, view.bucket)
    suspended = suspended_in(view)
    if as_json:
        print_json({**asdict(space), "accounted_bytes": accounted_bytes(space), "suspended_because": suspended})
    else:
        print_bucket(view, space, suspended)


# A block


def _block(session: Session, local_id: int, bucket: str, *, as_json: bool) -> None:
    shard, plane = local_id_shard(local_id), session.connected()
    if shard >= plane.shards:
        raise PlaneError("INVALID_REQUEST", f"{local_id} is a block of shard {shard}; the plane has {plane.shards}")
    names = bucket_path(bucket) if bucket else ("", "")
    found = find_block(plane, shard, local_id, *names)
    version = found.version
    holders: list[Holder] = []
    suspended = ""
    if version is not None:
        view = BucketView(plane, shard, found.volume, found.bucket)
        suspended = suspended_words(plane.metadata(shard).collection(found.volume, found.bucket))
        if version.last_holder:
            holders = holders_of(view, [info for info in view.snapshots().active if is_held_by(info, version)])
    names_of_holders = [one.name for one in holders]
    if as_json:
        shown_first = {
            "local_id": local_id,
            "shard": shard,
            "held_by": names_of_holders,
            "holders": [asdict(one) for one in holders],
            "suspended_because": suspended,
        }
        print_json({**shown_first, **asdict(found)})
        return
    print_fields(block_fields(found, local_id, bucket, names_of_holders, suspended))
    print_holders(holders)
