"""One MCP server as a person or a project describes it. Secrets stay in the environment: `${NAME}` is filled in only when it is
started, and what is shown, hashed or written anywhere is the text before that."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from etude.core.redact.keys import is_secret_name

_SLOT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
# Shorter values are words like "1" or "true", which hiding would cut out of any answer.
_MIN_SECRET_CHARS = 8


class McpConfigError(Exception):
    """A server's description can't be used; the message names the file, the server and the remedy."""


@dataclass(frozen=True)
class McpServer:
    """Over stdio if it has a `command`, over streamable HTTP if it has a `url`. `trusted`: described by the person, not by a
    project; `source` is the file, for messages."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0  # of one call: the MCP SDKs' own default
    startup_timeout_s: float = 30.0  # npx and uvx may have to fetch the server first
    trusted: bool = False
    source: str = ""

    @property
    def shown(self) -> str:
        """What would run or be asked, for a person to rule on; nothing of it is filled in."""
        return self.url or " ".join([self.command, *self.args])

    def digest(self, folder: Path) -> str:
        """What an approval holds for: all that decides what is started or sent, and the folder in which it is started."""
        row = asdict(replace(self, trusted=False, source="", timeout_s=0.0, startup_timeout_s=0.0))
        text = json.dumps([str(folder.resolve()), row], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def fill_variables(self, environ: Mapping[str, str]) -> McpServer:
        """With `${NAME}` and `${NAME:-else}` filled in. Raises McpConfigError for a variable that is not set."""

        def fill(text: str) -> str:
            return _SLOT.sub(lambda slot: self._value(slot, environ), text)

        return replace(
            self,
            command=fill(self.command),
            args=tuple(fill(one) for one in self.args),
            env={name: fill(text) for name, text in self.env.items()},
            cwd=fill(self.cwd),
            url=fill(self.url),
            headers={name: fill(text) for name, text in self.headers.items()},
        )

    def _value(self, slot: re.Match[str], environ: Mapping[str, str]) -> str:
        value = environ.get(slot[1]) or slot[2]
        if value is None:
            place = f"{self.source}: " if self.source else ""
            raise McpConfigError(
                f"{place}the MCP server {self.name!r} needs the variable {slot[1]}: set it in the environment"
            )
        return value

    def secrets(self, environ: Mapping[str, str]) -> dict[str, str]:
        """From each value that no answer may show to its replacement: those of fields and variables that are called like
        secrets. A folder that is filled in is none, and an answer that names it must stay usable."""
        fields = [*self.env.items(), *self.headers.items(), *(("", text) for text in (*self.args, self.url))]
        found: dict[str, str] = {}
        for field_name, text in fields:
            secret_field = is_secret_name(field_name)
            slots = list(_SLOT.finditer(text))
            if secret_field and not slots:
                found[text] = f"[{field_name}]"
            for slot in slots:
                if secret_field or is_secret_name(slot[1]):
                    found[environ.get(slot[1], "")] = f"${{{slot[1]}}}"
        return {value: shown for value, shown in found.items() if len(value) >= _MIN_SECRET_CHARS}
