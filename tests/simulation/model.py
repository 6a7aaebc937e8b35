"""The brute-force judge of one shard: plain sets and full copies, fed with metadata's log in its order.

It applies each command that metadata has made durable, at the same txn, and learns from the answers which blocks a
version has. It knows nothing of lifetimes, chains or garbage tables: who holds a version is looked up in copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from schemas import records
from schemas.codec import DecodeError, codec
from schemas.records import BlockRun, BucketVersioning, MetadataCommand, MetadataReply, Replication, RowName
from schemas.topics import METADATA_COMMANDS
from services.domain.reclaimability import Txn
from services.domain.row_columns import row_names
from services.domain.table_keys import object_txn
from services.log.memory import CONTROL
from services.log.port import LogRecord
from services.workloads import workload
from services.workloads.judge.model_bucket import Bucket as _Bucket
from services.workloads.judge.model_bucket import Directory as _Directory
from services.workloads.judge.model_bucket import OperationRefusedError, Version
from tests.replicated_sizes import whole_blocks
from tests.simulation.claim_moments import ClaimMoment, Thing
from tests.simulation.errors import AnswerError, SafetyError
from tests.simulation.pieces import Piece, Pieces
from tests.simulation.quotas import Names, Quotas
from tests.simulation.rights import COMMANDS as COMMANDS_OF_RIGHTS
from tests.simulation.rights import Rights
from tests.simulation.writes import Writes, check_place

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MONTH_MS = 30 * DAY_MS
LAST_WRITE_TABLE = 2
EVERYTHING = -1
"""In place of a bucket: all of the shard is paused."""
_SENDERS: Mapping[type[Any], str] = {
    records.CaptureSnapshot: "snapshots",
    records.DropSnapshot: "snapshots",
    records.RollbackPage: "snapshots",
    records.ClaimRows: "key_deletion",
    records.FinishRows: "key_deletion",
    records.SweepPage: "key_deletion",
    records.ExpireWrites: "key_deletion",
    records.ExpandDirectory: "directory_deletion",
    records.RemoveDirectories: "directory_deletion",
}
_MAKING = (records.CreateVolume, records.DeleteVolume, records.CreateBucket, records.CreateBucketLink)
_CONTROL = (
    records.Barrier,
    records.GrantContainer,
    records.StopClaims,
    records.PublishFullChain,
    records.SetFeatureLevel,
    records.AnnounceSchema,
)


@dataclass(frozen=True, slots=True)
class CapturedView:
    """All that a bucket listed when a snapshot was taken."""

    snapshot_id: str
    txn: int
    ordinal: int
    keys: Mapping[str, Version]
    directories: Mapping[str, _Directory]
    """By path; whatever becomes of one, it is the same directory."""
    things: frozenset[Thing]
    contents: Mapping[int, tuple[int, ...]]
    """By number of a version that it lists the pieces that this had, in the order of the content."""
    generations: Mapping[int, Txn]
    """By number of a version the txn that had changed it last."""
    noncurrent: Mapping[Thing, tuple[int, ...]]
    """By file the numbers of its noncurrent versions."""
    numbers: frozenset[int]
    """Numbers of all pieces that it shows."""
    referenced_bytes: int
    """Bytes of these pieces when it was captured; their last blocks may have grown since."""
    referenced_replicated_bytes: int
    """What they took on disks then."""
    owner: str = ""
    """Who owned the bucket then, or else its volume."""


@dataclass(frozen=True, slots=True)
class BreakerMoment:
    """What counts for a claim: its log time, whether every bucket has limits, and all resets before it."""

    log_time_ms: int
    is_limited: bool
    resets: tuple[tuple[Txn, int], ...]
    """Of each its txn and log time; -1 when nothing was limited then."""

    def reset_after(self, tripped_txn: Txn) -> tuple[Txn, int] | None:
        """The reset that ended a trip: the first behind it, since later ones find nothing to end."""
        return next((reset for reset in self.resets if reset[0] > tripped_txn), None)


@dataclass(slots=True)
class Incarnation:
    """One life of a bucket, from its creation until its deletion and beyond: what it left behind."""

    volume: str
    name: str
    bucket: _Bucket
    bucket_id: int = 0
    is_deleted: bool = False
    volume_id: int = 0
    made_id: int = 0
    """The id that it was made with, by the txn; ``bucket_id`` is what the plane has answered."""
    versions: list[int] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    """Numbers of all blocks that anybody has ever seen, or that have died unseen."""
    deleted_trees: list[tuple[int, _Directory]] = field(default_factory=list)
    """With the txn of the deletion."""
    renames: list[tuple[int, Thing]] = field(default_factory=list)
    """Txn and object of every rename that had to be noted."""
    rename_txns: dict[Thing, list[int]] = field(default_factory=dict)
    snapshots: dict[str, CapturedView] = field(default_factory=dict)
    """Live ones, in the order of the chain."""
    ever_captured: int = 0
    rollback: tuple[str, CapturedView] | None = None
    """The rollback under way: its id, and where it goes."""
    rolled_back_txn: int = 0
    """When the last rollback was done."""
    versioning: BucketVersioning = BucketVersioning.UNVERSIONED
    replication: Replication = Replication.RATIS_ONE
    noncurrent: dict[Thing, list[int]] = field(default_factory=dict)
    """By file the numbers of the versions that were overwritten and kept; those of a file that has gone count for
    nothing."""
    versioned: set[int] = field(default_factory=set)
    """Numbers of the versions that were written while versions were kept."""
    rollback_pages: set[int] = field(default_factory=set)
    """Txns of the pages that the rollback under way has got so far."""

    def keeps(self, number: int) -> bool:
        """Whether a version that is overwritten now stays as a noncurrent one."""
        is_suspended = self.versioning is BucketVersioning.SUSPENDED
        return self.versioning is BucketVersioning.ENABLED or (is_suspended and number in self.versioned)


@dataclass(slots=True)
class _Client:
    number: int
    log_time_ms: int


@dataclass(slots=True)
class BulkPut:
    """A command that puts many keys, and the error of each that is refused, by its place."""

    body: records.PutKeys
    refused: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class ShardModel:
    """What one shard must show."""

    shard: int
    names: Names = field(default_factory=Names)
    position: int = 0
    """Commands of metadata's log that are applied here."""
    txn: int = 0
    incarnations: list[Incarnation] = field(default_factory=list)
    expected: dict[tuple[str, int], list[tuple[int, str]]] = field(default_factory=dict)
    """By client and number the txn and the error of the answer; more than one after the client was forgotten."""
    answered: set[tuple[str, int]] = field(default_factory=set)
    """Clients and numbers that were answered."""
    put_numbers: dict[int, int] = field(default_factory=dict)
    """By txn the number of the version that it made."""
    made_buckets: dict[int, Incarnation] = field(default_factory=dict)
    pieces: Pieces = field(default_factory=Pieces)
    """All blocks. A put has one piece, which has the number of its version."""
    contents: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By number of a version its pieces, in the order of the content."""
    version_births: dict[int, Txn] = field(default_factory=dict)
    generations: dict[int, Txn] = field(default_factory=dict)
    """By number of a version the txn that has changed it last."""
    writes: Writes = field(init=False)
    quotas: Quotas = field(init=False)
    rights: Rights = field(init=False)
    present: MetadataCommand = field(init=False)
    """The client's command that is being applied."""
    expiry_answer: Callable[[Txn], records.WritesExpired | None] = lambda _txn: None
    """What metadata has answered to an expiry."""
    _volume_ids: dict[str, int] = field(default_factory=dict)
    _made_things: dict[Txn, Thing] = field(default_factory=dict)
    """By txn the file of which it has made a version, or changed the last one."""
    _recoveries: set[tuple[str, int]] = field(default_factory=set)
    """Client and number of each command that ends a lease."""
    _joined: dict[Txn, tuple[int, ...]] = field(default_factory=dict)
    """By the txn of a completion, or of an undelete, the pieces of the version."""
    unreadable: list[int] = field(default_factory=list)
    """Offsets of commands that metadata has to put aside."""
    snapshot_places: dict[str, tuple[Incarnation, int]] = field(default_factory=dict)
    """By id of every snapshot that was ever taken its bucket and its txn."""
    captured: dict[str, CapturedView] = field(default_factory=dict)
    """By id what every snapshot that was ever taken lists."""
    _uncaptured: set[str] = field(default_factory=set)
    """Ids that were dropped before they were taken."""
    is_secured: bool = False
    """Whether commands are signed."""
    is_unauthorized: Callable[[str, int], bool] = lambda _topic, _offset: False
    """Whether a message of a topic came from a stranger."""
    last_page_of: Callable[[str], int] = lambda _rollback_id: 0
    """The page with which a rollback has ended, as metadata's tables tell; 0 while it has not."""
    rollbacks: set[str] = field(default_factory=set)
    """Ids of all rollbacks that were begun."""
    answers_to: Callable[[str, int], list[MetadataReply]] = lambda _client_id, _number: []
    """All that metadata has answered to a client's number, as its outbox and its topic tell."""
    undeleted: int = 0
    """How often something has come back."""
    paused_at: dict[int, frozenset[int]] = field(default_factory=dict)
    """By txn of a claim or purge what was paused then."""
    breaker_at: dict[int, BreakerMoment] = field(default_factory=dict)
    """By txn of a claim or purge what the breaker went by, in the runs that have one."""
    _is_stopped: bool = False
    """Whether somebody has stopped all claims, whatever is paused or resumed."""
    _is_limited: bool = False
    _resets: tuple[tuple[Txn, int], ...] = ()
    _paused: set[int] = field(default_factory=set)
    """Places in ``incarnations`` of the buckets that are paused; ``EVERYTHING`` for all of the shard."""
    _claims: set[tuple[int, int, int]] = field(default_factory=set)
    """ObjectID, birth and death of every row that any claim has named."""
    _expansions: set[tuple[int, int]] = field(default_factory=set)
    """ObjectID and death of every directory that was to be expanded."""
    _returns: set[tuple[int, int]] = field(default_factory=set)
    """ObjectID and death of all that has come back."""
    _dead_places: dict[Thing | int, tuple[_Directory, str]] = field(default_factory=dict)
    """Where what was deleted by itself was then: versions by number, directories as things."""
    _current: dict[tuple[str, str], Incarnation] = field(default_factory=dict)
    _objects: dict[int, int] = field(default_factory=dict)
    _directories: dict[int, _Directory] = field(default_factory=dict)
    _made_directories: dict[Thing, tuple[Txn, int]] = field(default_factory=dict)
    """Of each directory the txn that made it, and the how manieth object of that it was."""
    _clients: dict[str, _Client] = field(default_factory=dict)
    _log_time_ms: int = 0
    _held: frozenset[int] | None = None
    moments: dict[Txn, ClaimMoment] = field(default_factory=dict)
    """By txn of a claim or purge what was held then."""
    claimed: set[int] = field(default_factory=set)
    """Numbers of all versions that an answer to a claim has given away."""
    objects: dict[tuple[Txn, int], Thing] = field(default_factory=dict)
    """By the txn that made an object, and the how manieth of that it was, what it is."""

    present_place: int = 0
    """Which key of the present command is put, if it puts many."""
    _bulk_puts: dict[Txn, BulkPut] = field(default_factory=dict)
    """By their last txns the commands that put many keys."""
    settled_txn: int = 0
    """The newest txn that a barrier has gone behind: a settle ends the pauses of all that died before."""
    _is_sent_again: bool = False
    """Whether the present command comes once more in what is followed: a client that is forgotten by then is heard
    again, and both answers have the same name."""
    _refused_with: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    """By client and number the errors with which an undelete was refused."""
    _times: dict[Txn, int] = field(default_factory=dict)
    """By txn its log time."""

    def __post_init__(self) -> None:
        self.writes = Writes(self)
        self.quotas = Quotas(self)
        self.rights = Rights(self)

    @property
    def runs(self) -> dict[int, BlockRun]:
        """By number of a piece its blocks, as far as answers have named them."""
        return {number: run for number, piece in self.pieces.by_number.items() if (run := piece.run) is not None}

    @property
    def births(self) -> dict[int, Txn]:
        """By number of a piece its birth."""
        return {number: piece.birth for number, piece in self.pieces.by_number.items()}

    @property
    def log_time_ms(self) -> int:
        """The newest time that the log has seen so far."""
        return self._log_time_ms

    def time_of(self, txn: Txn) -> int:
        """The log time of a txn."""
        return self._times[txn]

    # ---- following the log

    def follow(self, log: list[LogRecord], until: int) -> None:
        """Apply commands up to a position."""
        while self.position < until:
            record = log[self.position]
            self.position += 1
            if record.headers is CONTROL:
                continue
            self._held = None
            try:
                command = codec(MetadataCommand).decode_message(record.value)
            except DecodeError:
                self.unreadable.append(record.offset)
                continue
            txn = self.txn
            self._is_sent_again = isinstance(command.body, records.Undelete) and any(
                later.value == record.value for later in log[self.position : until]
            )
            self._apply(record, command)
            self.quotas.after_command(is_turned_back=isinstance(command.body, records.RollbackPage))
            self._times |= dict.fromkeys(range(txn + 1, self.txn + 1), self._log_time_ms)

    def _apply(self, record: LogRecord, command: MetadataCommand) -> None:
        body = command.body
        log_time_ms = max(self._log_time_ms, record.timestamp_ms)
        if self._is_dead_lettered(record, command):
            self.unreadable.append(record.offset)
            return
        if isinstance(body, _CONTROL):
            self.txn += isinstance(body, records.StopClaims)
            self._is_stopped |= isinstance(body, records.StopClaims)
            if isinstance(body, records.Barrier) and not body.origin:
                self.settled_txn = self.txn
        elif type(body) in _SENDERS:
            self.txn += 1
            if isinstance(body, (records.ClaimRows, records.RemoveDirectories)):
                self._note_moment(log_time_ms)
            self._apply_service_command(body, log_time_ms)
        elif self._is_denied(record, command):
            answers = self.expected.setdefault((command.client_id, command.number), [])
            answers.append((0, "PERMISSION_DENIED"))  # and the client is heard as if it had sent nothing
        elif self._asks_for_rights and (code := self.rights.refusal(command, log_time_ms)):
            self.expected.setdefault((command.client_id, command.number), []).append((0, code))
        elif isinstance(body, records.RequeueOrphans):
            # Nothing but lies asks for this: somebody refers to the blocks, or the bucket is busy.
            refusals = [(0, "INVALID_REQUEST"), (0, "BUCKET_BUSY")]
            self.expected[command.client_id, command.number] = refusals
        else:
            self._apply_client_command(record.offset, command, log_time_ms)
        if log_time_ms // HOUR_MS != self._log_time_ms // HOUR_MS:
            self.rights.tokens.forget_expired(log_time_ms)
            self._clients = {
                name: client for name, client in self._clients.items() if client.log_time_ms >= log_time_ms - HOUR_MS
            }
        self._log_time_ms = log_time_ms

    def _is_dead_lettered(self, record: LogRecord, command: MetadataCommand) -> bool:
        """Whether a command that is no client's is another's to give, or cannot be carried out."""
        sender = _SENDERS.get(type(command.body))
        if sender is None and not isinstance(command.body, _CONTROL):
            return False
        if command.shard != self.shard or self.is_unauthorized(METADATA_COMMANDS.name, record.offset):
            return True
        is_anothers = sender is not None and command.sender != sender
        return (
            is_anothers
            or (isinstance(command.body, records.DropSnapshot) and self._is_rolled_back_to(command.body.snapshot_id))
            or (isinstance(command.body, records.ExpireWrites) and not 0 <= command.body.table <= LAST_WRITE_TABLE)
        )

    def _is_denied(self, record: LogRecord, command: MetadataCommand) -> bool:
        """Whether a client's command was signed by somebody else, or so long ago that it may be an old one."""
        if not self.is_secured:
            return False
        age_ms = abs(record.timestamp_ms - command.issued_at_ms)
        return self.is_unauthorized(METADATA_COMMANDS.name, record.offset) or age_ms > HOUR_MS // 2

    def _note_moment(self, log_time_ms: int) -> None:
        """Something is to be claimed or purged: remember what counts for it."""
        if self.is_paused:
            self.paused_at[self.txn] = frozenset(self._paused | ({EVERYTHING} if self._is_stopped else set()))
        if self._is_limited or self._resets:
            self.breaker_at[self.txn] = BreakerMoment(log_time_ms, self._is_limited, self._resets)
        things: dict[Thing, Txn] = {}
        undecided: dict[int, frozenset[int]] = {}
        live_things = set[Thing]()
        for incarnation in self.incarnations:
            for view in reversed(incarnation.snapshots.values()):
                things |= dict.fromkeys(view.things, view.txn)
            if incarnation.rollback is not None:
                target = incarnation.rollback[1].numbers
                pages = frozenset(incarnation.rollback_pages)
                undecided |= dict.fromkeys(self.active_numbers(incarnation) - target, pages)
            elif not incarnation.is_deleted:
                live_things |= {self.thing_of(entry) for entry in _entries(incarnation.bucket.root)}
        self.moments[self.txn] = ClaimMoment(self.held | self.writes.pending, undecided, things, frozenset(live_things))

    def _apply_service_command(self, body: Any, log_time_ms: int) -> None:
        if isinstance(body, records.CaptureSnapshot):
            self._capture(body, log_time_ms)
        elif isinstance(body, records.DropSnapshot):
            if body.snapshot_id not in self.snapshot_places:
                self._uncaptured.add(body.snapshot_id)
            for incarnation in self.incarnations:
                incarnation.snapshots.pop(body.snapshot_id, None)
        elif isinstance(body, records.RollbackPage):
            self._roll_back(body)
        elif isinstance(body, records.ClaimRows):
            self._claims.update((row.object_id, row.birth, row.death) for row in row_names(body.rows))
        elif isinstance(body, records.RemoveDirectories):
            self._claims.update((row.object_id, row.birth, row.death) for row in body.rows)
        elif isinstance(body, records.ExpandDirectory):
            self._expansions.add((body.object_id, body.death))
        elif isinstance(body, records.ExpireWrites):
            txn = self.txn
            self.writes.expire(body, log_time_ms, lambda: self.expiry_answer(txn))

    def _apply_client_command(self, number: int, command: MetadataCommand, log_time_ms: int) -> None:
        before = self._clients.get(command.client_id)
        if command.number and before is not None and command.number <= before.number:
            return
        error, self.present = "", command
        try:
            if command.shard != self.shard:
                raise OperationRefusedError("WRONG_SHARD", str(command.shard))
            self._carry_out(number, command, log_time_ms)
        except OperationRefusedError as refusal:
            error = refusal.code
        answers = self.expected.setdefault((command.client_id, command.number), [])
        answers.append((0 if error else self.txn, error))
        if command.number:  # else it is carried out however often it comes
            self._clients[command.client_id] = _Client(command.number, log_time_ms)

    def _carry_out(self, number: int, command: MetadataCommand, log_time_ms: int) -> None:
        body: Any = command.body
        match body:
            case records.SetCollection():
                self._set_collection(body)
            case records.SetBreaker() | records.ResetBreaker():
                self._set_breaker(body, log_time_ms)
            case records.SetSecret():
                self._set_secret(body)
            case records.SetQuota() | records.RepairQuota():
                self._change_quotas(body)
            case records.Undelete():
                self._undelete(number, command, body)
            case _ if isinstance(body, COMMANDS_OF_RIGHTS):
                self.rights.change(command, log_time_ms)
            case _:
                self._change_namespace(number, command, log_time_ms)

    # ---- the collector

    @property
    def is_paused(self) -> bool:
        """Whether anything is held back."""
        return bool(self._paused) or self._is_stopped

    def paused_buckets(self) -> set[tuple[str, str]]:
        """Names of the buckets that are paused by themselves."""
        return {(one.volume, one.name) for place, one in enumerate(self.incarnations) if place in self._paused}

    def was_paused(self, txn: int, bucket_id: int) -> bool:
        """Whether a bucket was held back when a claim or purge was applied at a txn."""
        paused = self.paused_at.get(txn, frozenset())
        if EVERYTHING in paused:
            return True
        incarnation = self.made_buckets.get(object_txn(bucket_id))
        return any(self.incarnations[place] is incarnation for place in paused)

    def _set_collection(self, body: records.SetCollection) -> None:
        places = {EVERYTHING} if not body.volume else self._places(body.volume, body.bucket)
        self._is_stopped &= not body.ends_stop
        if body.state is records.CollectionState.RUNNING:
            self._paused -= places
        else:
            self._paused |= places
        self.txn += 1

    def _set_breaker(self, body: records.SetBreaker | records.ResetBreaker, log_time_ms: int) -> None:
        self.txn += 1
        if isinstance(body, records.ResetBreaker):
            self._resets = (*self._resets, (self.txn, log_time_ms if self._is_limited else -1))
        else:
            self._is_limited = body.limits is not None

    def _places(self, volume: str, name: str) -> set[int]:
        """The bucket of a name, and those of that name that were deleted while they were paused."""
        current = self._current.get((volume, name))
        found = {
            place
            for place, one in enumerate(self.incarnations)
            if (one.volume, one.name) == (volume, name) and (one is current or place in self._paused)
        }
        if not found:
            self.names._bucket(volume, name)
        return found

    def _change_namespace(self, number: int, command: MetadataCommand, log_time_ms: int) -> None:
        body: Any = command.body
        is_making = isinstance(body, _MAKING)
        if not is_making and not isinstance(body, records.DeleteBucket):
            body = self._led(body)
        if not is_making and self.is_fenced(body.volume, body.bucket):
            raise OperationRefusedError("BUCKET_BUSY", body.bucket)
        if (write := self.writes.handler(body)) is not None:
            write(number, body, log_time_ms)
            if isinstance(body, records.RecoverLease):
                self._recoveries.add((command.client_id, command.number))
        elif is_making or isinstance(body, records.DeleteBucket):
            self._change_buckets(number, body)
        else:
            self._change_keys(number, body)
        if not isinstance(body, records.RenameKey | records.RenameDirectory):  # these have taken their txn
            self.txn += 1

    @property
    def _asks_for_rights(self) -> bool:
        """Whether there is an administrator."""
        return "root" in self.rights.people

    def _set_secret(self, body: records.SetSecret) -> None:
        if body.role is not records.SecretRole.SERVICE:
            self.rights.people.add(body.name)
        self.txn += 1

    def _led(self, body: Any) -> Any:
        """A command as one about the bucket that its name leads to."""
        volume, bucket = self.names._lead_to(body.volume, body.bucket)
        return replace(body, volume=volume, bucket=bucket)

    def _change_quotas(self, body: records.SetQuota | records.RepairQuota) -> None:
        if isinstance(body, records.SetQuota):
            self.quotas.set(body)
        else:
            self.quotas.repair(body)
        self.txn += 1

    def _change_buckets(self, number: int, body: Any) -> None:
        match body:
            case records.DeleteVolume():
                self._delete_volume(body.volume)
            case records.DeleteBucket():
                self._delete_bucket(body.volume, body.bucket)
            case records.CreateBucketLink():
                self.names.apply(number, _operation(body))
                self.rights.bucket_made(body.volume, body.bucket)
            case records.CreateVolume():
                self.names.apply(number, _operation(body))
                self._volume_ids[body.volume] = _first_object_of(self.txn + 1)
                self.rights.owners[body.volume] = body.owner
            case records.CreateBucket():
                self.names.apply(number, _operation(body))
                made = Incarnation(body.volume, body.bucket, self.names._buckets[body.volume, body.bucket])
                made.volume_id, made.made_id = self._volume_ids[body.volume], _first_object_of(self.txn + 1)
                self.incarnations.append(made)
                self._current[body.volume, body.bucket] = made
                self.made_buckets[self.txn + 1] = made
                self.rights.bucket_made(body.volume, body.bucket)

    def _change_keys(self, number: int, body: Any) -> None:
        match body:
            case records.PutKey():
                self._put(number, body)
            case records.PutKeyIf():
                self._put_if(number, body)
            case records.PutKeys():
                self._put_many(number, body)
            case records.RenameKey() | records.RenameDirectory():
                self._rename(number, body)
            case records.DeleteKeys():
                self._remove_many(number, body)
            case records.DeleteKeyVersion():
                self._delete_version(number, body)
            case records.SetBucketVersioning():
                self._set_versioning(body)
            case records.SetBucketReplication():
                self.names._bucket(body.volume, body.bucket)
                self._current[body.volume, body.bucket].replication = body.replication
            case _:
                self._remove(number, body)

    def _set_versioning(self, body: records.SetBucketVersioning) -> None:
        self.names._bucket(body.volume, body.bucket)
        if body.versioning is BucketVersioning.UNVERSIONED:
            raise OperationRefusedError("INVALID_REQUEST", body.bucket)
        self._current[body.volume, body.bucket].versioning = body.versioning

    def _delete_version(self, number: int, body: records.DeleteKeyVersion) -> None:
        """Delete one version of a file: the current one gives its place to the newest of the others."""
        bucket = self.names._bucket(body.volume, body.bucket)
        incarnation, parts = self._current[body.volume, body.bucket], _parts(bucket, body.key)
        live = bucket.find(parts) if body.key else None
        named = self.put_numbers.get(body.version, -1)
        others = incarnation.noncurrent.get(self.thing_of(live), []) if isinstance(live, Version) else []
        is_there = self.version_births.get(named) == body.version
        if not isinstance(live, Version) or not is_there or named not in (live.number, *others):
            raise OperationRefusedError("KEY_NOT_FOUND", f"version {body.version}")
        if named != live.number:
            others.remove(named)
        elif others:
            newest = max(others, key=self.version_births.__getitem__)
            self.quotas.gives_its_name(bucket, live.number)
            others.remove(newest)
            self._directory(bucket, parts[:-1]).children[parts[-1]] = self.names.versions[newest]
            self.generations[newest] = self.txn + 1
        else:
            self._remove(number, records.DeleteKey(body.volume, body.bucket, body.key))

    def _delete_volume(self, volume: str) -> None:
        if volume not in self.names._volumes.volumes:
            raise OperationRefusedError("VOLUME_NOT_FOUND", volume)
        if self.names._names_in(volume):
            raise OperationRefusedError("VOLUME_NOT_EMPTY", volume)
        del self.names._volumes.volumes[volume]
        self.rights.volume_gone(volume)

    def _delete_bucket(self, volume: str, name: str) -> None:
        named = self.rights.name_of(volume, name)
        if self.names._links.pop((volume, name), None) is not None:
            self.rights.bucket_gone(named)
            return
        bucket = self.names._bucket(volume, name)
        if bucket.root.children:
            raise OperationRefusedError("BUCKET_NOT_EMPTY", name)
        if self._current[volume, name].snapshots:
            raise OperationRefusedError("CONTAINS_SNAPSHOT", name)
        del self.names._buckets[volume, name]
        self._current.pop((volume, name)).is_deleted = True
        self.rights.bucket_gone(named)

    def _put_if(self, number: int, put: records.PutKeyIf) -> None:
        bucket = self.names._bucket(put.volume, put.bucket)
        self.check_generation(check_place(bucket, bucket.parts(put.key)), put.expected_generation)
        plain = records.PutKey(put.volume, put.bucket, put.key, put.size_bytes, put.tag, put.block_size_bytes)
        self._put(number, plain)

    def check_generation(self, live: Version | None, expected: Txn) -> None:
        """Refuse a command that was meant for another state of a key: -1 for none, 0 for any."""
        if expected == -1 and live is not None:
            raise OperationRefusedError("KEY_ALREADY_EXISTS", live.key)
        if expected > 0 and (live is None or self.generations[live.number] != expected):
            raise OperationRefusedError("KEY_NOT_FOUND", f"generation {expected}")

    def _put_many(self, number: int, body: records.PutKeys) -> None:
        """Put one after the other, each for itself and at a txn of its own."""
        self.names._bucket(body.volume, body.bucket)
        count = len(body.keys)
        if not 1 <= count <= 1_000 or len(body.sizes_bytes) != count or len(body.tags) not in (0, count):
            raise OperationRefusedError("INVALID_REQUEST", f"{count} keys")
        found = self._bulk_puts[self.txn + count] = BulkPut(body)
        for self.present_place, key in enumerate(body.keys):
            if self.present_place:
                self.quotas.after_command(is_turned_back=False)
                self.txn += 1
            size_bytes, tag = body.sizes_bytes[self.present_place], (body.tags or ("",) * count)[self.present_place]
            put = records.PutKey(body.volume, body.bucket, key, size_bytes, tag, body.block_size_bytes)
            try:
                self._put((self.present_place << 40) + number, put)
            except OperationRefusedError as refusal:
                found.refused[self.present_place] = refusal.code

    def _put(self, number: int, put: records.PutKey) -> None:
        bucket = self.names._bucket(put.volume, put.bucket)
        path = _parts(bucket, put.key)
        before = check_place(bucket, path)
        found = self._current[put.volume, put.bucket]
        room_bytes = whole_blocks(found.replication, put.size_bytes, put.block_size_bytes)
        self.quotas.check_room(found, room_bytes, 1 + bucket.missing_directories(path[:-1]))
        self.names.apply(number, _operation(put))
        made = self.number_directories_of(bucket, path[:-1])
        parent, incarnation = self._directory(bucket, path[:-1]), self._current[put.volume, put.bucket]
        version, pieces = self.names.versions[number], list[Piece]()
        piece = self.pieces.allocate(
            self.txn + 1, put.size_bytes, put.block_size_bytes, number, incarnation.replication
        )
        if piece is not None:
            piece.size_bytes, piece.birth = put.size_bytes, self.txn + 1
            incarnation.pieces.append(number)
            pieces.append(piece)
        if isinstance(before, Version):
            parent.children[path[-1]] = before  # what becomes live now finds it there
        else:
            del parent.children[path[-1]]
            self.objects[self.txn + 1, made + 1] = ("file", number)
        self.becomes_live(version, incarnation, parent, path[-1], pieces)

    def becomes_live(
        self,
        version: Version,
        incarnation: Incarnation,
        parent: _Directory,
        name: str,
        pieces: list[Piece],
        *,
        grows: bool = False,
    ) -> None:
        """The present command has made a version of these blocks: the live one at its place, if any, dies, or stays as
        a noncurrent one. One without bytes that ``grows`` to this one does not stay."""
        before, number, txn = parent.children.get(name), version.number, self.txn + 1
        is_versioned = incarnation.versioning is BucketVersioning.ENABLED
        if isinstance(before, Version) and grows:
            is_versioned = before.number in incarnation.versioned
        elif isinstance(before, Version) and incarnation.keeps(before.number):
            incarnation.noncurrent.setdefault(self.thing_of(before), []).append(before.number)
        if is_versioned:
            incarnation.versioned.add(number)
        self._objects[number] = self._objects[before.number] if isinstance(before, Version) else number
        self.names._versions[number] = parent.children[name] = version
        incarnation.versions.append(number)
        self.put_numbers[txn] = number
        self.version_births[number] = self.generations[number] = txn
        self.contents[number] = tuple(piece.number for piece in pieces)
        self.quotas.belonged.update(self.contents[number])
        self._made_things[txn] = ("file", self._objects[number])
        if before is None:
            self.rights.key_made(incarnation, parent, version.key, self.thing_of(version))

    def grows(self, version: Version, parent: _Directory, name: str, pieces: list[Piece]) -> None:
        """The present command has added blocks to a version, or bytes to its last block."""
        number = version.number
        self.names._versions[number] = parent.children[name] = version
        self.generations[number] = self.txn + 1
        self.contents[number] += tuple(piece.number for piece in pieces)
        self.quotas.belonged.update(self.contents[number])
        self._made_things[self.txn + 1] = ("file", self._objects[number])

    def joins(self, pieces: list[Piece]) -> None:
        """The present command answers with these blocks."""
        self._joined[self.txn + 1] = tuple(piece.number for piece in pieces)

    def directory_id(self, incarnation: Incarnation, directory: _Directory) -> int:
        """The id of a directory, by the txn that has made it."""
        if directory is incarnation.bucket.root:
            return incarnation.made_id
        txn, index = self._made_directories[self.thing_of(directory)]
        return txn << 8 | index

    def _remove(self, number: int, body: Any) -> None:
        """Delete or make something; a directory that goes is kept aside with all that is below."""
        bucket = self.names._bucket(body.volume, body.bucket)
        path = body.key if isinstance(body, records.DeleteKey) else body.directory
        before = bucket.find(_parts(bucket, path)) if path else None
        is_kept = isinstance(body, records.DeleteDirectory) and not body.is_recursive
        if is_kept and bucket.has_directories and isinstance(before, _Directory) and before.children:
            raise OperationRefusedError("DIRECTORY_NOT_EMPTY", path)
        if isinstance(body, records.MakeDirectory) and bucket.has_directories:
            bucket.require_directories(_parts(bucket, path), code="FILE_ALREADY_EXISTS")
            missing = bucket.missing_directories(_parts(bucket, path))
            self.quotas.check_room(self._current[body.volume, body.bucket], 0, missing)
        self.names.apply(number, _operation(body))
        if isinstance(body, records.MakeDirectory):
            self.number_directories_of(bucket, _parts(bucket, path))
        if before is not None and not isinstance(body, records.MakeDirectory):
            key = before.number if isinstance(before, Version) else self.thing_of(before)
            *above, name = _parts(bucket, path)
            self._dead_places[key] = (self._directory(bucket, above), name)
            self.rights.lists.drop(self.thing_of(before))
            if isinstance(before, Version):
                self._current[body.volume, body.bucket].noncurrent.pop(self.thing_of(before), None)
        if isinstance(before, _Directory) and not isinstance(body, records.MakeDirectory):
            self._current[body.volume, body.bucket].deleted_trees.append((self.txn + 1, before))

    def number_directories_of(self, bucket: _Bucket, path: list[str]) -> int:
        """Remember which objects the present command has made of the missing directories of a path, from the top on;
        says how many.
        """
        if not bucket.has_directories:
            return 0
        bucket.make_directories(path, code="NOT_A_FILE")
        above = [self.thing_of(self._directory(bucket, path[:depth])) for depth in range(1, len(path) + 1)]
        new = [thing for thing in above if thing not in self._made_directories]
        self._made_directories |= {thing: (self.txn + 1, index) for index, thing in enumerate(new, 1)}
        self.objects |= {(self.txn + 1, index): thing for index, thing in enumerate(new, 1)}
        incarnation = next(one for one in self._current.values() if one.bucket is bucket)
        for depth in range(1, len(path) + 1):
            if above[depth - 1] in new:
                self.rights.directory_made(incarnation, self._directory(bucket, path[: depth - 1]), above[depth - 1])
        made = ((self.txn + 1 << 8 | index, self._directories[thing[1]]) for index, thing in enumerate(new, 1))
        self.quotas.directories_made(bucket, made)
        return len(new)

    def _remove_many(self, number: int, body: records.DeleteKeys) -> None:
        """Delete one after the other, each for itself."""
        self.names._bucket(body.volume, body.bucket)
        if not 1 <= len(body.keys) <= 1_000:
            raise OperationRefusedError("INVALID_REQUEST", f"{len(body.keys)} keys")
        for key in body.keys:
            with suppress(OperationRefusedError):
                self._remove(number, records.DeleteKey(body.volume, body.bucket, key))

    def _rename(self, number: int, body: records.RenameKey | records.RenameDirectory) -> None:
        bucket = self.names._bucket(body.volume, body.bucket)
        before = bucket.find(_parts(bucket, body.source)) if body.source else None
        self.names.apply(number, _operation(body))
        self.txn += 1
        if before is None:
            return
        if isinstance(before, Version):
            self.generations[before.number] = self.txn
        self._note_rename(self._current[body.volume, body.bucket], self.thing_of(before))

    def _note_rename(self, incarnation: Incarnation, thing: Thing) -> None:
        """The present command has given something another place."""
        newest = next(reversed(incarnation.snapshots.values()), None)
        txns = incarnation.rename_txns.setdefault(thing, [0])
        if newest is not None and thing in newest.things and txns[-1] <= newest.txn:
            incarnation.renames.append((self.txn, thing))
        txns.append(self.txn)

    def thing_of(self, entry: Version | _Directory) -> Thing:
        """What it is, whatever its name."""
        if isinstance(entry, Version):
            return ("file", self._objects[entry.number])
        self._directories[id(entry)] = entry  # kept, so that its id stays its own
        return ("directory", id(entry))

    def _capture(self, capture: records.CaptureSnapshot, log_time_ms: int) -> None:
        incarnation = self._current.get((capture.volume, capture.bucket))
        is_over = capture.snapshot_id in self.snapshot_places or capture.snapshot_id in self._uncaptured
        is_too_late = capture.requested_ms and abs(log_time_ms - capture.requested_ms) > DAY_MS
        if incarnation is None or incarnation.rollback or is_over or is_too_late:
            return
        self.snapshot_places[capture.snapshot_id] = (incarnation, self.txn)
        view = incarnation.bucket.view()
        things = frozenset(self.thing_of(entry) for entry in _entries(incarnation.bucket.root))
        directories: dict[str, _Directory] = {}
        for path in view.directories:
            entry = incarnation.bucket.find(path.split("/"))
            assert isinstance(entry, _Directory)
            directories[path] = entry
        incarnation.ever_captured += 1
        numbers, versions = frozenset(self.active_numbers(incarnation)), self.active_versions(incarnation)
        noncurrent = {
            thing: tuple(found) for thing, found in incarnation.noncurrent.items() if thing in things and found
        }
        captured = CapturedView(
            capture.snapshot_id,
            self.txn,
            incarnation.ever_captured,
            view.keys,
            directories,
            things,
            {number: self.contents[number] for number in versions},
            {version.number: self.generations[version.number] for version in view.keys.values()},
            noncurrent,
            numbers,
            self.pieces.bytes_of(numbers),
            self.pieces.replicated_bytes_of(numbers),
            self.rights.owner_of(incarnation),
        )
        incarnation.snapshots[capture.snapshot_id] = self.captured[capture.snapshot_id] = captured

    # ---- what comes back

    def _directory(self, bucket: _Bucket, parts: list[str]) -> _Directory:
        found = bucket.find(parts)
        assert isinstance(found, _Directory)
        return found

    def _undelete(self, number: int, command: MetadataCommand, body: records.Undelete) -> None:
        """Whether a row is still there depends on when the services came: the plane says it, and must be right."""
        answers = self.answers_to(command.client_id, command.number)
        done = next((answer for answer in answers if not answer.error and answer.txn == self.txn + 1), None)
        if done is None or done.committed is None:
            errors = sorted({answer.error for answer in answers} - {"", "OLD_REQUEST"})
            if not errors:
                raise AnswerError(f"shard {self.shard}: no answer to {command}")
            sent_as = command.client_id, command.number
            answered_before = self._refused_with.get(sent_as, frozenset())
            self._refused_with[sent_as] = frozenset(errors)
            for error in errors:
                # Else another one of the same name was refused so: a later one, or one that was forgotten since.
                if not self._is_sent_again and error not in answered_before:
                    self._check_refusal(body, error)
                self.expected.setdefault((command.client_id, command.number), []).append((0, error))
            raise OperationRefusedError(errors[0], body.path)
        self._come_back(number, body, done.committed.object_id)

    def _come_back(self, number: int, body: records.Undelete, answered_id: int) -> None:
        """What was deleted is back, as the plane says."""
        body = self._led(body)
        incarnation = self._current.get((body.volume, body.bucket))
        if incarnation is None or incarnation.rollback is not None:
            raise AnswerError(f"shard {self.shard}: {body} into a bucket that is not there, or fenced")
        bucket = incarnation.bucket
        *above, name = _parts(bucket, body.path)
        there = bucket.find([*above, name])
        if isinstance(there, Version) and self._is_version_of(body, there):
            self._return_to_its_key(incarnation, bucket, body, answered_id)
            return
        if there is not None:
            raise AnswerError(f"shard {self.shard}: {body} over something that is there")
        parent = bucket.make_directories(above, code="NOT_A_FILE")
        made = self.number_directories_of(bucket, above)
        is_itself = answered_id == body.object_id
        if is_itself and any(view.txn >= body.death for view in incarnation.snapshots.values()):
            raise AnswerError(f"shard {self.shard}: {body} with a snapshot in between")
        self.txn += 1
        self.undeleted += 1
        self._returns.add((body.object_id, body.death))
        if body.kind is records.DeletedKind.KEY:
            entry: Version | _Directory = self._returning_version(
                number, incarnation, body, None if is_itself else made
            )
        else:
            entry = self._returning_tree(incarnation, body)
        before = self._place_at_death(incarnation, entry)
        if is_itself and (before is None or before[0] is not parent or before[1] != name):
            self._note_rename(incarnation, self.thing_of(entry))
        parent.children[name] = entry
        if isinstance(entry, Version):
            self.rights.key_made(incarnation, parent, body.path, self.thing_of(entry))
        else:
            self.rights.directory_made(incarnation, parent, self.thing_of(entry))

    def _is_version_of(self, body: records.Undelete, live: Version) -> bool:
        """Whether what may come back is another version of a live file. Its name has the index 0."""
        if body.kind is not records.DeletedKind.KEY or body.object_id & 255:
            return False
        found = self.put_numbers.get(body.birth, -1)
        return found in self._objects and self._objects[found] == self._objects[live.number]

    def _return_to_its_key(
        self, incarnation: Incarnation, bucket: _Bucket, body: records.Undelete, answered_id: int
    ) -> None:
        """A version comes back as one of its file: as the current one if it is the newest."""
        *above, name = _parts(bucket, body.path)
        parent, live = self._directory(bucket, above), bucket.find([*above, name])
        found = self.put_numbers[body.birth]
        is_live = found in self.active_versions(incarnation)
        if answered_id != body.object_id or is_live or any(v.txn >= body.death for v in incarnation.snapshots.values()):
            raise AnswerError(f"shard {self.shard}: {body} brings back a version of its key that may not come back so")
        assert isinstance(live, Version)
        self.txn += 1
        self.undeleted += 1
        self._returns.add((body.object_id, body.death))
        self._joined[self.txn] = self.contents[found][:1]
        others = incarnation.noncurrent.setdefault(self.thing_of(live), [])
        if self.version_births[found] < self.version_births[live.number]:
            others.append(found)
            return
        others.append(live.number)
        parent.children[name] = self.names.versions[found]
        self.generations[found] = self.txn

    def _returning_version(
        self, number: int, incarnation: Incarnation, body: records.Undelete, made: int | None
    ) -> Version:
        """``made`` says how many directories were made for a new object; None for one that is itself again."""
        is_itself = made is None
        found = self.put_numbers.get(body.birth, -1)
        active = self.active_versions(incarnation)
        if found not in incarnation.versions or found in active:
            raise AnswerError(f"shard {self.shard}: {body} brings back what is not dead")
        if is_itself and self._objects[found] in {self._objects[other] for other in active}:
            raise AnswerError(f"shard {self.shard}: {body} makes an object live twice")
        if made is not None:
            if any(self.holders(incarnation, piece) for piece in self.contents[found]):
                raise AnswerError(f"shard {self.shard}: {body} shares blocks with a snapshot's version")
            noncurrent = incarnation.noncurrent.get(("file", self._objects[found]), [])
            if found in noncurrent:  # of a key that died with its directory
                noncurrent.remove(found)
            self._objects[found] = number
            self.objects[self.txn, made + 1] = ("file", number)
            self.version_births[found] = self.txn
            for piece in self.contents[found]:
                self.pieces.by_number[piece].birth = self.txn
        if is_itself:
            if not body.object_id & 255:
                raise AnswerError(f"shard {self.shard}: {body} makes a key of a noncurrent version")
            incarnation.noncurrent.pop(("file", self._objects[found]), None)  # they come back one by one
        self.put_numbers[self.txn] = found
        self.generations[found] = self.txn
        self._joined[self.txn] = self.contents[found][:1]
        return self.names.versions[found]

    def _returning_tree(self, incarnation: Incarnation, body: records.Undelete) -> _Directory:
        found = [one for one in incarnation.deleted_trees if one[0] == body.death]
        if len(found) > 1:  # one command has deleted several, which were empty
            made = (body.birth, body.object_id & 255)
            found = [one for one in found if self._made_directories[self.thing_of(one[1])] == made]
        if len(found) != 1:
            raise AnswerError(f"shard {self.shard}: {body} brings back a tree that is not deleted")
        incarnation.deleted_trees = [one for one in incarnation.deleted_trees if one is not found[0]]
        return found[0][1]

    def _place_at_death(self, incarnation: Incarnation, entry: Version | _Directory) -> tuple[_Directory, str] | None:
        """Its directory and name when it died; what died with a tree, the newest it was in, is still where it was."""
        alone = self._dead_places.pop(entry.number if isinstance(entry, Version) else self.thing_of(entry), None)
        if alone is not None:
            return alone
        for _, tree in reversed(incarnation.deleted_trees):
            for directory in (tree, *(one for one in _entries(tree) if isinstance(one, _Directory))):
                for name, child in directory.children.items():
                    if child is entry:
                        return directory, name
        return None

    def _check_refusal(self, body: records.Undelete, error: str) -> None:
        """A refusal has a reason that can be seen here, too."""
        incarnation = self._current.get((body.volume, body.bucket))
        if incarnation is None or incarnation.rollback or body.death <= incarnation.rolled_back_txn:
            return  # what a rollback has brought back, and what has died again since, has another death
        if body.kind is not records.DeletedKind.KEY:
            self._check_refused_tree(incarnation, body, error)
            return
        found = self.put_numbers.get(body.birth, -1)
        is_there = found in incarnation.versions and found not in self.active_versions(incarnation)
        if error == "INVALID_REQUEST" and (object_txn(body.object_id), body.object_id & 255) in self.objects:
            raise AnswerError(f"shard {self.shard}: refused as if it named no key: {body}")
        if error == "TOO_LATE" and is_there:
            # Of a version of several pieces each is claimed by itself, under a name of its own.
            is_whole = len(self.contents[found]) <= 1
            named = {name if is_whole else name[2:] for name in self._claims}
            has_returned = (body.object_id, body.death) in self._returns or (
                not is_whole and any(death == body.death for _, death in self._returns)
            )
            is_named = ((body.object_id, body.birth, body.death) if is_whole else (body.death,)) in named
            if not is_named and not has_returned:
                raise AnswerError(f"shard {self.shard}: refused too early: {body}")
        live = incarnation.bucket.find(_parts(incarnation.bucket, body.path))
        if isinstance(live, Version) and self._is_version_of(body, live):
            if error == "SNAPSHOT_IN_BETWEEN" and all(v.txn < body.death for v in incarnation.snapshots.values()):
                raise AnswerError(f"shard {self.shard}: refused for a snapshot that is not there: {body}")
            return
        if error in ("HELD_BY_SNAPSHOT", "SNAPSHOT_IN_BETWEEN") and not self._is_shown(incarnation, found):
            raise AnswerError(f"shard {self.shard}: refused for a snapshot that does not hold it: {body}")

    def _check_refused_tree(self, incarnation: Incarnation, body: records.Undelete, error: str) -> None:
        """The same for a directory that was deleted by itself, and alone at its txn."""
        died = [tree for death, tree in incarnation.deleted_trees if death == body.death]
        if len(died) != 1 or self._made_directories.get(self.thing_of(died[0])) != (body.birth, body.object_id & 255):
            return
        name = (body.object_id, body.death)
        is_touched = name in self._returns or name in self._expansions
        if error == "TOO_LATE" and not is_touched and (body.object_id, body.birth, body.death) not in self._claims:
            raise AnswerError(f"shard {self.shard}: refused too early: {body}")
        if error == "DIRECTORY_EXPANDED" and not is_touched:
            raise AnswerError(f"shard {self.shard}: refused as expanded, and nobody has asked for that: {body}")
        if error == "SNAPSHOT_IN_BETWEEN" and all(view.txn < body.death for view in incarnation.snapshots.values()):
            raise AnswerError(f"shard {self.shard}: refused for a snapshot that is not there: {body}")

    # ---- rollbacks

    def is_fenced(self, volume: str, bucket: str) -> bool:
        """Whether a bucket is being rolled back."""
        incarnation = self._current.get((volume, bucket))
        return incarnation is not None and incarnation.rollback is not None

    def _is_rolled_back_to(self, snapshot_id: str) -> bool:
        targets = (one.rollback[1].snapshot_id for one in self._current.values() if one.rollback is not None)
        return snapshot_id in targets

    @property
    def is_rolling_back(self) -> bool:
        """Whether any bucket is being rolled back: what it lists meanwhile nobody can say."""
        return any(incarnation.rollback for incarnation in self._current.values())

    def _roll_back(self, page: records.RollbackPage) -> None:
        if page.snapshot_id not in self.snapshot_places:
            return
        incarnation, _ = self.snapshot_places[page.snapshot_id]
        newest = next(reversed(incarnation.snapshots.values()), None)
        is_newest = newest is not None and newest.snapshot_id == page.snapshot_id
        is_new = page.page == 1 and page.rollback_id not in self.rollbacks
        if is_new and newest is not None and is_newest and not incarnation.is_deleted and not incarnation.rollback:
            incarnation.rollback = (page.rollback_id, newest)
            incarnation.rollback_pages.clear()
            self.rollbacks.add(page.rollback_id)
        if incarnation.rollback is None or incarnation.rollback[0] != page.rollback_id:
            return
        incarnation.rollback_pages.add(self.txn)
        if self.last_page_of(page.rollback_id) == page.page:
            self._become(incarnation, incarnation.rollback[1])
            incarnation.rollback = None
            incarnation.rolled_back_txn = self.txn

    def _become(self, incarnation: Incarnation, view: CapturedView) -> None:
        """The bucket is what it was: the same files and directories, at the same places, renamed as often as then."""
        self.rights.lists.forget(view.things - self.things_in(incarnation))
        root = incarnation.bucket.root  # that it stays the same, open keys in it can tell
        root.children = {}
        for directory in view.directories.values():
            directory.children = {}
        entries: dict[str, Version | _Directory] = {**view.directories, **view.keys}
        for path, entry in entries.items():
            *above, name = _parts(incarnation.bucket, path)
            parent = view.directories["/".join(above)] if above else root
            parent.children[name] = entry
            if isinstance(entry, Version):
                self.names._versions[entry.number] = entry
                self.generations[entry.number] = view.generations[entry.number]
        self.contents |= view.contents
        incarnation.noncurrent = {thing: list(found) for thing, found in view.noncurrent.items()}
        incarnation.deleted_trees = [(txn, tree) for txn, tree in incarnation.deleted_trees if txn <= view.txn]
        incarnation.renames = [(txn, thing) for txn, thing in incarnation.renames if txn <= view.txn]
        for thing in view.things & incarnation.rename_txns.keys():
            txns = incarnation.rename_txns[thing]
            incarnation.rename_txns[thing] = [txn for txn in txns if txn <= view.txn]

    # ---- what the plane answers

    def check_reply(self, reply: MetadataReply) -> None:
        """Hold an answer against the model's, and learn from it."""
        self.answered.add((reply.client_id, reply.number))
        if reply.error == "OLD_REQUEST":
            return
        expected = self.expected.get((reply.client_id, reply.number))
        if expected is None:
            raise AnswerError(f"shard {self.shard}: answered before it was applied: {reply}")
        if (reply.txn, reply.error) not in expected:
            raise AnswerError(f"shard {self.shard}: expected txn and error {expected}, answered {reply}")
        if reply.committed is None:
            return
        if reply.committed.keys_put is not None:
            self._check_bulk_put(reply, reply.committed.keys_put)
            return
        made = self.made_buckets.get(reply.txn)
        if made is not None:
            made.bucket_id = reply.committed.object_id
        thing = self._made_things.get(reply.txn)
        if thing is not None:
            object_id = reply.committed.object_id
            known = self.objects.setdefault((object_txn(object_id), object_id & 255), thing)
            if known != thing:
                raise AnswerError(f"shard {self.shard}: {reply} is about {known}, not {thing}")
        self._check_blocks(reply, reply.committed)

    def _check_bulk_put(self, reply: MetadataReply, done: records.KeysPut) -> None:
        """Learn the blocks of many versions; each key that was refused must be told, and no other."""
        bulk = self._bulk_puts[reply.txn]
        keys, block_size_bytes = bulk.body.keys, bulk.body.block_size_bytes
        told = dict(zip(done.refused, done.errors, strict=True))
        if told != bulk.refused or done.put != len(keys) - len(told):
            raise AnswerError(f"shard {self.shard}: expected {bulk.refused} to be refused, answered {reply}")
        for place, size_bytes in enumerate(bulk.body.sizes_bytes):
            if size_bytes and place not in told:
                count, txn = -(-size_bytes // block_size_bytes), reply.txn - len(keys) + 1 + place
                first_local_id = done.first_local_id + (place << 16)
                run = BlockRun(done.container_id, first_local_id, count, block_size_bytes, size_bytes)
                if wrong := self.pieces.learn(txn, run):
                    raise SafetyError(f"shard {self.shard}: {wrong}")

    def _check_blocks(self, reply: MetadataReply, committed: records.Committed) -> None:
        """Learn blocks that were allocated; others must be those that are known."""
        runs = (*committed.runs, *((committed.blocks,) if committed.blocks else ()))
        joined = self._joined.get(reply.txn)
        if joined is not None:
            pieces = [self.pieces.by_number[number] for number in joined]
            named = [(run.first_local_id, run.block_count) for run in runs]  # the last one may have grown since
            known = [(run.first_local_id, run.block_count) for piece in pieces if (run := piece.run) is not None]
            if known and known != named:
                raise SafetyError(f"shard {self.shard}: {reply} should name {[piece.run for piece in pieces]}")
            return
        if (reply.client_id, reply.number) in self._recoveries:
            return  # it names again what others have opened
        for run in runs:
            wrong = self.pieces.learn(reply.txn, run)
            if wrong:
                raise SafetyError(f"shard {self.shard}: {wrong}")

    # ---- asking

    @property
    def held(self) -> frozenset[int]:
        """Numbers of all pieces that the active namespace or a live snapshot shows, or that present parts have."""
        if self._held is None:
            found = self.writes.in_parts
            for incarnation in self.incarnations:
                if not incarnation.is_deleted and incarnation.rollback is None:
                    found |= self.active_numbers(incarnation)
                for view in incarnation.snapshots.values():
                    found |= view.numbers
            self._held = frozenset(found)
        return self._held

    def number_of(self, run: BlockRun, by: str) -> int:
        """The piece that blocks are."""
        piece = self.pieces.find(run)
        if piece is None:
            raise SafetyError(f"shard {self.shard}: {by} names blocks that no answer has named: {run}")
        if piece.run != run:
            raise SafetyError(f"shard {self.shard}: {by} names {run}, but these blocks are {piece.run}")
        return piece.number

    def check_given_away(self, run: BlockRun, by: str) -> None:
        """Nobody may refer to these blocks now."""
        number = self.number_of(run, by)
        if number in self.held | self.writes.pending:
            self._gives_away(number, by)

    def check_claimed(self, txn: Txn, run: BlockRun, death: Txn, by: str) -> None:
        """Nobody may have referred to these blocks when their claim was applied."""
        number = self.number_of(run, by)
        moment = self.moments.get(txn)
        if moment is None:
            raise SafetyError(f"shard {self.shard}: {by} was answered at txn {txn}, where no claim is")
        self.claimed.add(number)
        if moment.is_held(number, death):
            self._gives_away(number, by)

    def check_removed(self, txn: Txn, name: RowName) -> None:
        """No snapshot may have held a directory or rename entry when its row was removed."""
        moment = self.moments.get(txn)
        thing = self.objects.get((object_txn(name.object_id), name.object_id & 255))
        if moment is None or thing is None:
            raise SafetyError(f"shard {self.shard}: removed at txn {txn}, and nobody knows of it: {name}")
        if moment.holds(thing, name.death):
            raise SafetyError(f"shard {self.shard}: the row of what a snapshot holds is removed: {name}")
        if name.kind is records.DeletedKind.DIRECTORY and thing in moment.live_things:
            raise SafetyError(f"shard {self.shard}: the row of a directory is removed that is live: {name}")

    def check_claimed_stay(self) -> None:
        """What was claimed is never held again."""
        for number in self.claimed & self.held:
            raise SafetyError(f"shard {self.shard}: claimed, and held again: {self.named(number)}")

    def _gives_away(self, number: int, by: str) -> None:
        raise SafetyError(f"shard {self.shard}: {by} gives away the blocks of a held version: {self.named(number)}")

    def named(self, number: int) -> str:
        """What a piece is, for a message."""
        versions = [self.names.versions[one] for one, pieces in self.contents.items() if number in pieces]
        return f"{self.pieces.by_number[number].run}, of {versions}"

    def active_versions(self, incarnation: Incarnation) -> set[int]:
        """Numbers of the versions that are live in a bucket, current and noncurrent ones."""
        live = incarnation.bucket.view().keys.values()
        kept = (number for version in live for number in incarnation.noncurrent.get(self.thing_of(version), ()))
        return {version.number for version in live}.union(kept)

    def active_numbers(self, incarnation: Incarnation) -> set[int]:
        """Numbers of the pieces that are live in a bucket."""
        return {piece for number in self.active_versions(incarnation) for piece in self.contents[number]}

    def found(self, volume: str, bucket: str) -> Incarnation:
        """The bucket that a name leads to."""
        return self._current[self.names._lead_to(volume, bucket)]

    @property
    def links(self) -> set[tuple[str, str]]:
        """Volume and name of each link."""
        return set(self.names._links)

    def things_in(self, incarnation: Incarnation) -> set[Thing]:
        """All files and directories that a bucket lists."""
        return {self.thing_of(entry) for entry in _entries(incarnation.bucket.root)}

    def live_buckets(self) -> list[Incarnation]:
        """Buckets that are there."""
        return list(self._current.values())

    def current(self, volume: str, bucket: str) -> Incarnation | None:
        """The bucket that has a name now."""
        return self._current.get((volume, bucket))

    def holders(self, incarnation: Incarnation, number: int) -> list[CapturedView]:
        """Live snapshots that show a piece."""
        return [view for view in incarnation.snapshots.values() if number in view.numbers]

    def _is_shown(self, incarnation: Incarnation, number: int) -> bool:
        """Whether a live snapshot lists a version."""
        return any(number in view.contents for view in incarnation.snapshots.values())

    def dead_numbers(self, incarnation: Incarnation) -> list[int]:
        """Pieces that have left the active namespace, or never were in it, and are in no present part."""
        active = set() if incarnation.is_deleted else self.active_numbers(incarnation)
        active |= self.writes.in_parts_of(incarnation)
        return [number for number in incarnation.pieces if number not in active]

    @property
    def seen_bytes(self) -> int:
        """All that anybody could ever see, or that has died unseen."""
        return sum(self.pieces.bytes_of(set(one.pieces)) for one in self.incarnations)

    @property
    def seen_redundancy(self) -> int:
        """What these blocks took on disks beyond one copy."""
        return sum(self.pieces.redundancy_of(set(one.pieces)) for one in self.incarnations)

    def exclusive_bytes(self, incarnation: Incarnation, view: CapturedView) -> int:
        """Bytes that one snapshot alone lists: no other one does, and not the active namespace."""
        return self.pieces.bytes_of(self.exclusive_numbers(incarnation, view))

    def exclusive_numbers(self, incarnation: Incarnation, view: CapturedView) -> frozenset[int]:
        """Numbers of the pieces of these bytes."""
        others = set() if incarnation.is_deleted else self.active_numbers(incarnation)
        for other in incarnation.snapshots.values():
            if other is not view:
                others |= other.numbers
        return view.numbers - others

    def left_directories(self, incarnation: Incarnation) -> list[list[CapturedView]]:
        """The holders of each deleted directory whose row must still be there: held, or above one that is.

        Above are also directories that died in the same command, one after the other (DeleteKeys).
        """
        left: list[list[CapturedView]] = []
        died = {(txn, self.thing_of(tree)) for txn, tree in incarnation.deleted_trees}
        beneath: dict[tuple[int, Thing], list[_Directory]] = {}
        for txn, tree in incarnation.deleted_trees:
            beneath.setdefault((txn, self.thing_of(self._dead_places[self.thing_of(tree)][0])), []).append(tree)

        def visit(txn: int, directory: _Directory) -> bool:
            thing = self.thing_of(directory)
            is_above = False
            for child in (*directory.children.values(), *beneath.get((txn, thing), ())):
                if isinstance(child, _Directory) and visit(txn, child):
                    is_above = True
            found = [view for view in incarnation.snapshots.values() if thing in view.things]
            if found or is_above:
                left.append(found)
            return bool(found or is_above)

        for (txn, above), trees in beneath.items():
            for tree in trees if (txn, above) not in died else ():
                visit(txn, tree)
        return left

    def left_renames(self, incarnation: Incarnation) -> list[list[CapturedView]]:
        """The holders of each noted rename that is still held: live snapshots before it that list the object."""
        left = []
        for txn, thing in incarnation.renames:
            found = [view for view in incarnation.snapshots.values() if view.txn < txn and thing in view.things]
            if found:
                left.append(found)
        return left


def _first_object_of(txn: Txn) -> int:
    return txn << 8 | 1


def _parts(bucket: _Bucket, path: str) -> list[str]:
    return path.split("/") if bucket.has_directories else [path]


def _entries(directory: _Directory) -> Iterator[Version | _Directory]:
    for entry in directory.children.values():
        yield entry
        if isinstance(entry, _Directory):
            yield from _entries(entry)


_OPERATIONS: Mapping[type[Any], tuple[type[Any], tuple[str, ...]]] = {
    records.CreateVolume: (workload.CreateVolume, ("volume",)),
    records.CreateBucket: (workload.CreateBucket, ("volume", "bucket", "layout")),
    records.CreateBucketLink: (workload.CreateLink, ("volume", "bucket", "source_volume", "source_bucket")),
    records.PutKey: (workload.PutKey, ("volume", "bucket", "key", "size_bytes", "tag")),
    records.DeleteKey: (workload.DeleteKey, ("volume", "bucket", "key")),
    records.RenameKey: (workload.RenameKey, ("volume", "bucket", "source", "target")),
    records.RenameDirectory: (workload.RenameDirectory, ("volume", "bucket", "source", "target")),
    records.MakeDirectory: (workload.MakeDirectory, ("volume", "bucket", "directory")),
    records.DeleteDirectory: (workload.DeleteDirectory, ("volume", "bucket", "directory")),
}


def _operation(body: Any) -> workload.Operation:
    """A command as the workload's operation."""
    operation, fields = _OPERATIONS[type(body)]
    made: workload.Operation = operation(*(getattr(body, field) for field in fields))
    return made
