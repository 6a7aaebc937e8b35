"""Writes the generated parts of ``docs/operations``, ``docs/tables.md`` and ``docs/library.md``, and ``asyncapi.json``.

Run ``make reference`` after a change to a setting, a metric, a command, an error code, a limit, an alert, a table, a
topic, a schema or the library. It draws the pictures of ``docs/concepts.md``, too.

A part lies between ``<!-- generated: NAME -->`` and ``<!-- end -->``. The text around it is written by hand.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import typer

from docs import asyncapi, concept_pictures, library
from schemas import error_codes
from services.cli import exit_status
from services.cli.exit_status import ExitStatus
from services.cli.lazy import loaded_commands
from services.cli.main import app
from services.plane.stack.description import PlaneDescription
from services.plane.stack.process_names import DATANODE, SERVICES, STREAMING
from services.runtime.process.settings import PREFIX, ServiceSettings
from streaming.tables.columns import TABLES
from tests.metric_catalogue import ROOT, Metric, all_metrics

FOLDER = ROOT / "docs" / "operations"
PAGES = ("alerts.md", "reference.md", "../tables.md", "../library.md")
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
LIMITS = (
    "services.metadata.state.figures:MAX_BYTES",
    "services.log.port:MAX_MESSAGE_BYTES",
    "services.log.port:MAX_LETTER_MESSAGE_BYTES",
    "services.domain.names:MAX_KEY_BYTES",
    "services.domain.names:MAX_SNAPSHOT_ID_LENGTH",
    "services.domain.table_keys:MAX_KEYS_PER_COMMAND",
    "services.domain.table_keys:MAX_OBJECTS_PER_COMMAND",
    "services.runtime.http.reads:MAX_BODY_BYTES",
    "services.runtime.http.reads:MAX_LIMIT",
)
"""Module and constant of each fixed limit of the reference; the docstring of the constant is its description."""
_PART = re.compile(r"(<!-- generated: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_VALUES = {int: "N", float: "N", Path: "PATH"}


@dataclasses.dataclass(frozen=True, slots=True)
class Alert:
    """An alert as the rules define it."""

    name: str
    severity: str
    expression: str
    duration: str
    """How long the expression must hold; empty when the alert fires at once."""
    summary: str


def main() -> None:
    """Write each part again."""
    for name in PAGES:
        page = FOLDER / name
        page.write_text(regenerated(page.read_text("utf-8")), "utf-8")
    asyncapi.TARGET.write_text(asyncapi.text(), "utf-8")
    concept_pictures.main()


def regenerated(text: str) -> str:
    """Return a page with each of its parts as the code says now."""
    parts: dict[str, Callable[[], str]] = {
        "description": _description,
        "settings": _settings,
        "metrics": _metrics,
        "commands": lambda: "\n\n".join(_commands(typer.main.get_command(app), ["deepclean"])),
        "exit statuses": _exit_statuses,
        "error codes": _error_codes,
        "limits": _limits,
        "alerts": _alerts,
        "tables": _tables,
        "library errors": library.errors,
        "library": library.reference,
        **{alert.name: partial(_alert, alert) for alert in alerts()},
    }
    return _PART.sub(lambda found: f"{found[1]}\n{parts[found[2]]()}\n\n{found[3]}", text)


def _tables() -> str:
    """Return the columns of each exported table."""
    parts = []
    for table in TABLES:
        rows = "\n".join(f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in table.columns)
        parts.append(f"### {table.name}\n\n| column | type | means |\n| --- | --- | --- |\n{rows}")
    return "\n\n".join(parts)


def alerts() -> list[Alert]:
    """Return the alerts in the order of the rules."""
    _, *rules = RULES.read_text("utf-8").split("- alert: ")
    return [_parsed(rule.partition("- name:")[0]) for rule in rules]


def _parsed(rule: str) -> Alert:
    folded = re.search(r"^ +expr: (?:>\n((?: {10,}.+\n)+)|(.+)\n)", rule, re.MULTILINE)
    if folded is None:
        raise ValueError(f"an alert without an expression in {RULES}: {rule}")
    duration = re.search(r"^ +for: (\w+)", rule, re.MULTILINE)
    return Alert(
        name=rule.split(maxsplit=1)[0],
        severity=_field(rule, r"severity: (\w+)"),
        expression=inspect.cleandoc(folded[1] or folded[2]),
        duration=duration[1] if duration else "",
        summary=_field(rule, r"summary: (.+)").strip('"'),
    )


def _field(rule: str, pattern: str) -> str:
    if found := re.search(pattern, rule):
        return found[1]
    raise ValueError(f"an alert without {pattern} in {RULES}: {rule}")


def _alerts() -> str:
    urgent_first = sorted(alerts(), key=lambda alert: alert.severity != "page")
    rows = ((f"[{one.name}](#{one.name.lower()})", one.severity, _filled_in(one.summary)) for one in urgent_first)
    return _table(("alert", "severity", "summary"), rows)


def _alert(alert: Alert) -> str:
    wait = f", after {alert.duration}" if alert.duration else ""
    return f"Severity {alert.severity}{wait}:\n\n```promql\n{alert.expression}\n```"


def _filled_in(summary: str) -> str:
    """Return a summary with a word in place of each value that Prometheus fills in."""
    return re.sub(r"\{\{ \$value[^}]*\}\}B?", "N", re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"*\1*", summary))


def _description() -> str:
    """Return the fields of deepclean.toml, those of a section behind its name."""
    rows = []
    for name, field in PlaneDescription.model_fields.items():
        inner = getattr(field.annotation, "model_fields", None)
        fields = {name: field} if inner is None else {f"{name}.{one}": each for one, each in inner.items()}
        rows += [(f"`{one}`", _value(each.default), each.description) for one, each in fields.items()]
    return _table(("field", "default", "meaning"), rows)


def _settings() -> str:
    fields = ServiceSettings.model_fields.items()
    common = (
        (f"`{PREFIX}{name.upper()}`", "required" if field.is_required() else _value(field.default), field.description)
        for name, field in fields
    )
    header = ("variable", "default", "meaning")
    sections = ["### Every service", _table(header, common)]
    for service in (*SERVICES, DATANODE):
        module = importlib.import_module(f"services.{service}.settings")
        classes = [one for _, one in inspect.getmembers(module, inspect.isclass) if one.__name__.endswith("Settings")]
        (made,) = filter(dataclasses.is_dataclass, classes)
        sentences = _docstrings(module, made.__name__)
        rows = (
            (f"`{PREFIX}{service.upper()}_{field.name.upper()}`", _value(field.default), sentences[field.name])
            for field in dataclasses.fields(made)
        )
        sections += [f"### {service}", _table(header, rows)]
    return "\n\n".join(sections)


def _metrics() -> str:
    groups: dict[str, list[Metric]] = {name: [] for name in ("Every service", *SERVICES, DATANODE, STREAMING)}
    for metric in sorted(all_metrics().values(), key=lambda metric: metric.name):
        owner = next((name for name in groups if metric.name.startswith(f"deepclean_{name}_")), "Every service")
        groups[owner].append(metric)
    header = ("metric", "kind", "labels", "meaning")
    sections = ((f"### Metrics: {name}", _table(header, map(_metric, group))) for name, group in groups.items())
    return "\n\n".join(chain.from_iterable(sections))


def _metric(metric: Metric) -> Sequence[str]:
    labels = ", ".join(f"`{label}`" for label in metric.labels if label != "le")
    return f"`{metric.name}`", metric.kind, labels, metric.help


def _commands(command: Any, words: list[str]) -> Iterator[str]:
    """Yield a command and those below it, each as a section."""
    inner = loaded_commands(command)
    shown = [one for one in command.params if one.name not in ("help", "as_json")]
    wanted = [_written(one) for one in shown if one.required or one.param_type_name == "argument"]
    has_json = any(one.name == "as_json" for one in command.params)
    depth = sum(word.islower() for word in words)  # a group's own arguments do not count
    yield f"{'#' * max(3, 1 + depth)} {' '.join(words)}"
    if not inner:
        yield f"`{' '.join([*words, *wanted, *(['[--json]'] if has_json else [])])}`"
    yield inspect.cleandoc(command.help)
    if shown:
        yield _table(("argument or option", "default", "meaning"), map(_parameter, shown))
    for name, one in inner:
        yield from _commands(one, [*words, *wanted, name])


def _written(parameter: Any) -> str:
    """Return an argument or option as it is typed."""
    if parameter.param_type_name == "argument":
        name = str(parameter.metavar or parameter.name.upper())
        name = name.strip("[]") if name.endswith("]") else name
        return name if parameter.required else f"[{name}]"
    annotation = parameter.type_descriptor.annotation
    (kind,) = get_args(annotation) or (annotation,)
    choices = "|".join(str(one.value) for one in kind) if issubclass(kind, Enum) else _VALUES.get(kind, "TEXT")
    value = "" if parameter.is_flag else parameter.metavar or choices
    return "/".join((*parameter.opts, *parameter.secondary_opts)) + (f" {value}" if value else "")


def _parameter(parameter: Any) -> Sequence[str]:
    default = "" if parameter.default is False else _value(parameter.default)
    return f"`{_written(parameter)}`", "required" if parameter.required else default, parameter.help


def _error_codes() -> str:
    sentences = _docstrings(error_codes, error_codes.ErrorCode.__name__)
    return _table(("code", "meaning"), ((f"`{code}`", sentences[code.name]) for code in error_codes.ErrorCode))


def _exit_statuses() -> str:
    sentences = _docstrings(exit_status, ExitStatus.__name__)
    return _table(("exit status", "meaning"), ((str(one.value), sentences[one.name]) for one in ExitStatus))


def _limits() -> str:
    rows = []
    for place in LIMITS:
        module_name, _, constant = place.partition(":")
        module = importlib.import_module(module_name)
        rows.append((f"`{constant}`", _amount(getattr(module, constant)), _docstrings(module)[constant]))
    return _table(("limit", "value", "meaning"), rows)


def _amount(number: int) -> str:
    if number == 2**63 - 1:
        return "2^63-1"
    mebibytes, rest = divmod(number, 1 << 20)
    return f"{number:,}" if rest else f"{mebibytes} MiB"


def _value(default: object) -> str:
    """Return a default as it would be set; empty for none."""
    if isinstance(default, tuple):
        return f"`{','.join(map(str, default))}`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    text = str(default.value if isinstance(default, Enum) else default)
    return "" if default is None or not text else f"`{text}`"


def _docstrings(module: ModuleType, class_name: str = "") -> dict[str, str]:
    """Return the docstrings behind the names that a module assigns, or a class in it."""
    body: Sequence[ast.stmt] = ast.parse(inspect.getsource(module)).body
    if class_name:
        (body,) = (one.body for one in body if isinstance(one, ast.ClassDef) and one.name == class_name)
    found = {}
    for node, behind in pairwise(body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
            found[target.id] = str(behind.value.value)
    return found


def _table(header: Sequence[str], rows: Iterable[Sequence[str | None]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    main()
