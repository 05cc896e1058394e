"""A Harbor `task.toml` (schema 1.x, `harbor` 0.24): every field read; what sandboxes here can't give is refused by its name.

Kept and honoured: limits of time, memory and disk, `env` (`${VAR:-x}` without looking at this machine's own variables), network modes,
the health check, the solution's `env`, `workdir`, artifacts of a separate verifier. Refused: several steps, collect hooks, a verifier with
an image of its own, GPUs and TPUs, Windows, MCP servers, users other than the one there is. Reported in `differs`, for the task can be done all
the same: a public network that isn't there, root that isn't, skills, artifacts that only a person would look at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from etude.core import bounded_toml
from etude.tasks.errors import TaskError
from etude.tasks.importers.table import ManifestTable
from etude.tasks.importers.texts import text_of

VERIFIER_TIMEOUT_S = 600.0
DEFAULT_MEMORY_MB, DEFAULT_STORAGE_MB = 1024, 1024  # the schema leaves it to the task's runner
NETWORK_MODES = ("public", "no-network", "allowlist")
_TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_SIZES = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}


@dataclass(frozen=True)
class Settings:
    """What a task asks of its machine and of its grader."""

    name: str = ""
    category: str = "terminal"
    image: str = ""
    workdir: str = ""
    env: dict[str, str] = field(default_factory=dict)
    verifier_env: dict[str, str] = field(default_factory=dict)
    solution_env: dict[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()  # of the agent's machine: what it reaches
    verifier_hosts: tuple[str, ...] = ()
    health: str = ""  # a script that ends with 0 once the machine is ready
    memory_mb: int = DEFAULT_MEMORY_MB
    storage_mb: int = DEFAULT_STORAGE_MB
    cpus: int = 1
    agent_timeout_s: float | None = None
    verifier_timeout_s: float = VERIFIER_TIMEOUT_S
    artifacts: tuple[str, ...] = ()  # of a separate verifier: all that reaches it; empty: everything does
    differs: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    described: dict[str, object] = field(default_factory=dict)  # [task] and [metadata], as they stand


def _document(place: Path) -> dict[str, Any]:
    try:
        return bounded_toml.loads(text_of(place))
    except bounded_toml.TomlRefused as error:
        raise TaskError(f"{place} does not parse: {error}") from error


def _require_version(whole: ManifestTable, place: Path) -> None:
    version = whole.raw("schema_version") or whole.raw("version") or "1.0"
    if str(version).partition(".")[0] != "1":
        raise TaskError(f"{place}: schema_version {version!r} is not known here; those of 1.x are")


def read_settings(place: Path, variables: dict[str, str]) -> Settings:
    """`variables`: the values of `${VAR}`. Raises TaskError, also for what can't be given here."""
    document = _document(place)
    whole = ManifestTable(document, place)
    _require_version(whole, place)
    task, environment, verifier, agent = map(whole.table, ("task", "environment", "verifier", "agent"))
    metadata = whole.raw("metadata") or {}
    category = ManifestTable(metadata, place, "metadata").text("category", "terminal") or "terminal"
    _refused(whole, environment, verifier, place)
    differs: list[str] = []
    _users(agent, verifier, differs)
    hosts = _hosts(environment, "environment", differs)
    env = environment.words("env")
    for key in ("description", "version", "authors", "keywords"):
        task.raw(key)
    if environment.text("skills_dir"):
        differs.append("environment.skills_dir: agents here have no folder of skills in a task's machine")
    settings = Settings(
        name=task.text("name"),
        category=category,
        image=environment.text("docker_image"),
        workdir=environment.text("workdir"),
        env=_resolved(env, variables, "environment.env", place),
        verifier_env=_resolved(verifier.words("env"), variables, "verifier.env", place),
        solution_env=_resolved(whole.table("solution").words("env"), variables, "solution.env", place),
        hosts=_hosts(agent, "agent", differs, hosts),
        verifier_hosts=_hosts(verifier, "verifier", differs, hosts),
        health=_health(environment),
        memory_mb=_size(environment, "memory", DEFAULT_MEMORY_MB),
        storage_mb=_size(environment, "storage", DEFAULT_STORAGE_MB),
        cpus=environment.count("cpus", 1) or 1,
        agent_timeout_s=agent.seconds("timeout_sec", 0.0) or None,
        verifier_timeout_s=verifier.seconds("timeout_sec", VERIFIER_TIMEOUT_S),
        artifacts=_artifacts(whole, verifier, differs),
        described={key: document[key] for key in ("task", "metadata", "source") if key in document},
    )
    environment.seconds("build_timeout_sec", 600.0)
    environment.list("gpu_types")
    whole.raw("source")
    return replace(settings, differs=tuple(differs), unread=tuple(whole.unread()))


def _refused(whole: ManifestTable, environment: ManifestTable, verifier: ManifestTable, place: Path) -> None:
    system = environment.text("os", "linux").lower()
    for name, value, why in (
        ("steps", whole.list("steps"), "a task of several steps, each graded by itself, can't be run here"),
        (
            "multi_step_reward_strategy",
            whole.text("multi_step_reward_strategy"),
            "tasks of several steps can't be run here",
        ),
        ("environment.gpus", environment.count("gpus"), "sandboxes have no GPU"),
        ("environment.tpu", environment.raw("tpu"), "sandboxes have no TPU"),
        ("environment.os", system if system != "linux" else "", "sandboxes run Linux"),
        (
            "environment.mcp_servers",
            environment.list("mcp_servers"),
            "a task can't bring servers of tools for the agent",
        ),
        ("verifier.collect", verifier.list("collect"), "nothing is run in the agent's machine after its end"),
        ("verifier.environment", verifier.raw("environment"), "tests run in a fork of the task's own environment"),
    ):
        if value:
            raise TaskError(f"{place}: {name} = {repr(value)[:60]} is refused: {why}")


