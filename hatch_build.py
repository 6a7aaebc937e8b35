"""Compiles the codec into the wheel, where there is a C compiler; without one the wheel is pure Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

from schemas import compile as compiler


class CompiledWheel(BuildHookInterface[Any]):
    """Hatchling calls it for every wheel. An editable install is compiled by ``make setup``, after each change."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and have the wheel say for which machine it is."""
        if version == "editable" or compiler.why_not_compiled():
            return
        compiler.main()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"] += ["schemas/*.so", "schemas/*.compiled"]
