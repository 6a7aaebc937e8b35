"""A session in a document is read as a reader reads it, and what is not so is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.documented_sessions import Command, Part, Save, SessionError, check, is_shown, parts, play, steps
from tests.session_shell import Ran, Started, checkout
from tests.stages import Stage, Staging
from tests.waiting import eventually

PAGE = """# A page

```console
$ echo one && \\
  echo two
one
two
$ true
```

```python title="three.py"
print(3)
```

```bash
# a remark
export WORD=four   # why
test -f three.py
```

<!-- not run: it would not end -->
```bash
sleep infinity
```

<!-- not compared: it differs -->
```console
$ echo $WORD
five
```

```text
not a command
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    written = tmp_path / "page.md"
    written.write_text(PAGE)
    return written


def test_a_page_is_its_commands_and_files_in_their_order(page: Path) -> None:
    assert steps(page) == [
        Command(4, "echo one && \\\n  echo two", ("one", "two")),
        Command(8, "true", ()),
        Save(11, "three.py", "print(3)\n"),
        Command(17, "export WORD=four   # why", None),
        Command(18, "test -f three.py", None),
        Command(28, "echo $WORD", None),
    ]


def test_a_page_is_played_in_one_shell(page: Path, tmp_path: Path) -> None:
    with checkout(tmp_path) as shell:
        assert play(page, shell) == 5
        assert shell.run("echo $WORD; python three.py").output == "four\n3\n"


STAGED = """# A page

## Later

```bash
cat /of/the/reader.txt      # what he has written
```

1. In a list:

    ```console
    $ echo /of/the/reader.txt
    /of/the/reader.txt
    $ read -r answer && echo "$answer"
    …
    ```

## At last

```bash
bash -c 'trap "exit 0" INT; echo begun; while true; do sleep 0.1; done'   # until Ctrl-C
```
"""
ENDLESS = """bash -c 'trap "exit 0" INT; echo begun; while true; do sleep 0.1; done'"""
ASKING = 'read -r answer && echo "$answer"'


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    written = tmp_path / "staged.md"
    written.write_text(STAGED)
    return written


def until_it_has_printed(_: Stage, started: Started) -> None:
    eventually(lambda: started.output.read_text() == "begun\n")


def test_a_page_has_a_part_for_each_block(staged: Path) -> None:
    assert parts(staged) == [
        Part("Later", (Command(6, "cat /of/the/reader.txt      # what he has written", None),)),
        Part(
            "Later 2",
            (
                Command(12, "echo /of/the/reader.txt", ("/of/the/reader.txt",)),
                Command(14, ASKING, ("…",)),
            ),
        ),
        Part("At last", (Command(21, f"{ENDLESS}   # until Ctrl-C", None),)),
    ]


def test_a_page_is_played_in_its_states_with_names_that_are_there(staged: Path, tmp_path: Path) -> None:
    seen = list[str]()

    @contextmanager
    def with_a_file(stage: Stage) -> Iterator[None]:
        stage.stand_ins["/of/the/reader.txt"] = f"{tmp_path}/mine.txt"
        (tmp_path / "mine.txt").write_text("written\n")
        yield
        seen.append(stage.ran["cat /of/the/reader.txt"].output)

    @contextmanager
    def around(stage: Stage) -> Iterator[None]:
        yield
        seen.append(stage.ran[ASKING].output)
        seen.append(stage.ran[ENDLESS].output)

    staging = Staging(around, {"Later": with_a_file}, {ENDLESS: until_it_has_printed}, {ASKING: "yes\n"})
    with checkout(tmp_path) as shell:
        assert play(staged, shell, staging) == 4
    assert seen == ["written\n", "yes\n", "begun\n"]


def test_what_ctrl_c_does_not_end_well_fails(page: Path, tmp_path: Path) -> None:
    page.write_text("```bash\necho begun && sleep 60\n```\n")
    staging = Staging(endless={"echo begun && sleep 60": until_it_has_printed})
    with pytest.raises(SessionError, match="sleep 60\nstatus 130"), checkout(tmp_path) as shell:
        play(page, shell, staging)


@pytest.mark.parametrize(
    ("staging", "said"),
    [
        (Staging(blocks={"Earlier": lambda _: pytest.fail("there is no such block")}), r"has no \['Earlier'\]"),
        (Staging(endless={"sleep": until_it_has_printed}), r"has no \['sleep'\]"),
        (Staging(answered={"ask": "y"}), r"has no \['ask'\]"),
    ],
)
def test_a_state_of_nothing_in_the_page_is_noticed(staged: Path, tmp_path: Path, staging: Staging, said: str) -> None:
    with pytest.raises(SessionError, match=said), checkout(tmp_path) as shell:
        play(staged, shell, staging)


def test_a_name_that_is_not_in_the_page_is_noticed(page: Path, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"does not name \['nothing'\]"), checkout(tmp_path) as shell:
        play(page, shell, Staging(stand_ins={"nothing": "something"}))


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (("a  4 KiB",), "a      4 KiB\n"),
        (("begun", "…", "ended"), "begun\nended\n"),
        (("begun", "…", "ended"), "begun\n1\n2\nended\n\n"),
        (("id …, done",), "id 12, done\n"),
        (("at 2026-11-27 13:26:29 (txn 5)",), "at 1999-01-02 03:04:05 (txn 17)\n"),
        (("http://127.0.0.1:9780/",), "http://127.0.0.1:31000/\n"),
        (("ce9dccbb-82db-53e6-b6f6-881433483b29",), "20f38b71-c553-592a-a94b-1e15f9d163ba\n"),
        (("snapshot 675517283236513583, 4 KiB",), "snapshot 6182649436621763619, 4 KiB\n"),
        (("2026-11-27 10:27:22.191    0.000s",), "1999-01-02 03:04:05.678  300.047s\n"),
        (("metadata.commands/0/14",), "gc.ledger/0/2\n"),
        (("trace 74bc778fb906969821b3a76da497355e",), "trace 00000000000000000000000000000000\n"),
        ((), ""),
    ],
)
def test_what_differs_by_run_is_the_same(shown: tuple[str, ...], printed: str) -> None:
    assert is_shown(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (("4 KiB",), "5 KiB\n"),
        (("one",), "one\ntwo\n"),
        (("one", "two"), "one\n"),
        (("a b",), "ab\n"),
        (("4.0 KiB",), "4x0 KiB\n"),
        (("txn 5",), "txn five\n"),
        (("bytes 5",), "bytes 6\n"),
        (("id …",), "id 1\n2\n"),
        ((), "something\n"),
        (("something",), ""),
    ],
)
def test_what_is_not_so_is_noticed(shown: tuple[str, ...], printed: str) -> None:
    assert not is_shown(shown, printed)


@pytest.mark.parametrize(
    ("shown", "ran"),
    [
        (None, Ran(1, "", "refused\n")),
        ((), Ran(1, "", "refused\n")),
        (("refused",), Ran(1, "and an answer\n", "refused\n")),
        (("done",), Ran(1, "done\n", "")),
        (("done",), Ran(0, "", "not done\n")),
    ],
)
def test_a_command_that_does_something_else_fails(shown: tuple[str, ...] | None, ran: Ran, page: Path) -> None:
    with pytest.raises(SessionError, match=r"^page\.md, line 7: act"):
        check(page, Command(7, "act", shown), ran)


@pytest.mark.parametrize(
    "ran", [Ran(0, "done\n", "progress\n"), Ran(0, "", "done\n"), Ran(1, "", "done\n")], ids=["out", "both", "refusal"]
)
def test_standard_error_may_be_shown_or_left_out(ran: Ran, page: Path) -> None:
    check(page, Command(7, "act", ("done",)), ran)
