"""key_deletion asks for the expiry of open keys and uploads, page by page."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from schemas.records import ExpireWrites, MetadataProgress, RowsFinished, WritesExpired
from schemas.topics import METADATA_PROGRESS
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.settings import KeyDeletionSettings
from tests.unit.service_harness import Harness, Sent

SETTINGS = KeyDeletionSettings(
    write_expiry_interval_ms=1_000, open_key_expiry_ms=70, upload_expiry_ms=300, max_expiry_page_rows=5
)
LEVEL = 2
"""The first feature level that has open keys."""


def progress(body: RowsFinished | WritesExpired, level: int = LEVEL) -> Sent:
    return METADATA_PROGRESS, MetadataProgress(1, body, level)


def pages(sent: list[Sent]) -> list[ExpireWrites]:
    return [record.body for _, record in sent if isinstance(getattr(record, "body", None), ExpireWrites)]


def answer(table: int, start_key: bytes, next_key: bytes, expired: int) -> Sent:
    return progress(WritesExpired(table, start_key, next_key, expired))


def page(table: int, start_key: bytes = b"") -> ExpireWrites:
    return ExpireWrites(table, start_key, 5, 70, 300)


@pytest.fixture(params=[False, True], ids=["running", "made anew before every unit of work"])
def harness(request: pytest.FixtureRequest) -> Harness:
    return Harness(lambda: KeyDeletionService(SETTINGS), is_restored=request.param)


def test_nothing_is_asked_of_a_shard_of_the_first_level(harness: Harness) -> None:
    assert not pages(harness.give(progress(RowsFinished(1), level=1)))
    assert pages(harness.give(progress(RowsFinished(1)))) == [page(0)]


def test_pages_follow_one_another_through_all_tables_once_in_an_interval(harness: Harness) -> None:
    assert pages(harness.give(progress(RowsFinished(1)))) == [page(0)]
    assert pages(harness.give(answer(0, b"", b"/a/k/7", 5))) == [page(0, b"/a/k/7")]
    assert pages(harness.give(answer(0, b"/a/k/7", b"", 1))) == [page(1)]
    assert pages(harness.give(answer(1, b"", b"", 0))) == [page(2)]
    assert not pages(harness.give(answer(2, b"", b"", 2)))
    assert not pages(harness.wait(999))
    assert pages(harness.wait(1)) == [page(0)]


def test_a_pass_that_takes_longer_than_an_interval_is_the_only_one(harness: Harness) -> None:
    assert pages(harness.give(progress(RowsFinished(1)))) == [page(0)]
    for number in range(1, 6):
        assert not pages(harness.wait(900))
        asked_again = pages(harness.wait(200))
        here, beyond = b"/a/k/%d" % (number - 1) if number > 1 else b"", b"/a/k/%d" % number
        assert asked_again == [page(0, here)], "the answer is late: the same page, not another pass"
        assert pages(harness.give(answer(0, here, beyond, 1), answer(0, here, beyond, 0))) == [page(0, beyond)]


def test_a_repeated_answer_asks_for_nothing(harness: Harness) -> None:
    harness.give(progress(RowsFinished(1)))
    assert pages(harness.give(answer(0, b"", b"/a/k/7", 5), answer(0, b"", b"/a/k/7", 5))) == [page(0, b"/a/k/7")]
    assert pages(harness.give(answer(0, b"/a/k/7", b"", 0), answer(0, b"/a/k/7", b"", 0))) == [page(1)]
    assert pages(harness.give(answer(1, b"", b"", 0))) == [page(2)]
    assert not pages(harness.give(answer(2, b"", b"", 0), answer(2, b"", b"", 0)))


def test_what_has_expired_is_counted_and_another_table_is_refused() -> None:
    registry = CollectorRegistry()
    harness = Harness(lambda: KeyDeletionService(SETTINGS, KeyDeletionMetrics(registry)))
    harness.give(*(answer(table, b"", b"", 2 + table) for table in (0, 1, 2, 3, -1)))
    name = "deepclean_key_deletion_writes_expired_total"
    assert [registry.get_sample_value(name, {"kind": kind}) for kind in ("open_key", "upload")] == [5, 4]
    assert len(harness.refused) == 2
