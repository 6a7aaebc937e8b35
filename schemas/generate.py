"""Generates ``schemas/records``: one class for each schema of ``schemas/avro``. Run ``python -m schemas.generate``
after a change of a schema.

A record becomes a frozen dataclass with the same fields, order, defaults and docs; an enum becomes a ``StrEnum``. A
field with a default before one without, as in a record whose last field must stay the last, is given by its name only.
A folder of schemas becomes a module, and the package exports the classes of all modules.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

Schema = Mapping[str, Any]
Folders = Mapping[str, Sequence[Schema]]

FOLDER = Path(__file__).parent
SCHEMAS, MODULES = FOLDER / "avro", FOLDER / "records"
PACKAGE = "schemas.records"
ABOUT = {
    "chain": "Records of gc.snapshot-chain: captures and drops of snapshots.",
    "commands": "Records of metadata.commands and metadata.replies.",
    "datanode_rows": "Rows in the tables of a datanode's disk.",
    "dead_letters": "Records of dead-letters: messages that could not be read or applied.",
    "deletions": "Records between the judges: gc.deleted-entries, gc.purge-*, gc.sweep-results.",
    "directory_deletion_rows": "Rows in the tables of directory_deletion.",
    "key_deletion_rows": "Rows in the tables of key_deletion.",
    "ledger": "Records of gc.ledger.",
    "metadata_rows": "Rows in the tables of metadata.",
    "progress": "Records of metadata.progress: results of the services' commands.",
    "runtime_rows": "Rows in tables that every service has, and the records of changelogs.",
    "scm": "Records of scm.commands and scm.replies.",
    "scm_rows": "Rows in the tables of mock_scm.",
    "shared": "Records and enums that several other modules use.",
    "snapshots": "Records of snapshots.commands, snapshots.replies and snapshots.info.",
    "snapshots_rows": "Rows in the tables of snapshots.",
    "space": "Records of gc.space: the bytes and rows that each range of snapshots holds.",
}
"""The docstring of each module, by folder of schemas."""
TYPES = {"long": "int", "int": "int", "string": "str", "boolean": "bool", "bytes": "bytes", "null": "None"}
NAMESPACE = "deepclean."
MADE_BY = "# Made from schemas/avro by python -m schemas.generate: change the schema, then run that."
LINE = 120
QUOTES = '"""'


def folders() -> Folders:
    """Return all schemas by folder, which becomes a module; each follows those of its folder that it refers to."""
    found = {}
    for directory in sorted(path for path in SCHEMAS.iterdir() if path.is_dir()):
        schemas = [json.loads(file.read_text("utf-8")) for file in sorted(directory.glob("*.avsc"))]
        by_name = {schema["name"]: schema for schema in schemas}
        named = {name: sorted(_named_by(schema) & by_name.keys()) for name, schema in by_name.items()}
        found[directory.name] = [by_name[name] for name in TopologicalSorter(named).static_order()]
    return found


def _named_by(schema: Schema) -> set[str]:
    """Return the names of the schemas that a schema refers to."""
    return {name for field in schema.get("fields", ()) for name in _names_in(field["type"])}


def _names_in(avro: Any) -> Iterator[str]:
    if isinstance(avro, list):
        for branch in avro:
            yield from _names_in(branch)
    elif isinstance(avro, dict):
        yield from _names_in(avro["items"])
    elif avro.startswith(NAMESPACE):
        yield avro.removeprefix(NAMESPACE)


def generated(all_folders: Folders) -> dict[str, str]:
    """Return the content of each file of the package, by file name, before it is formatted."""
    home = {schema["name"]: folder for folder, schemas in all_folders.items() for schema in schemas}
    files = {f"{folder}.py": _module(folder, schemas, home) for folder, schemas in all_folders.items()}
    return {"__init__.py": _package(home), **files}


def _package(home: Mapping[str, str]) -> str:
    listed = "".join(f'    "{name}",\n' for name in sorted(home))
    return f"{_head('Every record and enum of ``schemas/avro``.', _imports(home, home))}\n\n__all__ = [\n{listed}]\n"


