"""Replays the commands on volumes, buckets, keys and directories that make nothing but whole versions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from schemas import records
from schemas.records import BlockRun, BucketLayout, BucketVersioning
from services.domain.names import (
    MAX_KEY_TAG_LENGTH,
    MAX_OWNER_LENGTH,
    InvalidNameError,
    check_bucket_name,
    check_key_path,
    check_length,
    check_volume_name,
)
from services.domain.table_keys import MAX_OBJECTS_PER_BULK, version_object_id
from services.verifier.history import Entry, Moment, Version
from services.verifier.present import MAX_OBJECTS, NO_CONDITION, Bucket, Present, require_generation
from services.verifier.refusals import RefusedError, require, required
from services.verifier.taken_bytes import blocks_of, taken_bytes

MAX_KEYS = 1_000
MAX_VERSION_ROWS = 10_000
NO_QUOTA = -1


class Namespace:
    """Replays these commands over the shard as it is."""

    def __init__(self, present: Present, owners: dict[str, str]) -> None:
        """``owners`` holds the owner of each existing volume, and follows the commands."""
        self._present = present
        self._history = present.history
        self._owners = owners
        self.has_quotas = False
        """Whether a bucket has ever had a quota."""
        self._quotas: dict[str, tuple[int, int]] = {}
        """Bytes and buckets that the quotas of a volume allow."""
        self.commands: Mapping[type[Any], Callable[[Any], None]] = {
            records.CreateVolume: self._create_volume,
            records.DeleteVolume: self._delete_volume,
            records.CreateBucket: self._create_bucket,
            records.CreateBucketLink: self._create_link,
            records.DeleteBucket: self._delete_bucket,
            records.PutKey: self._put_key,
            records.PutKeyIf: self._put_key_if,
            records.DeleteKey: self._delete_key,
            records.DeleteKeys: self._delete_keys,
            records.DeleteKeyVersion: self._delete_version,
            records.SetBucketVersioning: self._set_versioning,
            records.SetBucketReplication: self._set_replication,
            records.SetDefaultReplication: self._set_default_replication,
            records.RenameKey: self._rename_key,
            records.MakeDirectory: self._make_directory,
            records.DeleteDirectory: self._delete_directory,
            records.RenameDirectory: self._rename_directory,
        }

    # Volumes and buckets

    def _create_volume(self, body: records.CreateVolume) -> None:
        check_volume_name(body.volume)
        check_length("an owner", body.owner, MAX_OWNER_LENGTH)
        require(body.volume not in self._present.volumes)
        self._present.volumes[body.volume] = self._present.new_object_id()
        self._owners[body.volume] = body.owner

    def _delete_volume(self, body: records.DeleteVolume) -> None:
        present = self._present
        require(body.volume in present.volumes)
        require(not any(volume == body.volume for volume, _ in [*present.buckets, *present.links]))
        del present.volumes[body.volume], self._owners[body.volume]
        self._quotas.pop(body.volume, None)

    def _create_bucket(self, body: records.CreateBucket) -> None:
        self._require_new(body)
        present, is_tree = self._present, body.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
        bucket_id, volume_id = present.new_object_id(), present.volumes[body.volume]
        bucket = Bucket(bucket_id, volume_id, body.volume, body.bucket, is_tree, replication=present.replication)
        present.buckets[body.volume, body.bucket] = present.by_id[bucket_id] = bucket

    def _create_link(self, body: records.CreateBucketLink) -> None:
        self._require_new(body)
        check_volume_name(body.source_volume)
        check_bucket_name(body.source_bucket)
        self._present.new_object_id()
        self._present.links[body.volume, body.bucket] = (body.source_volume, body.source_bucket)

    def _require_new(self, body: records.CreateBucket | records.CreateBucketLink) -> None:
        """Refuse a name in use, and a bucket or link for which the quotas of its volume have no room."""
        check_bucket_name(body.bucket)
        present, name = self._present, (body.volume, body.bucket)
        require(body.volume in present.volumes and name not in present.buckets and name not in present.links)
        most_bytes, most_buckets = self._quotas.get(body.volume, (NO_QUOTA, NO_QUOTA))
        there = sum(volume == body.volume for volume, _ in [*present.buckets, *present.links])
        require(most_bytes == NO_QUOTA or isinstance(body, records.CreateBucketLink))
        require(most_buckets == NO_QUOTA or there < most_buckets)

    def _delete_bucket(self, body: records.DeleteBucket) -> None:
        if self._present.links.pop((body.volume, body.bucket), None) is not None:
            return
        bucket = self._present.bucket(body)
        require(not self._history.has_children(bucket.bucket_id) and not bucket.offsets)
        bucket.is_deleted = True
        del self._present.buckets[body.volume, body.bucket]

    def set_quota(self, body: records.SetQuota) -> None:
        """Apply a quota that metadata has accepted: the sums that it compares are not replayed."""
        if body.bucket:
            bucket = self._present.bucket(body)
            self.has_quotas = True
            bucket.has_quota = (body.quota_bytes, body.quota_namespace) != (NO_QUOTA, NO_QUOTA)
        else:
            self._quotas[body.volume] = (body.quota_bytes, body.quota_namespace)

    def _set_versioning(self, body: records.SetBucketVersioning) -> None:
        bucket = self._present.bucket(body)
        require(body.versioning is not BucketVersioning.UNVERSIONED)
        bucket.versioning = body.versioning

    def _set_replication(self, body: records.SetBucketReplication) -> None:
        self._present.bucket(body).replication = body.replication

    def _set_default_replication(self, body: records.SetDefaultReplication) -> None:
        self._present.replication = body.replication

    # Keys

    def _put_key(self, body: records.PutKey) -> None:
        self._put(body, NO_CONDITION)

    def _put_key_if(self, body: records.PutKeyIf) -> None:
        self._put(body, body.expected_generation)

    def put_keys(self, body: records.PutKeys, refused: Collection[int]) -> None:
        """Put each key on its own, each at a txn. ``refused`` has those that a quota may have refused."""
        present, count = self._present, len(body.keys)
        present.bucket(body)
        require(1 <= count <= MAX_KEYS and len(body.sizes_bytes) == count and len(body.tags) in (0, count))
        made = 0
        for place, (key, size_bytes) in enumerate(zip(body.keys, body.sizes_bytes, strict=True)):
            if place:
                present.begin(Moment(present.now.offset, present.now.txn + 1))
            if place in refused or made >= MAX_OBJECTS_PER_BULK:
                continue
            tag = body.tags[place] if body.tags else ""
            with suppress(RefusedError, InvalidNameError):
                self._put_key(records.PutKey(body.volume, body.bucket, key, size_bytes, tag, body.block_size_bytes))
                made += present.objects

    def _put(self, body: records.PutKey | records.PutKeyIf, expected_generation: int) -> None:
        present = self._present
        bucket = present.bucket(body)
        check_length("a tag", body.tag, MAX_KEY_TAG_LENGTH)
        blocks = present.new_blocks(bucket, body.size_bytes, body.block_size_bytes)
        if expected_generation == NO_CONDITION and self._put_new(bucket, body, blocks):
            return
        parent_id, missing, name, there = present.place_for_file(bucket, body.key)
        require(len(missing) + (there is None) <= MAX_OBJECTS)
        require_generation(there, expected_generation)
        self.require_replaceable(bucket, there)
        present.store(taken_bytes(blocks_of(blocks)) if blocks else 0)
        place = (present.add_directories(bucket, parent_id, missing), name)
        self.replace(bucket, place, there, body.size_bytes, blocks)

    def _put_new(self, bucket: Bucket, body: records.PutKey | records.PutKeyIf, blocks: BlockRun | None) -> bool:
        """Write the first version of a key in a directory that is there. Return False if it takes more than that.

        Most commands of most logs are of this kind.
        """
        present, now = self._present, self._present.now
        check_key_path(body.key, is_tree=bucket.is_tree)
        parent_id, missing, name = present.place(bucket, body.key)
        taken = taken_bytes(blocks_of(blocks)) if blocks else 0
        if missing or bucket.versioning is not BucketVersioning.UNVERSIONED or not present.has_room(taken):
            return False
        entry = Entry(present.new_object_id(), now.txn, is_directory=False, generation=now.txn, length=body.size_bytes)
        if not self._history.add_new(bucket.bucket_id, parent_id, name, entry, now):
            return False
        present.store(taken)
        self._history.write(bucket.bucket_id, entry.object_id, now.txn, body.size_bytes, blocks, now)
        return True

    def replace(
        self, bucket: Bucket, place: tuple[int, str], there: Entry | None, length: int, blocks: BlockRun | None
    ) -> Entry:
        """Write a new version of a key at its place. The version that is there dies, or becomes noncurrent."""
        now, is_enabled = self._present.now, bucket.versioning is BucketVersioning.ENABLED
        if there is not None:
            self._history.leave(*place, now)
            if self._is_kept(bucket, there):
                self._history.keep(there.object_id, there.birth)
            else:
                self._history.die(there.object_id, there.birth, now)
        object_id = there.object_id if there else self._present.new_object_id()
        entry = Entry(object_id, now.txn, is_directory=False, generation=now.txn, length=length)
        self._history.add(bucket.bucket_id, *place, entry, now)
        self._history.write(bucket.bucket_id, object_id, now.txn, length, blocks, now)
        if is_enabled:
            self._history.mark_versioned(object_id, now.txn)
        return entry

    def _is_kept(self, bucket: Bucket, there: Entry) -> bool:
        """Return whether a version that is overwritten becomes noncurrent."""
        if bucket.versioning is not BucketVersioning.SUSPENDED:
            return bucket.versioning is BucketVersioning.ENABLED
        return bool(required(self._history.version(there.object_id, there.birth)).is_versioned)

    def require_replaceable(self, bucket: Bucket, there: Entry | None) -> None:
        """Refuse to overwrite a key that has too many versions."""
        if there is not None and self._is_kept(bucket, there):
            versions = [one.name for one in self._history.noncurrent(there.object_id)]
            rows = sum(self._history.rows_of_version(*name) for name in (*versions, (there.object_id, there.birth)))
            require(rows <= MAX_VERSION_ROWS)

    def _delete_key(self, body: records.DeleteKey) -> None:
        self._delete(self._present.bucket(body), body.key, is_recursive=False)

    def _delete_keys(self, body: records.DeleteKeys) -> None:
        """Delete each key on its own: a key that cannot be deleted does not stop the others."""
        bucket = self._present.bucket(body)
        require(1 <= len(body.keys) <= MAX_KEYS)
        for key in body.keys:
            with suppress(RefusedError):
                self._delete(bucket, key, is_recursive=False)

    def _delete_directory(self, body: records.DeleteDirectory) -> None:
        self._delete(self._present.tree(body), body.directory, is_recursive=body.is_recursive)

    def _delete(self, bucket: Bucket, path: str, *, is_recursive: bool) -> None:
        now = self._present.now
        if not bucket.is_tree:
            version = required(self._history.take(bucket.bucket_id, path, now))
            self._history.die(*version, now)
            self._history.die_with_key(version[0], now)
            return
        parent_id, name, there = self._present.find(bucket, path)
        found = required(there)
        if found.is_directory:
            require(is_recursive or not self._history.has_children(found.object_id))
            self._history.leave_tree(bucket.bucket_id, found.object_id, now)
        else:
            self._history.die(found.object_id, found.birth, now)
            self._history.die_with_key(found.object_id, now)
        self._history.leave(parent_id, name, now)

    def _delete_version(self, body: records.DeleteKeyVersion) -> None:
        """Delete one version. If it is the current one, the newest noncurrent version becomes current."""
        bucket, history, now = self._present.bucket(body), self._history, self._present.now
        parent_id, name, there = self._present.find(bucket, body.key)
        found = required(there)
        require(not found.is_directory)
        noncurrent = history.noncurrent(found.object_id)
        if body.version != found.birth:
            ended = [one for one in noncurrent if one.birth == body.version]
            require(bool(ended))
            history.die(*ended[0].name, now)
            return
        history.leave(parent_id, name, now)
        if noncurrent:
            history.keep(found.object_id, found.birth)
            history.die(version_object_id(found.birth), found.birth, now)
            history.make_current(noncurrent[-1])
            self.show(bucket, (parent_id, name), found.object_id, noncurrent[-1])
        else:
            history.die(found.object_id, found.birth, now)

    def show(self, bucket: Bucket, place: tuple[int, str], key_id: int, version: Version) -> None:
        """Write the entry of a version of a key that is current from now on."""
        now = self._present.now
        entry = Entry(key_id, version.birth, is_directory=False, generation=now.txn, length=version.length)
        self._history.add(bucket.bucket_id, *place, entry, now)

    # Renames and directories

    def _rename_key(self, body: records.RenameKey) -> None:
        bucket = self._present.bucket(body)
        if bucket.is_tree:
            self._rename(bucket, body.source, body.target)
            return
        check_key_path(body.target, is_tree=False)
        found = required(self._history.find(bucket.bucket_id, body.source))
        require(self._history.find(bucket.bucket_id, body.target) is None)
        self._move(bucket, (bucket.bucket_id, body.source), (bucket.bucket_id, body.target), found)

    def _rename_directory(self, body: records.RenameDirectory) -> None:
        self._rename(self._present.tree(body), body.source, body.target)

    def _rename(self, bucket: Bucket, source: str, target: str) -> None:
        parent_id, name, there = self._present.find(bucket, source)
        found = required(there)
        check_key_path(target, is_tree=True)
        if source == target:
            require(not found.is_directory)
            return
        onto = self._target_of(bucket, target)
        if onto is not None and onto.is_directory:
            target = f"{target}/{name}"
        require(not (found.is_directory and target.startswith(f"{source}/")))
        new_parent_id, new_name = self._present.place_in_directory(bucket, target)
        require(self._history.find(new_parent_id, new_name) is None)
        self._move(bucket, (parent_id, name), (new_parent_id, new_name), found)

    def _target_of(self, bucket: Bucket, target: str) -> Entry | None:
        try:
            return self._present.find(bucket, target)[2]
        except RefusedError:  # a file on the path: the target does not exist
            return None

    def _move(self, bucket: Bucket, source: tuple[int, str], target: tuple[int, str], moved: Entry) -> None:
        now = self._present.now
        generation = 0 if moved.is_directory else now.txn
        self._history.leave(*source, now)
        self._history.add(bucket.bucket_id, *target, moved._replace(generation=generation), now)

    def _make_directory(self, body: records.MakeDirectory) -> None:
        bucket = self._present.tree(body)
        check_key_path(body.directory, is_tree=True)
        parent_id, missing = self._present.walk(bucket, body.directory)
        self._present.add_directories(bucket, parent_id, missing)
