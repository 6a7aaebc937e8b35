"""Clients of a run who know buckets by other names: links, links to links, links round in circles, and into nothing.

What they do to keys they do through the links; the model has to say where each leads at that moment of the log.
"""

from __future__ import annotations

from schemas import records
from schemas.records import BucketLayout
from services.workloads.judge.model_bucket import OperationRefusedError
from tests.simulation.actions import BLOCK_BYTES
from tests.simulation.model import Incarnation
from tests.simulation.side_actor import SideActor

LINKS = ("link-1", "link-2", "link-3")
_WEIGHTS = {
    "link": 5,
    "unlink": 3,
    "put": 8,
    "delete": 4,
    "rename": 3,
    "write": 4,
    "make_directory": 2,
    "limit": 1,
    "snapshot": 1,
    "bucket": 1,
}


class Linker(SideActor):
    """These clients of one shard."""

    __slots__ = ()

    def act(self) -> None:
        """Do one thing."""
        name = self.chosen(_WEIGHTS)
        leading = [link for link in LINKS if self._target(link) is not None]
        if not leading and self.random.random() < 0.6:
            name = self.random.choice(("link", "unlink"))
        is_known = name not in ("link", "bucket") and leading and self.random.random() < 0.9
        getattr(self, f"_{name}")(self.random.choice(leading if is_known else LINKS))

    def _target(self, link: str) -> Incarnation | None:
        """Where a name leads by now."""
        try:
            return self.actor.model.found(self.volume, link)
        except OperationRefusedError:
            return None

    def _key(self, link: str) -> str:
        """Mostly a key that is there."""
        target = self._target(link)
        keys = list(target.bucket.view().keys) if target is not None else []
        return self.random.choice(keys) if keys and self.random.random() < 0.8 else self._new_key()

    def _new_key(self) -> str:
        names = [self.random.choice("abc") for _ in range(self.random.choice((0, 1, 2)))]
        return "/".join([*names, self.random.choice("xya")])

    # ---- names

    def _link(self, link: str) -> None:
        """Give a bucket, or a link, or nothing another name."""
        source = self.random.choice(("bucket-a", "bucket-a", "bucket-b", *LINKS, "bucket-none"))
        self.actor.submit(records.CreateBucketLink(self.volume, link, self.volume, source))

    def _unlink(self, link: str) -> None:
        self.actor.submit(records.DeleteBucket(self.volume, link))

    def _bucket(self, link: str) -> None:
        """Make a bucket where a link could be: others lead to it then."""
        layout = self.random.choice((BucketLayout.FILE_SYSTEM_OPTIMIZED, BucketLayout.OBJECT_STORE))
        self.actor.submit(records.CreateBucket(self.volume, link, layout))

    def _limit(self, link: str) -> None:
        """Quotas are of buckets."""
        self.actor.submit(records.SetQuota(self.volume, link, self.random.choice((-1, 10_000)), -1))

    def _snapshot(self, link: str) -> None:
        """Snapshots are of buckets."""
        self.actor.request(records.CreateSnapshot(self.volume, link, f"linked-{self.random.randrange(1 << 20)}"))

    # ---- keys

    def _put(self, link: str) -> None:
        size_bytes, tag = self.random.choice((0, 10, 1_500)), f"linked-{self.random.randrange(1 << 20)}"
        key = self._key(link) if self.random.random() < 0.4 else self._new_key()
        one = records.PutKey(self.volume, link, key, size_bytes, tag, BLOCK_BYTES)
        many = records.PutKeys(self.volume, link, (key,), (size_bytes,), (tag,), BLOCK_BYTES)
        self.actor.submit(self.random.choice((one, many)))

    def _delete(self, link: str) -> None:
        key = self._key(link)
        one, many = records.DeleteKey(self.volume, link, key), records.DeleteKeys(self.volume, link, (key,))
        self.actor.submit(self.random.choice((one, many)))

    def _rename(self, link: str) -> None:
        source, target = self._key(link), self._new_key()
        if target not in (source, source.rpartition("/")[0]):  # onto itself: planes may differ in what they answer
            self.actor.submit(records.RenameKey(self.volume, link, source, target))

    def _make_directory(self, link: str) -> None:
        self.actor.submit(records.MakeDirectory(self.volume, link, self._new_key()))

    def _write(self, link: str) -> None:
        """Open a key by one name of its bucket, or go on by another name than it was opened by."""
        target = self._target(link)
        sessions = [one for one in self.actor.model.writes.sessions.values() if one.incarnation is target]
        if not sessions or self.random.random() < 0.3:
            tag = f"linked-{self.random.randrange(1 << 20)}"
            self.actor.submit(records.OpenKey(self.volume, link, self._key(link), 300, tag, 100))
            return
        session = self.random.choice(sessions)
        size_bytes = (session.left.size_bytes if session.left else 0) + self.random.choice((0, 50))
        kind = self.random.choice((records.SyncKey, records.CommitKey))
        self.actor.submit(kind(self.volume, link, session.path, session.txn, size_bytes))
