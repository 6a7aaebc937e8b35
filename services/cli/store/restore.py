"""``deepclean restore``: copy a key or a directory out of a snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.arguments import ToPathOption
from services.cli.output import print_result
from services.cli.session import JsonOption, key_path, session_of, target_path
from services.cli.store.entries import snapshot_id_of
from services.client.tasks.restore import restore as restore_path
from services.domain.words import counted
from services.wording.figures import bytes_text


def restore(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="VOLUME/BUCKET/PATH", help="A key, or a directory of a tree.")],
    snapshot: Annotated[str, typer.Option("--from", help="The snapshot to copy from.")],
    target: ToPathOption = "",
    as_json: JsonOption = False,
) -> None:
    """Copy a key or a directory out of a snapshot, with new blocks. Existing keys are overwritten."""
    volume, bucket, name = key_path(path)
    target = target_path(target, volume, bucket)
    with session_of(context) as session:
        shard = session.volumes().shard_of(volume)
        volume, bucket = session.bucket_of(volume, bucket)
        snapshot_id = snapshot_id_of(session, volume, bucket, snapshot)
        restored = restore_path(session.connected(), shard, (volume, bucket), name, snapshot_id, target)
    print_result(
        restored,
        f"{counted(restored.keys, 'key')} ({bytes_text(restored.size_bytes)}) and "
        f"{counted(restored.directories, 'directory', 'directories')} of {name} are back from {snapshot}"
        f"{f', as {target}' if target else ''}, with blocks of their own",
        as_json=as_json,
    )
