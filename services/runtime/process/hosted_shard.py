"""One shard of a service within a process: opens its database, then runs its loop, or follows one who does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from starlette.routing import BaseRoute

from schemas.topics import CHANGELOGS, OWNERS, TOPICS
from services.domain.errors import (
    DeepcleanError,
    InvariantError,
    OutdatedError,
    RetryableError,
    StartAgainError,
    TopicMissingError,
)
from services.log.clock import Clock
from services.log.kept_topics import first_loss
from services.log.port import Log
from services.log.schema_topic import SchemaTopic
from services.runtime.copies.asked_copies import AskedCopies
from services.runtime.copies.kept_copies import AUDITS, COPIES, DAY_SECONDS, KeptCopies
from services.runtime.copies.restores import Restores
from services.runtime.http.reads import Stores
from services.runtime.loop.probe import Point, crash_probe
from services.runtime.loop.runner import RUNTIME_TABLES, UNIT_SECONDS, Runner
from services.runtime.loop.service import Service, read_topics
from services.runtime.process.metrics import RunnerMetrics, RuntimeMetrics
from services.runtime.process.settings import ServiceSettings
from services.runtime.process.standby import Followed, Standby
from services.storage.defragmentation import Ranges
from services.storage.rocks import RocksStore
from services.storage.rocks_backups import has_database
from services.storage.store import Store

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.1, 5.0
LAG_SECONDS = 1.0
STUCK_SECONDS = 120.0
ADDED_SECONDS = 60.0
"""Time in which a missing partition of an added shard is no error: each broker hears of it from the controller."""
TRIMMED_AT_ONCE = 5

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """How a shard starts: the log as its service reads it, and whether its output is deferred."""

    log: Log
    must_defer: Callable[[], bool] | None = None
    published_below: int = 0
    """What inputs below this offset cause is published already (``Runner``)."""


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """How a service's checkpoints are rewritten."""

    kept_rows: Callable[[Store, str], Ranges | None]
    """Returns the rows that a checkpoint has to keep; None to leave it as it is."""
    rows_per_second: int
    """0: none is rewritten."""
    rest_seconds: int
    """How long nothing must have been written before tables are merged; 0: they are not merged at rest."""


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """The parts that a service adds to its process."""

    make_service: Callable[[int], Service]
    """Returns the service of a shard."""
    routes: Callable[[Stores], Sequence[BaseRoute]] = lambda _: ()
    """The service's HTTP routes."""
    checkpointed: frozenset[str] = frozenset()
    """The families that its checkpoints keep."""
    prepare: Callable[[Store], object] = lambda _: None
    """Called once a database is open, before a message is applied."""
    start: Callable[[Log, int, Store], Start] = lambda log, *_: Start(log)
    """Returns how a shard with this database starts."""
    after_write: Callable[[Service, Store, bool], None] | None = None
    """Called after each unit of work is written, with whether this process is the owner, and no standby."""
    followed: Followed | None = None
    """How a standby knows what is published; None for a service that has no standbys."""
    why_unready: Callable[[Service], Sequence[str]] = lambda _: ()
    """Returns the reasons why the service is not ready; none if it is."""
    defragmentation: Defragmentation | None = None
    """None for a service whose checkpoints are never rewritten."""


