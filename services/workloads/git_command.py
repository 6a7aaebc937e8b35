"""Read a git repository with git's plumbing commands.

Plumbing commands ignore a user's settings for diff and log, so that every user gets the same history.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from services.domain.errors import DeepcleanError

_SUBMODULE_MODE: Final = "160000"
_NO_ENTRY_MODE: Final = "000000"
_READ_BYTES: Final = 1 << 16
# A request to cat-file and its answer must each fit into a pipe; otherwise git and this process deadlock.
_BLOBS_PER_QUESTION: Final = 400
_RENAME_CANDIDATES_COUNT: Final = 1000
# Inside a git hook these variables point git at the repository of the hook.
_FOREIGN_ENVIRONMENT: Final = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_WORK_TREE",
    }
)


class GitError(DeepcleanError):
    """A git command failed; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of the first-parent history; ``parent`` is None for the first commit."""

    commit: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """One path's difference between a commit and its first parent. The blob of a side that is not a file is None."""

    is_rename: bool
    old_path: bytes
    old_blob: str | None
    new_path: bytes
    new_blob: str | None


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A file or symbolic link that a commit's tree lists."""

    path: bytes
    blob: str
    size_bytes: int


def key_of(path: bytes) -> str | None:
    """Return the key for a path in git, or None if the path is not UTF-8: git paths are any bytes, keys are UTF-8."""
    try:
        return path.decode()
    except UnicodeDecodeError:
        return None


class GitRepository:
    """Queries of one repository, bare or with a working tree."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def has_history(self) -> bool:
        """Return whether ``path`` is the root of a repository with a commit. False for an unpacked source archive.

        Raises:
            GitError: the directory is missing, or git cannot read the repository in it.
        """
        if not self.path.is_dir():
            raise GitError(f"There is no directory {self.path}: name the root of a clone.")
        if not self._looks_like_repository():
            return False
        if self._answer("rev-parse", "--show-prefix").strip():
            raise GitError(
                f"{self.path / '.git'} is no repository that git can read, though one above it is: "
                f"name the root of a whole clone"
            )
        if not self._answer("for-each-ref", "--count=1") and self._is_head_on_branch():
            return False  # the state after ``git init``
        try:
            self._answer("rev-parse", "--verify", "HEAD^{commit}")
        except GitError as error:
            raise GitError(
                f"HEAD of {self.path} names no commit that git can read: check out a branch that there is, or name "
                f"the root of a whole clone"
            ) from error
        return True

    def check_history(self) -> None:
        """Raise ``GitError`` unless ``path`` is the root of a repository with a commit that git can read."""
        if self.has_history():
            return
        if self._looks_like_repository():
            raise GitError(f"{self.path} has no commit: commit something, or name the root of another clone.")
        raise GitError(f"{self.path} is no git repository: name the root of a clone.")

    def _looks_like_repository(self) -> bool:
        """Return whether ``path`` has git's files, of a working tree or a bare repository, readable or not."""
        return (self.path / ".git").exists() or all((self.path / name).exists() for name in ("HEAD", "objects", "refs"))

    def _is_head_on_branch(self) -> bool:
        try:
            return bool(self._answer("symbolic-ref", "HEAD"))
        except GitError:
            return False

    def first_parent_commits(self) -> list[Commit]:
        """Return the history of HEAD along first parents, oldest first."""
        lines = self._answer("rev-list", "--first-parent", "--parents", "--reverse", "HEAD", "--").decode()
        columns = [line.split(" ") for line in lines.splitlines()]
        return [Commit(column[0], column[1] if len(column) > 1 else None) for column in columns]

    def times_ms(self) -> dict[str, int]:
        """Return the commit time of each commit of the first-parent history."""
        lines = self._answer("rev-list", "--first-parent", "--timestamp", "HEAD", "--").decode().splitlines()
        return {commit: 1000 * int(seconds) for seconds, commit in (line.split(" ") for line in lines)}

    def tags(self) -> dict[str, list[str]]:
        """Return the names of all tags by the object that each finally points to."""
        target_of: dict[str, str] = {}
        for line in self._answer("for-each-ref", "--format=%(objectname) %(refname)", "refs/tags").splitlines():
            target, _, reference = line.decode(errors="replace").partition(" ")
            target_of[reference.removeprefix("refs/tags/")] = target
        peeled = self._answer("show-ref", "--tags", "--dereference") if target_of else b""
        for line in peeled.splitlines():
            target, _, reference = line.decode(errors="replace").partition(" ")
            if reference.endswith("^{}"):
                target_of[reference.removeprefix("refs/tags/").removesuffix("^{}")] = target
        names: dict[str, list[str]] = {}
        for name, target in sorted(target_of.items()):
            names.setdefault(target, []).append(name)
        return names

    def changes(self, commits: Sequence[Commit]) -> Iterator[tuple[str, list[Change]]]:
        """Yield each commit with its changes against its parent; for a commit without parent, its whole tree."""
        arguments = ["diff-tree", "--stdin", "-r", "-z", "--raw", "--root", "--always", "--no-abbrev"]
        arguments += ["--no-relative", "--find-renames", f"-l{_RENAME_CANDIDATES_COUNT}"]
        with tempfile.TemporaryFile() as questions:
            questions.writelines(
                f"{c.commit} {c.parent}\n".encode() if c.parent else f"{c.commit}\n".encode() for c in commits
            )
            questions.seek(0)
            with self._running(arguments, questions) as output:
                yield from _read_changes(_null_terminated(output))

    def tree(self, commit: str) -> Iterator[TreeFile]:
        """Yield every file and symbolic link of a commit's tree; submodules are left out."""
        with self._running(["ls-tree", "-r", "-l", "-z", "--full-tree", commit], None) as output:
            for line in _null_terminated(output):
                description, _, path = line.partition(b"\t")
                mode, _, blob, size = description.decode().split()
                if mode != _SUBMODULE_MODE:
                    yield TreeFile(path, blob, int(size))

    @contextmanager
    def blob_sizes(self) -> Iterator["BlobSizes"]:
        """Run ``git cat-file`` and yield a reader of blob sizes."""
        arguments = ["cat-file", "--batch-check=%(objectname) %(objectsize)"]
        with self._start(arguments, subprocess.PIPE) as process:
            assert process.stdin is not None  # noqa: S101 - both are pipes
            assert process.stdout is not None  # noqa: S101
            try:
                yield BlobSizes(process.stdin, process.stdout)
            finally:
                process.kill()

    def _answer(self, *arguments: str) -> bytes:
        with self._running(list(arguments), None) as output:
            return output.read()

    @contextmanager
    def _running(self, arguments: list[str], questions: IO[bytes] | None) -> Iterator[IO[bytes]]:
        """Run a git command and yield its output.

        Raises:
            GitError: the command failed.
        """
        with tempfile.TemporaryFile() as complaints:
            with self._start(arguments, questions or subprocess.DEVNULL, complaints) as process:
                assert process.stdout is not None  # noqa: S101 - it is a pipe
                try:
                    yield process.stdout
                except BaseException:
                    process.kill()
                    raise
            if process.returncode:
                complaints.seek(0)
                reason = complaints.read().decode(errors="replace").strip() or f"exit {process.returncode}"
                raise GitError(f"git {arguments[0]} failed in {self.path}: {reason}. Name the root of a whole clone.")

    def _start(
        self, arguments: list[str], questions: IO[bytes] | int, complaints: IO[bytes] | int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN_ENVIRONMENT}
        # A clone without blobs must fail rather than fetch them one by one.
        environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1"}
        try:
            return subprocess.Popen(
                ["git", "-C", str(self.path), *arguments],
                stdin=questions,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=environment,
            )
        except FileNotFoundError as error:
            raise GitError("the git command was not found; install git") from error


