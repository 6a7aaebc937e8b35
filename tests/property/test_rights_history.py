"""Who may do what, and what fits, follows from the log alone: however it was cut into batches, whenever it is read."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.topics import DEAD_LETTERS
from services.metadata.recovery.digest import digest_shard
from tests.rights_history import RightsHistory, answers, replay
from tests.shard_copies import rebuilt_digest

BATCHES = (1, 2, 3, 17, 2_000)
COMMANDS = 250


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), batch=st.sampled_from(BATCHES), rebuilt_batch=st.sampled_from(BATCHES))
def test_other_batches_and_a_rebuild_give_equal_digests_and_answers(seed: int, batch: int, rebuilt_batch: int) -> None:
    history = RightsHistory(Random(seed))
    history.play(COMMANDS)
    assert not history.log.records(DEAD_LETTERS.name, 0)
    expected = digest_shard(history.store)
    store, log = replay(history.log, batch)
    assert digest_shard(store).differences(expected) == []
    assert answers(log) == answers(history.log)
    assert rebuilt_digest(history.log, rebuilt_batch).differences(expected) == []


def test_histories_have_every_kind_of_command_and_of_refusal() -> None:
    """Else the property above would be one of logs that do nothing."""
    done, refusals = Counter[str](), Counter[str]()
    for seed in range(40):
        history = RightsHistory(Random(seed))
        history.play(COMMANDS)
        for reply in answers(history.log):
            refusals[reply.error] += 1
            done[history.kinds[reply.client_id, reply.number]] += not reply.error
    sent = {"PutKey", "OpenKey", "SyncKey", "CommitKey", "CompleteUpload", "SetQuota", "AddAcl", "RemoveAcl", "SetAcl"}
    sent |= {"SetOwner", "GetDelegationToken", "RenewDelegationToken", "CancelDelegationToken", "CreateBucketLink"}
    assert {kind for kind in sent if done[kind] < 5} == set()
    codes = ("PERMISSION_DENIED", "QUOTA_EXCEEDED", "QUOTA_ERROR", "DETECTED_LOOP_IN_BUCKET_LINKS")
    assert {code for code in codes if refusals[code] < 5} == set()
