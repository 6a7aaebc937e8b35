"""Every example of the library's documents runs, and prints what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepclean.connection import Connection
from tests.library_examples import DOCUMENTS, examples, run_examples
from tests.planes_with_bytes import ClientWithBytes

PRINTED = {
    "docs/clients.md": [
        "['2026', '2026/beach']",
        *("9 done", "11 done", "12 done", "['2026']", "['2026', '2026/beach']", "2000000 bytes are held by snapshots"),
        "- 2026/beach",
    ],
    "docs/library.md": [
        *("['2026']", "['2026', '2026/beach']", "2000000 bytes are held by snapshots", "- 2026/beach"),
        *("10000 put, 5000 deleted", "2027/none KEY_NOT_FOUND"),
        *("['2026/beach']", "5000001", "('october',)", "HELD 2000000", "['september', 'october']"),
        *("b'1,40'", "20 bytes are back", "['photos/tables/.snapshot/closed/sales/2026.csv']", "[40, 44]"),
        *("1000", "10000"),
    ],
    "deepclean/__init__.py": ["['2026', '2026/beach']"],
}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_example_runs(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = ClientWithBytes(tmp_path)
    blocks = examples(document)
    assert blocks
    run_examples(blocks, lambda: Connection(client), monkeypatch)
    assert capsys.readouterr().out.splitlines() == PRINTED[document]
