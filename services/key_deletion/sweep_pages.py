"""When a page of a sweep is judged to its end: once each of its messages is, however often any of them is.

A message is known by the txn at which metadata sent the page and by its number within the page. Metadata that starts
from an older copy sends the same messages again, and the judges judge again what they judged before; neither makes a
new message. A page that was asked for twice was sent at two txns, with other rows in the same places: what was judged
counts only if it was sent at the txn of the answer that counts.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.records import OpenSweepPage, SweepPageSent, SweptParts

NO_PARTS = SweptParts((), (), ())
UNANSWERED = 0
"""In place of the txn at which a page was sent."""
MAX_PARTS = 1_000
"""Messages of a page that are remembered. A page has a few dozen; what is beyond is judged once more after a while."""


def asked_page(number: int, start_table: int, start_key: bytes) -> OpenSweepPage:
    """A page as it is asked for."""
    return OpenSweepPage(number, start_table, start_key, UNANSWERED, 0, NO_PARTS)


def answered_page(page: OpenSweepPage, answer: SweepPageSent, txn: int) -> OpenSweepPage:
    """A page of which metadata has said what went out."""
    judged = [part for part in _parts(page.judged) if part[0] == txn]
    return replace(page, sent_txn=txn, sent_rows=answer.rows, judged=_columns(judged))


def judged_page(page: OpenSweepPage, parts: SweptParts) -> OpenSweepPage | None:
    """A page of which some more was judged; None when that changes nothing."""
    known = {part[:2] for part in _parts(page.judged)}
    counting = [part for part in _parts(parts) if page.sent_txn in (UNANSWERED, part[0])]
    news = {part[:2]: part for part in counting if part[:2] not in known}
    if not news or len(known) + len(news) > MAX_PARTS:
        return None
    return replace(page, judged=_columns([*_parts(page.judged), *news.values()]))


def is_judged(page: OpenSweepPage) -> bool:
    """Whether every row that went out was judged."""
    return page.sent_txn != UNANSWERED and sum(page.judged.rows) >= page.sent_rows


def _parts(parts: SweptParts) -> list[tuple[int, int, int]]:
    return list(zip(parts.txns, parts.numbers, parts.rows, strict=True))


def _columns(parts: list[tuple[int, int, int]]) -> SweptParts:
    txns, numbers, rows = zip(*parts, strict=True) if parts else ((), (), ())
    return SweptParts(txns, numbers, rows)
