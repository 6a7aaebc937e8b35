"""Which compiled modules are those of their source; of one that is not, the source is taken.

Python prefers a compiled module to its source, also when the source has changed since: after a pull without
``make setup``, say. The codec of yesterday may write what no other reader of the log understands, for ever; the source
does the same as what would be compiled of it, at half the speed. So the digest of the source that was compiled is kept
beside it, and compared when this package is imported.
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
    """Return the path where Python finds the compiled module, before its source."""
    return HERE / f"{module}{SUFFIX}"


def source_file_of_compiled(module: str) -> Path:
    """Where the digest of the source is kept that was compiled."""
    return HERE / f"{module}.compiled"


def source_digest(module: str) -> str:
    """Return the SHA-256 of a module's source."""
    return hashlib.sha256((HERE / f"{module}.py").read_bytes()).hexdigest()


def is_stale(module: str) -> bool:
    """Whether there is a compiled module, of another source than the one beside it, or of nobody knows which."""
    if not compiled_file(module).is_file():
        return False
    kept = source_file_of_compiled(module)
    return not kept.is_file() or kept.read_text().strip() != source_digest(module)


def prefer_sources_to_stale_modules() -> None:
    """Load the sources in place of stale compiled modules, before another module imports them."""
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
    """What was not taken as it was compiled: a sentence for each, for whoever watches the start."""
    return tuple(_unused_modules)
