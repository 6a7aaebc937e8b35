"""Generates ``deepclean/asynchronous.py`` from the synchronous objects. Run ``python -m deepclean.generate`` after a
change of a public method.

There is one description of what the library can do, the synchronous classes: a method becomes an awaitable one with the
same parameters and docstring, and an iterator an asynchronous iterator. Methods that make no call stay as they are.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
TARGET = FOLDER / "asynchronous.py"
MADE_BY = "# Made from the synchronous objects by python -m deepclean.generate: change these, then run that."
CLASSES = {
    "namespace": "Namespace",
    "snapshot": "Snapshot",
    "bucket": "Bucket",
    "volume": "Volume",
    "connection": "Connection",
}
"""Module and class of each object, a class before those that name it."""
NO_CALLS = frozenset({"volume", "bucket", "snapshot", "writer"})
"""Methods that only make an object of a name."""
LEFT_OUT = frozenset({"open", "open_raw"})
"""Methods whose results would block: files."""
ONLY = {"Connection": ("volume", "volumes", "settle")}
"""Of a class with others below, the methods that are taken."""
OBJECTS = {name: f"Async{name}" for name in ("Volume", "Bucket", "Snapshot", "BulkWriter")}
"""Results that become asynchronous, too."""
BASES = {"Connection": "AsyncClient", "Bucket": "AsyncNamespace", "Snapshot": "AsyncNamespace"}
"""The base of a class; of another one, none."""
HEADER = f'''"""The objects of the library with awaitable methods, for programs on asyncio: ``deepclean.connect_async``.

Each call runs in one of a bounded number of threads. A cancelled call runs there to its end, so a command whose task
was cancelled may be applied.
"""

{MADE_BY}

from __future__ import annotations
'''
DOCUMENTS = {
    "Connection": """A client with awaitable methods, which ``connect_async`` makes, for an ``async with`` block.

    Tasks of one event loop may share it. ``connection`` is the synchronous client below.
    """
}
"""Docstrings of classes that are not those of the synchronous ones."""
ENTERED = '''
    async def __aenter__(self) -> Self:
        return type(self)(self._threads, await self._threads.run(self._sync.__enter__))

    async def __aexit__(self, *_: object) -> None:
        """Do nothing: a snapshot that is read is not held."""
'''


class _Module:
    """A module of the synchronous library, and where the names in it come from."""

    def __init__(self, name: str) -> None:
        self.tree = ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))
        self.origins: dict[str, str] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                self.origins |= {alias.name: node.module for alias in node.names}
            elif isinstance(node, ast.ClassDef):
                self.origins[node.name] = f"deepclean.{name}"
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.origins[node.targets[0].id] = f"deepclean.{name}"

    def class_named(self, name: str) -> ast.ClassDef:
        """Return a class of the module."""
        (found,) = (node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name)
        return found


def generated() -> str:
    """Return the text of the asynchronous module."""
    parts, imports = [], {"AsyncBulkWriter": "deepclean.threads", "AsyncClient": "deepclean.threads"}
    imports |= {"Threads": "deepclean.threads", "Self": "typing"}
    for module_name, class_name in CLASSES.items():
        module = _Module(module_name)
        text = "\n".join(_class_lines(module.class_named(class_name)))
        parts.append(text)
        names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        imports |= {name: module.origins[name] for name in sorted(names & module.origins.keys())}
    lines = [f"from {origin} import {name}" for name, origin in sorted(imports.items(), key=lambda one: one[::-1])]
    lines.append("from collections.abc import AsyncIterator")
    return _formatted("\n".join([HEADER, *lines, "", *parts]))


def _class_lines(node: ast.ClassDef) -> Iterator[str]:
    base = BASES.get(node.name, "")
    yield f"class Async{node.name}({base}):" if base else f"class Async{node.name}:"
    document = DOCUMENTS.get(node.name) or ast.get_docstring(node, clean=False) or ""
    yield f'    """{_adapted(document)}"""'
    if base != "AsyncClient":
        yield f"    _sync: {node.name}"
        if not base:
            yield f"    def __init__(self, threads: Threads, sync: {node.name}) -> None:"
            yield "        self._threads = threads\n        self._sync = sync"
    for name, kind, meaning in _attributes(node):
        yield f"    @property\n    def {name}(self) -> {kind}:"
        yield f'        """{meaning}"""\n        return self._sync.{name}'
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and _is_taken(node.name, method):
            yield from _method_lines(method)
    if node.name == "Snapshot":
        yield ENTERED
    if not base or base == "AsyncNamespace":
        yield '    def __repr__(self) -> str:\n        return f"Async{self._sync!r}"'
    yield ""


def _is_taken(class_name: str, method: ast.FunctionDef) -> bool:
    if method.name.startswith("_") or method.name in LEFT_OUT or method.decorator_list:
        return False
    return class_name not in ONLY or method.name in ONLY[class_name]


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and meaning of the public attributes that a constructor sets."""
    constructor = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    if constructor is None:
        return
    kinds = {one.arg: ast.unparse(one.annotation) for one in constructor.args.args if one.annotation}
    for setting, behind in zip(constructor.body, constructor.body[1:], strict=False):
        if isinstance(setting, ast.Assign) and isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
            target, value = setting.targets[0], setting.value
            if isinstance(target, ast.Attribute) and isinstance(value, ast.Name) and not target.attr.startswith("_"):
                yield target.attr, kinds[value.id], str(behind.value.value)


