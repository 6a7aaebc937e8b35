"""Buckets and snapshots as a file system of fsspec, for pandas, PyArrow, DuckDB and whatever else reads by it.

``deepclean://volume/bucket/path`` is the bucket as it is now, ``deepclean://volume/bucket/.snapshot/name/path`` one of
its snapshots. Nothing is written by it. Bytes can be read where the plane has datanodes; listings always work. As in
Ozone, a listing of a bucket does not show ``.snapshot``.

Keys of a flat bucket may have empty parts. ``a//b`` is a file of the directory ``a``; ``dir/`` is listed in ``dir``,
and cannot be opened, since programs take a slash at the end of a path for nothing. fsspec walks by the last part of a
path: of ``a/b`` and ``a//b`` its ``walk`` shows one, and ``find`` shows both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile

from deepclean.connection import Connection
from deepclean.namespace import Namespace
from schemas.answers import ListedEntry
from schemas.records import DirectoryRow, KeyRow
from services.client.errors import (
    InvalidRequestError,
    NotAllowedError,
    NotFoundError,
    PlaneError,
    PlaneTimeoutError,
    UnreachableError,
)
from services.client.kafka_plane import PlaneAddress
from services.client.tasks.key_reader import KeyReader
from services.domain.names import SNAPSHOT_INDICATOR

Info = dict[str, Any]
"""What fsspec shows of a file or directory."""
FILE, DIRECTORY = "file", "directory"


class _Place(NamedTuple):
    """What a path names; an empty part says that the path ends before it."""

    volume: str
    bucket: str
    snapshot: str | None
    """None for the bucket as it is now; empty for the directory of all snapshots."""
    inner: str
    """Path within the bucket or snapshot, without a slash at its ends."""


def _place_of(path: str) -> _Place:
    volume, _, rest = path.strip("/").partition("/")
    bucket, _, inner = rest.partition("/")
    first, _, behind = inner.partition("/")
    if first != SNAPSHOT_INDICATOR:
        return _Place(volume, bucket, None, inner)
    snapshot, _, inner = behind.partition("/")
    return _Place(volume, bucket, snapshot, inner)


@contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """Raise what programs expect of a file system."""
    try:
        yield
    except NotFoundError as error:
        raise FileNotFoundError(f"{path}: {error}") from error
    except NotAllowedError as error:
        raise PermissionError(f"{path}: {error}") from error
    except InvalidRequestError as error:
        kind = IsADirectoryError if str(error).endswith("is a directory") else NotADirectoryError
        raise (kind if error.code == "NOT_A_FILE" else OSError)(f"{path}: {error}") from error
    except (UnreachableError, PlaneTimeoutError) as error:
        raise ConnectionError(f"{path}: {error}") from error
    except PlaneError as error:
        raise OSError(f"{path}: {error}") from error


class DeepcleanFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The volumes, buckets, snapshots and keys of a plane, to be read.

    ``home`` and ``address`` are those of ``deepclean.connect``; ``connection`` is one that exists already. In an URL
    only the path is given: ``fsspec.filesystem("deepclean", home=…)`` or ``storage_options`` name the plane.
    """

    protocol = "deepclean"
    root_marker = ""

    def __init__(
        self,
        home: str | None = None,
        address: PlaneAddress | None = None,
        connection: Connection | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if connection is None:
            from deepclean import connect  # noqa: PLC0415  it is the package that this module is a part of

            connection = connect(address, home=None if home is None else Path(home))
        self.connection = connection

    def _namespace(self, place: _Place) -> Namespace:
        bucket = self.connection.volume(place.volume).bucket(place.bucket)
        return bucket if place.snapshot is None else bucket.snapshot(place.snapshot)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return what is directly below a path: as names, or with sizes, kinds and times. Of a file, the file."""
        path = self._strip_protocol(path)
        with _as_os_errors(path):
            try:
                found = list(self._children(_place_of(path), path))
            except InvalidRequestError as error:
                if error.code != "NOT_A_FILE":
                    raise
                found = [self.info(path)]
        return found if detail else [one["name"] for one in found]

    def _children(self, place: _Place, path: str) -> Iterator[Info]:
        if not place.volume:
            for volume in self.connection.volumes():
                yield _directory(volume.volume, volume.creation_time_ms)
        elif not place.bucket:
            for bucket in self.connection.volume(place.volume).buckets():
                yield _directory(f"{place.volume}/{bucket.bucket}", bucket.creation_time_ms)
        elif place.snapshot == "":
            for info in self.connection.volume(place.volume).bucket(place.bucket).snapshots():
                yield _directory(f"{path}/{info.name}", info.creation_time_ms)
        else:
            root = path.removesuffix(place.inner).rstrip("/")
            for entry in self._namespace(place).listdir(place.inner):
                yield _entry(root, entry)

    def info(self, path: str, **_: Any) -> Info:
        """Return name, size, kind and times of a file or directory."""
        path = self._strip_protocol(path)
        place = _place_of(path)
        with _as_os_errors(path):
            if not place.volume:
                return _directory("", -1)
            volume = self.connection.volume(place.volume)
            if not place.bucket:
                return _directory(path, volume.info().creation_time_ms)
            bucket = volume.bucket(place.bucket)
            if not place.snapshot and not place.inner:
                return _directory(path, bucket.info().creation_time_ms)
            if place.snapshot and not place.inner:
                with bucket.snapshot(place.snapshot) as snapshot:  # a deleted one has a row until it is dropped
                    return _directory(path, snapshot.info().creation_time_ms)
            return self._stat(place, path)

    def _stat(self, place: _Place, path: str) -> Info:
        namespace = self._namespace(place)
        try:
            return _row(path, namespace.stat(place.inner))
        except NotFoundError as error:
            # Keys of a flat bucket that have a part of their names in common are shown in a directory.
            if error.code == "KEY_NOT_FOUND" and any(namespace.list(f"{place.inner}/", limit=1)):
                return _directory(path, -1)
            raise

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any
    ) -> Any:
        """Return all files below a path, and with ``withdirs`` the directories. A bucket is not walked but listed."""
        path = self._strip_protocol(path)
        place = _place_of(path)
        if not place.bucket or place.snapshot == "" or maxdepth is not None:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail)
        found: dict[str, Info] = {}
        try:
            own = self.info(path)
        except FileNotFoundError:
            return {} if detail else []
        if own["type"] == FILE or withdirs:
            found[path] = own
        if own["type"] == DIRECTORY:
            root, prefix = path.removesuffix(place.inner).rstrip("/"), f"{place.inner}/" if place.inner else ""
            with _as_os_errors(path):
                below = (_entry(root, entry) for entry in self._namespace(place).list(prefix))
                found |= {one["name"]: one for one in below if withdirs or one["type"] == FILE}
        return dict(sorted(found.items())) if detail else sorted(found)

    def created(self, path: str) -> datetime:
        """Return when a version or directory was created, in UTC."""
        created: datetime = self.info(path)["created"]
        return created

    def modified(self, path: str) -> datetime:
        """Return when a version or directory was modified last, in UTC."""
        modified: datetime = self.info(path)["modified"]
        return modified

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return the bytes of a file, or those from ``start`` to ``end``; negative offsets count from its end."""
        path = self._strip_protocol(path)
        with _as_os_errors(path), self._reader(path) as reader:
            first, behind, _step = slice(start, end).indices(reader.size_bytes)
            reader.seek(first)
            return reader.read(max(0, behind - first))

    def _reader(self, path: str) -> KeyReader:
        place = _place_of(path)
        if not place.inner:
            raise InvalidRequestError("NOT_A_FILE", f"{path or 'the root'} is a directory")
        return self._namespace(place).open_raw(place.inner)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **options: Any) -> DeepcleanFile:
        if mode != "rb":
            raise NotImplementedError(f"deepclean is read by fsspec, not written (mode {mode!r}): use Bucket.put")
        return DeepcleanFile(self, path, mode, block_size or "default", **options)


class DeepcleanFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """A version of a key, opened for reading. It stays this version, whatever happens to the key."""

    def __init__(self, fs: DeepcleanFileSystem, path: str, mode: str, block_size: Any, **options: Any) -> None:
        with _as_os_errors(path):
            self._reader = fs._reader(path)
        options["size"] = self._reader.size_bytes
        super().__init__(fs, path, mode, block_size, **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        with _as_os_errors(self.path):
            self._reader.seek(start)
            found: bytes = self._reader.read(end - start)
            return found


def _time(milliseconds: int) -> datetime | None:
    return None if milliseconds < 0 else datetime.fromtimestamp(milliseconds / 1_000, UTC)


def _directory(name: str, creation_time_ms: int) -> Info:
    created = _time(creation_time_ms)
    return {"name": name, "size": 0, "type": DIRECTORY, "created": created, "modified": created}


def _entry(root: str, entry: ListedEntry) -> Info:
    kind = DIRECTORY if entry.is_directory else FILE
    modified = _time(entry.modification_time_ms)
    return {
        "name": f"{root}/{entry.path}",
        "size": entry.size_bytes,
        "type": kind,
        "modified": modified,
        "tag": entry.tag,
        "object_id": entry.object_id,
    }


def _row(path: str, row: KeyRow | DirectoryRow) -> Info:
    of_key = {"type": FILE, "size": row.size_bytes, "tag": row.tag} if isinstance(row, KeyRow) else {}
    return {
        "name": path,
        "size": 0,
        "type": DIRECTORY,
        "created": _time(row.creation_time_ms),
        "modified": _time(row.modification_time_ms),
        "tag": "",
        "object_id": row.object_id,
        **of_key,
    }


__all__: Sequence[str] = ["DeepcleanFile", "DeepcleanFileSystem"]
