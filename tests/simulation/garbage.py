"""Messages that nobody can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from schemas.codec import FRAME_BYTES, DecodeError, codec, frame
from schemas.topics import Topic
from services.log.port import LogRecord


@dataclass(frozen=True, slots=True)
class Garbage:
    """The bytes of one message."""

    value: bytes
    is_unreadable: bool = True


def garbage_for(topic: Topic, examples: Sequence[LogRecord], random: Random) -> Garbage:
    """Something that is no message of this topic: noise, a real one cut, lengthened, or under another schema."""
    garbage = _garbage(topic, examples, random)
    try:
        codec(topic.record).decode_message(garbage.value)
    except DecodeError:
        return garbage
    if any(example.value == garbage.value for example in examples):
        return replace(garbage, is_unreadable=False)  # cutting what was lengthened gives a message again
    return Garbage(codec(topic.record).frame + b"\xff" * 20)  # lengthening what was cut may read well and be wrong


def _garbage(topic: Topic, examples: Sequence[LogRecord], random: Random) -> Garbage:
    if not examples or random.random() < 0.3:
        begin = random.choice((b"", codec(topic.record).frame))
        return Garbage(begin + b"\xff" * random.randint(11, 30))
    example = random.choice(examples)
    what = random.randrange(3)
    if what == 0:
        return Garbage(example.value + b"\0")
    if what == 1:
        return Garbage(example.value[:-1])
    return Garbage(frame(random.randrange(1 << 16)) + example.value[FRAME_BYTES:])