def _method_lines(method: ast.FunctionDef) -> Iterator[str]:
    returns = ast.unparse(method.returns) if method.returns else "None"
    signature = ", ".join(_parameters(method.args))
    call, passed = f"self._sync.{method.name}", list(_passed(method.args))
    run = ", ".join([call, *passed])
    document = f'        """{_adapted(ast.get_docstring(method, clean=False) or "")}"""'
    made = OBJECTS.get(returns)
    if method.name in NO_CALLS:
        yield f"    def {method.name}({signature}) -> {made}:\n{document}"
        yield f"        return {made}(self._threads, {call}({', '.join(passed)}))"
    elif returns.startswith("Iterator["):
        yield f"    def {method.name}({signature}) -> Async{returns}:\n{document}"
        yield f"        return self._threads.iterate({run})"
    elif made:
        yield f"    async def {method.name}({signature}) -> {made}:\n{document}"
        yield f"        return {made}(self._threads, await self._threads.run({run}))"
    else:
        yield f"    async def {method.name}({signature}) -> {returns}:\n{document}"
        yield f"        {'' if returns == 'None' else 'return '}await self._threads.run({run})"


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + list(arguments.defaults)
    for one, default in zip(arguments.args, defaults, strict=True):
        yield _parameter(one, default)
    if arguments.kwonlyargs:
        yield "*"
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(one, default)


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    if one.annotation is None:
        return one.arg
    kind = ast.unparse(one.annotation)
    return f"{one.arg}: {OBJECTS.get(kind, kind)}" + ("" if default is None else f" = {ast.unparse(default)}")


def _passed(arguments: ast.arguments) -> Iterator[str]:
    for one in arguments.args[1:]:
        is_object = one.annotation is not None and ast.unparse(one.annotation) in OBJECTS
        yield f"{one.arg}._sync" if is_object else one.arg
    for one in arguments.kwonlyargs:
        yield f"{one.arg}={one.arg}"


def _adapted(document: str) -> str:
    """Return a docstring for the asynchronous object."""
    return document.replace("``with bucket.", "``async with bucket.")


def _formatted(text: str) -> str:
    """Return the text of a module as ruff sorts its imports and formats it."""
    for command in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format"]):
        arguments = [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(arguments, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    TARGET.write_text(generated(), "utf-8")
