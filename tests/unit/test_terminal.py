"""What users have written comes to a terminal in one line and without a letter that would act on it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bench import __main__ as bench
from services.cli import output, terminal
from services.domain.words import counted
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from tests.unit.test_space_commands import CommandLine

COMMANDS = sorted([*Path(output.__file__).parent.rglob("*.py"), Path(bench.__file__)])
HOSTILE = "all well\n\x1b[2K\x1b]0;title\x07\rvol1/two  running\u202e\x9b"
PRINTED = "all well\\n\\x1b[2K\\x1b]0;title\\x07\\rvol1/two  running\\u202e\\x9b"


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    line = CommandLine(tmp_path)
    line.client = InMemoryClient(InMemoryPlane(shards=2))
    line.run("volume", "create", "vol1", "--shard", "1")
    line.run("bucket", "create", "vol1/one", "--layout", "OBJECT_STORE")
    return line


def check(printed: str) -> str:
    assert all(one.isprintable() for one in printed.split("\n"))
    return printed


def test_reasons_are_printed_in_one_line_without_what_acts_on_a_terminal(line: CommandLine) -> None:
    line.run("gc", "pause", "vol1/one", "--reason", HOSTILE)
    status = check(line.run("gc", "status", "vol1/one"))
    assert len(status.splitlines()) == 4
    assert PRINTED in status
    assert PRINTED in check(line.run("explain", "vol1/one"))
    line.run("gc", "pause", "--reason", HOSTILE)
    assert PRINTED in check(line.run("gc", "resume", "vol1/one"))
    found = line.run("gc", "status", "vol1/one", "--json")
    assert json.loads(check(found))[0]["reason"] == HOSTILE


def test_names_of_keys_are_printed_so_too(line: CommandLine) -> None:
    path = f"vol1/one/{HOSTILE}"
    line.run("key", "put", path, "--size", "10")
    line.run("snapshot", "create", "vol1/one", "s-one")
    for words in (["key", "list", "vol1/one"], ["key", "stat", path], ["explain", path]):
        assert PRINTED in check(line.run(*words)), words
    assert PRINTED in check(line.run("key", "delete", path))
    line.settle()
    assert PRINTED in check(line.run("snapshot", "diff", "vol1/one", "s-one"))
    assert PRINTED in check(line.run("key", "put", path, "--size", "10"))
    refusal = check(line.run("key", "delete", f"vol1/one/no {HOSTILE}", status=1))
    assert PRINTED in refusal
    assert len(refusal.splitlines()) == 1


@given(st.text())
def test_any_text_is_one_printable_line_and_what_is_printable_stays(text: str) -> None:
    assert terminal.printable(text).isprintable()
    assert terminal.printable(terminal.printable(text)) == terminal.printable(text)
    assert (terminal.printable(text) == text) is text.isprintable()


def test_json_says_the_same_in_escapes_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "".join(map(chr, range(0x100))) + "\u2028\U000e0001 ü…"
    output.print_json({hostile: hostile})
    printed = capsys.readouterr().out
    assert json.loads(check(printed)) == {hostile: hostile}
    assert "ü…" in printed, "what can be read is not escaped"


def test_a_table_on_a_terminal_has_no_such_letter_either(capsys: pytest.CaptureFixture[str]) -> None:
    def fake_terminal(**options: Any) -> Console:
        return Console(force_terminal=True, color_system=None, width=200, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "Console", fake_terminal)
        output.print_table(["NAME"], [[HOSTILE]])
    printed = capsys.readouterr().out
    assert PRINTED in printed
    assert HOSTILE not in printed


def test_commands_print_by_no_other_way() -> None:
    """``print`` is for progress on stderr alone, whose words are all ours."""
    for file in COMMANDS:
        if file.name in ("output.py", "terminal.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert node.func.attr not in ("echo", "secho"), f"{file.name}:{node.lineno}: say it with terminal.say"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                assert "stderr" in ast.unparse(node), f"{file.name}:{node.lineno}: say it with terminal.say"


@pytest.mark.parametrize(("number", "said"), [(0, "0 copies"), (1, "1 copy"), (2, "2 copies"), (1_000, "1,000 copies")])
def test_one_is_said_in_the_singular(number: int, said: str) -> None:
    assert counted(number, "copy", "copies") == said
    assert counted(number, "key") == f"{number:,} key{'' if number == 1 else 's'}"


def test_commands_say_one_of_a_thing_in_the_singular(line: CommandLine) -> None:
    line.run("key", "put", "vol1/one/k", "--size", "10")
    line.run("snapshot", "create", "vol1/one", "s-one")
    said = line.run("restore", "vol1/one/k", "--from", "s-one", "--to", "again")
    assert said == "1 key (10 B) and 0 directories of k are back from s-one, as again, with blocks of their own\n"
    line.run("key", "delete", "vol1/one/k")
    line.run("gc", "pause", "vol1/one")
    assert "would free 10 B, 1 version (txn" in line.run("space", "what-if", "vol1/one", "s-one")
    assert line.run("breaker", "set", "vol1/one", "--share", "5", "--floor-versions", "1").endswith("and 1 version\n")
    assert line.run("retention", "set", "vol1/one", "--num-retained-min", "1").startswith(
        "vol1/one: the newest snapshot stays;"
    )


def test_no_command_puts_a_number_before_a_plural() -> None:
    """``counted`` knows which number is one; lines of progress need not."""
    nouns = "keys|versions|snapshots|rows|messages|files|directories|blocks|shards|copies|buckets|commits|commands"
    fixed = re.compile(rf"(?<!of )\{{[^{{}}]*\}} (more |live )?({nouns})\b")
    for file in COMMANDS:
        found = [line for line in file.read_text().splitlines() if fixed.search(line) and "stderr" not in line]
        assert found == [], file.name
