"""Signs a command with the secret of who sends it: HMAC-SHA256 over the very bytes that travel.

The signature is the last field of a command, in every version of its schema, as 64 hexadecimal letters. So a message is
signed bytes followed by the signature, and nobody has to encode anything again to check it. Signed are::

    topic name | 0 | fingerprint of the writer's schema, as in the header | the body up to the signature

that is: shard, client id, number, what to do, who sends it and when, under the one schema that gives them this meaning,
on the one topic where they were meant.
"""

from __future__ import annotations

import hashlib
import hmac

_UNSIGNED_END = b"\x00"
"""An empty string in Avro."""
_LETTERS = 64
_LENGTH = b"\x80\x01"
"""The length of the signature in Avro."""
_SIGNED_END = len(_LENGTH) + _LETTERS
SHORTEST_SECRET, LONGEST_SECRET = 16, 128


def sign(secret: bytes, topic: str, fingerprint: bytes, value: bytes) -> bytes:
    """A command that was encoded with an empty signature, signed."""
    if not value.endswith(_UNSIGNED_END):
        raise ValueError("only a command with an empty signature can be signed")
    body = value[: -len(_UNSIGNED_END)]
    return body + _LENGTH + _digest(secret, topic, fingerprint, body)


def is_signed_with(secret: bytes, topic: str, fingerprint: bytes | None, value: bytes) -> bool:
    """Whether the bytes of a message were signed with a secret; how long it takes tells nothing of the signature."""
    body, end = value[:-_SIGNED_END], value[-_SIGNED_END:]
    expected = _LENGTH + _digest(secret, topic, fingerprint or b"", body)
    return hmac.compare_digest(end, expected)


def _digest(secret: bytes, topic: str, fingerprint: bytes, body: bytes) -> bytes:
    signed = b"\0".join((topic.encode(), fingerprint + body))
    return hmac.new(secret, signed, hashlib.sha256).hexdigest().encode()
