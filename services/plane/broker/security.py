"""Secrets of the embedded broker on a secured plane: a certificate, credentials for each process, and access rights.

    <directory>/admin.json, <identity>.json   credentials, each for the one process that is named
    <directory>/streaming.jaas                the same for Java
    <directory>/broker.p12, keystore.password the broker's key        <directory>/ca.pem   its certificate, for clients
    <directory>/http-token                    the token of every HTTP request
    <directory>/<name>.signing                the secret with which a user or a service signs commands

All files are created at the first start and kept. To change a password, certificate or token, remove its file: the next
start creates a new one. Signing secrets are changed by ``deepclean secret set``. The processes authenticate by SCRAM.
The administrator sends their names and passwords to the broker over TLS; they are never part of a command line. The
administrator's own password is in the broker's configuration, because the broker must know it before it accepts others.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from schemas.access import ADMINISTRATOR, STREAMING, Right, group_prefix, identities, owner_prefix, rights
from schemas.credentials import (
    PLAIN,
    KafkaCredentials,
    read_credentials,
    read_secret,
    write_credentials,
    write_login_file,
    write_secret,
)
from schemas.topics import CLIENTS
from services.domain.authorization import SERVICES
from services.plane.machine.errors import StackError, disk_error
from services.plane.machine.java import JavaRuntime

ANSWER_SECONDS = 30.0
KEY_SECONDS = 60.0
PASSWORD_BYTES = 24
SIGNING_BYTES = 32
SCRAM_ITERATIONS = 8_192
CERTIFICATE_DAYS = 3_650
_SETTINGS = """
# Strangers are refused: who they are by SASL over TLS, what they may do by the rights that the administrator sets.
listener.security.protocol.map=CLIENTS:SASL_SSL,CONTROLLER:SASL_PLAINTEXT
inter.broker.listener.name=CLIENTS
sasl.enabled.mechanisms=SCRAM-SHA-256,PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
listener.name.clients.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.clients.plain.sasl.jaas.config={administrator} user_admin="{password}";
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.controller.plain.sasl.jaas.config={administrator} user_admin="{password}";
ssl.keystore.type=PKCS12
ssl.keystore.location={keystore}
ssl.keystore.password={keystore_password}
ssl.key.password={keystore_password}
ssl.truststore.type=PEM
ssl.truststore.location={ca_file}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin
allow.everyone.if.no.acl.found=false
"""


class BrokerSecurity:
    """The directory with the secrets of one broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.ca_file = self.directory / "ca.pem"
        self.token_file = self.directory / "http-token"
        self._keystore = self.directory / "broker.p12"
        self._keystore_password_file = self.directory / "keystore.password"

    @property
    def administrator(self) -> KafkaCredentials:
        """Credentials of the administrator, who has all rights. They exist after ``prepare``."""
        return self.credentials(ADMINISTRATOR)

    def credentials_file(self, identity: str) -> Path:
        """Return the file with the credentials of an identity."""
        return self.directory / f"{identity}.json"

    def credentials(self, identity: str) -> KafkaCredentials:
        """Return the credentials of an identity."""
        return read_credentials(self.credentials_file(identity))

    def signing_file(self, name: str) -> Path:
        """Return the file with the signing secret of a user or a service."""
        return self.directory / f"{name}.signing"

    def prepare(self, java: JavaRuntime) -> None:
        """Create the secrets that are missing."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.directory.chmod(0o700)
            if not (self._keystore.is_file() and self.ca_file.is_file()):
                self._make_certificate(java)
            for identity in (ADMINISTRATOR, *identities()):
                self._make_credentials(identity)
            for signer in (ADMINISTRATOR, *sorted(SERVICES)):
                if not self.signing_file(signer).is_file():
                    write_secret(self.signing_file(signer), secrets.token_hex(SIGNING_BYTES))
            if not self.token_file.is_file():
                write_secret(self.token_file, secrets.token_urlsafe(PASSWORD_BYTES))
        except OSError as error:
            raise disk_error(self.directory, error) from error

    def _make_credentials(self, identity: str) -> None:
        file = self.credentials_file(identity)
        if not file.is_file():
            made = KafkaCredentials(identity, secrets.token_urlsafe(PASSWORD_BYTES), str(self.ca_file))
            if identity == ADMINISTRATOR:
                made = KafkaCredentials(made.username, made.password, made.ca_file, PLAIN)
            write_credentials(file, made)
        if identity in (STREAMING, CLIENTS):  # Spark jobs read as either identity
            write_login_file(file, self.credentials(identity))

    def _make_certificate(self, java: JavaRuntime) -> None:
        """Create a key with a self-signed certificate by keytool, which is part of every Java that runs the broker."""
        self._keystore.unlink(missing_ok=True)
        write_secret(self._keystore_password_file, secrets.token_urlsafe(PASSWORD_BYTES))
        store = ("-keystore", str(self._keystore), "-storepass:file", str(self._keystore_password_file))
        _keytool(
            java,
            *("-genkeypair", "-alias", "broker", "-keyalg", "RSA", "-keysize", "2048", "-storetype", "PKCS12"),
            *("-dname", "CN=deepclean broker", "-ext", "SAN=IP:127.0.0.1,DNS:localhost"),
            *("-validity", str(CERTIFICATE_DAYS), *store),
        )
        self._keystore.chmod(0o600)
        printed = _keytool(java, "-exportcert", "-rfc", "-alias", "broker", *store)
        begin = printed.index("-----BEGIN")
        write_secret(self.ca_file, printed[begin:])

    def secured(self, properties: str) -> str:
        """Return the broker's settings with these secrets. Only the owner may be able to read a file with this text."""
        administrator = self.administrator
        added = _SETTINGS.format(
            administrator=administrator.login_entry(),
            password=administrator.password,
            keystore=str(self._keystore).replace("\\", "\\\\"),
            ca_file=str(self.ca_file).replace("\\", "\\\\"),
            keystore_password=read_secret(self._keystore_password_file),
        )
        plain = [line for line in properties.splitlines() if not line.startswith("listener.security.protocol.map=")]
        return "\n".join(plain).replace("PLAINTEXT://", "CLIENTS://") + "\n" + added

    def admit(self, admin: AdminClient) -> None:
        """Send the identities' passwords and access rights to the broker, and remove all other access rights there.

        Raises:
            StackError: the broker refuses them.
        """
        try:
            self._send_passwords(admin)
            _send_rights(admin)
        except KafkaException as error:
            raise StackError(
                f"The broker does not accept the identities in {self.directory} ({error.args[0]}): read its log."
            ) from error

    def _send_passwords(self, admin: AdminClient) -> None:
        method = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, SCRAM_ITERATIONS)
        alterations: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(one.username, method, one.password.encode())
            for one in map(self.credentials, identities())
        ]
        for answer in admin.alter_user_scram_credentials(alterations, request_timeout=ANSWER_SECONDS).values():
            answer.result()


