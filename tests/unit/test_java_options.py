"""Java's options of executors: ours, and those that the user or the cluster gives."""

from __future__ import annotations

from pathlib import Path

from streaming.spark.session import SessionOptions, executor_java_options

EXTRA = "spark.executor.extraJavaOptions"


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


def test_the_collector_of_executors_is_the_clusters() -> None:
    assert "GC" not in executor_java_options(SessionOptions(Path("jars")), {})