class HostedShard:
    """Runs one shard in a thread, from ``start`` to ``stop``, any number of times; its state for other threads.

    In between it may follow the shard, from ``follow`` on. The database stays open, since reads may be in progress.
    """

    def __init__(
        self,
        shard: int,
        parts: ServiceParts,
        settings: ServiceSettings,
        log: Log,
        clock: Clock,
        metrics: RuntimeMetrics,
        on_ready: Callable[[HostedShard], None],
        on_failure: Callable[[], None],
        *,
        is_added: bool = False,
    ) -> None:
        """``is_added`` says that the shard has just been added to the plane: some brokers may not know it yet."""
        self._patient_until = time.monotonic() + ADDED_SECONDS if is_added else 0.0
        self.shard = shard
        self.service = parts.make_service(shard)
        self.url = ""
        """Where clients reach this process."""
        self.failure = ""
        self.store: RocksStore | None = None
        self._parts = parts
        self._settings = settings
        self._log = log
        self._clock = clock
        self._stop = threading.Event()
        self._on_failure = on_failure
        self._probe = crash_probe(settings.crash_at)
        self._on_ready = on_ready
        topics = [topic.name for topic in self.service.inputs]
        self._runtime_metrics = metrics
        self._new_metrics = partial(RunnerMetrics, metrics, shard, topics, clock)
        self._metrics = self._new_metrics()
        self._runner: Runner | None = None
        self._trouble = "it is starting"
        self._is_caught_up = False
        self._behind = 0
        self._stepped = self._lag_asked = time.monotonic()
        self._retry_seconds = FIRST_RETRY_SECONDS
        beside = self.directory.parent
        self.copies = AskedCopies(KeptCopies(beside / COPIES, settings.copy_seconds), settings.max_copies)
        self._all_copies = (self.copies.kept, KeptCopies(beside / AUDITS, DAY_SECONDS))
        self._backups = Restores(self.service, shard, beside, settings.backups)
        self._may_restore = False
        """Whether a backup may still be put in place in this start: no other thread has used the database yet."""
        self._is_prepared = False
        self._thread: threading.Thread | None = None
        self._is_owner = False

    @property
    def directory(self) -> Path:
        """Return the path of the database; its checkpoints are beside it."""
        return self._settings.directory / self.service.name / str(self.shard) / "db"

    @property
    def is_running(self) -> bool:
        """Return whether this process runs the shard, or has failed to; not whether it follows it."""
        return (self._is_owner and self._thread is not None) or bool(self.failure)

    def start(self) -> None:
        """Run the shard in a thread of its own; a standby ends before."""
        self.stop()
        self._is_owner = True
        self._trouble, self._is_caught_up, self._behind = "it is starting", False, 0
        self._stepped = self._lag_asked = time.monotonic()
        self._metrics = self._new_metrics()
        self._begin(self._run)

    def follow(self) -> None:
        """Follow the shard in a thread of its own, if the service has standbys."""
        self.stop()
        if self._settings.standby and self._parts.followed is not None:
            self._begin(partial(self._follow, self._parts.followed))

    def _begin(self, target: Callable[[], None]) -> None:
        self._stop.clear()
        self._may_restore, self._is_prepared = self.store is None, False
        self._thread = threading.Thread(target=target, name=f"shard-{self.shard}")
        self._thread.start()

    def ask_to_stop(self) -> None:
        """Let the thread end after the batch in progress; ``stop`` waits for that."""
        self._stop.set()

    def stop(self) -> None:
        """End the thread after the batch in progress, and wait for it."""
        self.ask_to_stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._is_owner = False
        self._metrics.forget()

    def close(self) -> None:
        """Close the database. Call it once no thread reads it."""
        if self.store is not None:
            self.store.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._try(self._step if self._runner else self._open_runner)
                if self.store is not None:
                    self.copies.make_next(self.store, self._may_be_copied)
        except (InvariantError, OSError) as error:
            self._fail(str(error))
        except Exception as error:
            logger.exception("unexpected error", shard=self.shard)
            self._fail(f"unexpected {type(error).__name__}: {error}; this is a defect: report it with the log above")
        finally:
            if self._runner is not None:
                self._runner.close()
                self._runner = None

    def _may_be_copied(self) -> bool:
        """Return whether a copy that is made now can be restored at any later time.

        If another process takes the shard over before a unit of work is in the changelog, that unit is given up. A copy
        that has it could only be built anew from the whole changelog, which may be trimmed up to this very copy.
        """
        if self.service.name not in CHANGELOGS:
            return True
        if (runner := self._runner) is None:
            return False
        self._try(runner.publish)
        return self._runner is runner and not runner.waiting()

    def _follow(self, followed: Followed) -> None:
        """Follow the shard until ``stop``. If that fails, it has no consequences for what this process runs."""
        try:
            while not self._stop.is_set():
                self._follow_once(followed)
        except (DeepcleanError, OSError) as error:
            logger.error("not followed any more", shard=self.shard, reason=str(error))
        except Exception:
            logger.exception("not followed any more: this is a defect: report it", shard=self.shard)

    def _follow_once(self, followed: Followed) -> None:
        """Follow the shard until ``stop``, or until the log does not answer."""
        try:
            with closing(self._open_standby(followed)) as standby:
                self._runner, self._may_restore = standby.runner, False
                while not self._stop.is_set():
                    standby.step(self._settings.poll_seconds)
                    self._runtime_metrics.followed(self.shard, sum(standby.runner.lag().values()))
                standby.leave_out_published()
        except RetryableError as error:
            logger.warning("tried again", shard=self.shard, reason=str(error), wait_seconds=LONGEST_RETRY_SECONDS)
            self._stop.wait(LONGEST_RETRY_SECONDS)
        finally:
            self._runner = None
            self._runtime_metrics.followed(self.shard, None)

    def _open_standby(self, followed: Followed) -> Standby:
        try:
            return self._new_standby(followed, self._open_store())
        except OutdatedError as error:
            if self.store is None:
                raise
            self._replace_outdated(self.store, error)
            return self._new_standby(followed, self._open_store())

    def _new_standby(self, followed: Followed, store: RocksStore) -> Standby:
        return Standby(
            *(followed, self.service, self.shard, store, self._log, self._clock),
            self._settings.max_batch_messages,
            after_write=self._after_write(store, is_owner=False),
        )

    def _after_write(self, store: RocksStore, *, is_owner: bool) -> Callable[[], None] | None:
        after_write = self._parts.after_write
        return None if after_write is None else lambda: after_write(self.service, store, is_owner)

    def _fail(self, sentence: str) -> None:
        self.failure = self._trouble = sentence
        self._stop.set()
        self._on_failure()

    def _open_store(self) -> RocksStore:
        """Return the database. Open it if it is not, after restoring a backup if the shard has none."""
        if self.store is None:
            if not has_database(self.directory.parent):
                self._restore()
            self.store = RocksStore(
                self.directory,
                (*self.service.tables, *RUNTIME_TABLES),
                self._parts.checkpointed,
                inside_checkpoint=lambda: self._probe(Point.INSIDE_CHECKPOINT),
            )
            for kept in self._all_copies:  # the shard serves no requests yet, so all copies are of an earlier start
                kept.remove_all()
            self._is_prepared = False
        if not self._is_prepared:
            self._parts.prepare(self.store)
            self._is_prepared = True
        return self.store

    def _replace_outdated(self, store: RocksStore, error: OutdatedError) -> None:
        """Put a backup in place of a database that was opened in this start, at most once."""
        if not self._may_restore:
            what = "" if self._settings.backups is None else "; started again, this process may begin with a backup"
            raise OutdatedError(f"{error}{what}") from error
        self.store = None
        store.close()
        logger.warning("this database is too old for the log", shard=self.shard, reason=str(error))
        if not self._restore():
            raise OutdatedError(f"{error}{self._backups.why_none}") from error
        self._may_restore = False

    def _restore(self) -> bool:
        """Restore the newest backup that fits the log; return whether there is one."""

        def before_file() -> None:
            self._stepped = time.monotonic()
            if self._stop.is_set():
                raise RetryableError("the restoring of a backup has ended, since this process ends or lost the shard")

        self._trouble = "it restores a backup"
        return self._backups.restore(self._log, before_file)

    def _open_runner(self) -> None:
        store = self._open_store()
        try:
            self._runner = self._new_runner(store)
        except OutdatedError as error:
            self._replace_outdated(store, error)
        else:
            self._may_restore = False
            self._on_ready(self)

    def _new_runner(self, store: RocksStore) -> Runner:
        self._require_kept_topics()
        SchemaTopic(self._log).require(topic for topic in TOPICS if self.service.name in topic.producers)
        start = self._parts.start(self._log, self.shard, store)
        runner = Runner(
            self.service,
            self.shard,
            store,
            start.log,
            self._clock,
            max_batch_messages=self._settings.max_batch_messages,
            unit_seconds=UNIT_SECONDS,
            probe=self._probe,
            metrics=self._metrics,
            after_write=self._after_write(store, is_owner=True),
            must_defer=start.must_defer,
            published_below=start.published_below,
            is_fencing=bool(self._settings.instance),
        )
        self._metrics.positions_known(runner.positions())
        if self._settings.instance:
            try:
                self._announce(runner)
            except Exception:  # a runner that is kept would work without anybody knowing where
                runner.close()
                raise
        return runner

    def _announce(self, runner: Runner) -> None:
        try:
            self._log.topic_ids([OWNERS])
        except TopicMissingError:  # it is made by the next "deepclean topics ensure"
            logger.warning("the owner's address is not published: there is no topic for it", topic=OWNERS)
        else:
            runner.announce(self.url)

    def _require_kept_topics(self) -> None:
        """Raise InvariantError if a topic that this service reads loses messages by itself."""
        if lost := first_loss(self._log, read_topics(self.service)):
            raise InvariantError(lost)

    def _try(self, attempt: Callable[[], None]) -> None:
        """Call ``attempt``; after a RetryableError wait, up to ``LONGEST_RETRY_SECONDS``, twice as long each time."""
        try:
            attempt()
        except (RetryableError, TopicMissingError) as error:
            is_missing = isinstance(error, TopicMissingError)
            if is_missing and time.monotonic() > self._patient_until:
                raise
            if (is_missing or isinstance(error, StartAgainError)) and self._runner is not None:
                self._runner.close()
                self._runner = None
            self._trouble = str(error)
            self._metrics.retried()
            logger.warning("tried again", shard=self.shard, reason=str(error), wait_seconds=self._retry_seconds)
            self._stop.wait(self._retry_seconds)
            self._retry_seconds = min(2 * self._retry_seconds, LONGEST_RETRY_SECONDS)
        else:
            self._trouble = ""
            self._retry_seconds = FIRST_RETRY_SECONDS
        self._stepped = time.monotonic()
        self._metrics.stepped()

    def _step(self) -> None:
        runner = self._runner
        if runner is None:
            return
        applied = runner.step(self._settings.poll_seconds)
        if time.monotonic() - self._lag_asked >= LAG_SECONDS or not self._is_caught_up:
            lag = runner.lag()
            self._metrics.lag_known(lag)
            self._metrics.changelog_known(runner.changelog_offset())
            self._behind = sum(lag.values())
            # A lag of 0 before the first fetch is no proof: a step without messages must confirm it.
            self._is_caught_up = self._is_caught_up or (not applied and not self._behind) or 0 < self._behind < applied
            self._lag_asked = time.monotonic()

    def clean_up(self) -> None:
        """Trim new checkpoints and measure the disk space. Do not call it in the runner's thread."""
        store = self.store
        if store is None or self._runner is None:
            return
        for kept in self._all_copies:
            kept.remove_old()
        store.trim_checkpoints(TRIMMED_AT_ONCE)
        self._metrics.disk_known(store.size_bytes(), *store.checkpoint_sizes())

    def defragment(self) -> None:
        """Merge what is at rest, then rewrite checkpoints until none is worth it or the process stops.

        In a thread of its own: it waits a lot.
        """
        store, how = self.store, self._parts.defragmentation
        if store is None or self._runner is None or how is None or not how.rows_per_second:
            return

        def pace(rows: int) -> bool:
            return not self._stop.wait(rows / how.rows_per_second)

        if how.rest_seconds:
            store.compact_at_rest(how.rest_seconds)
        while not self._stop.is_set():
            rewritten = store.defragment(partial(how.kept_rows, store), pace)
            if rewritten is None:
                return
            self._metrics.defragmented(rewritten[1])

    def why_unhealthy(self) -> list[str]:
        """Return the reasons why the process should be restarted; none if it is healthy."""
        if not self.is_running:
            return []
        silent_seconds = time.monotonic() - self._stepped
        if silent_seconds > STUCK_SECONDS:
            return [f"shard {self.shard} has not gone round its loop for {silent_seconds:.0f} seconds"]
        return []

    def why_unready(self) -> list[str]:
        """Return the reasons why this shard is not ready; none if it is, or if others run it."""
        if not self.is_running:
            return []
        reasons = [f"shard {self.shard}: {reason}" for reason in self._parts.why_unready(self.service)]
        if self._trouble:
            reasons.append(f"shard {self.shard}: {self._trouble}")
        elif not self._is_caught_up:
            reasons.append(f"shard {self.shard} is {self._behind} messages behind since its start")
        return reasons
