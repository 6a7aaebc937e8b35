"""How the rows of a table become columns: the interface of a decoder, and the one for tables that nobody knows.

A module that decodes the tables of one kind of database has a function ``decoder_of(rows, table)``. Its name is the
option ``decoder`` of the data source; without it, the source decodes tables of this project, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol

import pyarrow as pa

from schemas.formats import FAMILY as FORMAT_FAMILY
from streaming.rocksdb.checkpoint_rows import WHOLE, CheckpointRows, Row

OWN_ROWS = "streaming.rocksdb.own_rows"
KEY = "row_key"
"""The column with the key of a row. It is not called ``key``, because rows have a field of this name."""


class Decoder(Protocol):
    """Decodes the rows of one table. It is pickled and sent to the tasks."""

    @property
    def fields(self) -> Sequence[pa.Field]:
        """Return the columns, without that of the key."""
        ...

    def columns(self, rows: Sequence[Row]) -> Sequence[pa.Array]:
        """Return the columns of some rows.

        Raises:
            DecodeError: a row cannot be decoded; the message names its key.
        """
        ...


class RawValues:
    """The values as they are."""

    fields = (pa.field("value", pa.binary()),)

    def columns(self, rows: Sequence[Row]) -> Sequence[pa.Array]:
        """Return the values."""
        return [pa.array([value for _, value in rows], pa.binary())]


DecoderOf = Callable[[CheckpointRows, str], Decoder | None]
"""Returns the decoder of a table; None for a table that it does not know. The rows of ``formatTable`` can be read."""


def find_decoder(rows: CheckpointRows, table: str, module: str) -> Decoder:
    """Return the decoder of a table by the named module, or by the one that fits; values as they are for any other."""
    if not module and not any(rows.chunks(FORMAT_FAMILY, *WHOLE)):
        return RawValues()
    decoder_of: DecoderOf = import_module(module or OWN_ROWS).decoder_of
    return decoder_of(rows, table) or RawValues()
