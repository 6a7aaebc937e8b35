"""Types commands of ``deepclean`` as a user does, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class CommandLine:
    """The deepclean command as a user starts it, on a home of its own."""

    def __init__(self, home: Path, **environment: str) -> None:
        home.mkdir()
        self.home = home
        self._environment = {**os.environ, "DEEPCLEAN_HOME": str(home), **environment}
        self.program = [sys.executable, "-m", "services.cli"]

    def run(self, *words: str, status: int = 0, is_printed: bool = False) -> str:
        ran = subprocess.run(
            [*self.program, *words], env=self._environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert ran.returncode == status, ran.stdout + ran.stderr
        return ran.stdout if is_printed or status == 0 else ran.stderr

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*self.program, *words], env=self._environment, stderr=subprocess.PIPE, text=True)

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))
