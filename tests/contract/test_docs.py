"""The documents say what is so: every topic, metric, test, path, setting, code and command in them exists."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from fastavro.schema import to_parsing_canonical_form

from bench import __main__ as bench
from docs import asyncapi, concept_pictures, generate
from schemas.error_codes import ErrorCode
from schemas.schema_files import released_versions
from schemas.topics import CLIENTS, TOPICS
from services.cli.lazy import loaded_commands
from services.cli.main import app
from services.runtime.process.settings import PREFIX, ServiceSettings
from tests.documented_sessions import BY_THEMSELVES, ON_A_PLANE, blocks, unknown_names
from tests.metric_catalogue import ROOT, all_metrics
from tests.staged_pages import STAGED

DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PLACES = ("bench/", "services/", "streaming", "schemas/", "deploy/", "docs/", "tests/", "decisions/")
TYPED = ("bash", "console")
"""Languages of blocks with commands."""
OTHER_SETTINGS = frozenset({"DEEPCLEAN_HOME", "DEEPCLEAN_IVY_SETTINGS", "DEEPCLEAN_USER"})
"""Read by the plane and by make setup, not by a service."""


def _text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}(?: title=\"[^\"]+\")?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _table(text: str, header: str) -> list[list[str]]:
    """The rows of the table whose first line begins so, cell by cell."""
    lines = text[text.index(header) :].splitlines()
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_table_of_topics_is_the_list_of_topics() -> None:
    rows = _table(_text("docs/architecture.md"), "| topic | carries | written by | read by |")
    found = [(topic, record, producers, consumers) for topic, record, producers, consumers, _ in rows]
    assert found == [
        (f"`{topic.name}`", f"`{topic.record.__name__}`", ", ".join(topic.producers), ", ".join(topic.consumers))
        for topic in TOPICS
    ]


_NAMED_IN = r"(`[\w.]+`(?:(?:,| and|, and) `[\w.]+`)*) in `([\w/]+\.py)`"
"""Functions, and the file in which a sentence looks for them."""


@cache
def _defined_in(path: str) -> set[str]:
    """Functions, classes and constants of a module; members of its classes alone and with the name of the class."""
    found = set()
    for node in ast.parse(_text(path)).body:
        found |= _names_bound_by(node)
        if isinstance(node, ast.ClassDef):
            members = set().union(*map(_names_bound_by, node.body))
            found |= members | {f"{node.name}.{member}" for member in members}
    return found


def _names_bound_by(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def test_the_architecture_names_functions_of_the_files_that_it_names() -> None:
    text = _text("docs/architecture.md")
    named = re.findall(_NAMED_IN, text)
    for _, paths, functions in _table(text, "| question | file | function |"):
        named.append((re.sub(_NAMED_IN, "", functions), paths))
    assert len(named) > 100, "the sentences and the table were not found"
    for functions, paths in named:
        known = set().union(*map(_defined_in, re.findall(r"[\w/]+\.py", paths)))
        missing = set(re.findall(r"`([\w.]+)`", functions)) - known
        assert not missing, f"{paths} has no {sorted(missing)}"


def test_the_picture_has_only_topics_that_exist() -> None:
    (picture,) = _blocks(_text("README.md"), "mermaid")
    named = set(re.findall(r"\b(?:metadata|gc|scm|snapshots)\.[a-z-]+", picture))
    assert named <= {topic.name for topic in TOPICS}
    assert {topic.name for topic in TOPICS if topic.name.startswith("gc.")} - named == {"gc.space", "gc.ledger"}


@pytest.mark.parametrize("name", concept_pictures.PICTURES)
def test_the_pictures_are_what_the_rules_say(name: str) -> None:
    drawn = concept_pictures.PICTURES[name]()
    assert (concept_pictures.FOLDER / name).read_text("utf-8") == drawn, "run make reference"


def test_the_way_of_a_deletion_is_drawn_with_who_writes_and_reads_each_topic() -> None:
    topics = {topic.name: topic for topic in TOPICS}
    process = {"client": CLIENTS, "scm": "mock_scm", "ledger": CLIENTS}
    drawn = [(sender, receiver, topic) for sender, receiver, topic, _ in concept_pictures.STEPS if topic]
    assert len(drawn) == 9
    for sender, receiver, topic in drawn:
        assert process.get(sender, sender) in topics[topic].producers, topic
        assert process.get(receiver, receiver) in topics[topic].consumers, topic


@pytest.mark.parametrize("page", generate.PAGES)
def test_the_generated_parts_are_what_the_code_says(page: str) -> None:
    text = (generate.FOLDER / page).read_text("utf-8")
    assert generate.regenerated(text) == text, "run make reference"


def test_the_asyncapi_document_is_what_the_code_says() -> None:
    """That AsyncAPI's own parser accepts it was tried by hand: it needs Node."""
    assert asyncapi.TARGET.read_text("utf-8") == asyncapi.text(), "run make reference"


