"""A workflow of a continuous integration (the `.github/workflows` form) as the commands that it would run here.

Understood: jobs in the order of `needs`, `steps` with `run`, `env` on all three levels, `working-directory`, `defaults.run`, a matrix of
lists (every combination is run), and `${{ matrix.x }}`, `${{ env.X }}`, `${{ github.workspace }}`. The actions that set a machine up (checkout,
setup-python, setup-node, cache) are what the sandbox is already, and do nothing. Anything else is refused by name, never passed over:
a workflow that needs it can't be graded here.

The file is an agent's. A scalar is the text that it is written as (`3.10`, `true`), and one that no reader of YAML can make (an impossible
date, a tag that its text contradicts) is refused. What a short file may expand to is counted before it is made: jobs, steps, combinations
of a matrix, the length of filled texts.
"""

from __future__ import annotations

import itertools
import math
import re
import reprlib
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
EXPRESSION = re.compile(r"\$\{\{([^{}]*)\}\}")
MAX_COMMANDS = 50
MAX_JOBS, MAX_STEPS = 50, 200  # steps of one job
MAX_COMBINATIONS = 50  # of all jobs' matrices together
MAX_ENV = 200  # variables of one table
MAX_BYTES = 1 << 16  # of the file; people's workflows are below 20 kB
MAX_TEXT_CHARS = 1 << 17  # of a text once its expressions are filled: a command line takes no more


class WorkflowError(ValueError):
    """A workflow that is wrong, or needs what there is not here; says where."""


@dataclass(frozen=True)
class Command:
    """One `run` step."""

    name: str
    script: str
    folder: str = ""
    env: dict[str, str] = field(default_factory=dict)


def commands_of(text: str | None, path: str) -> list[Command]:
    """All commands in order, `MAX_COMMANDS` at most. Raises Refused for every other text, and nothing else."""
    if text is None:
        raise WorkflowError(f"{path} is missing, or no UTF-8 text")
    workflow = _read(text, path)
    if not isinstance(workflow.get("jobs"), dict) or not workflow["jobs"]:
        raise WorkflowError(f"{path} has no jobs")
    if "on" not in workflow:
        raise WorkflowError(f"{path} says nothing about when it runs (`on`)")
    found: list[Command] = []
    combinations = 0
    for name in _ordered(workflow["jobs"], path):
        job = workflow["jobs"][name]
        matrix = _matrix(job.get("strategy"), f"{path}: job {name}")
        combinations += len(matrix)
        if combinations > MAX_COMBINATIONS:
            raise WorkflowError(
                f"{path} has more than {MAX_COMBINATIONS} jobs with all of their matrices, which is the most that are run here"
            )
        for command in _job(workflow, name, job, matrix, path):
            found.append(command)
            if len(found) > MAX_COMMANDS:
                raise WorkflowError(
                    f"{path} runs more than {MAX_COMMANDS} commands, which is the most that are run here"
                )
    if not found:
        raise WorkflowError(f"{path} runs nothing")
    return found


