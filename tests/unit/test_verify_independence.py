"""What verifies the ledger has no rule in common with the judges: what one gets wrong, the other does not."""

from __future__ import annotations

import typing
from pathlib import Path

from schemas.records import MetadataCommand
from services.ledger import replay
from services.ledger.history import History
from services.ledger.replay import LogReplay
from tests.unit.test_audit_independence import ROOT, RULES, _imports

VERIFY = {f"services.ledger.{path.stem}" for path in (ROOT / "services" / "ledger").glob("[!_]*.py")}
MAY_USE = {
    *("schemas.codec", "schemas.records", "schemas.signatures"),
    *("services.domain.authorization", "services.domain.names", "services.domain.table_keys"),
}


def test_what_verifies_shares_no_rule_with_the_judges() -> None:
    reached, waiting = set[str](), set(VERIFY)
    while waiting:
        module = waiting.pop()
        reached.add(module)
        waiting |= _imports(module) - reached
    assert {"services.ledger.replay", "services.ledger.history", "services.ledger.verify"} <= VERIFY
    assert not reached & RULES
    assert not {module for module in reached if module.startswith("services.metadata")}
    assert reached - VERIFY <= MAY_USE


def test_every_command_of_the_log_is_known(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    known = LogReplay(0, history, {})
    taught = {*known._client_commands, *known._service_commands, *replay._STEERING, *replay._BY_ANSWER}
    history.close()
    assert taught == set(typing.get_args(typing.get_type_hints(MetadataCommand)["body"]))
