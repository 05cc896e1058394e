"""A workflow of a continuous integration (the `.github/workflows` form) as the commands that it would run here.

Understood: jobs in the order of `needs`, `steps` with `run`, `env` on all three levels, `working-directory`, `defaults.run`, a matrix of
lists (every combination is run), and `${{ matrix.x }}`, `${{ env.X }}`, `${{ github.workspace }}`. The actions that set a machine up (checkout,
setup-python, setup-node, cache) are what the sandbox is already, and do nothing. Anything else is refused by name, never passed over:
a workflow that needs it can't be graded here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from etude.sandbox.spec import WORKDIR

SET_UP = ("actions/checkout", "actions/setup-python", "actions/setup-node", "actions/cache")
JOB_KEYS = frozenset(
    ("name", "runs-on", "needs", "env", "defaults", "strategy", "steps", "timeout-minutes", "permissions")
)
STEP_KEYS = frozenset(("name", "id", "uses", "with", "run", "env", "working-directory", "shell", "timeout-minutes"))
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
MAX_COMMANDS = 50


class Refused(ValueError):
    """A workflow that is wrong, or needs what there is not here; says where."""


@dataclass(frozen=True)
class Command:
    """One `run` step."""

    name: str
    script: str
    folder: str = ""
    env: dict[str, str] = field(default_factory=dict)


def commands_of(text: str | None, path: str) -> list[Command]:
    """All commands in order. Raises Refused."""
    if text is None:
        raise Refused(f"{path} is missing")
    try:
        told = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise Refused(f"{path} is no YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(told, dict) or not isinstance(told.get("jobs"), dict) or not told["jobs"]:
        raise Refused(f"{path} has no jobs")
    if "on" not in told and True not in told:  # YAML 1.1 reads the word `on` as true
        raise Refused(f"{path} says nothing about when it runs (`on`)")
    found: list[Command] = []
    for name in _ordered(told["jobs"], path):
        found += _job(told, name, told["jobs"][name], path)
    if not found:
        raise Refused(f"{path} runs nothing")
    if len(found) > MAX_COMMANDS:
        raise Refused(f"{path} runs {len(found)} commands, {MAX_COMMANDS} at most are run here")
    return found


def _ordered(jobs: Mapping[str, Any], path: str) -> list[str]:
    done: list[str] = []
    waiting = {name: _needs(job, path) for name, job in jobs.items()}
    while waiting:
        ready = [name for name, needs in waiting.items() if all(need in done for need in needs)]
        if not ready:
            raise Refused(
                f"{path}: the jobs {', '.join(map(str, waiting))} wait for one another, or for one that is not there"
            )
        done += ready
        for name in ready:
            del waiting[name]
    return done


def _needs(job: Any, path: str) -> list[str]:
    if not isinstance(job, dict):
        raise Refused(f"{path}: a job is a table, not {job!r}")
    needs = job.get("needs", [])
    return [needs] if isinstance(needs, str) else list(needs)


def _job(told: Mapping[str, Any], name: str, job: Mapping[str, Any], path: str) -> Iterator[Command]:
    _known(job, JOB_KEYS, f"{path}: job {name}")
    if not isinstance(job.get("steps"), list) or "runs-on" not in job:
        raise Refused(f"{path}: job {name} needs `runs-on` and a list of `steps`")
    for chosen in _matrix(job.get("strategy"), f"{path}: job {name}"):
        env = _env(told, {}, chosen) | _env(job, _env(told, {}, chosen), chosen)
        folder = _folder(job.get("defaults"), _folder(told.get("defaults"), ""))
        for number, step in enumerate(job["steps"], 1):
            where = f"{path}: step {number} of {name}"
            if not isinstance(step, dict):
                raise Refused(f"{where} is no table")
            _known(step, STEP_KEYS, where)
            if "uses" in step:
                if str(step["uses"]).partition("@")[0] not in SET_UP:
                    raise Refused(f"{where} uses {step['uses']}, which can't be run here")
                continue
            if not isinstance(step.get("run"), str) or step.get("shell", "bash") not in ("bash", "sh"):
                raise Refused(f"{where} needs `run`, a text for bash")
            own = env | _env(step, env, chosen)
            place = _filled(str(step.get("working-directory", folder)), own, chosen, where)
            yield Command(str(step.get("name", where)), _filled(step["run"], own, chosen, where), place, own)


def _matrix(strategy: Any, where: str) -> list[dict[str, str]]:
    matrix = strategy.get("matrix", {}) if isinstance(strategy, dict) else {}
    if not isinstance(matrix, dict) or not all(isinstance(values, list) for values in matrix.values()):
        raise Refused(f"{where}: the matrix must be lists by name")
    if {"include", "exclude"} & matrix.keys():
        raise Refused(f"{where}: include and exclude of a matrix are not understood here")
    return [dict(zip(matrix, map(str, row), strict=True)) for row in itertools.product(*matrix.values())]


def _env(holder: Mapping[str, Any], outer: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    env = holder.get("env") or {}
    if not isinstance(env, dict):
        raise Refused(f"env must be a table, not {env!r}")
    return {str(name): _filled(str(value), outer, chosen, f"env {name}") for name, value in env.items()}


def _folder(defaults: Any, otherwise: str) -> str:
    run = defaults.get("run", {}) if isinstance(defaults, dict) else {}
    return str(run.get("working-directory", otherwise)) if isinstance(run, dict) else otherwise


def _filled(text: str, env: Mapping[str, str], chosen: Mapping[str, str], where: str) -> str:
    def value(match: re.Match[str]) -> str:
        holder, _, name = match[1].partition(".")
        values = {"matrix": chosen, "env": env, "github": {"workspace": WORKDIR}}.get(holder, {})
        if name not in values:
            raise Refused(f"{where}: {match[0]} is not understood here, or has no value")
        return values[name]

    return EXPRESSION.sub(value, text)


def _known(table: Mapping[str, Any], keys: frozenset[str], where: str) -> None:
    if strange := sorted(str(key) for key in table if key not in keys):
        raise Refused(f"{where}: {strange[0]} is not understood here")
