"""How a preset calls the tools and their parameters, so that an answer can name the call that comes next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ToolNames:
    """`tools`: implementation -> presented name. `parameters`: implementation -> (canonical -> presented) of those offered."""

    tools: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def tool(self, implementation: str) -> str:
        """The presented name, or "" if the preset has no such tool."""
        return self.tools.get(implementation, "")

    def parameter(self, implementation: str, name: str) -> str:
        """The presented name, or "" if the preset does not offer it."""
        return self.parameters.get(implementation, {}).get(name, "")

    def call(self, implementation: str, **arguments: Any) -> str:
        """`read_file(target_file="a.py", offset=401)`, or "" if the preset can't say it."""
        named = {self.parameter(implementation, name): value for name, value in arguments.items()}
        if not self.tool(implementation) or "" in named:
            return ""
        words = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in named.items())
        return f"{self.tool(implementation)}({words})"
