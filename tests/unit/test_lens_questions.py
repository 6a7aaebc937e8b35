"""Questions on a report of the lens: every figure equals a recount of its things."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from schemas.records import RetentionPolicy
from schemas.space_answers import VersionStage
from services.lens.questions import BucketQuestions, QuestionError, one_bucket, orphans, questions
from services.lens.relation import DELETED_SNAPSHOT, LensBucket, LensFinding, Ref, RefKind
from services.lens.report import Report, Thing
from tests.lens_reports import ACTIVE, chain, freed_by, places_of, thing, write_report

MINUTE_MS = 60_000


def asked(tmp_path: Path, bucket: LensBucket, things: list[Thing]) -> BucketQuestions:
    return one_bucket(Report(write_report(tmp_path / "report", [bucket], things)))


def random_things(random: Random, count: int, places: int) -> list[Thing]:
    return [
        thing(f"d/{n}", random.randrange(50), *random.sample(range(places), random.randrange(places + 1)))
        for n in range(count)
    ]


def test_space_is_a_recount_of_the_things(tmp_path: Path, seed: int) -> None:
    names = ["s1", "s2", "s3", "s4"]
    things = random_things(Random(seed), 200, 5)
    space = asked(tmp_path, chain(*names), things).space()

    def sizes(chosen: list[Thing]) -> tuple[int, int]:
        return sum(one.bytes for one in chosen), sum(one.replicated_bytes for one in chosen)

    def all_of(*places: int) -> tuple[int, int]:
        return sizes([one for one in things if places_of(one.runs) >= set(places)])

    held = [one for one in things if one.runs and 4 not in places_of(one.runs)]
    assert (space.live_bytes, space.live_replicated_bytes) == all_of(4)
    assert (space.held_bytes, space.held_replicated_bytes, space.held_versions) == (*sizes(held), len(held))
    assert (space.pending_bytes, space.pending_replicated_bytes) == sizes([one for one in things if not one.runs])
    for place, one in enumerate(space.snapshots):
        assert one.name == names[place]
        assert (one.referenced_bytes, one.referenced_replicated_bytes) == all_of(place)
        alone = [thing for thing in things if places_of(thing.runs) == {place}]
        assert (one.exclusive_bytes, one.exclusive_replicated_bytes, one.exclusive_versions) == (
            *sizes(alone),
            len(alone),
        )
        before = all_of(place - 1, place) if place else (0, 0)
        assert (one.shared_with_previous_bytes, one.shared_with_previous_replicated_bytes) == before
        assert (one.shared_with_next_bytes, one.shared_with_next_replicated_bytes) == all_of(place, place + 1)


def test_a_what_if_is_a_recount_of_the_things(tmp_path: Path, seed: int) -> None:
    things = random_things(Random(seed), 200, 4)
    questions = asked(tmp_path, chain("s1", "s2", "s3"), things)
    freed = questions.what_if(["s3", "id-s1", "s3"])
    assert freed.snapshots == ("s1", "s3")
    assert (freed.freed_bytes, freed.freed_replicated_bytes, freed.freed_versions) == freed_by(things, {0, 2})


TAGGED = LensBucket(
    "vol/bucket",
    (
        Ref("s1", "1", protected_by=("release", "reader")),
        Ref("s2", "2"),
        Ref("s3", "3", is_droppable=False, status="SNAPSHOT_DELETED"),
        ACTIVE,
    ),
)
HELD = [thing("a", 100, 0), thing("b", 50, 1), thing("c", 10, 0, 1), thing("d", 1, 2), thing("e", 7)]


def test_a_what_if_of_a_protected_snapshot_says_by_what(tmp_path: Path) -> None:
    freed = asked(tmp_path, TAGGED, HELD).what_if(["s1", "s2"])
    assert freed.freed_bytes == 160
    assert freed.protected_by == ("reader", "release")
    assert freed.notes == (
        "s1 is protected by release, reader: the figures assume that this protection is removed first.",
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("s3", "s3 of vol/bucket cannot be dropped: its status is SNAPSHOT_DELETED"),
        ("active", "active of vol/bucket cannot be dropped: it is the active namespace"),
        ("s9", "vol/bucket has no snapshot s9: space lists its snapshots"),
    ],
)
def test_what_cannot_be_dropped_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(QuestionError, match=reason):
        asked(tmp_path, TAGGED, HELD).what_if(["s2", name])


def test_a_snapshot_that_is_deleted_already_is_named_as_that(tmp_path: Path) -> None:
    deleted = LensFinding(DELETED_SNAPSHOT, "vol/bucket", "s0", "id-s0", 0, 0, "It is deleted.")
    questions = one_bucket(Report(write_report(tmp_path / "report", [chain("s1")], HELD, [deleted])))
    for name in ("s0", "id-s0"):
        with pytest.raises(QuestionError, match=f"{name} of vol/bucket is already deleted and holds nothing"):
            questions.what_if([name])
    with pytest.raises(QuestionError, match="has no snapshot s9"):
        questions.plan(1, keep=["s9"])


def test_own_figures_that_differ_are_explained(tmp_path: Path) -> None:
    for own_bytes, is_noted in ((100, False), (0, True)):
        bucket = replace(chain("s1"), figures={"usedBytes": 5, "s1/referencedSize": 100, "s1/exclusiveSize": own_bytes})
        space = asked(tmp_path / str(own_bytes), bucket, [thing("a", 100, 0)]).space()
        assert any("right only after a pass" in note for note in space.notes) == is_noted
        assert space.is_exact


def test_an_id_that_two_have_names_none_of_them(tmp_path: Path) -> None:
    refs = (Ref("1", "1", time_ms=0), Ref("2", "2", time_ms=1), Ref("side/2", "2", time_ms=2), Ref("t", "9"), ACTIVE)
    questions = asked(tmp_path, LensBucket("t", refs), [thing("a", 5, 1, bucket="t"), thing("b", 7, 2, bucket="t")])
    assert questions.what_if(["2"]).freed_bytes == 5
    assert questions.what_if(["side/2"]).freed_bytes == 7
    assert questions.what_if(["9"]).snapshots == ("t",)
    found = questions.retention(RetentionPolicy(num_retained_min=1, time_retained_ms=0), 10)
    assert found.expired == ("1", "2", "side/2")
    assert [one.snapshot_id for one in found.preview.expired] == ["1", "2", "2"]
    two = LensBucket("t", (Ref("a", "2"), Ref("b", "2"), ACTIVE))
    with pytest.raises(QuestionError, match="has no snapshot 2"):
        one_bucket(Report(write_report(tmp_path / "two", [two]))).what_if(["2"])


def test_a_tag_or_branch_names_the_snapshot_that_it_protects(tmp_path: Path) -> None:
    refs = (
        Ref("1", "1", protected_by=("v1", "reader", "2")),
        Ref("2", "2", protected_by=("reader",)),
        Ref("main", "3", RefKind.ACTIVE, is_droppable=False, protected_by=("v3",)),
    )
    things = [thing("a", 5, 0, bucket="t"), thing("b", 7, 1, bucket="t")]
    questions = asked(tmp_path, LensBucket("t", refs), things)
    freed = questions.what_if(["v1"])
    assert (freed.snapshots, freed.freed_bytes) == (("1",), 5)
    assert freed.notes[0] == "v1 stands for 1, which it protects."
    assert freed.is_exact
    assert questions.what_if(["1", "v1"]).freed_bytes == 5
    own_name = questions.what_if(["2"])
    assert (own_name.snapshots, own_name.freed_bytes) == (("2",), 7), "a snapshot's own name comes first"
    assert not [note for note in own_name.notes if "stands for" in note]
    plan = questions.plan(1, ["v1"])
    assert (plan.snapshots, plan.notes) == ((), ("v1 stands for 1, which it protects.",))
    with pytest.raises(QuestionError, match="reader of t protects 1, 2: name one of them"):
        questions.what_if(["reader"])
    with pytest.raises(QuestionError, match="v3 of t cannot be dropped: it is the active namespace"):
        questions.what_if(["v3"])


def test_a_plan_leaves_out_what_is_protected_or_kept(tmp_path: Path) -> None:
    questions = asked(tmp_path, TAGGED, HELD)
    plan = questions.plan(1_000)
    assert (plan.snapshots, plan.freed_bytes, plan.freed_replicated_bytes) == (("s2",), 50, 150)
    assert (plan.is_enough, plan.is_smallest) == (False, False)
    assert questions.plan(1, ["s2"]).snapshots == ()
    assert questions.plan(50).is_smallest


def test_a_plan_by_replicated_bytes(tmp_path: Path) -> None:
    things = [thing("a", 100, 0, copies=1), thing("b", 50, 1, copies=3)]
    questions = asked(tmp_path, chain("s1", "s2"), things)
    assert questions.plan(100).snapshots == ("s1",)
    by_disks = questions.plan(150, is_replicated=True)
    assert (by_disks.snapshots, by_disks.freed_bytes, by_disks.freed_replicated_bytes) == (("s2",), 50, 150)


def test_explain_finds_versions_by_path_and_by_id(tmp_path: Path) -> None:
    old = Thing("vol/bucket", "d/file", "12/3:9", "key", 5, 15, ((0, 0),))
    new = Thing("vol/bucket", "d/file", "13/3:10", "key", 6, 18, ((1, 2),))
    left = Thing("vol/bucket", "d/other", "14/4:1", "key", 8, 24, ())
    questions = asked(tmp_path, chain("s1", "s2"), [new, left, old])
    found = questions.explain("d/file")
    assert (found.held_by, found.is_live, found.bytes, found.replicated_bytes) == (("s1", "s2"), True, 11, 33)
    assert [(one.stage, one.held_by) for one in found.versions] == [
        (VersionStage.HELD, ("s1",)),
        (VersionStage.LIVE, ("s2",)),
    ]
    for identity in ("12/3:9", "12", "3:9"):
        assert [one.id for one in questions.explain(identity).versions] == ["12/3:9"]
    (pending,) = questions.explain("d/other").versions
    assert (pending.stage, pending.held_by) == (VersionStage.PENDING, ())
    with pytest.raises(QuestionError, match="has no d/fil, live, held or pending"):
        questions.explain("d/fil")


def test_retention_says_what_expires_and_why_others_stay(tmp_path: Path) -> None:
    refs = [Ref(f"s{n}", f"id{n}", time_ms=n * MINUTE_MS) for n in range(5)]
    refs[1] = Ref("s1", "id1", time_ms=MINUTE_MS, protected_by=("release",))
    side = Ref("side", "9", RefKind.BRANCH, time_ms=0)
    bucket = LensBucket("vol/bucket", (*refs, side, ACTIVE))
    things = [thing("a", 100, 0), thing("b", 50, 2), thing("c", 10, 0, 2), thing("d", 1, 0, 1)]
    policy = RetentionPolicy(num_retained_min=1, time_retained_ms=MINUTE_MS)
    found = asked(tmp_path, bucket, things).retention(policy, 5 * MINUTE_MS)
    assert found.expired == ("s0", "s2")
    preview = found.preview
    assert (preview.freed_bytes, preview.freed_replicated_bytes, preview.freed_versions) == (160, 480, 3)
    reasons = {one.snapshot: [(r.reason, r.names) for r in one.reasons] for one in preview.kept}
    assert reasons == {"s1": [("PROTECTED", ("release",))], "s3": [("AGE", ())], "s4": [("MINIMUM", ()), ("AGE", ())]}


def test_retention_marks_snapshots_without_a_time(tmp_path: Path) -> None:
    bucket = LensBucket("vol/bucket", (Ref("s1", "1"), Ref("s2", "2"), ACTIVE))
    found = asked(tmp_path, bucket, HELD).retention(RetentionPolicy(num_retained_min=1), MINUTE_MS)
    assert not found.preview.is_exact
    assert found.notes == ("The times of s1, s2 are not known: age does not keep the snapshot before each.",)


def test_retention_says_what_the_own_policy_of_the_source_is(tmp_path: Path) -> None:
    bucket = LensBucket("vol/bucket", (Ref("s1", "1", time_ms=0), ACTIVE), own_policy="The table's own policy.")
    found = asked(tmp_path, bucket, HELD[:1]).retention(RetentionPolicy(num_retained_min=1), MINUTE_MS)
    assert found.notes == ("The table's own policy.",)
    assert found.preview.is_exact


def test_a_policy_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match="num_retained_min is 0; it must be at least 1"):
        asked(tmp_path, chain("s1"), []).retention(RetentionPolicy(num_retained_min=0), 0)


def test_notes_of_the_source_mark_every_answer(tmp_path: Path) -> None:
    bucket = chain("s1", notes=["s2 cannot be read: its figures are missing"])
    report = Report(write_report(tmp_path / "report", [bucket], [thing("a", 1, 0)], notes=["cut short"]))
    questions = one_bucket(report)
    answers: list[Any] = [questions.space(), questions.what_if(["s1"]), questions.plan(1), questions.explain("a")]
    assert not any(one.is_exact for one in answers)
    assert {one.notes for one in answers} == {("cut short", *bucket.notes)}
    assert orphans(report).notes == ("cut short", *bucket.notes)


def test_one_of_several_buckets_has_to_be_named(tmp_path: Path) -> None:
    lost = LensFinding("orphaned-file", "vol/b2", "a", "1", 1, 3, "no directory has it")
    buckets = [chain("s1", bucket=f"vol/b{number}") for number in range(9)]
    report = Report(write_report(tmp_path / "report", buckets, [], [lost]))
    assert [one.bucket.name for one in questions(report)] == [bucket.name for bucket in buckets]
    assert one_bucket(report, "vol/b3").bucket is report.buckets["vol/b3"]
    with pytest.raises(QuestionError, match=r"with --bucket: it has vol/b0, vol/b1, .*vol/b4 … \(9 in all\)"):
        one_bucket(report)
    with pytest.raises(QuestionError, match="has no bucket vol/none: it has vol/b0"):
        orphans(report, "vol/none")
    assert orphans(report, "vol/b1").findings == ()
    assert orphans(report).findings == (lost,)


def test_many_cells_answer_in_a_moment(tmp_path: Path, seed: int) -> None:
    """One object a cell would take longer than the whole question does."""
    random, count = Random(seed), 1_000
    ends = {tuple(sorted(random.choices(range(count + 1), k=2))) for _ in range(60_000)}
    things = [
        Thing("vol/bucket", "", "", "key", random.randrange(1 << 30), 0, ((first, last),))
        for first, last in sorted(ends)
    ]
    names = [f"s{number}" for number in range(count)]
    directory = write_report(tmp_path / "report", [chain(*names)], things)
    started = time.process_time()
    freed = one_bucket(Report(directory)).what_if(names[100:900])
    assert time.process_time() - started < 0.3
    assert freed.freed_bytes == sum(one.bytes for one in things if 100 <= one.runs[0][0] <= one.runs[0][1] < 900)
