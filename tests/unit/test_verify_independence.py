"""What verifies the ledger has no rule in common with the judges: what one gets wrong, the other does not."""

from __future__ import annotations

import typing
from pathlib import Path

from schemas import records
from schemas.records import MetadataCommand
from services.verifier import replay
from services.verifier.history import History
from services.verifier.replay import LogReplay
from tests.unit.test_audit_independence import ROOT, RULES, _imports

READ = {f"services.verifier.{name}" for name in ("divided", "messages", "part", "run", "survey")}
"""These read the log and hand it to the others. They may use the log, its errors and its topics."""
VERIFY = {f"services.verifier.{path.stem}" for path in (ROOT / "services" / "verifier").glob("[!_]*.py")}
RECORDS = {f"schemas.records.{path.stem}" for path in (ROOT / "schemas" / "records").glob("[!_]*.py")}
MAY_USE = RECORDS | {
    *(
        "schemas",
        "schemas.compiled",
        "schemas.frozen",
        "schemas.records",
        "schemas.signatures",
        "services.domain.ledger_rows",
    ),
    *("services.domain.authorization", "services.domain.names", "services.domain.table_keys"),
}
READ_MAY_USE = {
    "schemas.avro_binary",
    "schemas.codec",
    "schemas.published",
    "schemas.oldest_frames",
    "schemas.schema_files",
    "schemas.topics",
    "services.domain.errors",
    "services.log.port",
    "services.log.reads",
}


def reached_from(modules: set[str]) -> set[str]:
    """These modules, and all of the project that they import, directly or not."""
    reached, waiting = set[str](), set(modules)
    while waiting:
        module = waiting.pop()
        reached.add(module)
        waiting |= _imports(module) - reached
    return reached


def test_what_verifies_shares_no_rule_with_the_judges() -> None:
    assert {"services.verifier.replay", "services.verifier.history", "services.verifier.verify", *READ} <= VERIFY
    reached = reached_from(VERIFY)
    assert not reached & RULES
    assert not {module for module in reached if module.startswith("services.metadata")}
    assert reached_from(VERIFY - READ) <= VERIFY | MAY_USE
    assert reached <= VERIFY | MAY_USE | READ_MAY_USE


def test_every_command_of_the_log_is_known(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    known = LogReplay(0, history, {})
    clients = {*known._client_commands, records.PutKeys}
    taught = {*clients, *known._service_commands, *replay.STEERING, *replay.BY_ANSWER}
    history.close()
    assert {*clients, *replay.BY_ANSWER} == replay.CLIENT_COMMANDS
    assert taught == set(typing.get_args(typing.get_type_hints(MetadataCommand)["body"]))
