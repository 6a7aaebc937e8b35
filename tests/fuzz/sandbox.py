"""Keeps what is played in its place: nothing is written or read elsewhere, no process is started, nobody is called.

An input that tries is left out: ``LeftOutError`` is raised where it does, and nobody who expects errors catches it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NEVER = ("subprocess.", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.fork", "os.kill", "socket.connect")
_OF_PATHS = frozenset(
    {
        *("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"),
        *("os.chown", "os.utime", "shutil.rmtree", "shutil.move", "shutil.copyfile", "tempfile.mkdtemp"),
    }
)


class LeftOutError(BaseException):
    """An input reaches for what it must not have."""


class Sandbox:
    """One directory; its hook stays in the process, and does nothing while nothing is played.

    What the product itself makes in the system's temporary directory, and removes when it is not needed, is let pass.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        root = Path(__file__).parents[2]
        places = {root, self.directory, Path(sys.prefix), Path(sys.base_prefix), Path("/usr"), Path("/etc")}
        self._readable = tuple({os.fspath(one) for place in places for one in (place, place.resolve())})
        self._writable = (os.fspath(self.directory), os.path.join(tempfile.gettempdir(), "deepclean-"))  # noqa: PTH118
        self._is_active = False
        sys.addaudithook(self._look)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Within it, and bound to it.

        Raises:
            LeftOutError: see above.
        """
        writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        with chdir(self.directory):
            self._is_active = True
            try:
                yield
            finally:
                self._is_active = False
                sys.dont_write_bytecode = writes_bytecode

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_active:
            return
        if event.startswith(_NEVER):
            raise LeftOutError(event)
        if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            is_written = bool((arguments[2] or 0) & _WRITING)
            self._require(arguments[0], self._writable if is_written else (*self._readable, *self._writable))
        elif event in _OF_PATHS:
            for path in arguments[:2]:
                if isinstance(path, (str, bytes, os.PathLike)):
                    self._require(path, self._writable)

    def _require(self, path: Any, places: tuple[str, ...]) -> None:
        whole = os.path.normpath(os.path.join(self.directory, os.fsdecode(path)))  # noqa: PTH118 no other event follows
        if not any(
            whole == place or whole.startswith(place if place.endswith("-") else f"{place}/") for place in places
        ):
            raise LeftOutError(whole)
