"""Builds real git repositories for tests out of plain mappings, with git's own importer."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FILE, EXECUTABLE, LINK, SUBMODULE = "100644", "100755", "120000", "160000"

Tree = Mapping[bytes, tuple[str, bytes]]
"""Path → mode and content; of a submodule the content is the commit that it points to."""


@dataclass(frozen=True)
class Revision:
    """One commit: its whole tree. A side commit is off the first-parent history and merged by the next main one."""

    tree: Tree
    is_side: bool = False
    tag: str | None = None
    is_tag_annotated: bool = False


def files(**contents: str) -> dict[bytes, tuple[str, bytes]]:
    """A tree of ordinary files from names that are Python words; ``__`` stands for the slash."""
    return {name.replace("__", "/").encode(): (FILE, text.encode()) for name, text in contents.items()}


def git(path: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run git without anybody's personal settings."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(path), *arguments]
    answer = subprocess.run(command, input=stdin, env=environment, check=False, capture_output=True)
    assert answer.returncode == 0, answer.stderr.decode(errors="replace")
    return answer.stdout


def build_repository(path: Path, revisions: Sequence[Revision | Tree]) -> Path:
    """Make a repository whose branch has these commits, oldest first."""
    path.mkdir(parents=True, exist_ok=True)
    git(path, "init", "--quiet", "--initial-branch=main")
    main: int | None = None
    sides: list[int] = []
    lines: list[bytes] = []
    for mark, item in enumerate(revisions, start=1):
        revision = item if isinstance(item, Revision) else Revision(item)
        lines.append(b"commit refs/heads/%s" % (b"side%d" % mark if revision.is_side else b"main"))
        lines += [b"mark :%d" % mark, b"committer Tester <tester@example.org> %d +0000" % (10**9 + mark)]
        lines.append(_literal(b"commit %d" % mark))
        if main is not None:
            lines.append(b"from :%d" % main)
        if revision.is_side:
            sides.append(mark)
        else:
            lines += [b"merge :%d" % side for side in sides]
            main, sides = mark, []
        lines += [b"deleteall", *_entries(revision.tree), b""]
        if revision.tag:
            lines += _tag(revision, mark)
    git(path, "fast-import", "--quiet", "--force", stdin=b"\n".join([*lines, b"done", b""]))
    return path


def _tag(revision: Revision, mark: int) -> list[bytes]:
    assert revision.tag
    if not revision.is_tag_annotated:
        return [b"reset refs/tags/" + revision.tag.encode(), b"from :%d" % mark, b""]
    name = b"tag " + revision.tag.encode()
    return [name, b"from :%d" % mark, b"tagger Tester <t@example.org> 1 +0000", _literal(b"a tag")]


def _entries(tree: Tree) -> list[bytes]:
    lines = []
    for path, (mode, content) in tree.items():
        quoted = b'"' + b"".join(b"\\%03o" % byte for byte in path) + b'"'
        if mode == SUBMODULE:
            lines.append(b"M 160000 " + content + b" " + quoted)
        else:
            lines += [b"M " + mode.encode() + b" inline " + quoted, _literal(content)]
    return lines


def _literal(content: bytes) -> bytes:
    return b"data %d\n%s" % (len(content), content)


def listed_by_git(path: Path, commit: str) -> dict[str, tuple[str, int]]:
    """Path → blob and size as ``git ls-tree`` says, read independently of the product's own reader."""
    listing = {}
    for line in git(path, "ls-tree", "-r", "-l", "-z", commit).split(b"\0")[:-1]:
        description, raw_path = line.split(b"\t", 1)
        _, kind, blob, size = description.split()
        try:
            name = raw_path.decode()
        except UnicodeDecodeError:
            continue
        if kind == b"blob":
            listing[name] = (blob.decode(), int(size))
    return listing


def directories_of(paths: Mapping[str, object]) -> tuple[str, ...]:
    """All directories that these paths lie in, sorted."""
    parts = [path.split("/") for path in paths]
    return tuple(sorted({"/".join(p[:depth]) for p in parts for depth in range(1, len(p))}))
