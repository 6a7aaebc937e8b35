"""The credentials of a process at the broker: a file whose path is in ``DEEPCLEAN_KAFKA_CREDENTIALS_FILE``.

The file is a JSON object: ``username``, ``password``, ``ca_file`` (the PEM certificate that must have signed the
broker's) and, for the administrator, ``mechanism``. Only the file's owner may read it. No password is in a command
line, environment variable, log or ``repr``; for the same reason Spark reads it from a JAAS file beside this file.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILE_VARIABLE = "DEEPCLEAN_KAFKA_CREDENTIALS_FILE"
SCRAM, PLAIN = "SCRAM-SHA-256", "PLAIN"
_MODULES = {
    SCRAM: "org.apache.kafka.common.security.scram.ScramLoginModule",
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
}
OTHERS = stat.S_IRWXG | stat.S_IRWXO


class CredentialsError(Exception):
    """A file with secrets cannot be used. The message holds the cause and the remedy, and no secret."""


@dataclass(frozen=True, slots=True)
class KafkaCredentials:
    """The login of a process, and the certificate by which it recognizes the broker."""

    username: str
    password: str = field(repr=False)
    ca_file: str
    mechanism: str = SCRAM

    def client_settings(self) -> dict[str, str]:
        """Return the settings for librdkafka. It checks the broker's name against the certificate."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password,
            "ssl.ca.location": self.ca_file,
        }

    def spark_settings(self) -> dict[str, str]:
        """Return the options of Spark's source and sink, without the password: plans and logs show options."""
        return {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": self.mechanism,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": self.ca_file,
        }

    def login_entry(self) -> str:
        """Return the login as an entry of a JAAS file.

        Raises:
            CredentialsError: the name or the password has a quote, a backslash or a letter beyond ASCII.
        """
        for text in (self.username, self.password):
            if not text.isascii() or '"' in text or "\\" in text:
                raise CredentialsError("a name or password has a quote, a backslash or a foreign letter: choose others")
        return f'{_MODULES[self.mechanism]} required username="{self.username}" password="{self.password}"'


def read_secret(file: Path) -> str:
    """Return the content of a file that only its owner may read.

    Raises:
        CredentialsError: the file cannot be read, or other users may read it.
    """
    try:
        if file.stat().st_mode & OTHERS:
            raise CredentialsError(f"{file} may be read by others: chmod 600 {file}, and change what is in it")
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(f"{file} cannot be read ({type(error).__name__}): name a file that is there") from error


def write_secret(file: Path, text: str) -> None:
    """Write a file that only its owner may read, as a whole or not at all."""
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
    fresh.replace(file)


def read_credentials(file: Path) -> KafkaCredentials:
    """Return the credentials in a file.

    Raises:
        CredentialsError: the file cannot be used.
    """
    text = read_secret(file)
    try:
        fields = json.loads(text)
        known = {name: fields[name] for name in ("username", "password", "ca_file")}
        mechanism = fields.get("mechanism", SCRAM)
    except (ValueError, KeyError, TypeError, AttributeError):
        # "from None", because the text of the cause may contain the file's content.
        raise CredentialsError(f"{file} has no username, password and ca_file: write them as a JSON object") from None
    if not all(isinstance(value, str) and value for value in known.values()) or mechanism not in _MODULES:
        raise CredentialsError(f"{file}: username, password and ca_file are texts, mechanism is {SCRAM} or {PLAIN}")
    return KafkaCredentials(**known, mechanism=mechanism)


def credentials_of(environment: Mapping[str, str]) -> KafkaCredentials | None:
    """Return the credentials that an environment names; None if it names none: connections are then plaintext."""
    named = environment.get(FILE_VARIABLE)
    return read_credentials(Path(named)) if named else None


def login_file_of(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the JAAS file beside the credentials that an environment names; None if it names none."""
    named = environment.get(FILE_VARIABLE)
    return Path(named).with_suffix(".jaas") if named else None


def write_login_file(file: Path, credentials: KafkaCredentials) -> None:
    """Write the JAAS file of a Java client beside its credentials."""
    write_secret(file.with_suffix(".jaas"), f"KafkaClient {{\n  {credentials.login_entry()};\n}};\n")


def write_credentials(file: Path, credentials: KafkaCredentials) -> None:
    """Write credentials to a file that ``read_credentials`` reads."""
    fields = {"username": credentials.username, "password": credentials.password, "ca_file": credentials.ca_file}
    write_secret(file, json.dumps({**fields, "mechanism": credentials.mechanism}))
