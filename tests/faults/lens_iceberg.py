"""Defects of the lens on Iceberg tables."""

from __future__ import annotations

import pytest

from services.lens.iceberg import retention
from services.lens.iceberg.metadata import Reference, TableMetadata
from streaming.lens.iceberg import avro
from tests.faults.fault import Fault

UNIT = "tests/unit/test_lens_iceberg.py"


def a_removed_file_is_held(patch: pytest.MonkeyPatch) -> None:
    """A snapshot seemed to hold the files that its manifests mark as deleted."""
    patch.setattr(avro, "_DELETED", -1)


def a_tag_protects_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Branches and tags protected their snapshots beyond max-ref-age-ms."""

    def all_references(metadata: TableMetadata, now_ms: int) -> dict[str, Reference]:
        return {name: one for name, one in metadata.references.items() if one.snapshot_id in metadata.by_id}

    patch.setattr(retention, "kept_references", all_references)


FAULTS = (
    Fault(
        a_removed_file_is_held,
        caught_by="tests/integration/test_lens_iceberg.py::test_a_report_equals_a_recount_of_each_snapshot",
        message=r"Differing items|assert \{",
    ),
    Fault(
        a_tag_protects_for_ever,
        caught_by=f"{UNIT}::test_retention_is_that_of_the_table_and_of_its_references",
        message=r"assert \{1, 3, 4\} == \{1, 2, 3, 4\}",
    ),
)
