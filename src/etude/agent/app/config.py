"""What a person has settled on: `agent.toml`, read once at the start. Flags win over the environment, that over this file.

    model = "http://127.0.0.1:8000/v1"
    name = "qwen3-coder"
    [web]
    search = "http://127.0.0.1:8888/search"
    [mcp.tickets]
    command = "tickets-mcp"

Every key and its meaning: `docs/harness.md`. A key that isn't known is an error, not a wish that nobody grants.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from etude.agent.app.errors import BadUse
from etude.agent.app.model import Preset
from etude.agent.app.user_files import CONFIG_VARIABLE, config_file
from etude.agent.app.workspace_access import Walls
from etude.agent.harness.approval import ApprovalPolicy
from etude.agent.harness.mcp.config import servers_of
from etude.agent.harness.mcp.server import McpConfigError, Server
from etude.agent.workspace.bounded_file import UTF16_MARKS
from etude.core import bounded_toml
from etude.core.trace.entry import Effort

# A longer file holds no settings.
MAX_BYTES = 1 << 20


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class IndexTable(_Table):
    on: bool = Field(default=True, description="code search over the folder, as `--no-index` switches it off")


class WebTable(_Table):
    search: str = Field(
        default="",
        description="address of a SearXNG-style search, up to the question mark; with it web search and pages are on offer",
    )

    @field_validator("search")
    @classmethod
    def _address(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("no address: it begins with http:// or https://")
        return value


class SignalsTable(_Table):
    on: bool | None = Field(
        default=None, description="collect local signals (`docs/session-format.md`), or stop to; unset: as it is"
    )


class Config(_Table):
    """Absent keys are None: whoever asks knows the default."""

    model: str | None = Field(default=None, description="as `--model`")
    name: str | None = Field(default=None, description="as `--name`")
    key_env: str | None = Field(default=None, description="as `--key-env`")
    preset: Preset | None = Field(default=None, description="as `--preset`")
    omit: tuple[str, ...] = Field(default=(), description="as `--omit`, a list")
    context: int | None = Field(default=None, ge=8192, description="as `--context`")
    max_tokens_field: str | None = Field(default=None, description="as `--max-tokens-field`")
    effort: Effort | None = Field(default=None, description="as `--effort`")
    max_turns: int | None = Field(default=None, ge=1, description="as `--max-turns`")
    approval: ApprovalPolicy | None = Field(default=None, description="as `--approval`")
    sandbox: Walls | None = Field(default=None, description="as `--sandbox`")
    index: IndexTable = IndexTable()
    web: WebTable = WebTable()
    signals: SignalsTable = SignalsTable()
    mcp: dict[str, dict[str, Any]] = Field(
        default={}, description="your own MCP servers (`docs/protocols.md`), trusted"
    )

    def servers(self, source: str) -> list[Server]:
        """The person's own MCP servers, trusted. Raises BadUse."""
        try:
            return servers_of(self.mcp, source, trusted=True)
        except McpConfigError as error:
            raise BadUse(str(error)) from error


def load_config(named: Path | None = None) -> tuple[Config, Path]:
    """The settings, and the file they are from: the named one, or that of `config_file`, which need not be there unless the variable
    names it. Raises BadUse for what can't be read or has an unknown key."""
    file = named or config_file()
    if not file.exists():
        if named is not None or CONFIG_VARIABLE in os.environ:
            wish = "--config" if named else CONFIG_VARIABLE
            raise BadUse(f"there is no settings file {file}; write it, or leave out {wish}")
        return Config(), file
    try:
        found = Config.model_validate(bounded_toml.loads(_text(file)))
    except (OSError, ValueError) as error:
        told = _told(error) if isinstance(error, ValidationError) else str(error)
        raise BadUse(f"{file}: {told}") from error
    found.servers(str(file))
    return found, file


def _text(file: Path) -> str:
    """The file's text. A person's own file may be a link anywhere. Raises OSError and ValueError."""
    with open(file, "rb") as opened:
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB, so it is no settings file")
    return data.decode("utf-16" if data.startswith(UTF16_MARKS) else "utf-8-sig")


def _told(error: ValidationError) -> str:
    """The first objection, in a line."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {place!r}; known are {', '.join(_known(first['loc'][:-1]))}"
    return f"{place}: {first['msg'].removeprefix('Value error, ')}, not {first['input']!r}"


def _known(table: tuple[int | str, ...]) -> list[str]:
    """The keys of a table of the file."""
    model: type[BaseModel] = Config
    for name in table:
        found = model.model_fields[str(name)].annotation
        assert isinstance(found, type) and issubclass(found, BaseModel)  # only tables of ours have unknown keys
        model = found
    return list(model.model_fields)