class BlobSizes:
    """Reads blob sizes from a running ``git cat-file``."""

    def __init__(self, questions: IO[bytes], answers: IO[bytes]) -> None:
        self._questions = questions
        self._answers = answers

    def of(self, blobs: Iterable[str]) -> dict[str, int]:
        """Return the size of each blob in bytes.

        Raises:
            GitError: the repository does not have a blob.
        """
        asked = list(dict.fromkeys(blobs))
        sizes: dict[str, int] = {}
        for start in range(0, len(asked), _BLOBS_PER_QUESTION):
            question = asked[start : start + _BLOBS_PER_QUESTION]
            self._questions.write("".join(f"{blob}\n" for blob in question).encode())
            self._questions.flush()
            for blob in question:
                answered, _, size = self._answers.readline().decode().strip().partition(" ")
                if answered != blob or not re.fullmatch("[0-9]+", size):
                    raise GitError(f"git does not have blob {blob}; use a whole clone, made without --filter")
                sizes[blob] = int(size)
        return sizes


def _null_terminated(output: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while chunk := output.read(_READ_BYTES):
        *whole, rest = (rest + chunk).split(b"\0")
        yield from whole
    if rest:
        raise GitError(f"git stopped in the middle of an answer: {rest[:80]!r}")


def _read_changes(tokens: Iterator[bytes]) -> Iterator[tuple[str, list[Change]]]:
    """Yield each commit with its changes from the tokens ``commit (:modes blobs status path [path])*``."""
    commit: str | None = None
    changes: list[Change] = []
    for token in tokens:
        if not token.startswith(b":"):
            if commit is not None:
                yield commit, changes
            commit, changes = token.decode(), []
            continue
        old_mode, new_mode, old_blob, new_blob, status = token[1:].decode().split(" ")
        old_path = next(tokens)
        new_path = next(tokens) if status[0] == "R" else old_path
        changes.append(
            Change(
                is_rename=status[0] == "R",
                old_path=old_path,
                old_blob=_blob_of(old_mode, old_blob),
                new_path=new_path,
                new_blob=_blob_of(new_mode, new_blob),
            )
        )
    if commit is not None:
        yield commit, changes


def _blob_of(mode: str, blob: str) -> str | None:
    return None if mode in (_NO_ENTRY_MODE, _SUBMODULE_MODE) else blob
