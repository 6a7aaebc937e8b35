"""Reads the secrets that a service's settings name, each from a file of its own that only its owner may read."""

from __future__ import annotations

from schemas.credentials import KafkaCredentials, read_credentials, read_secret
from schemas.http_token import check_address
from services.log.port import Log
from services.log.signing import SigningLog, read_signing_secret
from services.runtime.process.settings import ServiceSettings


def kafka_credentials(settings: ServiceSettings) -> KafkaCredentials | None:
    """Who this service is at the broker; None when the broker asks nobody.

    Raises:
        CredentialsError: the file cannot be used.
    """
    file = settings.kafka_credentials_file
    return None if file is None else read_credentials(file)


def signing(log: Log, settings: ServiceSettings) -> Log:
    """The log as this service writes to it: its commands signed, when it has a secret to sign with.

    Raises:
        CredentialsError: the file cannot be used.
    """
    file = settings.signing_secret_file
    return log if file is None else SigningLog(log, read_signing_secret(file))


def http_token(settings: ServiceSettings) -> str:
    """What every request must carry; empty when nothing is asked, which is so on loopback alone.

    Raises:
        CredentialsError: the file cannot be used, or is missing where it is wanted.
    """
    token = "" if settings.http_token_file is None else read_secret(settings.http_token_file)
    check_address(settings.http_host, token)
    return token
