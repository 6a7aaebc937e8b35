"""The topics as an AsyncAPI document, ``docs/asyncapi.json``: what a program outside sends and receives."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from schemas.schema_files import released_versions, resolved_schema
from schemas.topics import CLIENTS, TOPICS, Topic
from services.domain.topic_rules import WANTED
from tests.metric_catalogue import ROOT

TARGET = ROOT / "docs" / "asyncapi.json"
AVRO = "application/vnd.apache.avro;version=1.9.0"
_DESCRIPTION = (
    "Each partition of a topic is a shard; the producer sets it. A message is a zero byte, the id of its schema in "
    "four bytes, most significant first, and the Avro body. The schemas are also on the topic deepclean.schemas, and "
    "behind each service's HTTP address in the form of Confluent's schema registry. See clients.md for how a client "
    "writes commands and finds its answers."
)


def document() -> dict[str, Any]:
    """Return the document, from the point of view of the plane: it receives what clients write."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "deepclean",
            "version": version("deepclean"),
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/vnd.apache.avro",
        "channels": {topic.name: _channel(topic) for topic in TOPICS},
        "operations": {name: one for topic in TOPICS for name, one in _operations(topic)},
        "components": {"messages": {topic.record.__name__: _message(topic) for topic in TOPICS}},
    }


def text() -> str:
    """Return the document as it is written."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def _channel(topic: Topic) -> dict[str, Any]:
    name = topic.record.__name__
    settings = {key: value for key, value in WANTED.items() if key in ("cleanup.policy", "retention.ms")}
    return {
        "address": topic.name,
        "description": f"Written by {', '.join(topic.producers)}; read by {', '.join(topic.consumers)}.",
        "messages": {name: {"$ref": f"#/components/messages/{name}"}},
        "bindings": {
            "kafka": {
                "topic": topic.name,
                "topicConfiguration": {
                    "cleanup.policy": [settings["cleanup.policy"]],
                    "retention.ms": int(settings["retention.ms"]),
                },
                "bindingVersion": "0.5.0",
            }
        },
    }


def _operations(topic: Topic) -> list[tuple[str, dict[str, Any]]]:
    """Return what a program outside of the plane may do with a topic."""
    channel = {"$ref": "#/channels/" + topic.name}
    found = []
    if CLIENTS in topic.producers:
        found.append((f"receive {topic.name}", {"action": "receive", "channel": channel}))
    if CLIENTS in topic.consumers:
        found.append((f"send {topic.name}", {"action": "send", "channel": channel}))
    return found


def _message(topic: Topic) -> dict[str, Any]:
    name = topic.record.__name__
    schema, ids = resolved_schema(name), [one.schema_id for one in released_versions(name)]
    return {
        "name": name,
        "title": name,
        "summary": schema["doc"],
        "contentType": "application/vnd.apache.avro",
        "description": f"Ids of its released schemas, oldest first: {', '.join(map(str, ids))}.",
        "payload": {"schemaFormat": AVRO, "schema": schema},
    }
