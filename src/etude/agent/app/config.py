"""The user's settings file `agent.toml`, read once at the start. Flags override environment variables, which override this file.

    model = "http://127.0.0.1:8000/v1"
    name = "qwen3-coder"
    [web]
    search = "http://127.0.0.1:8888/search"
    [mcp.tickets]
    command = "tickets-mcp"

`docs/harness.md` describes every key. An unknown key is an error.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from etude.agent.app.errors import UsageError
from etude.agent.app.user_files import CONFIG_VARIABLE, config_file
from etude.agent.app.workspace_access import SandboxMode
from etude.agent.harness.approval import ApprovalPolicy
from etude.agent.harness.mcp.config import servers_of
from etude.agent.harness.mcp.server import McpConfigError, McpServer
from etude.agent.harness.preset_names import known_preset
from etude.agent.workspace.bounded_file import UTF16_MARKS
from etude.core import bounded_toml
from etude.core.trace.entry import Effort

# A larger file is not a settings file.
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
    """An absent key is None. The code that reads a key knows its default."""

    model: str | None = Field(default=None, description="as `--model`")
    name: str | None = Field(default=None, description="as `--name`")
    key_env: str | None = Field(default=None, description="as `--key-env`")
    preset: Annotated[str, AfterValidator(known_preset)] | None = Field(default=None, description="as `--preset`")
    omit: tuple[str, ...] = Field(default=(), description="as `--omit`, a list")
    context: int | None = Field(default=None, ge=8192, description="as `--context`")
    max_tokens_field: str | None = Field(default=None, description="as `--max-tokens-field`")
    effort: Effort | None = Field(default=None, description="as `--effort`")
    max_turns: int | None = Field(default=None, ge=1, description="as `--max-turns`")
    approval: ApprovalPolicy | None = Field(default=None, description="as `--approval`")
    sandbox: SandboxMode | None = Field(default=None, description="as `--sandbox`")
    index: IndexTable = IndexTable()
    web: WebTable = WebTable()
    signals: SignalsTable = SignalsTable()
    mcp: dict[str, dict[str, Any]] = Field(
        default={}, description="your own MCP servers (`docs/protocols.md`), trusted"
    )

    def servers(self, source: str) -> list[McpServer]:
        """The user's MCP servers, which are trusted. Raises UsageError."""
        try:
            return servers_of(self.mcp, source, trusted=True)
        except McpConfigError as error:
            raise UsageError(str(error)) from error


def load_config(named: Path | None = None) -> tuple[Config, Path]:
    """Return the settings and their file: `named`, or else the one of `config_file`.

    The file may be absent unless `named` or the environment variable names it. Raises UsageError for a file that can't be read or that
    has an unknown key.
    """
    file = named or config_file()
    if not file.exists():
        if named is not None or CONFIG_VARIABLE in os.environ:
            source = "--config" if named else CONFIG_VARIABLE
            raise UsageError(f"there is no settings file {file}; write it, or leave out {source}")
        return Config(), file
    try:
        config = Config.model_validate(bounded_toml.loads(_read_text(file)))
    except (OSError, ValueError) as error:
        problem = _first_problem(error) if isinstance(error, ValidationError) else str(error)
        raise UsageError(f"{file}: {problem}") from error
    config.servers(str(file))
    return config, file


def _read_text(file: Path) -> str:
    """Read the file's text. The user's own file may be a link to any place. Raises OSError and ValueError."""
    with open(file, "rb") as opened:
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB, so it is no settings file")
    return data.decode("utf-16" if data.startswith(UTF16_MARKS) else "utf-8-sig")


def _first_problem(error: ValidationError) -> str:
    """The first validation error, in one line."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {place!r}; known are {', '.join(_known_keys(first['loc'][:-1]))}"
    return f"{place}: {first['msg'].removeprefix('Value error, ')}, not {first['input']!r}"


def _known_keys(table: tuple[int | str, ...]) -> list[str]:
    """The keys of one table of the file."""
    model: type[BaseModel] = Config
    for name in table:
        annotation = model.model_fields[str(name)].annotation
        assert isinstance(annotation, type) and issubclass(annotation, BaseModel)  # only these tables have unknown keys
        model = annotation
    return list(model.model_fields)