def _read(text: str, path: str) -> dict[str, Any]:
    """The file as tables, lists and texts. Raises Refused."""
    if len(text.encode()) > MAX_BYTES:
        raise WorkflowError(f"{path} has {len(text.encode())} bytes, {MAX_BYTES} at most are read")
    try:
        loader = yaml.SafeLoader(text)
        read = _plain(loader, loader.get_single_node(), {}, path)
    except WorkflowError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise WorkflowError(f"{path} is no YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(read, dict):
        raise WorkflowError(f"{path} holds no table but {reprlib.repr(read)}")
    return read


def _plain(loader: yaml.SafeLoader, node: yaml.Node | None, made: dict[int, Any], path: str) -> Any:
    """A node as tables, lists and texts; what an anchor names is made once. Raises Refused and what the loader's constructors raise."""
    if node is None:
        return ""
    if id(node) in made:
        if made[id(node)] is made:
            raise WorkflowError(f"{path} holds an alias of a node that encloses it (line {node.start_mark.line + 1})")
        return made[id(node)]
    made[id(node)] = made  # being made
    if isinstance(node, yaml.ScalarNode):
        loader.construct_object(node)  # no reader can make what this can't
        found: Any = "" if node.tag == "tag:yaml.org,2002:null" else node.value
    elif node.tag == "tag:yaml.org,2002:seq":
        found = [_plain(loader, each, made, path) for each in node.value]
    elif node.tag == "tag:yaml.org,2002:map":
        found = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                raise WorkflowError(
                    f"{path} has a key that is no text, or merges tables (line {key.start_mark.line + 1})"
                )
            found[_plain(loader, key, made, path)] = _plain(loader, value, made, path)
    else:
        raise WorkflowError(f"{path}: the tag {node.tag[:80]} is not understood here (line {node.start_mark.line + 1})")
    made[id(node)] = found
    return found


def _ordered(jobs: Mapping[str, Any], path: str) -> list[str]:
    if len(jobs) > MAX_JOBS:
        raise WorkflowError(f"{path} has {len(jobs)} jobs, {MAX_JOBS} at most are run here")
    done: list[str] = []
    waiting = {name: _needs(job, path) for name, job in jobs.items()}
    while waiting:
        ready = [name for name, needs in waiting.items() if all(need in done for need in needs)]
        if not ready:
            raise WorkflowError(
                f"{path}: the jobs {', '.join(waiting)[:200]} wait for one another, or for one that is not there"
            )
        done += ready
        for name in ready:
            del waiting[name]
    return done


def _needs(job: Any, path: str) -> list[str]:
    if not isinstance(job, dict):
        raise WorkflowError(f"{path}: a job is a table, not {reprlib.repr(job)}")
    needs = job.get("needs", [])
    if isinstance(needs, str):
        needs = [needs]
    if not isinstance(needs, list) or not all(isinstance(need, str) for need in needs):
        raise WorkflowError(f"{path}: `needs` is a job's name or a list of names, not {reprlib.repr(needs)}")
    return needs


def _job(
    workflow: Mapping[str, Any], name: str, job: Mapping[str, Any], matrix: list[dict[str, str]], path: str
) -> Iterator[Command]:
    _known(job, JOB_KEYS, f"{path}: job {name}")
    if not isinstance(job.get("steps"), list) or "runs-on" not in job:
        raise WorkflowError(f"{path}: job {name} needs `runs-on` and a list of `steps`")
    if len(job["steps"]) > MAX_STEPS:
        raise WorkflowError(f"{path}: job {name} has {len(job['steps'])} steps, {MAX_STEPS} at most are read")
    where = f"{path}: job {name}"
    for chosen in matrix:
        outer = _env(workflow, {}, chosen, path)
        env = outer | _env(job, outer, chosen, where)
        folder = _folder(job.get("defaults"), _folder(workflow.get("defaults"), ""))
        for number, step in enumerate(job["steps"], 1):
            command = _step(step, env, folder, chosen, f"{path}: step {number} of {name}")
            if command is not None:
                yield command


def _step(step: Any, env: Mapping[str, str], folder: str, chosen: Mapping[str, str], where: str) -> Command | None:
    """The step's command; None for an action that sets the machine up."""
    if not isinstance(step, dict):
        raise WorkflowError(f"{where} is no table")
    _known(step, STEP_KEYS, where)
    if "uses" in step:
        if _text(step["uses"], where).partition("@")[0] not in SET_UP:
            raise WorkflowError(f"{where} uses {reprlib.repr(step['uses'])}, which can't be run here")
        return None
    if not isinstance(step.get("run"), str) or step.get("shell", "bash") not in ("bash", "sh"):
        raise WorkflowError(f"{where} needs `run`, a text for bash")
    own = {**env, **_env(step, env, chosen, where)}
    place = _filled(_text(step.get("working-directory", folder), where), own, chosen, where)
    return Command(_text(step.get("name", where), where), _filled(step["run"], own, chosen, where), place, own)


def _matrix(strategy: Any, where: str) -> list[dict[str, str]]:
    matrix = (strategy.get("matrix") or {}) if isinstance(strategy, dict) else {}
    if not isinstance(matrix, dict) or not all(isinstance(values, list) for values in matrix.values()):
        raise WorkflowError(f"{where}: the matrix must be lists by name")
    if {"include", "exclude"} & matrix.keys():
        raise WorkflowError(f"{where}: include and exclude of a matrix are not understood here")
    count = math.prod(len(values) for values in matrix.values())
    if count > MAX_COMBINATIONS:
        raise WorkflowError(f"{where}: the matrix has {count} combinations, {MAX_COMBINATIONS} at most are run here")
    lists = [[_text(value, where) for value in values] for values in matrix.values()]
    return [dict(zip(matrix, row, strict=True)) for row in itertools.product(*lists)]


def _env(holder: Mapping[str, Any], outer: Mapping[str, str], chosen: Mapping[str, str], where: str) -> dict[str, str]:
    env = holder.get("env") or {}
    if not isinstance(env, dict):
        raise WorkflowError(f"{where}: env must be a table, not {reprlib.repr(env)}")
    if len(env) > MAX_ENV:
        raise WorkflowError(f"{where}: env has {len(env)} variables, {MAX_ENV} at most are set here")
    filled: dict[str, str] = {}
    length = 0
    for name, value in env.items():
        if not _text(name, where) or "=" in name:
            raise WorkflowError(f"{where}: {reprlib.repr(name)} can't be set in an environment")
        filled[name] = _filled(_text(value, where), outer, chosen, f"{where}: env {name}")
        length += len(filled[name])
        if length > MAX_TEXT_CHARS:
            raise WorkflowError(
                f"{where}: env has more than {MAX_TEXT_CHARS} characters once its expressions are filled"
            )
    return filled


def _folder(defaults: Any, otherwise: str) -> str:
    run = defaults.get("run", {}) if isinstance(defaults, dict) else {}
    folder = run.get("working-directory", otherwise) if isinstance(run, dict) else otherwise
    return folder if isinstance(folder, str) else otherwise


def _text(value: Any, where: str) -> str:
    """A text that a command line or an environment can hold. Raises Refused."""
    if not isinstance(value, str):
        raise WorkflowError(f"{where}: {reprlib.repr(value)} is no text, and a text is wanted here")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise WorkflowError(f"{where}: {reprlib.repr(value)} holds a character that no command can be given")
    return value


def _filled(text: str, env: Mapping[str, str], chosen: Mapping[str, str], where: str) -> str:
    holders = {"matrix": chosen, "env": env, "github": {"workspace": WORKDIR}}

    def value(match: re.Match[str]) -> str:
        holder, _, name = match[1].strip().partition(".")
        values = holders.get(holder, {})
        if name not in values:
            raise WorkflowError(f"{where}: {match[0][:80]} is not understood here, or has no value")
        return values[name]

    found = list(EXPRESSION.finditer(_text(text, where)))
    if len(text) + sum(len(value(match)) for match in found) > MAX_TEXT_CHARS:
        raise WorkflowError(f"{where} has more than {MAX_TEXT_CHARS} characters once its expressions are filled")
    if "${{" in EXPRESSION.sub("", text):
        raise WorkflowError(f"{where}: an expression that holds braces is not understood here")
    return EXPRESSION.sub(value, text)


def _known(table: Mapping[str, Any], keys: frozenset[str], where: str) -> None:
    if strange := sorted(str(key) for key in table if key not in keys):
        raise WorkflowError(f"{where}: {strange[0][:80]} is not understood here")
