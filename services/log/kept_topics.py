"""Asks a log whether the topics that a reader relies on keep their messages."""

from __future__ import annotations

from collections.abc import Sequence

from services.domain.topic_rules import losses
from services.log.port import Log


def first_loss(log: Log, topics: Sequence[str]) -> str:
    """Return a sentence on the first topic that loses messages by itself; empty if each keeps them."""
    settings = log.topic_settings(topics)
    return next((sentence for topic in topics for sentence in losses(topic, settings[topic])), "")
