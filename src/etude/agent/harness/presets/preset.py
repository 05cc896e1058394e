"""Presets: which tools and which words an agent gets. `nano` has no prompt at all, its habits are trained in; `full` has its
tools for endpoints that read descriptions; the others are data (`presets/*.toml`): names and shapes that families of large models
know, over one set of implementations. The harness hash covers every byte of all of it (promise 1)."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from etude.agent.harness.presets.arguments import closest
from etude.agent.harness.presets.definition import definition, read_definition, sources
from etude.agent.harness.presets.presented_tool import PresentationError, PresentedTool
from etude.agent.harness.services import ExternalTool
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.tools.apply_patch import ApplyPatchTool
from etude.agent.harness.tools.codebase_search import CodebaseSearchTool
from etude.agent.harness.tools.delete import DeleteTool
from etude.agent.harness.tools.edit import EditTool
from etude.agent.harness.tools.glob import GlobTool
from etude.agent.harness.tools.grep import GrepTool
from etude.agent.harness.tools.job_kill import JobKillTool
from etude.agent.harness.tools.job_output import JobOutputTool
from etude.agent.harness.tools.lints import ReadLintsTool
from etude.agent.harness.tools.list_folder import ListFolderTool
from etude.agent.harness.tools.multi_edit import MultiEditTool
from etude.agent.harness.tools.names import ToolNames
from etude.agent.harness.tools.nano.grep import NanoGrep
from etude.agent.harness.tools.nano.tools import NanoDone, NanoEdit, NanoShell, NanoTest, NanoTodo, NanoView
from etude.agent.harness.tools.read import ReadTool
from etude.agent.harness.tools.shell import ShellTool
from etude.agent.harness.tools.todo_write import TodoWriteTool
from etude.agent.harness.tools.tool import Implementation, Tool, schema
from etude.agent.harness.tools.web_fetch import WebFetchTool
from etude.agent.harness.tools.web_search import WebSearchTool
from etude.agent.harness.tools.write import WriteTool
from etude.agent.policy.wire.outgoing import tool_name
from etude.core.plugins import is_import_path
from etude.sandbox import interpreter

# Raised whenever the loop, a tool's answer or an error string changes what a policy observes.
HARNESS_VERSION = 3
# The same for the tools of `presets/*.toml`, which no policy of the string presets sees.
TOML_PRESETS_VERSION = 3

_FOLDER = Path(__file__).parent
_TOML_PRESETS = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
_WEB = ("web_search", "web_fetch")


# All tool implementations, from which presets choose by name.
_ALL: tuple[Implementation, ...] = (
    ReadTool(), WriteTool(), EditTool(), MultiEditTool(), ApplyPatchTool(), DeleteTool(), ListFolderTool(), GlobTool(), GrepTool(),
    CodebaseSearchTool(), ReadLintsTool(), ShellTool(), JobOutputTool(), JobKillTool(), TodoWriteTool(), WebSearchTool(), WebFetchTool(),
)  # fmt: skip
IMPLEMENTATIONS: dict[str, Implementation] = {tool.name: tool for tool in _ALL}
# Read-only tools: several may run concurrently, and their answers do not depend on the order.
QUIET = frozenset({"read", "list", "glob", "grep", "codebase_search", "lints", "web_search", "web_fetch"})


@dataclass(frozen=True)
class Preset:
    """Tools in the order they are declared, and the prompts."""

    name: str
    tools: dict[str, Tool]
    schemas: tuple[dict[str, Any], ...]
    system: str = ""
    summary_query: str = ""
    names: ToolNames = field(default_factory=ToolNames)
    quiet_tools: frozenset[str] = frozenset()  # names of own tools that only read
    sources: Mapping[str, str] = field(default_factory=dict)  # digests by module, of a preset by import path

    @property
    def skinned(self) -> bool:
        return _is_skinned(self.name)

    def does(self, name: str) -> str:
        """What a tool of this name does, whatever the preset calls it; "" for one that isn't there."""
        tool = self.tools.get(name)
        if isinstance(tool, PresentedTool):
            return tool.implementation.name
        return {"view": "read"}.get(name, name) if tool is not None else ""

    def quiet(self, name: str) -> bool:
        """Whether calls of this tool change nothing, so that they may run concurrently with others of their kind."""
        return self.does(name) in QUIET or name in self.quiet_tools

    def with_server_tools(self, served: tuple[ExternalTool, ...]) -> Preset:
        """With the tools of servers behind its own. Raises ValueError where there is no place for them."""
        if not served:
            return self
        if not self.skinned:
            raise ValueError(f"the preset {self.name} takes no tools of MCP servers; use {', '.join(_TOML_PRESETS)}")
        if twice := {tool.name for tool in served} & set(self.tools):
            raise ValueError(f"an MCP server's tool has the name {min(twice)!r} of a tool of {self.name}")
        tools = {**self.tools, **{tool.name: tool for tool in served}}
        return replace(self, tools=tools, schemas=(*self.schemas, *(dict(tool.schema) for tool in served)))

    def unknown_tool_answer(self, name: str) -> str:
        """What a call of a tool that isn't there is answered with."""
        if not self.skinned:
            return f"no tool {name}"
        near = closest(name, list(self.tools))
        known = f"did you mean {near}?" if near else f"there are: {', '.join(self.tools)}"
        if (kept := tool_name(name)) != name:
            known += f" (a name holds letters, digits, _ and -, at most 64; this call is shown as {kept})"
        return f"no tool {name[:60]}; {known}" if name else f"the call names no tool; {known}"


