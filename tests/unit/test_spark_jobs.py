"""Batch jobs of ``streaming`` as child processes: how they are called, and what is said of one that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from services.plane.machine import spark_jobs
from services.plane.machine.spark_jobs import SparkJobError, run_spark_job
from services.runtime.process.child_job import ChildJobError


def test_a_job_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(SparkJobError, match=r"the job streaming.nowhere ended with status 1; it said last: .*nowhere"):
        run_spark_job("streaming.nowhere", [], print, scratch=tmp_path, java_directory=tmp_path, heap="1g")


def test_the_sentence_that_a_job_says_is_the_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called: list[list[str]] = []
    heard: list[Mapping[str, Any]] = []

    def job(command: Sequence[str], _: Path, on_line: Callable[[Mapping[str, Any]], None], **options: Any) -> None:
        called.append(list(command[2:]))
        assert options["environment"]["JAVA_HOME"]
        assert options["environment"]["EXTRA"] == "1"
        on_line({"progress": 5})
        on_line({"error": "there is no table x: name another"})
        raise ChildJobError("ended with status 1; it said last: much")

    monkeypatch.setattr(spark_jobs, "run_child_job", job)
    settings = {"heap": "2g", "master": "local[3]", "environment": {"EXTRA": "1"}}
    with pytest.raises(SparkJobError, match=r"^there is no table x: name another$"):
        run_spark_job("streaming.lens", ["a"], heard.append, scratch=tmp_path, java_directory=tmp_path, **settings)  # type: ignore[arg-type]
    assert heard[0] == {"progress": 5}
    assert called[0][0] == "streaming.lens"
    assert called[0][3:] == ["--heap", "2g", "--master", "local[3]", "a"]
