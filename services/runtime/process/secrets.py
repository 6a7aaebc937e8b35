"""Reads the secrets that a service's settings name, each from a file of its own that only its owner may read."""

from __future__ import annotations

from schemas.credentials import KafkaCredentials, read_credentials, read_secret
from schemas.http_token import check_address
from services.log.port import Log
from services.log.signing import SigningLog, read_signing_secret
from services.runtime.process.settings import ServiceSettings


def kafka_credentials(settings: ServiceSettings) -> KafkaCredentials | None:
    """Return the service's credentials for the broker; None when no file is set.

    Raises:
        CredentialsError: the file cannot be used.
    """
    file = settings.kafka_credentials_file
    return None if file is None else read_credentials(file)


def signing(log: Log, settings: ServiceSettings) -> Log:
    """Return the log for this service, which signs its commands if a signing secret is set.

    Raises:
        CredentialsError: the file cannot be used.
    """
    file = settings.signing_secret_file
    return log if file is None else SigningLog(log, read_signing_secret(file))


def http_token(settings: ServiceSettings) -> str:
    """Return the token that every HTTP request must carry; "" for none, which is allowed on loopback only.

    Raises:
        CredentialsError: the file cannot be used, or is not set though the address requires it.
    """
    token = "" if settings.http_token_file is None else read_secret(settings.http_token_file)
    check_address(settings.http_host, token)
    return token