def test_the_asyncapi_document_has_each_topic_with_a_schema_that_reads_it() -> None:
    document = asyncapi.document()
    for topic in TOPICS:
        (reference,) = document["channels"][topic.name]["messages"].values()
        message = document["components"]["messages"][reference["$ref"].rpartition("/")[2]]
        assert to_parsing_canonical_form(message["payload"]["schema"]) == to_parsing_canonical_form(
            released_versions(topic.record.__name__)[-1].schema
        )
    actions = {name.split()[0]: one["action"] for name, one in document["operations"].items()}
    assert actions == {"receive": "receive", "send": "send"}
    assert {name.split()[1] for name in document["operations"]} == {
        topic.name for topic in TOPICS if CLIENTS in (*topic.producers, *topic.consumers)
    }


def test_the_reference_has_each_generated_part() -> None:
    """A part that lost its markers would not be written any more, and would not be missed above."""
    named = re.findall(
        r"<!-- generated: ([\w ]+) -->\n.*?<!-- end -->", _text("docs/operations/reference.md"), re.DOTALL
    )
    assert named == ["description", "settings", "metrics", "exit statuses", "commands", "error codes", "limits"]


@cache
def _known_tests() -> set[str]:
    functions = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                functions.add(node.name)
    return functions


def _known_settings() -> set[str]:
    known = {PREFIX + field.upper() for field in ServiceSettings.model_fields} | OTHER_SETTINGS
    described = _text("docs/operations/reference.md").partition("generated: description")[2].partition("<!-- end")[0]
    known |= {
        f"DEEPCLEAN_PLANE_{one.replace('.', '__').upper()}" for one in re.findall(r"^\| `([\w.]+)`", described, re.M)
    }
    for path in ROOT.glob("services/*/settings.py"):
        module = importlib.import_module(f"services.{path.parent.name}.settings")
        for made in vars(module).values():
            if dataclasses.is_dataclass(made) and made.__name__.endswith("Settings"):  # type: ignore[union-attr]
                prefix = f"{PREFIX}{path.parent.name.upper()}_"
                known |= {prefix + field.name.upper() for field in dataclasses.fields(made)}
    return known


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
class TestEveryDocument:
    def test_metrics_and_tests_and_settings_exist(self, document: Path) -> None:
        text = document.read_text("utf-8")
        series = {name for metric in all_metrics().values() for name in metric.series} | set(all_metrics())
        assert set(re.findall(r"\bdeepclean_[a-z_]+", text)) <= series
        assert set(re.findall(r"`(test_\w+)`", text)) <= _known_tests()
        assert set(re.findall(r"\bDEEPCLEAN_[A-Z_]+[A-Z]\b", text)) <= _known_settings()

    def test_paths_exist(self, document: Path) -> None:
        spans = re.findall(r"`([\w./-]+)`", document.read_text("utf-8"))
        paths = {span.rstrip("/") for span in spans if span.startswith(PLACES)}
        missing = [path for path in paths if not (ROOT / path).exists() and not (document.parent / path).exists()]
        assert not missing

    def test_links_lead_somewhere(self, document: Path) -> None:
        for target in re.findall(r"\]\(([^)]+)\)", document.read_text("utf-8")):
            path, _, anchor = target.partition("#")
            linked = document if not path else document.parent / path
            assert linked.exists(), target
            if anchor:
                assert anchor in _anchors(linked.read_text("utf-8")), target

    def test_python_in_it_compiles_and_its_imports_exist(self, document: Path) -> None:
        for block in _blocks(document.read_text("utf-8"), "python"):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    module = importlib.import_module(node.module)
                    assert all(hasattr(module, alias.name) for alias in node.names)

    def test_commands_exist(self, document: Path) -> None:
        text = document.read_text("utf-8")
        targets = set(re.findall(r"^([a-z-]+):", _text("Makefile"), re.MULTILINE))
        assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets
        lines = [line for block in blocks(document) if block.language in TYPED for line in block.lines]
        lines += re.findall(r"`((?:\.venv/bin/)?(?:deepclean|python -m bench) [^`]+)`", text)
        for line in lines:
            words = line.removeprefix("$ ").partition("#")[0].split()
            if words and words[0].endswith("deepclean"):
                _check_command(_command(app), words[1:])
            elif words[1:3] == ["-m", "bench"]:
                _check_command(_command(bench.app), words[3:])

    def test_it_speaks_of_the_project_alone(self, document: Path) -> None:
        """Neither a path of somebody's machine nor an address elsewhere."""
        assert not re.findall(r"/(?:tmp|home)/|https?://(?!127\.)", document.read_text("utf-8").lower())


