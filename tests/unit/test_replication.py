"""What blocks take on disks: the formula, the ids of containers, and the figures of buckets that are replicated."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import AllocateBlocks, BlockRun, CommitKey, Committed, OpenKey, Replication
from services.client.plane import NamespaceCommand
from services.domain.replication import (
    CODES,
    container_of,
    redundancy_bytes,
    redundancy_of,
    redundancy_of_block,
    replication_of,
    sequence_of,
)
from tests.audited_plane import audit_at_once
from tests.replicated_sizes import replicated_run, replicated_size
from tests.unit.test_space_commands import CommandLine

MIB = 1024 * 1024
REPLICATIONS = st.sampled_from(list(Replication))
RS_3_2, RS_6_3, XOR = Replication.EC_RS_3_2_1024K, Replication.EC_RS_6_3_1024K, Replication.EC_XOR_2_1_1024K


@pytest.mark.parametrize(
    ("replication", "size_bytes", "taken_bytes"),
    [
        (Replication.RATIS_ONE, 10, 10),
        (Replication.RATIS_THREE, 10, 30),
        (RS_3_2, 4 * MIB, 8 * MIB),  # a stripe and a cell, with two parity cells each
        (RS_3_2, 8 * MIB, 14 * MIB),
        (RS_3_2, 10, 30),  # parity cells are as long as the longest cell of data
        (RS_6_3, 6 * MIB, 9 * MIB),
        (RS_6_3, 6 * MIB + 1, 9 * MIB + 4),
        (Replication.EC_RS_10_4_1024K, 20 * MIB, 28 * MIB),
        (XOR, 3 * MIB, 5 * MIB),
        (XOR, 0, 0),
    ],
)
def test_what_a_block_takes_on_disks(replication: Replication, size_bytes: int, taken_bytes: int) -> None:
    assert size_bytes + redundancy_of_block(replication, size_bytes) == taken_bytes
    assert replicated_size(replication, size_bytes) == taken_bytes


def test_ozone_computes_the_same() -> None:
    """What ``QuotaUtil.getReplicatedSize`` of Ozone 2.2.0 has computed: replication, size, replicated size."""
    for line in (Path(__file__).parent / "replicated_sizes.txt").read_text("utf-8").splitlines():
        replication, size, taken = line.split()
        assert int(size) + redundancy_of_block(Replication(replication), int(size)) == int(taken), line


@given(REPLICATIONS, st.integers(1, 5), st.integers(1, 40 * MIB), st.integers(0, (1 << 48) - 1), st.data())
def test_a_run_takes_what_its_blocks_take_cell_by_cell(
    replication: Replication, count: int, block_size_bytes: int, sequence: int, data: st.DataObject
) -> None:
    size_bytes = (count - 1) * block_size_bytes + data.draw(st.integers(1, block_size_bytes))
    container_id = container_of(replication, sequence)
    assert (replication_of(container_id), sequence_of(container_id)) == (replication, sequence)
    assert container_id < 2**54, "a datanode has ten bits for the shard"
    run = BlockRun(container_id, 1, count, block_size_bytes, size_bytes)
    assert size_bytes + redundancy_of(run) == replicated_run(replication, count, block_size_bytes, size_bytes)


def test_an_id_of_no_replication_has_no_redundancy() -> None:
    unknown = len(Replication) << 48
    assert replication_of(unknown) is None
    assert redundancy_bytes(unknown, 1, 10, 10) == redundancy_of(None) == 0
    assert CODES.keys() < set(Replication)


class Line(CommandLine):
    """The command line of a plane in memory."""

    def committed(self, command: NamespaceCommand) -> Committed:
        reply = self.client.answer(self.shard, self.client.submit(self.shard, command))
        assert reply.committed, reply.message
        return reply.committed

    def space(self) -> dict[str, int]:
        shown: dict[str, int] = self.json("space", "vol/mixed")
        return {state: shown[f"{state}_replicated_bytes"] for state in ("live", "held", "pending", "freed")}


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """The snapshot monday shows ``three``, in three copies, ``coded``, and ``plain``; ``coded`` is deleted since."""
    line = Line(tmp_path)
    line.shard = line.json("volume", "create", "vol")["shard"]
    line.run("bucket", "create", "vol/mixed", "--replication", "RATIS_THREE")
    line.run("key", "put", "vol/mixed/three", "--size", "1000")
    line.run("bucket", "set-replication", "vol/mixed", "EC_RS_3_2_1024K")
    line.run("key", "put", "vol/mixed/coded", "--size", str(4 * MIB))
    line.run("bucket", "set-replication", "vol/mixed", "RATIS_ONE")
    line.run("key", "put", "vol/mixed/plain", "--size", "7")
    line.run("snapshot", "create", "vol/mixed", "monday")
    line.run("key", "delete", "vol/mixed/coded")
    return line


def test_keys_keep_the_replication_that_their_bucket_had(line: Line) -> None:
    assert line.space() == {"live": 3_007, "held": 8 * MIB, "pending": 0, "freed": 0}
    assert line.json("bucket", "info", "vol/mixed")["replication"] == "RATIS_ONE"
    assert "8.0 MiB" in line.run("bucket", "info", "vol/mixed")
    row = line.json("snapshot", "info", "vol/mixed", "monday")
    assert (row["referenced_bytes"], row["referenced_replicated_bytes"]) == (1_007 + 4 * MIB, 3_007 + 8 * MIB)
    line.settle()
    assert line.json("snapshot", "info", "vol/mixed", "monday")["exclusive_replicated_bytes"] == 8 * MIB
    (listed,) = line.json("space", "vol/mixed")["snapshots"]
    assert (listed["exclusive_replicated_bytes"], listed["held_replicated_bytes"]) == (8 * MIB, 8 * MIB)
    assert listed["shared_with_next_replicated_bytes"] == 3_007
    (version,) = line.json("explain", "vol/mixed/coded")["versions"]
    assert (version["size_bytes"], version["replicated_bytes"]) == (4 * MIB, 8 * MIB)
    assert "4.0 MiB (8.0 MiB on disks)" in line.run("explain", "vol/mixed/coded")


def test_a_drop_frees_what_was_foretold(line: Line) -> None:
    foretold = line.json("space", "what-if", "vol/mixed", "monday")
    assert (foretold["freed_bytes"], foretold["freed_replicated_bytes"]) == (4 * MIB, 8 * MIB)
    assert "would free 4.0 MiB (8.0 MiB on disks), 1 version" in line.run("space", "what-if", "vol/mixed", "monday")
    line.run("snapshot", "delete", "--yes", "vol/mixed", "monday")
    line.settle()
    assert line.space() == {"live": 3_007, "held": 0, "pending": 0, "freed": 8 * MIB}
    assert audit_at_once(line.client.plane, line.shard).is_clean


def test_a_plan_counts_plain_bytes_or_those_on_disks(line: Line) -> None:
    plain = line.json("space", "plan", "vol/mixed", "--free", "5MiB")
    assert (plain["is_enough"], plain["freed_bytes"]) == (False, 4 * MIB)
    on_disks = line.json("space", "plan", "vol/mixed", "--free", "5MiB", "--on-disks")
    assert (on_disks["is_enough"], on_disks["snapshots"], on_disks["freed_replicated_bytes"]) == (
        True,
        ["monday"],
        8 * MIB,
    )


def test_what_comes_back_takes_as_much_as_before(line: Line) -> None:
    line.run("snapshot", "rollback", "--yes", "vol/mixed", "monday")
    line.settle()
    assert line.space()["live"] == 3_007 + 8 * MIB
    assert audit_at_once(line.client.plane, line.shard).is_clean


def test_a_quota_counts_what_blocks_take_on_disks(line: Line) -> None:
    used = 3_007 + 8 * MIB
    assert line.run("bucket", "quota", "vol/mixed", "--bytes", str(used - 1), status=1).startswith("QUOTA_ERROR")
    line.run("bucket", "set-replication", "vol/mixed", "RATIS_THREE")
    line.run("bucket", "quota", "vol/mixed", "--bytes", str(used + 3 * 4_096))
    put = ("key", "put", "vol/mixed/more", "--size", "4096", "--block-size", "4096")
    line.run(*put)
    assert line.run(*put[:2], "vol/mixed/one-too-many", *put[3:], status=1).startswith("QUOTA_EXCEEDED")


def test_new_buckets_have_the_default(line: Line) -> None:
    line.run("bucket", "default-replication", "RATIS_THREE")
    line.run("bucket", "create", "vol/later")
    assert line.json("bucket", "info", "vol/later")["replication"] == "RATIS_THREE"
    assert line.json("bucket", "info", "vol/mixed")["replication"] == "RATIS_ONE"


def test_a_version_of_several_runs_takes_what_all_of_them_take(line: Line) -> None:
    line.run("bucket", "set-replication", "vol/mixed", "RATIS_THREE")
    place = ("vol", "mixed", "steps")
    opened = line.committed(OpenKey(*place, 10, block_size_bytes=10))
    more = line.committed(AllocateBlocks(*place, opened.session, 25))
    line.committed(CommitKey(*place, opened.session, 27))
    (version,) = line.json("explain", "vol/mixed/steps")["versions"]
    assert (version["size_bytes"], version["replicated_bytes"]) == (27, 81)
    for run in (*opened.runs, *more.runs):
        by_block = line.json("explain", str(run.first_local_id))["version"]
        assert by_block["replicated_bytes"] in (81, 3 * 17), "a further run is told by itself"
    first = line.json("explain", str(opened.runs[0].first_local_id))["version"]
    assert first["replicated_bytes"] == 81
