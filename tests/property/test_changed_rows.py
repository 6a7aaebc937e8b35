"""Whatever comes while unneeded changes are removed, diffs, explanations and the digest are what the log says."""

from __future__ import annotations

from functools import partial
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import BucketLayout
from services.metadata.diffs.differences import compare_all, compare_changes, opened_states
from services.metadata.recovery.digest import digest_shard
from services.metadata.service import MetadataService
from services.metadata.state import changed_rows
from services.metadata.state.changed_rows import unneeded_changes
from services.runtime.loop.runner import Runner
from tests.property.test_explanations import _every_path, _ExplainedBucket
from tests.shard_copies import rebuilt_digest

pytestmark = pytest.mark.long


class _TrimmedBucket(_ExplainedBucket):
    """The same bucket, whose shard removes unneeded changes and is started anew now and then."""

    def start(self) -> None:
        service = MetadataService()
        after_write = partial(service.remove_unneeded, self.store)
        self.runner = Runner(service, 0, self.store, self.log, self.clock, after_write=after_write)

    def check_diffs(self) -> None:
        for one, other in permutations([*self.taken, ""], 2):
            with opened_states(self.store, "vol", "bucket", one, other) as states:
                quick = compare_changes(states.before, states.after, states.changes())
                assert quick == compare_all(states.before, states.after)


@pytest.mark.parametrize("layout", [BucketLayout.FILE_SYSTEM_OPTIMIZED, BucketLayout.OBJECT_STORE])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), at_once=st.integers(1, 4))
def test_removing_changes_changes_no_answer(layout: BucketLayout, seed: int, at_once: int) -> None:
    random = Random(seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(changed_rows, "TRIMMED_AT_ONCE", at_once)
        bucket = _TrimmedBucket(layout, random)
        bucket.start()
        for _ in range(5):
            for _ in range(12):
                bucket.act()
            bucket.check_diffs()
            bucket.check(_every_path())
            if random.random() < 0.3:
                bucket.start()
        assert rebuilt_digest(bucket.log, 100).differences(digest_shard(bucket.store)) == []
        for _ in range(len(list(bucket.store.scan("changedTable", b"", b"\xff")))):
            bucket.change()
        unneeded = unneeded_changes(bucket.tables).values()
        assert not [row for one in unneeded for row in bucket.store.scan("changedTable", *one)]
