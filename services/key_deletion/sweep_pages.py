"""Decides when a page of a sweep is judged: when each of its messages was judged at least once.

A message is identified by the txn at which metadata sent the page and by its number within the page. Metadata that
starts from an older copy sends the same messages again, and judges may judge a message again; neither counts as a new
message. A page that was requested twice was sent at two txns, with different rows under the same numbers: a result
counts only if its message was sent at the txn of metadata's first answer.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.records import OpenSweepPage, SweepPageSent, SweptParts

NO_PARTS = SweptParts((), (), ())
UNANSWERED = 0
"""Stands for the txn of a page for which metadata's answer has not arrived."""
MAX_PARTS = 1_000
"""Most judged messages that are stored for a page. A page has a few dozen; one with more is requested again later."""


def asked_page(number: int, start_table: int, start_key: bytes) -> OpenSweepPage:
    """Return a page that is requested."""
    return OpenSweepPage(number, start_table, start_key, UNANSWERED, 0, NO_PARTS)


def answered_page(page: OpenSweepPage, answer: SweepPageSent, txn: int) -> OpenSweepPage:
    """Return a page after metadata's answer, without the results of messages that were sent at another txn."""
    judged = [part for part in _parts(page.judged) if part[0] == txn]
    return replace(page, sent_txn=txn, sent_rows=answer.rows, judged=_columns(judged))


def judged_page(page: OpenSweepPage, parts: SweptParts) -> OpenSweepPage | None:
    """Return a page with more judged messages; None if nothing has changed."""
    known = {part[:2] for part in _parts(page.judged)}
    counting = [part for part in _parts(parts) if page.sent_txn in (UNANSWERED, part[0])]
    news = {part[:2]: part for part in counting if part[:2] not in known}
    if not news or len(known) + len(news) > MAX_PARTS:
        return None
    return replace(page, judged=_columns([*_parts(page.judged), *news.values()]))


def is_judged(page: OpenSweepPage) -> bool:
    """Return whether every row that metadata sent was judged."""
    return page.sent_txn != UNANSWERED and sum(page.judged.rows) >= page.sent_rows


def _parts(parts: SweptParts) -> list[tuple[int, int, int]]:
    return list(zip(parts.txns, parts.numbers, parts.rows, strict=True))


def _columns(parts: list[tuple[int, int, int]]) -> SweptParts:
    txns, numbers, rows = zip(*parts, strict=True) if parts else ((), (), ())
    return SweptParts(txns, numbers, rows)
