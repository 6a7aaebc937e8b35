"""Messages that nobody can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from schemas.codec import DecodeError, codec
from schemas.topics import Topic
from services.log.port import LogRecord


@dataclass(frozen=True, slots=True)
class Garbage:
    """The bytes of one message."""

    value: bytes
    fingerprint: bytes | None
    is_unreadable: bool = True


def garbage_for(topic: Topic, examples: Sequence[LogRecord], random: Random) -> Garbage:
    """Something that is no message of this topic: noise, a real one cut, lengthened, or under another schema."""
    garbage = _garbage(topic, examples, random)
    try:
        codec(topic.record).decode_message(garbage.value, garbage.fingerprint)
    except DecodeError:
        return garbage
    if any(example.value == garbage.value for example in examples):
        return replace(garbage, is_unreadable=False)  # cutting what was lengthened gives a message again
    return Garbage(b"\xff" * 20, codec(topic.record).fingerprint)  # lengthening what was cut may read well and be wrong


def _garbage(topic: Topic, examples: Sequence[LogRecord], random: Random) -> Garbage:
    fingerprint = codec(topic.record).fingerprint
    if not examples or random.random() < 0.3:
        return Garbage(b"\xff" * random.randint(11, 30), fingerprint)
    example = random.choice(examples)
    what = random.randrange(3)
    if what == 0:
        return Garbage(example.value + b"\0", example.fingerprint)
    if what == 1:
        return Garbage(example.value[:-1] if len(example.value) > 1 else b"", example.fingerprint)
    return Garbage(example.value, random.randbytes(8))
