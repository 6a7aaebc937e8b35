"""Signs a command with its sender's secret: HMAC-SHA256 over the bytes of the message.

The signature is the last field of a command in every version of its schema, as 64 hexadecimal letters. A message is
therefore signed bytes followed by the signature, and nothing is encoded again to check it. Signed are::

    topic name | 0 | the message up to the signature

The message contains the id of its schema, the shard, the client's id and number, the request, the sender and the time.
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


def sign(secret: bytes, topic: str, value: bytes) -> bytes:
    """Return a signed command, given the command encoded with an empty signature.

    Raises:
        ValueError: the command does not end with an empty signature.
    """
    if not value.endswith(_UNSIGNED_END):
        raise ValueError("only a command with an empty signature can be signed")
    body = value[: -len(_UNSIGNED_END)]
    return body + _LENGTH + _digest(secret, topic, body)


def is_signed_with(secret: bytes, topic: str, value: bytes) -> bool:
    """Return whether a message was signed with a secret. The time taken does not reveal the signature."""
    body, end = value[:-_SIGNED_END], value[-_SIGNED_END:]
    expected = _LENGTH + _digest(secret, topic, body)
    return hmac.compare_digest(end, expected)


def _digest(secret: bytes, topic: str, body: bytes) -> bytes:
    signed = b"\0".join((topic.encode(), body))
    return hmac.new(secret, signed, hashlib.sha256).hexdigest().encode()
