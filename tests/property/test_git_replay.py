"""Random trees, commit after commit: replaying the history gives exactly what git lists."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.git_builder import EXECUTABLE, FILE, LINK, SUBMODULE, Revision, build_repository
from tests.git_replay import assert_history_equals_git

pytestmark = pytest.mark.long

# Few names and few contents: files meet directories, and git finds many renames.
_NAMES = st.sampled_from([b"a", b"b", b"c", "é ü".encode(), b"n\nl", b"\xff"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map(b"/".join)
_BASE = [b"".join(b"%d %s\n" % (line, word) for line in range(12)) for word in (b"one", b"two", b"six")]
_CONTENTS = st.sampled_from([b"", b"x", *_BASE, *(text + b"more\n" for text in _BASE)])
_FILES = st.tuples(st.sampled_from([FILE, FILE, FILE, EXECUTABLE, LINK]), _CONTENTS)
_ENTRIES = st.one_of(_FILES, _FILES, _FILES, st.just((SUBMODULE, b"1" * 40)))


def _without_conflicts(entries: list[tuple[bytes, tuple[str, bytes]]]) -> dict[bytes, tuple[str, bytes]]:
    """No path is both a file and a directory: the first come stays."""
    tree: dict[bytes, tuple[str, bytes]] = {}
    for path, entry in entries:
        is_below_a_file = any(path.startswith(other + b"/") for other in tree)
        is_above_a_file = any(other.startswith(path + b"/") for other in tree)
        if not is_below_a_file and not is_above_a_file:
            tree[path] = entry
    return tree


_TREES = st.lists(st.tuples(_PATHS, _ENTRIES), max_size=9).map(_without_conflicts)
_REVISIONS = st.builds(Revision, _TREES, st.sampled_from([False, False, False, True]))


@given(_TREES, st.lists(_REVISIONS, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_trees_list_what_git_lists(first: dict[bytes, tuple[str, bytes]], later: list[Revision]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        assert_history_equals_git(build_repository(Path(directory), [Revision(first), *later]))
