"""A session in a document is read as a reader reads it, and what is not so is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented_sessions import Command, Ran, Save, SessionError, check, checkout, is_shown, play, steps

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
