"""Java's options of executors: ours, and those that the user or the cluster gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.spark.session import SessionOptions, executor_java_options

EXTRA, MEMORY = "spark.executor.extraJavaOptions", "spark.executor.memory"


def test_executors_compile_long_methods_and_know_the_limits_of_messages_and_the_login() -> None:
    options = executor_java_options(SessionOptions(Path("jars"), login_file=Path("/keys/login.conf")), {})
    for wanted in (
        "-XX:-DontCompileHugeMethods",
        "-XX:Tier4CompileThreshold=",
        "-Dorg.apache.avro.limits.string.maxLength=",
        "-Djava.security.auth.login.config=/keys/login.conf",
    ):
        assert wanted in options


def test_options_that_are_given_come_behind_ours() -> None:
    options = executor_java_options(SessionOptions(Path("jars")), {EXTRA: "-Dmine=1 -XX:Tier4CompileThreshold=7"})
    assert options.endswith(" -Dmine=1 -XX:Tier4CompileThreshold=7")
    assert "login.config" not in options


@pytest.mark.parametrize(
    ("given", "has_parallel"),
    [
        ({}, True),
        ({MEMORY: "768m"}, True),
        ({MEMORY: "2048"}, True),
        ({MEMORY: " 1GB "}, True),
        ({MEMORY: "512m"}, False),
        ({MEMORY: "524288k"}, False),
        ({MEMORY: "536870912b"}, False),
        ({MEMORY: "much"}, False),
        ({"spark.executor.defaultJavaOptions": "-XX:+UseG1GC"}, False),
        ({"spark.executorEnv.JAVA_TOOL_OPTIONS": "-XX:+UseG1GC"}, False),
        ({EXTRA: "-XX:+UseZGC"}, False),
        ({EXTRA: "-XX:+UseG1GC -Dmine=1"}, False),
        ({EXTRA: "-XX:+UseStringDeduplication"}, True),
    ],
)
def test_executors_collect_as_the_driver_does_unless_told_otherwise(given: dict[str, str], has_parallel: bool) -> None:
    options = executor_java_options(SessionOptions(Path("jars")), given)
    assert ("-XX:+UseParallelGC" in options) is has_parallel
    assert options.count("GC") <= 1, "Java refuses two"


def test_the_memory_that_the_job_itself_is_given_goes_before_that_of_spark_submit() -> None:
    options = SessionOptions(Path("jars"), conf=(f"{MEMORY}=512m",))
    assert "GC" not in executor_java_options(options, {MEMORY: "4g"})
