"""The job's own files in Spark's checkpoint: on this machine, or at an address of any Hadoop file system.

Spark keeps its own files there, too. A file is replaced as a whole: a reader sees the old text or the new one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from schemas.formats import FILE, FORMAT, FormatError, check
from services.domain.errors import InvariantError, RetryableError

_LOCAL_SCHEMES = ("", "file")


class Checkpoint(Protocol):
    """A directory of small files; ``str`` is its address."""

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if there is no such file.

        Raises:
            OSError: this machine refuses.
            RetryableError: a file system elsewhere does not answer, or refuses.
        """

    def replace(self, name: str, text: str) -> None:
        """Write a file, or replace it, durably; make the directory. Errors as of ``read``."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none if it is missing. Errors as of ``read``."""

    def is_empty(self) -> bool:
        """Return whether the directory has no files, or is missing. Errors as of ``read``."""


class LocalCheckpoint:
    """A directory of this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()

    def __str__(self) -> str:
        return str(self._directory)

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None."""
        try:
            return (self._directory / name).read_text("utf-8")
        except FileNotFoundError:
            return None

    def replace(self, name: str, text: str) -> None:
        """Write a file beside the old one, and rename it; both are synced."""
        self._directory.mkdir(parents=True, exist_ok=True)
        fresh = self._directory / f"{name}.new"
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._directory / name)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none if it is missing."""
        try:
            return [file.name for file in (self._directory / folder).iterdir()]
        except FileNotFoundError:
            return []

    def is_empty(self) -> bool:
        """Return whether the directory has no files, or is missing."""
        return not self._directory.is_dir() or not any(self._directory.iterdir())


class HadoopCheckpoint:
    """A directory of any file system that Hadoop knows, written as Spark writes its own files there."""

    def __init__(self, session: SparkSession, address: str) -> None:
        """Find the file system.

        Raises:
            InvariantError: Hadoop does not know it, or its settings are wrong.
        """
        self._address = address.rstrip("/")
        spark: Any = session
        self._jvm = spark._jvm
        manager = self._jvm.org.apache.spark.sql.execution.streaming.CheckpointFileManager
        try:
            settings = spark._jsparkSession.sessionState().newHadoopConf()
            self._files = manager.create(self._path(), settings)
        except Py4JJavaError as error:
            raise InvariantError(
                f"The checkpoint {address} cannot be used ({_reason(error)}): see if Spark has the file system's jars "
                f"and its settings (--conf spark.hadoop.…)."
            ) from error

    def __str__(self) -> str:
        return self._address

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None."""
        try:
            if not self._files.exists(self._path(name)):
                return None
            stream = self._files.open(self._path(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise self._failed(error) from error

    def replace(self, name: str, text: str) -> None:
        """Write a file that takes its name when it is closed: renamed, or put, as the file system can."""
        try:
            self._files.mkdirs(self._path())
            stream = self._files.createAtomic(self._path(name), True)
            try:
                stream.write(text.encode())
            except Py4JJavaError:
                stream.cancel()
                raise
            stream.close()
        except Py4JJavaError as error:
            raise self._failed(error) from error

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none if it is missing."""
        try:
            if not self._files.exists(self._path(folder)):
                return []
            return [str(one.getPath().getName()) for one in self._files.list(self._path(folder))]
        except Py4JJavaError as error:
            raise self._failed(error) from error

    def is_empty(self) -> bool:
        """Return whether the directory has no files, or is missing."""
        try:
            return not self._files.exists(self._path()) or not len(self._files.list(self._path()))
        except Py4JJavaError as error:
            raise self._failed(error) from error

    def _path(self, *names: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join((self._address, *names)))

    def _failed(self, error: Py4JJavaError) -> RetryableError:
        return RetryableError(
            f"The checkpoint {self._address} did not answer ({_reason(error)}): see if its file system runs, and who "
            f"may write there."
        )


def local_checkpoint(address: str) -> LocalCheckpoint | None:
    """Return the checkpoint at a path or a ``file:`` address; None for an address elsewhere."""
    parts = urlsplit(address)
    if parts.scheme not in _LOCAL_SCHEMES:
        return None
    return LocalCheckpoint(Path(unquote(parts.path) if parts.scheme else address))


def check_format(checkpoint: Checkpoint) -> None:
    """Check the format of a checkpoint; an empty one gets the format of this program.

    Raises:
        FormatError: a newer program has written it, or one before 0.2.0.
    """
    what = f"Spark's checkpoint {checkpoint}"
    found = checkpoint.read(FILE)
    if found is not None:
        check(_number(found, what), what)
    elif checkpoint.is_empty():
        checkpoint.replace(FILE, f"{FORMAT}\n")
    else:
        check(None, what)


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise FormatError(f"{what} has a file {FILE} that is no number ({text[:20]!r}): mend it.") from error


def _reason(error: Py4JJavaError) -> str:
    """Return the first line of the error at the bottom: those above it only say that there was one."""
    cause = error.java_exception
    while (below := cause.getCause()) is not None:
        cause = below
    return str(cause.toString()).splitlines()[0][:300]
