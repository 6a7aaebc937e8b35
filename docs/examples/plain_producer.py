"""Deletes a key of a running plane with nothing of deepclean but its schema files.

    python docs/examples/plain_producer.py --bootstrap-servers 127.0.0.1:9700 VOLUME BUCKET KEY

It needs confluent-kafka, fastavro and the folder ``schemas/released``; any language that has a Kafka client and Avro
can do the same. ``docs/clients.md`` goes through it step by step. Exit status: 0 deleted, 1 refused, 2 no answer.
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
from fastavro.schema import fingerprint, to_parsing_canonical_form

COMMANDS, REPLIES = "metadata.commands", "metadata.replies"
FINGERPRINT_HEADER = "avro-fingerprint"
ANSWER_SECONDS = 30.0


def schema_fingerprint(schema: Any) -> bytes:
    """CRC-64-AVRO of a schema: 8 bytes, least significant first. fastavro gives them in hex, in that order."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def delete_command(schema: Any, client_id: str, number: int, shard: int, volume: str, bucket: str, key: str) -> bytes:
    """The body of the message: plain Avro binary, with no frame around it."""
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


def send(bootstrap_servers: str, shard: int, body: bytes, writer: bytes) -> None:
    """Publish one command to the partition of its shard, and wait until the broker has it."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "acks": "all"})
    producer.produce(COMMANDS, body, partition=shard, headers=[(FINGERPRINT_HEADER, writer)], on_delivery=on_delivery)
    if producer.flush(ANSWER_SECONDS) or failures:
        sys.exit(f"the broker at {bootstrap_servers} did not take the command: {failures or 'no answer in time'}")


def replies_from_here(bootstrap_servers: str, shard: int) -> Consumer:
    """A reader of the shard's replies that starts behind the last one: ask for it before sending."""
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "plain-producer", "enable.auto.commit": False}
    consumer = Consumer(settings)
    _, end = consumer.get_watermark_offsets(TopicPartition(REPLIES, shard), timeout=ANSWER_SECONDS)
    consumer.assign([TopicPartition(REPLIES, shard, end)])
    return consumer


def await_reply(consumer: Consumer, writers: dict[bytes, Any], client_id: str, number: int) -> dict[str, Any] | None:
    """The answer to one command; everybody's answers come on this topic, so others are passed over."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        headers: dict[str, Any] = dict(message.headers() or ())
        reply = schemaless_reader(io.BytesIO(message.value() or b""), writers[headers[FINGERPRINT_HEADER]], None)
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

    command_schema = json.loads((options.schemas / "metadata_command.v1.avsc").read_text("utf-8"))
    reply_schemas = [json.loads(file.read_text("utf-8")) for file in options.schemas.glob("metadata_reply.v*.avsc")]
    writers = {schema_fingerprint(schema): parse_schema(schema) for schema in reply_schemas}

    client_id, number = f"plain-producer-{uuid.uuid4()}", 1  # a new id with each start, then 1, 2, 3, ...
    replies = replies_from_here(options.bootstrap_servers, options.shard)
    body = delete_command(command_schema, client_id, number, options.shard, options.volume, options.bucket, options.key)
    send(options.bootstrap_servers, options.shard, body, schema_fingerprint(command_schema))
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
