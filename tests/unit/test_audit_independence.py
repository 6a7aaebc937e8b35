"""The audit and the judges have no rule in common: what one gets wrong, the other does not."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULES = {
    "services.domain.reclaimability",
    "services.domain.snapshot_chain",
    "services.domain.chain_view",
    "services.domain.space_matrix",
    "services.domain.snapshot_diff",
    "streaming.reclaiming.rule",
    "services.domain.judging",
    "streaming.reclaiming.chain",
    "streaming.reclaiming.reclaim",
}
AUDIT = {f"streaming.audit.{path.stem}" for path in (ROOT / "streaming" / "audit").glob("*.py")} - {
    "streaming.audit.__init__"
}


def _file(module: str) -> Path | None:
    """Where a module or package of the project is written; None for anything else."""
    path = ROOT / Path(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _imports(module: str) -> set[str]:
    """The modules of the project that a module imports."""
    file = _file(module)
    assert file
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if _file(name)}


def test_the_rules_are_where_this_test_looks() -> None:
    assert all(_file(rule) for rule in RULES)


def test_the_audit_shares_no_rule_with_the_judges() -> None:
    reached, waiting = set[str](), set(AUDIT)
    while waiting:
        module = waiting.pop()
        reached.add(module)
        waiting |= _imports(module) - reached
    assert {"streaming.audit.__main__", "streaming.audit.blocks", "streaming.audit.facts"} <= AUDIT
    assert {"schemas.records", "services.domain.table_keys"} <= reached, "imports were not followed"
    assert not reached & RULES
