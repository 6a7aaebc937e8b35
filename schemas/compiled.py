"""Detects compiled modules whose source has changed since, and loads the source in place of them.

Python prefers a compiled module to its source, also when the source has changed since, for example after a pull without
``make setup``. An outdated codec could write messages to the log that no other reader understands. The source does the
same as its compiled module, at half the speed. So the digest of the compiled source is stored beside the compiled
module, and compared with the source when this package is imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

HERE = Path(__file__).parent
MODULES = ("avro_binary",)
SUFFIX = EXTENSION_SUFFIXES[0]
_unused_modules: list[str] = []


def compiled_file(module: str) -> Path:
    """Return the path of the compiled module, which Python prefers to the source."""
    return HERE / f"{module}{SUFFIX}"


def source_file_of_compiled(module: str) -> Path:
    """Return the path of the file with the digest of the source that was compiled."""
    return HERE / f"{module}.compiled"


def source_digest(module: str) -> str:
    """Return the SHA-256 of a module's source."""
    return hashlib.sha256((HERE / f"{module}.py").read_bytes()).hexdigest()


def is_stale(module: str) -> bool:
    """Return whether there is a compiled module whose digest is missing or is not that of the present source."""
    if not compiled_file(module).is_file():
        return False
    kept = source_file_of_compiled(module)
    return not kept.is_file() or kept.read_text().strip() != source_digest(module)


def prefer_sources_to_stale_modules() -> None:
    """Load the source in place of each stale compiled module. Call it before another module imports them."""
    for module in MODULES:
        if is_stale(module):
            _load_source(module)
            _unused_modules.append(
                f"schemas/{module}.py has changed since it was compiled, so it runs as it is, about half as fast: "
                f"stop what runs, and call make setup"
            )


def _load_source(module: str) -> None:
    package = sys.modules[__package__]
    name = f"{__package__}.{module}"
    spec = importlib.util.spec_from_file_location(name, HERE / f"{module}.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{HERE / module}.py cannot be loaded: install the project again")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    setattr(package, module, loaded)


def unused_modules() -> tuple[str, ...]:
    """Return one sentence for each compiled module that is stale and was not loaded, to show at startup."""
    return tuple(_unused_modules)
