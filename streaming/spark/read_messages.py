"""Messages of a topic as Spark reads them from Kafka, decoded, each with the reason why it cannot be read."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, lit, when

from schemas.codec import schema_id_of
from services.domain.errors import InvariantError
from streaming.spark.written_messages import COLUMNS_ERROR, DECODE_ERROR, WrittenMessages


def read_messages(batch: DataFrame, messages: WrittenMessages, is_whole: Column | None = None) -> DataFrame:
    """Return the messages of a batch with the decoded ``entry``, and with ``error``, which is null for a good message.

    ``is_whole`` says of an ``entry`` whether its lists fit together; if not, the error is ``COLUMNS_ERROR``.
    """
    return (
        batch.select(col("partition").alias("shard"), "offset", "value")
        .select("*", messages.decode(col("value")).alias("decoded"))
        .select("*", col("decoded.message").alias("entry"), messages.is_exact(col("decoded")).alias("is_exact"))
        .select(
            "*",
            when(~col("is_exact"), DECODE_ERROR)
            .when(lit(False) if is_whole is None else ~is_whole, COLUMNS_ERROR)
            .alias("error"),
        )
    )


def require_schemas(read: DataFrame, messages: WrittenMessages, topic: str) -> None:
    """Raise InvariantError if the schema of a framed message is not known: nothing may be left out because of that."""
    unknown = read.filter(messages.has_unknown_schema(col("value"))).orderBy("shard", "offset").head()
    if unknown is not None:
        raise InvariantError(
            f"Message {unknown['offset']} of shard {unknown['shard']} of {topic} has the schema "
            f"{schema_id_of(bytes(unknown['value']))}, which is not published: publish it with the version that "
            f"has it (deepclean upgrade prepare), then export again; nothing was passed over."
        )