def _send_rights(admin: AdminClient) -> None:
    wanted = set(access_list(rights()))
    whatever: Any = None
    anything = AclBindingFilter(
        ResourceType.ANY, whatever, ResourcePatternType.ANY, whatever, whatever, AclOperation.ANY, AclPermissionType.ANY
    )
    present = set(admin.describe_acls(anything, request_timeout=ANSWER_SECONDS).result())
    if missing := sorted(wanted - present, key=str):
        for answer in admin.create_acls(missing, request_timeout=ANSWER_SECONDS).values():
            answer.result()
    if surplus := [_exactly(one) for one in present - wanted]:
        for removed in admin.delete_acls(surplus, request_timeout=ANSWER_SECONDS).values():
            removed.result()


def administrator_of(security: BrokerSecurity | None) -> KafkaCredentials | None:
    """Return the administrator's credentials at a broker; None if the broker does not authenticate clients."""
    return None if security is None else security.administrator


def access_list(allowed: Iterable[Right]) -> list[AclBinding]:
    """Return the broker's access list for these rights, with the consumer groups of the identities."""
    allowed = list(allowed)
    bindings = [
        _binding(ResourceType.TOPIC, right.topic, ResourcePatternType.LITERAL, right.identity, operation)
        for right in allowed
        for operation in (AclOperation[right.operation], AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    ]
    bindings += [
        _binding(ResourceType.GROUP, group_prefix(name), ResourcePatternType.PREFIXED, name, AclOperation.READ)
        for name in {right.identity for right in allowed}
    ]
    bindings += [
        _binding(ResourceType.TRANSACTIONAL_ID, owner_prefix(name), ResourcePatternType.PREFIXED, name, operation)
        for name in {right.identity for right in allowed} - {CLIENTS, STREAMING}
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)
    ]
    return list(dict.fromkeys(bindings))


def _binding(
    kind: ResourceType, name: str, pattern: ResourcePatternType, identity: str, operation: AclOperation
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{identity}", "*", operation, AclPermissionType.ALLOW)


def _exactly(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def _keytool(java: JavaRuntime, *arguments: str) -> str:
    command = [str(java.executable), "-m", "java.base/sun.security.tools.keytool.Main", *arguments]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=KEY_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise StackError(f"Java's keytool did not finish within {KEY_SECONDS:g} seconds: start again.") from error
    if run.returncode != 0:
        raise StackError(
            f"Java's keytool made no certificate ({run.stdout.strip()[:300]}): correct the problem that it names."
        )
    return run.stdout
