"""A whole plane that refuses strangers: a deletion goes all its way, and no secret is in anything that is written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from schemas.access import ADMINISTRATOR, identities
from schemas.http_token import bearer
from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteKey,
    DeleteSnapshot,
    PutKey,
    SecretRole,
    SetGroups,
    SetSecret,
    Settle,
)
from services.client.kafka_plane import KafkaPlane
from services.domain.authorization import SERVICES
from services.log.signing import Signer
from services.metadata.state.tables import SECRET_TABLE
from services.plane.broker.quiet_admin import quiet_admin
from services.plane.broker.security import BrokerSecurity
from services.plane.stack.enrolment import send_secrets
from services.plane.stack.process_names import HTTP_PROCESSES, PAGE
from services.plane.stack.secrets import DIRECTORY_NAME
from services.plane.stack.stack import Stack
from services.plane.upkeep.growth import add_shards
from services.plane.upkeep.shard_databases import database_directory
from services.plane.upkeep.table_places import place_in_directory, reading_tables
from services.storage.tables import TablesReader
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.long]
VOLUME, BUCKET = "sales", "reports"
ANN, BOB = Signer("ann", b"a" * 32), Signer("bob", b"b" * 32)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = {"DEEPCLEAN_LOG_LEVEL": "debug"}
    with Stack(tmp_path_factory.mktemp("secured"), is_secured=True, settings=settings, has_page=True) as plane:
        yield plane


def refused(plane: KafkaPlane, command: PutKey) -> str:
    return plane.answer(0, plane.submit(0, command)).error


def test_a_deletion_is_carried_out_and_unauthorized_commands_do_nothing(stack: Stack) -> None:
    address = stack.address
    with stack.client() as root:
        send_secrets(root, [SetSecret(one.user, SecretRole.USER, one.secret) for one in (ANN, BOB)])
        for command in (
            CreateVolume(VOLUME, "ann"),
            CreateBucket(VOLUME, BUCKET, BucketLayout.FILE_SYSTEM_OPTIMIZED),
        ):
            assert not root.answer(0, root.submit(0, command)).error
    put, create = PutKey(VOLUME, BUCKET, "january", 4_096, ""), CreateSnapshot(VOLUME, BUCKET, "monday")
    for unauthorized in (BOB, Signer("ann", b"x" * 32), Signer("nobody", b"n" * 32), None):
        with KafkaPlane(replace(address, signer=unauthorized)) as plane:
            assert refused(plane, put) == "PERMISSION_DENIED"
            assert plane.request(0, create).error == "PERMISSION_DENIED"
    with KafkaPlane(replace(address, signer=ANN)) as ann:
        assert not refused(ann, put)
        assert not ann.request(0, create).error
        assert not ann.answer(0, ann.submit(0, DeleteKey(VOLUME, BUCKET, "january"))).error
        assert not ann.request(0, DeleteSnapshot(VOLUME, BUCKET, "monday")).error
        assert ann.request(0, Settle("hers")).error == "PERMISSION_DENIED"
    with stack.client() as root:
        assert not root.request(0, Settle("secured")).error
        assert root.scm(0).totals().inventory_blocks == 0


def test_every_process_answers_only_who_has_the_token(stack: Stack) -> None:
    token = stack.address.http_token
    with httpx.Client(trust_env=False) as http:
        for name in (*HTTP_PROCESSES, PAGE):
            assert http.get(f"{stack.url(name)}/metrics").status_code == 401, name
            assert "reasons" not in http.get(f"{stack.url(name)}/readyz").text
            for page in ("/metrics", "/healthz", "/readyz"):
                assert http.get(stack.url(name) + page, headers=bearer(token)).status_code == 200, name
        assert http.get(f"{stack.url(PAGE)}/api/buckets").status_code == 401

        def volumes_shown() -> list[str]:
            shown = http.get(f"{stack.url(PAGE)}/api/buckets", headers=bearer(token)).json()
            return [one["volume"] for one in shown["buckets"]]

        eventually(lambda: volumes_shown() == [VOLUME])  # the page looks every few seconds


def test_what_services_keep_is_for_their_account_alone(stack: Stack) -> None:
    """metadata's database and snapshots' hold what commands are signed with."""
    kept = [file for file in (stack.home / "data").rglob("*") if file.is_file()]
    assert {file.relative_to(stack.home / "data").parts[0] for file in kept} >= {"metadata", "snapshots", "streaming"}
    assert not [file for file in kept if file.stat().st_mode & 0o077]


def all_secrets(directory: Path) -> set[str]:
    security = BrokerSecurity(directory)
    known = {security.credentials(name).password for name in (ADMINISTRATOR, *identities())}
    known |= {security.signing_file(name).read_text() for name in (ADMINISTRATOR, *SERVICES)}
    return known | {security.token_file.read_text(), (directory / "keystore.password").read_text()}


def test_no_secret_is_in_a_log_a_metric_a_command_line_or_an_environment(stack: Stack) -> None:
    home = stack.home
    known = all_secrets(home / DIRECTORY_NAME)
    written = [*(home / "logs").iterdir(), *(home / "broker").glob("broker*.*"), home / "plane.json"]
    assert len(written) > len(HTTP_PROCESSES)
    texts = {str(file): file.read_text(errors="replace") for file in written}
    with httpx.Client(trust_env=False, headers=bearer(stack.address.http_token)) as http:
        texts |= {f"metrics of {name}": http.get(f"{stack.url(name)}/metrics").text for name in HTTP_PROCESSES}
    for name in HTTP_PROCESSES:
        identity = stack.children[name].identity
        assert identity is not None
        for what in ("cmdline", "environ"):
            file = Path(f"/proc/{identity.pid}/{what}")
            if file.is_file() and os.access(file, os.R_OK):
                texts[f"{what} of {name}"] = file.read_text(errors="replace")
    found = [where for where, text in texts.items() if any(secret in text for secret in known)]
    assert not found


def test_an_upgrade_is_prepared_with_the_rights_that_the_new_program_needs(stack: Stack) -> None:
    """An older program has not granted the right to ask for the settings of topics."""
    security = BrokerSecurity(stack.home / DIRECTORY_NAME)
    whatever: Any = None
    newer = AclBindingFilter(
        *(ResourceType.TOPIC, whatever, ResourcePatternType.ANY, whatever, whatever),
        *(AclOperation.DESCRIBE_CONFIGS, AclPermissionType.ANY),
    )
    with quiet_admin(stack.broker.bootstrap_servers, security.administrator) as admin:
        (removed,) = [answer.result() for answer in admin.delete_acls([newer]).values()]
        assert removed
        command = [sys.executable, "-m", "services.cli.main", "--home", str(stack.home), "upgrade", "prepare"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        assert set(admin.describe_acls(newer).result()) == set(removed)
    child = stack.children["key_deletion"]
    child.kill()
    child.start()
    child.await_ready()


def test_users_of_a_secured_plane_are_known_in_added_shards(stack: Stack) -> None:
    """With their roles, groups and secrets, the previous ones included, while nobody else gets in."""
    fresh, eve = Signer("ann", b"c" * 32), Signer("eve", b"e" * 32)
    with stack.client() as root:
        known = [SetSecret(ANN.user, SecretRole.USER, one.secret) for one in (ANN, fresh)]
        send_secrets(root, [*known, SetSecret(eve.user, SecretRole.ADMINISTRATOR, eve.secret)])
        assert not root.answer(0, root.submit(0, SetGroups("ann", ("readers",)))).error
        add_shards(stack.home, 2, lambda _: None)
        bucket = CreateBucket("hers", BUCKET, BucketLayout.OBJECT_STORE)
        for command in (CreateVolume("hers", "ann"), bucket):
            assert not root.answer(1, root.submit(1, command)).error
    for number, signer in enumerate((ANN, fresh, eve, BOB, Signer("ann", b"x" * 32), None)):
        may = "" if signer in (ANN, fresh, eve) else "PERMISSION_DENIED"
        with KafkaPlane(replace(stack.address, signer=signer)) as plane:
            assert plane.answer(1, plane.submit(1, PutKey("hers", BUCKET, "key", 1))).error == may
            assert plane.request(1, CreateSnapshot("hers", BUCKET, f"of-{number}")).error == may
    with KafkaPlane(replace(stack.address, signer=eve)) as plane:
        assert not plane.request(1, Settle("hers")).error
    with reading_tables(place_in_directory(database_directory(stack.home, "metadata", 1))) as tables:
        rows = [row for _, row in TablesReader(tables.reader).table(SECRET_TABLE).scan()]
    assert {row.name: row.groups for row in rows if row.groups} == {"ann": ("readers",)}
