"""What the readers of both table formats say of snapshots."""

from __future__ import annotations

from services.lens.relation import Ref
from streaming.lens.table_files import names_of_runs


def test_a_note_names_the_first_and_last_reference_of_each_run() -> None:
    refs = [Ref(f"s{place}", "") for place in range(9)]
    assert names_of_runs(refs, ((2, 2),)) == "s2"
    assert names_of_runs(refs, ((0, 1), (3, 3))) == "s0 to s1, s3"
    assert names_of_runs(refs, ((0, 0), (2, 2), (4, 5), (7, 8))) == "s0, s2, s4 to s5, others"
