"""Sends the ways of deletions to a collector: all that is there, or each one when it is over."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from services.cli.terminal import say
from services.client.errors import UnreachableError
from services.domain.errors import RetryableError
from services.log.clock import SystemClock
from services.tracing.followed import FollowedShard
from services.tracing.spans import Collector, CollectorError, spans_of
from services.tracing.ways import Way

ROUND_SECONDS = 1.0


def send(endpoint: str, followed: Sequence[FollowedShard], *, follows: bool) -> int:
    """Send all ways up to now, or with ``follows`` each one once it is over, until Ctrl-C. Return their number.

    Raises:
        UnreachableError: the collector has not taken them.
        RetryableError: the broker does not answer.
    """
    collector = Collector(endpoint)
    try:
        if follows:
            _follow(collector, followed)
        else:
            for one in followed:
                for way in one.all():
                    collector.send(spans_of(one.shard, way))
            collector.flush()
    except CollectorError as error:
        raise UnreachableError(str(error)) from error
    finally:
        collector.close()
    return collector.sent


def _follow(collector: Collector, followed: Sequence[FollowedShard]) -> None:
    """What is away, the broker or the collector, is waited for."""
    try:
        while True:
            for one in followed:
                _send_new(collector, one)
            _flush(collector)
            pause()
    except KeyboardInterrupt:
        return


def _send_new(collector: Collector, one: FollowedShard) -> None:
    try:
        for way in one.read():
            _send(collector, one.shard, way)
    except RetryableError as error:
        say(f"tried again: {error}", err=True)
    for way in one.over(SystemClock().now_ms()):
        _send(collector, one.shard, way)


def _send(collector: Collector, shard: int, way: Way) -> None:
    try:
        collector.send(spans_of(shard, way))
    except CollectorError:
        _flush(collector)


def _flush(collector: Collector) -> None:
    while True:
        try:
            collector.flush()
        except CollectorError as error:
            say(f"tried again: {error}", err=True)
            pause()
        else:
            return


def pause() -> None:
    """Wait for the next round."""
    threading.Event().wait(ROUND_SECONDS)
