"""The broker that asks who comes: of every identity and every topic, what is allowed goes and all else is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.access import READ, WRITE, Right, group_prefix, identities, rights
from schemas.credentials import KafkaCredentials
from schemas.topics import (
    CLIENTS,
    DELETED_ENTRIES,
    METADATA_COMMANDS,
    OWNERS,
    PLANE,
    PURGE_KEYS,
    SCHEMAS,
    TOPICS,
    VOLUMES,
)
from services.client.errors import PlaneError
from services.client.wire.kafka_commands import KafkaCommands
from services.domain.errors import InvariantError
from services.log.kafka import KafkaLog, consumer_configuration, producer_configuration
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.quiet_admin import quiet_admin
from services.plane.broker.security import BrokerSecurity
from services.plane.broker.topics import create_plane_topics
from services.plane.machine.java import find_java

pytestmark = [pytest.mark.broker, pytest.mark.timeout(240), pytest.mark.long]
WAIT_SECONDS = 20.0
HIDDEN = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
"""What a client says of a topic that is there, and that the broker does not show to it."""
NOBODY = "unauthorized"


class Guarded:
    """A broker that asks, with all topics of the plane on it."""

    def __init__(self, broker: EmbeddedBroker, security: BrokerSecurity) -> None:
        self.broker = broker
        self.security = security
        self.address = broker.bootstrap_servers

    def consumer(self, identity: str) -> Consumer:
        name = f"{group_prefix(identity)}{uuid4().hex}"
        return Consumer(consumer_configuration(self.address, name, self.security.credentials(identity)))

    def producer(self, identity: str) -> Producer:
        settings = producer_configuration(self.address, identity, self.security.credentials(identity))
        return Producer({**settings, "delivery.report.only.error": False})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    home = tmp_path_factory.mktemp("guarded")
    security = BrokerSecurity(home / "secrets")
    with EmbeddedBroker(home / "broker", security=security) as broker:
        create_plane_topics(broker.bootstrap_servers, 1, security.administrator)
        with quiet_admin(broker.bootstrap_servers, security.administrator) as admin:
            security.admit(admin)
            security.admit(admin)  # as at every start
        yield Guarded(broker, security)


def written(producer: Producer, topic: str) -> bool:
    """Whether the broker takes a message, rather than refusing who sends it."""
    outcomes: list[KafkaError | None] = []
    try:
        producer.produce(topic, b"x", b"key", 0, on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(WAIT_SECONDS) == 0
    except KafkaException as refusal:  # said at once when the client knows it already
        outcomes.append(refusal.args[0])
    (error,) = outcomes
    assert error is None or error.code() in HIDDEN, error
    return error is None


def is_readable(consumer: Consumer, topic: str) -> bool:
    """Whether the broker hands out what is in a topic."""
    place = TopicPartition(topic, 0)
    try:
        consumer.get_watermark_offsets(place, timeout=WAIT_SECONDS)
    except KafkaException as error:
        if error.args[0].code() not in HIDDEN:
            raise
        return False
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message,) = consumer.consume(1, timeout=WAIT_SECONDS)
    failure = message.error()
    assert failure is None or failure.code() in HIDDEN, failure
    return failure is None


def test_every_identity_may_do_exactly_what_the_topics_say(guarded: Guarded) -> None:
    allowed, topics = set(), [*(topic.name for topic in TOPICS), SCHEMAS, OWNERS, PLANE, VOLUMES]
    for identity in identities():
        producer = guarded.producer(identity)
        allowed |= {Right(identity, WRITE, topic) for topic in topics if written(producer, topic)}
        producer.close()
    for identity in identities():
        consumer = guarded.consumer(identity)
        try:
            allowed |= {Right(identity, READ, topic) for topic in topics if is_readable(consumer, topic)}
        finally:
            consumer.close()
    assert allowed == rights()
    assert len(allowed) < 2 * len(identities()) * len(TOPICS) / 2, "most of the table is refusals"


def refusal_of(guarded: Guarded, configuration: dict[str, Any]) -> str:
    """What somebody who asks for the list of topics is told."""
    said: list[KafkaError] = []
    settings = {**configuration, "bootstrap.servers": guarded.address, "error_cb": said.append}
    with AdminClient(settings) as admin:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=2.0)
        admin.poll(WAIT_SECONDS)
    return " ".join(str(error) for error in said)


def test_who_has_no_name_a_wrong_password_or_no_tls_gets_no_answer(guarded: Guarded) -> None:
    known = guarded.security.credentials("metadata")
    wrong = KafkaCredentials("metadata", "wrong" * 5, known.ca_file)
    unauthorized = KafkaCredentials(NOBODY, known.password, known.ca_file)
    assert "AUTHENTICATION" in refusal_of(guarded, wrong.client_settings()).upper()
    assert "AUTHENTICATION" in refusal_of(guarded, unauthorized.client_settings()).upper()
    refusal_of(guarded, {})
    refusal_of(guarded, {**known.client_settings(), "security.protocol": "SASL_PLAINTEXT"})


def test_an_administrators_name_is_no_way_in_without_the_password(guarded: Guarded) -> None:
    administrator = guarded.security.administrator
    wrong = KafkaCredentials("admin", "wrong" * 5, administrator.ca_file, administrator.mechanism)
    refusal_of(guarded, wrong.client_settings())


def test_a_log_with_the_wrong_rights_says_what_to_correct(guarded: Guarded) -> None:
    log = partial(KafkaLog, guarded.address)
    entitled = log("deepclean.metadata", credentials=guarded.security.credentials("metadata"))
    assert entitled.end_offset(METADATA_COMMANDS.name, 0) >= 0
    with pytest.raises(InvariantError, match="rights"):
        entitled.open_source([DELETED_ENTRIES.name], 0, {}).poll(1, WAIT_SECONDS)


def test_a_client_that_sends_again_what_services_alone_may_send_gets_a_reason(guarded: Guarded) -> None:
    """Twice: at first the broker says it, then the client knows."""
    client = KafkaCommands(
        guarded.address,
        1,
        answer_seconds=WAIT_SECONDS,
        settle_seconds=WAIT_SECONDS,
        max_unanswered=10,
        check=lambda: None,
        credentials=guarded.security.credentials(CLIENTS),
    )
    try:
        for _ in range(2):
            with pytest.raises(PlaneError, match=r"only services may write to gc\.purge-keys") as caught:
                client.send_again(PURGE_KEYS.name, 0, b"x", b"", [])
            assert caught.value.code == "PERMISSION_DENIED"
        client.send_again(METADATA_COMMANDS.name, 0, b"x", b"", [])
    finally:
        client.close()


def test_secrets_are_in_files_of_their_owner_alone_and_in_no_log(guarded: Guarded) -> None:
    files = sorted(guarded.security.directory.iterdir())
    assert all(file.stat().st_mode & 0o077 == 0 for file in (*files, guarded.security.directory))
    settings = guarded.broker.directory / "server.properties"
    assert settings.stat().st_mode & 0o077 == 0
    passwords = {guarded.security.credentials(name).password for name in ("admin", *identities())}
    logs = [file for file in guarded.broker.directory.iterdir() if file.is_file() and file != settings]
    assert logs
    for file in logs:
        text = file.read_text(errors="replace")
        assert not [password for password in passwords if password in text], file
    command = Path(f"/proc/{guarded.broker.process_id}/cmdline")
    if command.is_file():
        assert not [password for password in passwords if password in command.read_text()]


def test_a_password_that_was_changed_is_the_only_one_that_opens(guarded: Guarded) -> None:
    before = guarded.security.credentials("mock_scm")
    guarded.security.credentials_file("mock_scm").unlink()
    guarded.security.prepare(find_java())
    with quiet_admin(guarded.address, guarded.security.administrator) as admin:
        guarded.security.admit(admin)
    assert "AUTHENTICATION" in refusal_of(guarded, before.client_settings()).upper()
    producer = guarded.producer("mock_scm")
    assert written(producer, METADATA_COMMANDS.name)
    producer.close()