def _anchors(text: str) -> set[str]:
    """What a heading is called in a link."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def _command(made_by: typer.Typer) -> Any:
    return typer.main.get_command(made_by)


def _check_command(command: Any, words: list[str]) -> None:
    """Follow the words down the commands, then look at the options."""
    if words[:1] == ["--home"]:
        words = words[2:]
    while (inner := dict(loaded_commands(command))) and words and not words[0].startswith("-"):
        if words[0] not in inner and hasattr(command, "default_command"):
            command = inner[command.default_command]
            break
        assert words[0] in inner, words
        command, words = inner[words[0]], words[1:]
        if hasattr(command, "commands"):  # a group's own arguments stand before its commands
            words = words[sum(parameter.param_type_name == "argument" for parameter in command.params) :]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = {word for word in words if word.startswith("--")}
    assert options <= known | {"--help"}, (command.name, options - known)


def test_each_document_with_commands_is_in_one_list() -> None:
    with_commands = {one for one in DOCUMENTS if any(block.language in TYPED for block in blocks(one))}
    lists = [*BY_THEMSELVES, *ON_A_PLANE, *STAGED]
    assert len(lists) == len(set(lists))
    assert set(lists) == with_commands


def test_what_tests_the_commands_that_are_not_played_exists() -> None:
    remarks = [one for document in DOCUMENTS for one in re.findall("<!-- not .+ -->", document.read_text("utf-8"))]
    for why in remarks:
        assert all((ROOT / path).exists() for path in re.findall(r"(?:tests|bench)/[\w./]+\w", why)), why


@pytest.mark.parametrize("page", STAGED, ids=_name)
def test_the_states_of_a_page_are_of_its_headings_and_commands(page: Path) -> None:
    assert not unknown_names(page, STAGED[page])


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_a_block_of_commands_says_that_it_is_one(document: Path) -> None:
    """One without a language would be played by nobody, and missed by nobody."""
    for block in blocks(document):
        assert block.language, f"line {block.line}"


def test_each_decision_has_one_line_in_their_index() -> None:
    listed = re.findall(r"^\| \[(\d{4})\]\((\1-[^)]+\.md)\) \| \S", _text("docs/decisions/README.md"), re.MULTILINE)
    assert sorted(name for _, name in listed) == sorted(path.name for path in (ROOT / "docs/decisions").glob("0*.md"))


def test_clients_know_every_code() -> None:
    rows = _table(_text("docs/clients.md"), "| code | when |")
    documented = [code for codes, _ in rows for code in re.findall(r"`(\w+)`", codes)]
    assert set(documented) == {str(code) for code in ErrorCode}


def test_the_documented_schema_id_is_right() -> None:
    first, *_ = released_versions("MetadataCommand")
    assert f"`{first.schema_id}`" in _text("docs/clients.md")
