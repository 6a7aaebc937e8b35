"""``deepclean topics``: the topics of a plane on any Kafka cluster, judged and made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from schemas.credentials import KafkaCredentials, read_credentials
from services.cli.exit_status import ExitStatus
from services.cli.output import print_json, print_table
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say
from services.domain.topic_rules import Replicas, TopicFlaw
from services.domain.words import counted
from services.plane.broker.topic_care import check_topics, chosen_replicas, mend_settings
from services.plane.broker.topics import create_plane_topics, wanted_topics
from services.plane.stack.plane_file import running_plane
from services.plane.stack.secrets import administrator, person

app = typer.Typer(no_args_is_help=True, help="Check and make the topics of a plane on any Kafka cluster.")

ServersOption = Annotated[
    str, typer.Option(metavar="HOST:PORT,…", help="Brokers of the cluster. By default those of the home's plane.")
]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File of mode 0600 with the name and password of an administrator."),
]
ShardsOption = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="Shards of the plane, which are the partitions of its topics."),
]
FactorOption = Annotated[
    int | None, typer.Option(min=1, help="Replicas of each partition. By default 3, or as many as there are brokers.")
]
LeastOption = Annotated[
    int | None,
    typer.Option(min=1, help="Replicas that must have a message before it is acknowledged. By default a majority."),
]


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The cluster that a command is about."""

    bootstrap_servers: str
    credentials: KafkaCredentials | None
    shards: int
    replicas: Replicas

    def flaws(self) -> list[TopicFlaw]:
        """Return what is wrong with the topics."""
        return check_topics(self.bootstrap_servers, self.credentials, self.shards, self.replicas)


def _cluster(
    context: typer.Context, servers: str, file: Path | None, shards: int | None, factor: int | None, least: int | None
) -> _Cluster:
    home = made_session(context).home
    if servers and shards is None:
        raise typer.BadParameter("say how many shards the plane has", param_hint="--shards")
    plane = None if servers and shards else running_plane(home)
    servers = servers or (plane.bootstrap_servers if plane else "")
    credentials = read_credentials(file) if file else administrator(home) if plane else None
    replicas = chosen_replicas(servers, credentials, factor, least)
    return _Cluster(servers, credentials, shards or (plane.shards if plane else 0), replicas)


@app.command()
def check(
    context: typer.Context,
    bootstrap_servers: ServersOption = "",
    credentials_file: CredentialsOption = None,
    shards: ShardsOption = None,
    replication_factor: FactorOption = None,
    min_insync_replicas: LeastOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is wrong with the topics. Exit status 1 if something is."""
    cluster = _cluster(context, bootstrap_servers, credentials_file, shards, replication_factor, min_insync_replicas)
    found = cluster.flaws()
    if as_json:
        print_json(found)
    else:
        _print(cluster, found)
    if found:
        raise typer.Exit(ExitStatus.FAILED)


@app.command()
def ensure(
    context: typer.Context,
    bootstrap_servers: ServersOption = "",
    credentials_file: CredentialsOption = None,
    shards: ShardsOption = None,
    replication_factor: FactorOption = None,
    min_insync_replicas: LeastOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create missing topics and partitions, and correct settings. Exit status 1 if something is still wrong."""
    cluster = _cluster(context, bootstrap_servers, credentials_file, shards, replication_factor, min_insync_replicas)
    before = cluster.flaws()
    mend_settings(cluster.bootstrap_servers, cluster.credentials, before)
    create_plane_topics(
        cluster.bootstrap_servers,
        cluster.shards,
        cluster.credentials,
        person(made_session(context).home),
        replicas=cluster.replicas,
    )
    left = cluster.flaws()
    mended = [flaw for flaw in before if flaw not in left]
    if as_json:
        print_json({"mended": mended, "left": left})
    else:
        for flaw in mended:
            say(f"created: {flaw.topic}" if flaw.is_absence else f"mended: {flaw.topic}: {flaw.sentence}")
        _print(cluster, left)
    if left:
        raise typer.Exit(ExitStatus.FAILED)


def _print(cluster: _Cluster, found: list[TopicFlaw]) -> None:
    if found:
        print_table(["TOPIC", "WHAT IS WRONG"], ((flaw.topic, flaw.sentence) for flaw in found))
        say("", "deepclean topics ensure creates what is missing and corrects settings.")
        return
    count, replicas = len(wanted_topics(cluster.shards)), cluster.replicas
    say(
        f"All {count} topics are as a plane of {counted(cluster.shards, 'shard')} needs them: "
        f"{counted(replicas.replication_factor, 'replica')}, {replicas.min_insync_replicas} must have a message."
    )