def _users(agent: ManifestTable, verifier: ManifestTable, differs: list[str]) -> None:
    for name, table in (("agent", agent), ("verifier", verifier)):
        user = table.raw("user")
        if user in (None, ""):
            continue
        if user not in ("root", 0, "0"):
            raise table.wrong("user", "left out, or root: a sandbox has one user", user)
        differs.append(f"{name}.user: commands run as the sandbox's one user, who owns its files but is not root")


def _hosts(table: ManifestTable, name: str, differs: list[str], inherited: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Of `allowlist`, as `sandbox.spec.Network` names hosts. A phase that says nothing has the environment's."""
    mode, allowed, internet = table.raw("network_mode"), table.texts("allowed_hosts"), table.flag("allow_internet")
    if mode is None:
        if allowed:
            raise table.wrong("allowed_hosts", "left out where network_mode is not allowlist", list(allowed))
        if name != "environment":
            return inherited
        mode = "no-network" if internet is False else "public"
    if mode not in NETWORK_MODES:
        raise table.wrong("network_mode", f"one of {', '.join(NETWORK_MODES)}", mode)
    if allowed and mode != "allowlist":
        raise table.wrong("allowed_hosts", "left out where network_mode is not allowlist", list(allowed))
    if mode == "public":
        differs.append(f"{name}.network_mode: a public network isn't there; what the task fetches must be in its image")
    return tuple(_host(table, host) for host in allowed)


def _is_address(host: str) -> bool:
    try:
        ip_network(host.strip("[]"), strict=False)
    except ValueError:
        return False
    return True


def _host(table: ManifestTable, text: str) -> str:
    host = text.strip().lower().rstrip(".")
    if _is_address(host):
        raise table.wrong("allowed_hosts", "names of hosts: the door of a sandbox knows no addresses", text)
    name = host.removeprefix("*.")
    if not name or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise table.wrong("allowed_hosts", "names of hosts, or *.NAME", text)
    return f".{name}" if host.startswith("*.") else host


def _resolved(words: dict[str, str], variables: dict[str, str], key: str, place: Path) -> dict[str, str]:
    """Harbor looks `${VAR}` up among its own process' variables, where credentials are; here the importer's arguments give it."""
    found: dict[str, str] = {}
    for name, value in words.items():
        match = _TEMPLATE.fullmatch(value)
        if match is None:
            found[name] = value
            continue
        resolved = variables.get(match[1], match[2])
        if resolved is None:
            raise TaskError(
                f"{place}: {key}.{name} asks for the variable {match[1]}: give it with --env {match[1]}=VALUE"
            )
        found[name] = resolved
    return found


def _size(environment: ManifestTable, key: str, otherwise: int) -> int:
    """`memory_mb = 2048`, or `memory = "2G"` as older files have it."""
    size_text = environment.raw(key)
    size = environment.count(f"{key}_mb", 0)
    if not isinstance(size_text, str):
        return size or otherwise
    try:
        old = int(float(size_text.strip()[:-1]) * _SIZES[size_text.strip()[-1:].upper()])
    except (KeyError, ValueError, OverflowError):
        raise environment.wrong(key, 'a size like "2G", "512M" or "64K"', size_text) from None
    if size and size != old:
        raise environment.wrong(key, f"the same as {key}_mb = {size}, or left out", size_text)
    return old or otherwise


def _health(environment: ManifestTable) -> str:
    """Tried `retries` times after the grace; each try has its own limit."""
    if environment.raw("healthcheck") is None:
        return ""
    check = environment.table("healthcheck")
    command, retries = check.text("command"), check.count("retries", 3)
    if not command.strip():
        raise check.wrong("command", "a shell command", command)
    interval, limit = check.seconds("interval_sec", 5.0), check.seconds("timeout_sec", 30.0)
    # Only its type counts here: a grace of 0 is the usual one.
    grace, within = check.seconds("start_period_sec", 0.0, -1.0), check.seconds("start_interval_sec", 5.0)
    tries = retries + int(grace / within)
    quoted = "'" + command.replace("'", "'\\''") + "'"
    wait = f"sleep {within if grace else interval:g}"
    return f"n=0; until timeout {limit:g} sh -c {quoted}; do n=$((n+1)); [ $n -lt {max(tries, 1)} ] || exit 1; {wait}; done"


def _artifacts(whole: ManifestTable, verifier: ManifestTable, differs: list[str]) -> tuple[str, ...]:
    mode = verifier.text("environment_mode")
    if mode not in ("", "shared", "separate"):
        raise verifier.wrong("environment_mode", "shared or separate", mode)
    sources: list[str] = []
    for entry in whole.list("artifacts"):
        artifact = ManifestTable({"source": entry} if isinstance(entry, str) else entry, Path("artifacts"))
        source, service = artifact.text("source"), artifact.text("service", "main")
        if not source or ".." in source.split("/"):
            raise whole.wrong("artifacts", "paths without ..", source)
        if service != "main":
            raise whole.wrong("artifacts", "of the main service: there are no others here", service)
        sources.append(source)
    if sources and mode != "separate":
        differs.append("artifacts: they are kept for a person to look at, and grading does without them")
        return ()
    return tuple(sources)
