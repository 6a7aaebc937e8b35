"""Plays a git history into the model and holds each snapshot against ``git ls-tree``."""

from pathlib import Path

from services.workloads.git_history import GitHistory
from services.workloads.judge.outcome_check import ExpectedVersions
from services.workloads.workload import Operation, parse_line, to_json
from tests.git_builder import directories_of, git, listed_by_git


def play(history: GitHistory) -> tuple[ExpectedVersions, list[Operation]]:
    """Play all operations, each by way of its line; one that a plane would refuse raises."""
    model = ExpectedVersions(history.volume, history.bucket)
    operations = []
    for operation in history.operations():
        assert parse_line(to_json(operation), 0) == operation
        model.record(operation)
        operations.append(operation)
    return model, operations


def assert_history_equals_git(path: Path) -> list[Operation]:
    """Take a snapshot after every commit and compare: paths, sizes, blob ids and the directories."""
    history = GitHistory(path, every=1)
    model, operations = play(history)
    commits = git(path, "rev-list", "--first-parent", "--reverse", "HEAD").decode().split()
    assert [point.commit for point in history.snapshots] == commits
    assert list(model.snapshots) == [point.name for point in history.snapshots]
    views = [(point.commit, model.snapshots[point.name]) for point in history.snapshots]
    for commit, view in [*views, (commits[-1], model.active())]:
        listing = {key: (version.tag, version.size_bytes) for key, version in view.keys.items()}
        assert listing == listed_by_git(path, commit)
        assert view.directories == directories_of(view.keys)
    return operations