def _imports(names: Iterable[str], home: Mapping[str, str]) -> list[str]:
    """Return the lines that import some classes from the modules in which they are at home."""
    wanted: dict[str, list[str]] = {}
    for name in sorted(names, key=str.casefold):
        wanted.setdefault(home[name], []).append(name)
    return [f"from {PACKAGE}.{module} import {', '.join(some)}" for module, some in sorted(wanted.items())]


def _module(folder: str, schemas: Sequence[Schema], home: Mapping[str, str]) -> str:
    others = {name for schema in schemas for name in _named_by(schema) if home[name] != folder}
    fields = [field for schema in schemas for field in _fields(schema)]
    imports = ["from dataclasses import field"] * any("field(" in field for field in fields)
    if any(schema["type"] == "enum" for schema in schemas):
        imports.append("from enum import StrEnum")
    imports += ["", *["from schemas.frozen import record"] * bool(fields), *_imports(others, home)]
    classes = "\n\n\n".join(_class(schema) for schema in schemas)
    return f"{_head(ABOUT[folder], imports)}\n\n\n{classes}\n"


def _head(about: str, imports: Sequence[str]) -> str:
    parts = [_docstring(about, ""), MADE_BY, "from __future__ import annotations", "\n".join(imports).strip()]
    return "\n\n".join(parts)


def _class(schema: Schema) -> str:
    doc = _docstring(schema["doc"], "    ")
    if schema["type"] == "enum":
        members = "\n".join(f'    {symbol} = "{symbol}"' for symbol in schema["symbols"])
        return f"class {schema['name']}(StrEnum):\n{doc}\n\n{members}"
    fields = "\n".join(
        f"{line}\n{_docstring(field['doc'], '    ')}"
        for line, field in zip(_fields(schema), schema["fields"], strict=True)
    )
    return f"@record\nclass {schema['name']}:\n{doc}\n\n{fields}"


def _fields(schema: Schema) -> list[str]:
    """Return the lines that declare the fields of a record; none for an enum."""
    fields = schema.get("fields", ())
    last_needed = max((place for place, field in enumerate(fields) if "default" not in field), default=-1)
    return [_field(field, is_named=place < last_needed) for place, field in enumerate(fields)]


def _field(field: Schema, *, is_named: bool) -> str:
    default = _default(field["type"], field["default"]) if "default" in field else ""
    settings = ["repr=False"] * bool(field.get("is_secret")) + ["kw_only=True"] * bool(is_named and default)
    if settings:
        default = f"field({', '.join([f'default={default}'] * bool(default) + settings)})"
    return f"    {field['name']}: {_hint(field['type'])}{f' = {default}' if default else ''}"


def _hint(avro: Any) -> str:
    if isinstance(avro, list):
        return " | ".join(_hint(branch) for branch in sorted(avro, key="null".__eq__))
    if isinstance(avro, dict):
        return f"tuple[{_hint(avro['items'])}, ...]"
    name: str = avro
    return TYPES.get(name, name.removeprefix(NAMESPACE))


def _default(avro: Any, value: Any) -> str:
    if isinstance(avro, str) and avro.startswith(NAMESPACE):
        return f"{avro.removeprefix(NAMESPACE)}.{value}"
    if isinstance(value, list):
        return repr(tuple(value))
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _docstring(text: str, indent: str) -> str:
    one_line = f'{indent}"""{text}"""'
    if len(one_line) <= LINE:
        return one_line
    width = LINE - len(indent) - len(QUOTES)  # else the formatter makes a line too long by joining the quotes to it
    lines = textwrap.wrap(text, width, initial_indent=" " * len(QUOTES), break_on_hyphens=False)
    return textwrap.indent('"""' + "\n".join(lines).lstrip() + '\n"""', indent)


def formatted(text: str) -> str:
    """Return the text of a module as ``ruff format`` writes it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FOLDER / "records.py"), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Write all files of the package, and remove others."""
    files = {name: formatted(text) for name, text in generated(folders()).items()}
    shutil.rmtree(MODULES, ignore_errors=True)
    MODULES.mkdir()
    for name, text in files.items():
        (MODULES / name).write_text(text, "utf-8")
    print(f"{len(files)} files written to {MODULES.name}")


if __name__ == "__main__":
    main()
