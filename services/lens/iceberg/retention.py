"""Which snapshots Iceberg's ``expire_snapshots`` removes by the table's properties and by those of its references."""

from __future__ import annotations

from collections.abc import Sequence

from services.domain.durations import HOUR_MS
from services.lens.iceberg.errors import IcebergError
from services.lens.iceberg.metadata import MAIN, Reference, TableMetadata
from services.lens.iceberg.order import ancestry
from services.lens.relation import first_names

_DEFAULT_AGE_MS = 5 * 24 * HOUR_MS
_DEFAULT_MINIMUM = 1
_FOREVER_MS = 2**63 - 1
_AGE, _MINIMUM, _REF_AGE = (
    f"history.expire.{name}" for name in ("max-snapshot-age-ms", "min-snapshots-to-keep", "max-ref-age-ms")
)


def kept_references(metadata: TableMetadata, now_ms: int) -> dict[str, Reference]:
    """Return the branches and tags that are younger than their greatest age: the others protect nothing any more."""
    by_id = metadata.by_id
    greatest_ms = _number(metadata, _REF_AGE, _FOREVER_MS)

    def is_kept(name: str, reference: Reference) -> bool:
        if name == MAIN:
            return True
        if reference.snapshot_id not in by_id:
            return False
        age_ms = now_ms - by_id[reference.snapshot_id].timestamp_ms
        return age_ms <= (greatest_ms if reference.max_ref_age_ms is None else reference.max_ref_age_ms)

    return {name: one for name, one in metadata.references.items() if is_kept(name, one)}


def protectors(metadata: TableMetadata, now_ms: int) -> dict[int, tuple[str, ...]]:
    """Return the branches and tags at each snapshot, without whose removal it cannot be expired."""
    found: dict[int, tuple[str, ...]] = {}
    for name, one in sorted(kept_references(metadata, now_ms).items()):
        found[one.snapshot_id] = (*found.get(one.snapshot_id, ()), name)
    return found


def expired_now(metadata: TableMetadata, now_ms: int) -> set[int]:
    """Return the ids of the snapshots that ``expire_snapshots`` without arguments removes."""
    if metadata.is_never_expired:
        return set()
    by_id = metadata.by_id
    oldest_ms = now_ms - _number(metadata, _AGE, _DEFAULT_AGE_MS)
    least = _number(metadata, _MINIMUM, _DEFAULT_MINIMUM)
    kept: set[int] = set()
    referenced: set[int] = set()
    for reference in kept_references(metadata, now_ms).values():
        kept.add(reference.snapshot_id)
        referenced.add(reference.snapshot_id)
        if not reference.is_branch:
            continue
        limit_ms = oldest_ms if reference.max_snapshot_age_ms is None else now_ms - reference.max_snapshot_age_ms
        minimum = least if reference.min_snapshots_to_keep is None else reference.min_snapshots_to_keep
        line = ancestry(reference.snapshot_id, by_id)
        referenced |= {one.snapshot_id for one in line}
        for count, one in enumerate(line):
            if count >= minimum and one.timestamp_ms < limit_ms:
                break
            kept.add(one.snapshot_id)
    young = {one.snapshot_id for one in metadata.snapshots if one.timestamp_ms >= oldest_ms}
    return by_id.keys() - kept - (young - referenced)


def own_policy(metadata: TableMetadata, expired: Sequence[str]) -> str:
    """Return a sentence with the table's own policy, and the names of the snapshots that it expires."""
    limits = [f"{_AGE}={_number(metadata, _AGE, _DEFAULT_AGE_MS)}"]
    limits.append(f"{_MINIMUM}={_number(metadata, _MINIMUM, _DEFAULT_MINIMUM)}")
    if _REF_AGE in metadata.properties:
        limits.append(f"{_REF_AGE}={metadata.properties[_REF_AGE]}")
    return (
        f"The table's own policy ({', '.join(limits)}, and what its branches and tags say) would have expired "
        f"{first_names(expired) or 'no snapshot'} when it was read. This answer uses only the options of the command."
    )


def _number(metadata: TableMetadata, name: str, default: int) -> int:
    text = metadata.properties.get(name, str(default))
    try:
        return int(text)
    except ValueError:
        raise IcebergError(f"The table's property {name} is {text!r}, but must be a number: set it again.") from None
