"""Deletes a key of a running plane with nothing of deepclean but its schema files.

    python docs/examples/plain_producer.py --bootstrap-servers 127.0.0.1:9700 VOLUME BUCKET KEY

It needs confluent-kafka, fastavro and the folder ``schemas/released``; any language that has a Kafka client and Avro
can do the same. ``docs/clients.md`` goes through it step by step. Exit status: 0 deleted, 1 refused or not sent, 2 no
answer.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from fastavro import parse_schema, schemaless_reader, schemaless_writer

COMMANDS, REPLIES = "metadata.commands", "metadata.replies"
COMMAND_FILE = "metadata_command.v1.avsc"
ANSWER_SECONDS = 30.0


def schema_ids(folder: Path) -> dict[str, int]:
    """Return the id of each schema file: index.txt has a line for each, its id, SHA-256 and name."""
    lines = (folder / "index.txt").read_text("ascii").splitlines()
    return {name: int(schema_id) for schema_id, _, name in map(str.split, lines)}


def delete_command(schema: Any, client_id: str, number: int, shard: int, volume: str, bucket: str, key: str) -> bytes:
    """Return the body of the message: plain Avro binary."""
    command = {
        "shard": shard,
        "client_id": client_id,
        "number": number,
        "body": ("deepclean.DeleteKey", {"volume": volume, "bucket": bucket, "key": key}),
        "sender": "",  # services name themselves here; a client does not
        "wants_reply": True,
    }
    body = io.BytesIO()
    schemaless_writer(body, parse_schema(schema), command)
    return body.getvalue()


def send(bootstrap_servers: str, shard: int, schema_id: int, body: bytes) -> None:
    """Publish one command to the partition of its shard, and wait until the broker has it."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "acks": "all"})
    message = b"\0" + schema_id.to_bytes(4, "big") + body
    producer.produce(COMMANDS, message, partition=shard, on_delivery=on_delivery)
    if producer.flush(ANSWER_SECONDS) or failures:
        sys.exit(f"the broker at {bootstrap_servers} did not take the command: {failures or 'no answer in time'}")


def replies_from_here(bootstrap_servers: str, shard: int) -> Consumer:
    """A reader of the shard's replies that starts behind the last one: ask for it before sending."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "plain-producer", "enable.auto.commit": False}
    consumer = Consumer(settings)
    _, end = consumer.get_watermark_offsets(TopicPartition(REPLIES, shard), timeout=ANSWER_SECONDS)
    consumer.assign([TopicPartition(REPLIES, shard, end)])
    return consumer


def await_reply(consumer: Consumer, writers: dict[int, Any], client_id: str, number: int) -> dict[str, Any] | None:
    """The answer to one command; everybody's answers come on this topic, so others are passed over."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        value = message.value() or b""
        reply = schemaless_reader(io.BytesIO(value[5:]), writers[int.from_bytes(value[1:5], "big")], None)
        if isinstance(reply, dict) and (reply["client_id"], reply["number"]) == (client_id, number):
            return reply
    return None


def main() -> int:
    """Delete one key, and say what the plane answered."""
    parser = argparse.ArgumentParser(description="Delete a key with a plain Kafka producer.")
    parser.add_argument("--bootstrap-servers", required=True, help="the plane's broker")
    parser.add_argument("--shard", type=int, default=0, help="shard of the volume, which is its partition (default 0)")
    parser.add_argument("--schemas", type=Path, default=Path("schemas/released"), help="folder of the schema files")
    for name in ("volume", "bucket", "key"):
        parser.add_argument(name)
    options = parser.parse_args()

    ids = schema_ids(options.schemas)
    command_schema = json.loads((options.schemas / COMMAND_FILE).read_text("utf-8"))
    reply_files = options.schemas.glob("metadata_reply.v*.avsc")
    writers = {ids[file.name]: parse_schema(json.loads(file.read_text("utf-8"))) for file in reply_files}

    client_id, number = f"plain-producer-{uuid.uuid4()}", 1  # a new id with each start, then 1, 2, 3, ...
    replies = replies_from_here(options.bootstrap_servers, options.shard)
    body = delete_command(command_schema, client_id, number, options.shard, options.volume, options.bucket, options.key)
    send(options.bootstrap_servers, options.shard, ids[COMMAND_FILE], body)
    reply = await_reply(replies, writers, client_id, number)
    replies.close()
    if reply is None:
        print(f"no answer within {ANSWER_SECONDS:g} seconds; the command is in the log and may still be applied")
        return 2
    if reply["error"]:
        print(f"{reply['error']}: {reply['message']}")
        return 1
    print(f"deleted at txn {reply['txn']}; its blocks go when no snapshot holds them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
