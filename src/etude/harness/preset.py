"""Presets: which tools and which words an agent gets. `nano` has no prompt at all, its habits are trained in; `full` is
for endpoints that read descriptions. The harness hash covers every byte of both (promise 1)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from etude.harness.settings import HarnessSettings
from etude.harness.tools.done import Done
from etude.harness.tools.edit import Edit
from etude.harness.tools.grep import Grep
from etude.harness.tools.shell import Shell
from etude.harness.tools.test import Test
from etude.harness.tools.todo import Todo
from etude.harness.tools.tool import Tool, schema
from etude.harness.tools.view import View
from etude.sandbox import interpreter

# Raised whenever the loop, a tool's answer or an error string changes what a policy observes.
HARNESS_VERSION = 2


@dataclass(frozen=True)
class Preset:
    """Tools in the order they are declared, and the prompts."""

    name: str
    tools: dict[str, Tool]
    schemas: tuple[dict[str, Any], ...]
    system: str = ""
    summary_query: str = ""


@cache
def preset(name: str) -> Preset:
    """The preset of this name."""
    tools: list[Tool] = [Grep(regex=name == "full"), View(), Edit(), Test(), Todo(), Done()]
    if name == "nano":
        return _preset(name, tools)
    if name == "full":
        return _preset(name, [*tools, Shell()], _prompt("full"), _prompt("full-summary"))
    raise ValueError(f"no harness preset {name!r}; there are nano and full")


# How long and how randomly a policy may speak differs between training and bench; it doesn't change what it sees.
_UNSEEN = {"temperature", "max_turns", "max_tokens_per_turn", "max_session_tokens"}


def harness_facts(settings: HarnessSettings, chat_fingerprint: str) -> dict[str, Any]:
    """All that shapes what a policy sees: prompts, schemas, tool limits, chat format, interpreter. As JSON values."""
    chosen = preset(settings.preset)
    return {
        "harness": HARNESS_VERSION,
        "system": chosen.system,
        "summary_query": chosen.summary_query,
        "schemas": list(chosen.schemas),
        "settings": settings.model_dump(mode="json", exclude=_UNSEEN),
        "chat": chat_fingerprint,
        "python": ".".join(map(str, interpreter.find().version[:2])),  # the one inside: a policy sees its words
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


def _prompt(name: str) -> str:
    return (Path(__file__).parent / "prompts" / f"{name}.md").read_text(encoding="utf-8").strip()
