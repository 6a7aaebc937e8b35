"""What an imported bucket has otherwise than Ozone's, as sentences with counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from services.lens.ozone.figures import Amount

_SENTENCES = {
    "garbage": "{rows} deleted versions that no snapshot holds are left out: {bytes} bytes, {replicated_bytes} on "
    "disks.",
    "unreachable": "{rows} files are left out that no directory leads to, nor did in an older snapshot: {bytes} bytes, "
    "{replicated_bytes} on disks.",
    "written": "{rows} open keys and parts of uploads are left out: {bytes} bytes, {replicated_bytes} on disks.",
    "shared": "{rows} versions have blocks of the version before (hsync, kept versions): each is whole here, so that "
    "held bytes are up to {bytes} more than in Ozone.",
    "partly-shown": "{rows} deleted versions have blocks of a version that a snapshot shows, {bytes} bytes, and "
    "others: Ozone keeps or frees all blocks of such a version together, and the plane holds what is shown.",
    "size": "{rows} versions are put with the bytes of all their blocks, {bytes} more than their keys say.",
    "replication": "{rows} versions have blocks whose replication or lengths the plane cannot have: what they take on "
    "disks differs by {bytes} bytes.",
}
"""By the names of the sums in ``streaming.lens.ozone.changes``."""


def sentences(sums: Mapping[str, Amount]) -> Iterator[str]:
    """Yield a sentence for each sum that is not nothing."""
    for what, text in _SENTENCES.items():
        amount = sums.get(what)
        if amount is not None and amount.rows:
            yield text.format(rows=amount.rows, bytes=amount.bytes, replicated_bytes=amount.replicated_bytes)
