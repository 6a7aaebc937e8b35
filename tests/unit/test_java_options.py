"""Java's options of executors: ours, and those that the user or the cluster gives."""

from __future__ import annotations

from pathlib import Path

from streaming.spark.session import SessionOptions, executor_java_options

EXTRA, DEFAULT = "spark.executor.extraJavaOptions", "spark.executor.defaultJavaOptions"


def test_executors_compile_long_methods_and_know_the_limits_of_messages_and_the_login() -> None:
    options = executor_java_options(SessionOptions(Path("jars"), login_file=Path("/keys/login.conf")), {})
    for wanted in (
        "-XX:-DontCompileHugeMethods",
        "-XX:+UseParallelGC",
        "-XX:Tier4CompileThreshold=",
        "-Dorg.apache.avro.limits.string.maxLength=",
        "-Djava.security.auth.login.config=/keys/login.conf",
    ):
        assert wanted in options


def test_options_that_are_given_come_behind_ours() -> None:
    options = executor_java_options(SessionOptions(Path("jars")), {EXTRA: "-Dmine=1 -XX:Tier4CompileThreshold=7"})
    assert options.endswith(" -Dmine=1 -XX:Tier4CompileThreshold=7")
    assert "login.config" not in options


def test_there_is_one_collector_whoever_names_it() -> None:
    options = SessionOptions(Path("jars"))
    for given in ({EXTRA: "-XX:+UseG1GC"}, {DEFAULT: "-verbose:gc -XX:+UseZGC"}):
        assert "UseParallelGC" not in executor_java_options(options, given)
    assert "UseParallelGC" in executor_java_options(options, {DEFAULT: "-XX:+UseStringDeduplication"})
