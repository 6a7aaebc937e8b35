"""Has Spark load the classes of a small job and keep them for later starts, which then take half the time.

``python -m streaming.spark.class_archive --jars-directory DIR --bootstrap-servers HOST:PORT --topic NAME`` reads a
topic as a stream. The archive is Java's own (application class-data sharing): classes in it are mapped into memory,
already parsed and linked. Another Java, or other jars, than it was made for ignore it.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.avro.functions import from_avro

from streaming.spark.session import SessionOptions, session_parser, spark_session

DUMP_SECONDS = 180.0
_SCHEMA = '{"type": "record", "name": "Row", "fields": [{"name": "rows", "type": {"type": "array", "items": "long"}}]}'


def read_a_stream(session: SparkSession, bootstrap_servers: str, topic: str) -> None:
    """Run what a job runs in a batch of a stream: Kafka, Avro, a join and a sum."""

    def judge(batch: DataFrame, _: int) -> None:
        decoded = batch.select("offset", functions.explode(from_avro("value", _SCHEMA, {"mode": "PERMISSIVE"}).rows))
        named = session.createDataFrame([(1, "one")], "col long, name string")
        decoded.join(functions.broadcast(named), "col").groupBy("name").agg(functions.sum("offset")).collect()

    source = session.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    rows = source.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = rows.writeStream.foreachBatch(judge).trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    """Read the topic, then shut the JVM down regularly, because it writes the archive on exit."""
    parser = session_parser("streaming.spark.class_archive", __doc__)
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", required=True, metavar="NAME")
    options = parser.parse_args()
    with spark_session(SessionOptions(options.jars_directory, writes_class_archive=True)) as session:
        read_a_stream(session, options.bootstrap_servers, options.topic)
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(DUMP_SECONDS)


if __name__ == "__main__":
    main()
