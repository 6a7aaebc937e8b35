"""Add shards to a running plane, in an order in which each step finds what it needs, and which a repeat can finish.

1. Add the partitions of all topics, those of outputs before those of inputs. No process reads or writes them yet.
2. Begin the log of each new shard: with the feature level of this program, and with what holds for all shards, such as
   the secrets that may sign, a pause of garbage collection and the replication of new buckets.
3. Publish the number of shards. Processes and clients now use the new shards.
4. Wait until each service and the Spark job serve them.

If it ends before step 3, nobody uses the new shards, and a repeat makes good what is missing. The first commands of a
log may then be there twice, which changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from schemas.answers import CollectionStatus
from schemas.credentials import KafkaCredentials, read_credentials
from schemas.feature_level import FEATURE_LEVEL
from schemas.records import (
    CollectionState,
    MetadataCommand,
    SecretRole,
    SecretRow,
    SetBreaker,
    SetCollection,
    SetGroups,
    SetSecret,
    SnapshotCommand,
)
from schemas.topics import SNAPSHOTS_COMMANDS
from services.client.kafka_plane import KafkaPlane
from services.client.wire.http_reads import http_client
from services.domain.errors import DeepcleanError
from services.domain.topic_rules import Replicas
from services.log.clock import SystemClock
from services.log.first_commands import first_commands
from services.log.signing import Signer, person_command, signed_command
from services.metadata.state.tables import SECRET_TABLE
from services.plane.broker.topic_care import chosen_replicas
from services.plane.broker.topics import (
    SINGLE_TOPICS,
    create_partitions,
    create_topics,
    publish_schemas,
    publish_shards,
    published_shards,
    send_commands,
)
from services.plane.machine.errors import StackError
from services.plane.machine.waiting import poll_until
from services.plane.stack.plane_file import PlaneFile, running_plane
from services.plane.stack.process_names import METADATA, SERVICES, STREAMING
from services.plane.stack.secrets import administrator, http_token, person
from services.plane.stack.stack import running_client
from services.plane.upkeep.found_owners import STEPPED
from services.plane.upkeep.metrics_page import samples
from services.plane.upkeep.shard_databases import database_directory
from services.plane.upkeep.table_places import place_in_directory, reading_tables
from services.storage.tables import TablesReader

SERVE_SECONDS = 120.0
ASK_SECONDS = 10.0
FOLLOWED = "deepclean_streaming_chain_version"
Say = Callable[[str], None]
Part = tuple[str, int]
"""A service and a shard."""


@dataclass(slots=True)
class Growth:
    """One addition of shards to the plane that runs on a home."""

    plane: PlaneFile
    client: KafkaPlane
    wanted: int
    """The number of shards afterwards."""
    say: Say
    credentials: KafkaCredentials | None
    before: int = field(init=False, default=0)
    """The published number of shards."""

    def run(self) -> None:
        """Add the shards, or finish what an earlier call has begun, and wait until they are served.

        Raises:
            StackError: the plane cannot have so many shards, or a step failed; a repeat goes on from there.
        """
        servers, replicas = self.plane.bootstrap_servers, self._replicas()
        create_topics(servers, SINGLE_TOPICS, 1, self.credentials, replicas)
        published = published_shards(servers, self.credentials)
        self.before = max(published, self.plane.shards)
        self._check()
        if not published:
            publish_shards(servers, self.before, self.credentials)
        if self.wanted > self.before:
            publish_schemas(servers, self.before, self.credentials, person(Path(self.plane.home)))
            create_partitions(servers, self.wanted, self.credentials, replicas, may_have_more=True)
            self.say(f"partitions: each topic has {self.wanted}")
            self._begin_logs()
            self.say(f"logs: those of shards {self.before} to {self.wanted - 1} have begun")
            publish_shards(servers, self.wanted, self.credentials)
            self.say(f"published: the plane has {self.wanted} shards")
        self._await_served()

    def _replicas(self) -> Replicas:
        return chosen_replicas(self.plane.bootstrap_servers, self.credentials, None, None)

    def _check(self) -> None:
        if self.wanted < self.before:
            raise StackError(
                f"The plane has {self.before} shards, and {self.wanted} are fewer: shards cannot be removed, since "
                f"their volumes stay in them."
            )
        if self.plane.has_fixed_shards:
            raise StackError(
                "The description of this plane says which shards run on this host, so nobody would run others: remove "
                "shards from [host] in deepclean.toml on each host, or give the hosts names (instance), and start "
                "them again."
            )
        levels = {shard: self.client.metadata(shard).state().feature_level for shard in range(self.before)}
        older = [shard for shard, level in levels.items() if level < FEATURE_LEVEL]
        if older:
            raise StackError(
                f"Shard {older[0]} has feature level {levels[older[0]]}, so a process may run a program that does not "
                f"follow added shards: finish the upgrade first (deepclean upgrade finish)."
            )

    def _begin_logs(self) -> None:
        home = Path(self.plane.home)
        signer, now_ms, servers = person(home), SystemClock().now_ms(), self.plane.bootstrap_servers
        rows = _secrets(home, signer) if signer else []
        shards = range(self.before, self.wanted)
        commands = [(shard, one) for shard in shards for one in self._first_commands(shard, rows, signer, now_ms)]
        send_commands(servers, commands, self.credentials)
        if signer:
            requests = [(shard, _request(shard, one, signer, now_ms)) for shard in shards for one in _set_secrets(rows)]
            send_commands(servers, requests, self.credentials, SNAPSHOTS_COMMANDS)

    def _first_commands(self, shard: int, rows: list[SecretRow], signer: Signer | None, now_ms: int) -> Iterator[bytes]:
        """Yield the commands with which the log of a new shard begins: what holds for shard 0 as a whole holds here."""
        example = self.client.metadata(0)
        yield from first_commands(shard, signer, now_ms, example.state().default_replication)
        whole = next(line for line in example.collection() if not line.bucket)
        groups = (SetGroups(row.name, row.groups) for row in rows if row.groups)
        for body in (*suspensions(whole), *_set_secrets(rows), *groups):
            yield person_command(MetadataCommand(shard, "", 0, body, wants_reply=False), signer, now_ms)

    def _await_served(self) -> None:
        """Wait until each process that is known here serves all shards, and ``plane.json`` names them."""
        parts = set(self._parts())
        waiting, deadline = set(parts), time.monotonic() + SERVE_SECONDS
        with http_client(http_token(Path(self.plane.home)), seconds=ASK_SECONDS) as http:

            def are_served() -> bool:
                waiting.difference_update(self._served(http, waiting))
                return not waiting

            poll_until(are_served, deadline, lambda: self._not_served(*min(waiting)))
        poll_until(
            lambda: running_plane(Path(self.plane.home)).shards >= self.wanted,
            deadline,
            lambda: (
                f"The supervisor of this host does not know the new shards yet: see its log in the home's logs, then "
                f"call deepclean shards add {self.wanted} again."
            ),
        )
        services = ", ".join(sorted({service for service, _ in parts}))
        self.say(f"served: all {self.wanted} shards, by {services}")

    def _not_served(self, service: str, shard: int) -> str:
        return (
            f"Shard {shard} is not served by {service} yet: see how it does (deepclean status), then call "
            f"deepclean shards add {self.wanted} again, which waits for it."
        )

    def _parts(self) -> Iterator[Part]:
        """Yield the services and shards whose owners can be found from here."""
        here = {**self.plane.elsewhere, **{name: process.url for name, process in self.plane.processes.items()}}
        for service in (*SERVICES, STREAMING):
            if here.get(service) or (self.plane.has_moving_shards and service != STREAMING):
                yield from ((service, shard) for shard in range(self.wanted))

    def _served(self, http: httpx.Client, parts: Iterable[Part]) -> set[Part]:
        """Return what the processes say that they serve of these parts."""
        urls = {part: self._url(*part) for part in parts}
        said = {url: served_at(http, url) for url in set(urls.values()) if url}
        return {part for part, url in urls.items() if part in said.get(url, ())}

    def _url(self, service: str, shard: int) -> str:
        if self.plane.has_moving_shards and service != STREAMING:
            return self.client.owner_url(service, shard)
        if service in self.plane.processes:
            return self.plane.processes[service].url
        return self.plane.elsewhere.get(service, "")


def suspensions(whole: CollectionStatus) -> Iterator[SetCollection | SetBreaker]:
    """Yield the commands after which garbage collection is suspended or limited in a new shard as in another one."""
    if whole.state in (CollectionState.PAUSED, CollectionState.SHADOW):
        yield SetCollection("", "", whole.state, whole.reason)
    if whole.limits:
        yield SetBreaker("", "", whole.limits)


def served_at(http: httpx.Client, url: str) -> set[Part]:
    """Return what a process serves: each shard whose loop has gone round, or whose chain Spark follows."""
    try:
        found = samples(http, url)
    except httpx.HTTPError:
        return set()
    followed = {(STREAMING, int(one.labels["shard"])) for one in found if one.name == FOLLOWED}
    stepped = [one for one in found if one.name == STEPPED and one.value > 0]
    return followed | {(one.labels["service"], int(one.labels["shard"])) for one in stepped}


def _secrets(home: Path, signer: Signer) -> list[SecretRow]:
    """Return who may sign in shard 0, administrators last: a shard requires signatures once it knows one.

    The one who signs these commands comes first among them. Access ids are left out: they are those of a tenant, and
    its volume stays in its shard.
    """
    try:
        with reading_tables(place_in_directory(database_directory(home, METADATA, 0))) as tables:
            rows = [row for _, row in TablesReader(tables.reader).table(SECRET_TABLE).scan()]
    except DeepcleanError as error:
        raise StackError(
            f"The secrets that may sign cannot be read from metadata's shard 0 ({error}): add the shards on the host "
            f"that has it."
        ) from error
    people = [row for row in rows if not row.principal]
    if not any(row.name == signer.user and row.role is SecretRole.ADMINISTRATOR for row in people):
        raise StackError(f"Shards are added by administrators, which {signer.user} is not: set DEEPCLEAN_USER.")
    return sorted(people, key=lambda row: (row.role is SecretRole.ADMINISTRATOR, row.name != signer.user, row.name))


def _set_secrets(rows: list[SecretRow]) -> Iterator[SetSecret]:
    """Yield what makes the secrets valid in another shard.

    Each but that of an administrator comes together with the previous one: with the previous secret of the first
    administrator alone, the shard would refuse what follows.
    """
    for row in rows:
        if row.previous_secret and row.role is not SecretRole.ADMINISTRATOR:
            yield SetSecret(row.name, row.role, row.previous_secret)
        yield SetSecret(row.name, row.role, row.secret)


def _request(shard: int, body: SetSecret, signer: Signer, now_ms: int) -> bytes:
    """Return the message of a request to snapshots, as number 1 of a new client."""
    return signed_command(SNAPSHOTS_COMMANDS, SnapshotCommand(shard, signer.client_id(), 1, body), signer, now_ms)


def add_shards(home: Path, wanted: int, say: Say, credentials_file: Path | None = None) -> None:
    """Raise the number of shards of the plane that runs on a home, and wait until they are served.

    ``say`` is told of each step. Nothing happens if the plane has this number already.

    Raises:
        StackError: no plane runs, it cannot have so many shards, or a step failed; a repeat goes on from there.
    """
    plane = running_plane(home)
    named = credentials_file or (Path(plane.credentials_file) if plane.credentials_file else None)
    credentials = read_credentials(named) if named else administrator(home)
    with running_client(home) as client:
        Growth(plane, client, wanted, say, credentials).run()
