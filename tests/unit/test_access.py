"""Who may do what at the broker and over HTTP, and how secrets are read, before any broker or server is asked."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from schemas.access import ADMINISTRATOR, READ, WRITE, Right, group_prefix, identities, rights
from schemas.credentials import (
    FILE_VARIABLE,
    PLAIN,
    CredentialsError,
    KafkaCredentials,
    credentials_of,
    login_file_of,
    read_credentials,
    write_credentials,
    write_login_file,
    write_secret,
)
from schemas.http_token import bearer, check_address, is_authorized
from schemas.topics import (
    CLIENTS,
    METADATA_COMMANDS,
    NUMBERED,
    OWNERS,
    PLANE,
    SCHEMAS,
    SCM_REPLIES,
    SNAPSHOT_CHAIN,
    TOPICS,
    VOLUMES,
)
from services.log.kafka import consumer_configuration, producer_configuration
from services.plane.broker.security import BrokerSecurity, access_list
from services.plane.stack.process_names import SERVICES
from services.plane.stack.secrets import plane_security, signer_of
from services.runtime.http.server import HttpServer, http_app
from services.runtime.process.process import http_token
from services.runtime.process.settings import read_settings
from streaming.reclaiming.checkpoint import LocalCheckpoint
from streaming.reclaiming.metrics import MetricsServer
from streaming.reclaiming.reclaim import ReclaimOptions

PASSWORD = secrets.token_urlsafe()
TOKEN = secrets.token_urlsafe()
METADATA = KafkaCredentials("metadata", PASSWORD, "/somewhere/ca.pem")


def test_the_rights_are_those_that_the_topics_name() -> None:
    assert Right("metadata", READ, METADATA_COMMANDS.name) in rights()
    assert Right(CLIENTS, WRITE, METADATA_COMMANDS.name) in rights()
    assert Right(CLIENTS, READ, METADATA_COMMANDS.name) not in rights()
    assert Right("key_deletion", WRITE, SCM_REPLIES.name) not in rights()
    assert {
        right.identity for right in rights() if right.operation == WRITE and right.topic == SNAPSHOT_CHAIN.name
    } == {"metadata"}
    of_schemas = {right for right in rights() if right.topic == SCHEMAS}
    assert {(right.identity, right.operation) for right in of_schemas} == {(name, READ) for name in identities()}
    named = sum(len(topic.producers) + len(topic.consumers) for topic in TOPICS)
    of_owners = {(right.identity, right.operation) for right in rights() if right.topic == OWNERS}
    assert of_owners == {(CLIENTS, READ), *((name, WRITE) for name in SERVICES)}
    of_plane = {(right.identity, right.operation) for right in rights() if right.topic == PLANE}
    assert of_plane == {(name, READ) for name in identities()}, "only the administrator adds shards"
    of_volumes = {(right.identity, right.operation) for right in rights() if right.topic == VOLUMES}
    assert of_volumes == {(CLIENTS, READ), (CLIENTS, WRITE)}
    of_all = len(of_schemas) + len(of_owners) + len(of_plane) + len(of_volumes)
    assert len(rights()) == named + len(NUMBERED) + of_all
    assert ADMINISTRATOR not in identities()


def test_the_brokers_list_holds_a_right_and_its_questions_and_nothing_more() -> None:
    listed = access_list([Right("metadata", READ, "a"), Right("metadata", WRITE, "b")])
    topics = {(one.name, one.operation) for one in listed if one.restype is ResourceType.TOPIC}
    assert topics == {
        ("a", AclOperation.READ),
        ("a", AclOperation.DESCRIBE),
        ("a", AclOperation.DESCRIBE_CONFIGS),
        ("b", AclOperation.WRITE),
        ("b", AclOperation.DESCRIBE),
        ("b", AclOperation.DESCRIBE_CONFIGS),
    }
    (group,) = [one for one in listed if one.restype is ResourceType.GROUP]
    assert (group.name, group.principal, group.operation) == ("deepclean.metadata", "User:metadata", AclOperation.READ)
    names = {(one.name, one.principal, one.operation) for one in listed if one.restype is ResourceType.TRANSACTIONAL_ID}
    owned = "deepclean.metadata.", "User:metadata"
    assert names == {(*owned, AclOperation.WRITE), (*owned, AclOperation.DESCRIBE)}
    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    assert not [one for one in access_list(rights()) if one.restype not in kinds]


def test_only_services_publish_as_owners() -> None:
    listed = [one for one in access_list(rights()) if one.restype is ResourceType.TRANSACTIONAL_ID]
    assert {one.principal for one in listed} == {f"User:{name}" for name in SERVICES}


def test_no_identity_reaches_into_the_groups_of_another() -> None:
    prefixes = {name: group_prefix(name) for name in identities()}
    for name, prefix in prefixes.items():
        assert not [other for other in prefixes if other != name and prefixes[other].startswith(prefix)]


def test_credentials_come_back_and_only_their_owner_may_read_them(tmp_path: Path) -> None:
    file = tmp_path / "metadata.json"
    write_credentials(file, METADATA)
    assert read_credentials(file) == METADATA
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    with pytest.raises(CredentialsError, match="chmod 600"):
        read_credentials(file)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "not json " + PASSWORD, json.dumps({"username": "a", "password": PASSWORD})),
        json.dumps({"username": "a", "password": PASSWORD, "ca_file": "b", "mechanism": "GSSAPI"}),
        json.dumps({"username": "a", "password": [PASSWORD], "ca_file": "b"}),
    ],
    ids=range(7),
)
def test_a_broken_file_is_one_sentence_without_what_is_in_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.json"
    write_secret(file, text)
    with pytest.raises(CredentialsError) as raised:
        read_credentials(file)
    assert str(file) in str(raised.value)
    assert PASSWORD not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_password_is_in_no_text_and_in_no_option_of_spark(tmp_path: Path) -> None:
    options = ReclaimOptions("broker:1", 1, LocalCheckpoint(tmp_path), credentials=METADATA)
    assert PASSWORD not in repr(METADATA) + repr(options) + str(options.broker_settings())
    assert options.broker_settings()["kafka.security.protocol"] == "SASL_SSL"
    assert "kafka.security.protocol" not in ReclaimOptions("broker:1", 1, LocalCheckpoint(tmp_path)).broker_settings()


def test_the_environment_names_a_file_and_java_finds_its_own_beside(tmp_path: Path) -> None:
    file = tmp_path / "streaming.json"
    assert credentials_of({}) is None
    assert login_file_of({}) is None
    write_credentials(file, METADATA)
    write_login_file(file, METADATA)
    environment = {FILE_VARIABLE: str(file)}
    assert credentials_of(environment) == METADATA
    login = login_file_of(environment)
    assert login is not None
    assert login.stat().st_mode & 0o077 == 0
    assert f'ScramLoginModule required username="metadata" password="{PASSWORD}";' in login.read_text()


@pytest.mark.parametrize("password", ['a"b', "a\\b", "pässword"])
def test_a_password_that_java_would_read_otherwise_is_refused(password: str) -> None:
    with pytest.raises(CredentialsError):
        KafkaCredentials("a", password, "ca", PLAIN).login_entry()


def test_every_kind_of_client_takes_the_credentials_and_without_them_none() -> None:
    for make in (consumer_configuration, producer_configuration):
        assert make("broker:1", "me", METADATA)["sasl.username"] == "metadata"
        assert make("broker:1", "me", METADATA)["security.protocol"] == "SASL_SSL"
        assert not [name for name in make("broker:1", "me") if name.startswith(("sasl.", "ssl.", "security."))]


def test_a_service_reads_both_secrets_from_the_files_that_its_settings_name(tmp_path: Path) -> None:
    write_credentials(tmp_path / "metadata.json", METADATA)
    write_secret(tmp_path / "token", TOKEN + "\n")
    named = {"--directory": ".", "--http-token-file": "token", "--kafka-credentials-file": "metadata.json"}
    options = [text for option, name in named.items() for text in (option, str(tmp_path / name))]
    settings = read_settings("metadata", ["--http-host", "192.0.2.1", *options])
    assert settings.kafka_credentials_file is not None
    assert read_credentials(settings.kafka_credentials_file) == METADATA
    assert http_token(settings) == TOKEN
    assert PASSWORD not in repr(settings)


@pytest.mark.parametrize("host", ["::", "192.0.2.1", "", "example.org", "127.0.0.1.example.org"])
def test_beyond_loopback_a_token_is_wanted(host: str) -> None:
    with pytest.raises(CredentialsError, match="token"):
        check_address(host, "")
    check_address(host, TOKEN)
    with pytest.raises(CredentialsError, match="at least"):
        check_address(host, "short")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.5.5", "::1", "localhost"])
def test_on_loopback_no_token_is_wanted(host: str) -> None:
    check_address(host, "")


REFUSED = ["", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer ü"]


@pytest.mark.parametrize("header", REFUSED, ids=range(len(REFUSED)))
def test_whatever_is_not_the_token_is_refused(header: str) -> None:
    assert not is_authorized(TOKEN, header)
    assert is_authorized(TOKEN, bearer(TOKEN)["Authorization"])
    assert is_authorized(TOKEN, f"bearer {TOKEN}")
    assert is_authorized("", header)


def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


@pytest.fixture
def service_url() -> Iterator[str]:
    app = http_app(CollectorRegistry(), list, list, [Route("/v1/hello", hello)], token=TOKEN)
    server = HttpServer(app, "127.0.0.1", 0)
    server.start()
    yield server.url
    server.stop()


@pytest.fixture
def streaming_url() -> Iterator[str]:
    server = MetricsServer(CollectorRegistry(), "127.0.0.1", 0, TOKEN)
    server.is_ready = lambda: True
    yield f"http://127.0.0.1:{server.port}"
    server.close()


HEALTH = ("/healthz", "/readyz")
PAGES = ("/metrics", *HEALTH)


def test_no_page_of_a_service_but_health_answers_without_the_token(
    service_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), httpx.Client(base_url=service_url, trust_env=False) as client:
        for page in ("/metrics", "/v1/hello", "/v1/no-such-page"):
            for header in ("", f"Bearer {TOKEN}x"):
                answer = client.get(page, headers={"Authorization": header} if header else {})
                assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED"), page
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        for page in HEALTH:
            assert client.get(page).json() == {"ok": True}, "details are for those who have the token"
            assert client.get(page, headers=bearer(TOKEN)).json() == {"ok": True, "reasons": []}
        for page in (*PAGES, "/v1/hello"):
            assert client.get(page, headers=bearer(TOKEN)).status_code == 200
        assert TOKEN not in client.get("/metrics", headers=bearer(TOKEN)).text
    assert TOKEN not in caplog.text


def test_no_page_of_the_spark_job_but_health_answers_without_the_token(streaming_url: str) -> None:
    with httpx.Client(base_url=streaming_url, trust_env=False) as client:
        assert [client.get(page).text for page in HEALTH] == ["yes\n", "yes\n"]
        for page in ("/metrics", "/no-such-page"):
            assert client.get(page).status_code == 401
            assert client.get(page, headers={"Authorization": f"Bearer {TOKEN}x"}).status_code == 401
        for page in PAGES:
            assert client.get(page, headers=bearer(TOKEN)).status_code == 200


def test_a_home_is_secured_once_its_secrets_are_there(tmp_path: Path) -> None:
    assert plane_security(tmp_path) is None
    assert plane_security(tmp_path, is_wanted=True) is not None
    (tmp_path / "secrets").mkdir()
    assert plane_security(tmp_path) is not None


def test_a_user_without_a_signing_file_is_referred_to_the_administrator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPCLEAN_USER", "bob")
    with pytest.raises(CredentialsError, match=r"deepclean secret set bob.*DEEPCLEAN_USER"):
        signer_of(BrokerSecurity(tmp_path))
