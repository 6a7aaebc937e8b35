"""Which messages the export of the ledger leaves to a newer job: those of a schema that it does not know."""

from __future__ import annotations

import pytest

from schemas.codec import released_schemas, schema_fingerprint
from schemas.records import LedgerRows
from services.domain.errors import InvariantError
from streaming.ledger_export.__main__ import FirstOfSchema, stop_at_newer
from streaming.spark.written_messages import WrittenMessages

KNOWN = WrittenMessages(LedgerRows)


def test_every_released_schema_is_passed_and_so_is_what_names_none() -> None:
    released = [schema_fingerprint(schema) for schema in released_schemas(LedgerRows.__name__)]
    headers = [None, b"", b"none", b"unknown! ", *released]
    stop_at_newer([FirstOfSchema(0, offset, header) for offset, header in enumerate(headers)], KNOWN)


def test_the_first_message_of_an_unknown_schema_is_named() -> None:
    later = [FirstOfSchema(1, 3, b"unknown!"), FirstOfSchema(0, 9, b"unknown?"), FirstOfSchema(0, 2, None)]
    with pytest.raises(InvariantError, match=rf"^Message 9 of shard 0 of .*\({b'unknown?'.hex()}\).*newer deepclean"):
        stop_at_newer(later, KNOWN)
