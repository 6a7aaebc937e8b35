"""Settings come from options and the environment, and what is wrong with one is said in one sentence."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.runtime.process.settings import InvalidSettingsError, read_limits, read_settings


@dataclass(frozen=True, slots=True)
class Limits:
    max_rows: int = 10
    share: float = 0.5
    is_open: bool = False


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("DEEPCLEAN_"):
            monkeypatch.delenv(name)


def test_the_environment_and_then_options_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPCLEAN_DIRECTORY", "/data")
    monkeypatch.setenv("DEEPCLEAN_SHARDS", "0,2")
    monkeypatch.setenv("DEEPCLEAN_HTTP_PORT", "81")
    monkeypatch.setenv("DEEPCLEAN_HOME", "/not/a/setting/of/a/service")
    settings = read_settings("metadata", ["--http-port", "80"])
    assert (settings.directory, settings.shards, settings.http_port) == (Path("/data"), (0, 2), 80)
    assert settings.http_host == "127.0.0.1"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], r"--directory \(DEEPCLEAN_DIRECTORY\) is missing"),
        (["--directory", "x", "--shards", "0,zero"], "--shards"),
        (["--directory", "x", "--shards", "1,1"], "different shards"),
        (["--directory", "x", "--shards", "1024"], "different shards from 0 to 1023"),
        (["--directory", "x", "--http-port", "65536"], "--http-port"),
        (["--directory", "x", "--log-level", "loud"], "one of debug, info, warning, error"),
        (["--directory", "x", "--max-batch-messages", "0"], "--max-batch-messages"),
        (["--directory", "x", "--unheard-of", "0"], "--help lists the options"),
    ],
)
def test_a_wrong_setting_is_named(arguments: list[str], sentence: str) -> None:
    with pytest.raises(InvalidSettingsError, match=sentence):
        read_settings("metadata", arguments)


def test_limits_are_filled_from_the_environment_of_their_service() -> None:
    environment = {
        "DEEPCLEAN_SWEEPER_MAX_ROWS": "7",
        "DEEPCLEAN_SWEEPER_IS_OPEN": "true",
        "DEEPCLEAN_OTHER_SHARE": "0.1",
    }
    assert read_limits(Limits, "sweeper", environment) == Limits(max_rows=7, share=0.5, is_open=True)
    assert read_limits(Limits, "sweeper", {}) == Limits()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("DEEPCLEAN_SWEEPER_MAX_ROWS", "many", "DEEPCLEAN_SWEEPER_MAX_ROWS is 'many'"),
        ("DEEPCLEAN_SWEEPER_MAX_ROWS", "-1", "cannot be below 0"),
        ("DEEPCLEAN_SWEEPER_MAX_ROW", "1", "sweeper has .*DEEPCLEAN_SWEEPER_MAX_ROWS"),
    ],
)
def test_a_wrong_limit_is_named(name: str, value: str, sentence: str) -> None:
    with pytest.raises(InvalidSettingsError, match=sentence):
        read_limits(Limits, "sweeper", {name: value})
