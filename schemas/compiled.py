"""Detects that the codec's source has changed since it was compiled, and loads the source in place of the module.

Python prefers a compiled module to its source, also when the source has changed since, for example after a pull without
``make setup``. An outdated codec could write messages to the log that no other reader understands. The source does the
same as the compiled module, at half the speed. So the digest of the compiled source is stored beside the compiled
module (``hatch_build.py``), and compared with the source when this package is imported.
"""

from __future__ import annotations

import importlib.util
import sys
import zlib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

HERE = Path(__file__).parent
MODULE = "avro_binary"
SUFFIX = EXTENSION_SUFFIXES[0]
SOURCE, COMPILED = HERE / f"{MODULE}.py", HERE / f"{MODULE}{SUFFIX}"
DIGEST = HERE / f"{MODULE}.compiled"
"""The file with the digest of the source that was compiled."""
_unused_modules: list[str] = []


def source_digest() -> str:
    """Return the CRC-32 of the codec's source, which notices a change; ``hashlib`` alone takes longer to load."""
    return f"{zlib.crc32(SOURCE.read_bytes()):08x}"


def is_stale() -> bool:
    """Return whether there is a compiled module whose digest is missing or is not that of the present source."""
    return COMPILED.is_file() and not (DIGEST.is_file() and DIGEST.read_text().strip() == source_digest())


def prefer_source_to_stale_module() -> None:
    """Load the source in place of a stale compiled module. Call it before another module imports the codec."""
    if not is_stale():
        return
    name = f"{__package__}.{MODULE}"
    spec = importlib.util.spec_from_file_location(name, SOURCE)
    if spec is None or spec.loader is None:
        raise ImportError(f"{SOURCE} cannot be loaded: install the project again")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    setattr(sys.modules[__package__], MODULE, loaded)
    _unused_modules.append(
        f"schemas/{MODULE}.py has changed since it was compiled, so it runs as it is, about half as fast: stop what "
        f"runs, and call make setup"
    )


def unused_modules() -> tuple[str, ...]:
    """Return one sentence for each compiled module that is stale and was not loaded, to show at startup."""
    return tuple(_unused_modules)