@cache
def preset(name: str, off: frozenset[str] = frozenset()) -> Preset:
    """The preset of this name without the tools `off`, named by their presented names or implementations. Raises ValueError."""
    if is_import_path(name):
        return _custom_preset(name, off)
    if name in _TOML_PRESETS:
        return _read_preset(name, off)
    if off:
        raise ValueError(
            f"the preset {name} is a trained model's vocabulary: no tool of it can be left out, not {min(off)}"
        )
    tools: list[Tool] = [NanoGrep(regex=name == "full"), NanoView(), NanoEdit(), NanoTest(), NanoTodo(), NanoDone()]
    if name == "nano":
        return _preset(name, tools)
    if name == "full":
        return _preset(name, [*tools, NanoShell()], _prompt("full"), _prompt("full-summary"))
    raise ValueError(f"no harness preset {name!r}; there are nano, full, {', '.join(_TOML_PRESETS)}")


def preset_of(settings: HarnessSettings, served: tuple[ExternalTool, ...] = ()) -> Preset:
    """The preset that settings ask for, with the tools of servers. Raises ValueError where they leave out a tool that isn't there."""
    return _selected_preset(settings).with_server_tools(served)


def _selected_preset(settings: HarnessSettings) -> Preset:
    if not _is_skinned(settings.preset):
        return preset(settings.preset, frozenset(settings.tools_off))
    off = {
        *settings.tools_off,
        *(() if settings.codebase_search else ("codebase_search",)),
        *(() if settings.web else _WEB),
    }
    known = {*preset(settings.preset).tools, *IMPLEMENTATIONS}
    if strange := set(settings.tools_off) - known:
        near = closest(min(strange), sorted(known))
        raise ValueError(f"harness.tools_off names {min(strange)!r}, which is no tool of {settings.preset}"
                         + (f"; did you mean {near!r}?" if near else ""))  # fmt: skip
    return preset(settings.preset, frozenset(off))


# How hard, how long and how randomly a policy may work differs between training and bench; it doesn't change what it sees.
_UNSEEN = {"effort", "temperature", "max_turns", "max_tokens_per_turn", "max_session_tokens", "lint_delta_s"}
# Settings that only skinned tools read, or that were no setting when string presets were trained on.
_TOML_PRESETS_ONLY = {
    "strict_arguments",
    "tools_off",
    "codebase_search",
    "web",
    "glob_order",
    "max_command_s",
    "thinking",
}


def harness_facts(
    settings: HarnessSettings, chat_fingerprint: str, served: tuple[ExternalTool, ...] = ()
) -> dict[str, Any]:
    """All that shapes what a policy sees: prompts, schemas, tool limits, chat format, interpreter. As JSON values."""
    chosen = preset_of(settings, served)
    unseen = _UNSEEN if chosen.skinned else _UNSEEN | _TOML_PRESETS_ONLY
    return {
        "harness": HARNESS_VERSION,
        "system": chosen.system,
        "summary_query": chosen.summary_query,
        "schemas": list(chosen.schemas),
        "settings": settings.model_dump(mode="json", exclude=unseen),
        "chat": chat_fingerprint,
        "python": ".".join(map(str, interpreter.find().version[:2])),  # the one inside: a policy sees its words
        **({"skins": TOML_PRESETS_VERSION} if chosen.skinned else {}),
        **({"plugins": dict(chosen.sources)} if chosen.sources else {}),
    }


def harness_hash(settings: HarnessSettings, chat_fingerprint: str) -> str:
    """16 hex digits over the facts."""
    return hash_of(harness_facts(settings, chat_fingerprint))


def hash_of(facts: dict[str, Any]) -> str:
    """The hash that a session's header carries for these facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _preset(name: str, tools: list[Tool], system: str = "", summary_query: str = "") -> Preset:
    described = name == "full"
    schemas = tuple(schema(tool, described) for tool in tools)
    return Preset(name, {tool.name: tool for tool in tools}, schemas, system, summary_query)


def _read_preset(name: str, off: frozenset[str]) -> Preset:
    """Read a preset's data. Raises PresentationError where it does not fit the implementations."""
    data = _data(name)
    tools_of, wording = _data(data["base"]) if "base" in data else data, data.get("wording", "")
    skins: list[PresentedTool] = []
    for row in tools_of["tools"]:
        if row["does"] not in IMPLEMENTATIONS:
            raise PresentationError(
                f"{name}: {row['name']} does {row['does']!r}; there are {', '.join(IMPLEMENTATIONS)}"
            )
        if not off & {row["does"], row["name"]}:
            implementation = IMPLEMENTATIONS[row["does"]]
            skins.append(PresentedTool(row["name"], implementation, row["parameters"], row.get("fixed", {}), wording))
    return _presented_preset(name, skins, _prompt(data["system"]), _prompt(data["summary_query"]))


def _custom_preset(path: str, off: frozenset[str]) -> Preset:
    """The preset at an import path. Raises PluginError."""
    defined = definition(path)
    found = _presented_preset(path, read_definition(path, off, IMPLEMENTATIONS), defined.system, defined.summary_query)
    return replace(
        found, quiet_tools=frozenset(row.name for row in defined.tools if row.reads_only), sources=sources(path)
    )


def _presented_preset(name: str, skins: list[PresentedTool], system: str, summary_query: str) -> Preset:
    names = ToolNames(
        {skin.implementation.name: skin.name for skin in skins},
        {skin.implementation.name: skin.presented for skin in skins},
    )
    schemas = tuple(skin.schema(names) for skin in skins)
    tools: dict[str, Tool] = {skin.name: skin for skin in skins}
    return Preset(name, tools, schemas, system, summary_query, names)


def _is_skinned(name: str) -> bool:
    return name in _TOML_PRESETS or is_import_path(name)


def _data(name: str) -> dict[str, Any]:
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def _prompt(name: str) -> str:
    return (_FOLDER.parent / "prompts" / f"{name}.md").read_text(encoding="utf-8").strip()
