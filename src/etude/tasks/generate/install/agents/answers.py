"""What a model's last message must hold: ten goals, or a recipe. Pure; whatever is wrong is said in words that the model can act on."""

from __future__ import annotations

import fnmatch
import json
import re
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from etude.tasks.environment.environment import Runner, TestPlan
from etude.tasks.generate.install.goal import TEN, Goal

# Whether a pattern that a model wrote may be searched for on the host: one that could take for ever may not. Pure.


MOST_CHARS = 160
MOST_REPEATS = 2  # unbounded ones: time grows with the text's length to the power of their number
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}
_MANY = 16


def unsafe(pattern: str) -> str:
    """Why not; empty if it may."""
    if len(pattern) > MOST_CHARS:
        return f"it has {len(pattern)} characters, at most {MOST_CHARS} are taken"
    try:
        re.compile(pattern)
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"it does not parse ({error})"
    depths = list(_repeats(tree, 0))
    if any(depth > 1 for depth in depths):
        return "a repetition contains a repetition"
    if len(depths) > MOST_REPEATS:
        return f"it has {len(depths)} repetitions without a bound, at most {MOST_REPEATS} are taken"
    return ""


def _repeats(node: Any, depth: int) -> Iterator[int]:
    """For each repetition that is wide, how deep it is nested in others."""
    if isinstance(node, parser.SubPattern):
        for op, value in node.data:
            wide = str(op) in _REPEATS and value[1] > _MANY
            if wide:
                yield depth + 1
            yield from _repeats(value, depth + wide)
    elif isinstance(node, (tuple, list)):
        for one in node:
            yield from _repeats(one, depth)


MOST_STEPS, MOST_FILES = 40, 400
MOST_STEP_CHARS, MOST_COMMAND_CHARS = 20_000, 2_000
_DECODER = json.JSONDecoder()
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = {
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "pip_index_url",
    "npm_config_registry",
    "uv_default_index",
}


class MalformedAnswer(ValueError):
    """What is wrong with an answer, for the model that gave it."""


@dataclass(frozen=True)
class BuildAnswer:
    """A recipe as a builder answers it."""

    steps: tuple[str, ...]
    tests: TestPlan
    env: dict[str, str] = field(default_factory=dict)
    start_script: str = ""


def goals(text: str) -> list[Goal]:
    """Raises Malformed."""
    rows = _object(text, "goals")["goals"]
    if not isinstance(rows, list) or len(rows) != TEN:
        had = len(rows) if isinstance(rows, list) else "no list"
        raise MalformedAnswer(f'"goals" must be a list of {TEN} objects, there is {had}')
    found = [_goal(row, f"goal {number}") for number, row in enumerate(rows, 1)]
    commands = [goal.command for goal in found]
    if twice := sorted({one for one in commands if commands.count(one) > 1}):
        raise MalformedAnswer(f"the command {twice[0]!r} is proposed twice: propose ten different ones")
    return found


def build(text: str, files: Collection[str]) -> BuildAnswer:
    """`files`: of the untouched tree. Raises Malformed."""
    row = _object(text, "steps")
    steps = _texts(row.get("steps"), '"steps"')
    if not 1 <= len(steps) <= MOST_STEPS or any(not 0 < len(step.strip()) <= MOST_STEP_CHARS for step in steps):
        raise MalformedAnswer(f'"steps" must be 1 to {MOST_STEPS} commands of at most {MOST_STEP_CHARS} characters')
    script = row.get("start_script", "")
    if not isinstance(script, str) or len(script) > MOST_STEP_CHARS:
        raise MalformedAnswer(f'"start_script" must be a text of at most {MOST_STEP_CHARS} characters')
    return BuildAnswer(steps, _plan(row.get("tests"), files), _env(row.get("env", {})), script)


def _goal(row: Any, where: str) -> Goal:
    if not isinstance(row, dict):
        raise MalformedAnswer(f"{where} is no object")
    command, description, pattern = (row.get(key, "") for key in ("command", "description", "pattern"))
    if not isinstance(command, str) or not 0 < len(command.strip()) <= MOST_COMMAND_CHARS:
        raise MalformedAnswer(f'{where}: "command" must be a shell command of at most {MOST_COMMAND_CHARS} characters')
    if not isinstance(description, str) or len(description.split()) < 3:
        raise MalformedAnswer(
            f'{where}: "description" must say in words what the output is like when all is set up right'
        )
    if not isinstance(pattern, str):
        raise MalformedAnswer(f'{where}: "pattern" must be a text')
    if why := unsafe(pattern):
        raise MalformedAnswer(f"{where}: the pattern {pattern!r} can't be used: {why}")
    status, tests = row.get("status", 0), row.get("tests", False)
    if status is not None and (isinstance(status, bool) or not isinstance(status, int)):
        raise MalformedAnswer(f'{where}: "status" must be a number, or null where it does not matter')
    if not isinstance(tests, bool):
        raise MalformedAnswer(f'{where}: "tests" must be true or false')
    return Goal(command.strip(), description.strip(), pattern, None if tests else status, tests)


def _plan(row: Any, files: Collection[str]) -> TestPlan:
    if not isinstance(row, dict):
        raise MalformedAnswer('"tests" must be an object with runner, command and files')
    runner, command = row.get("runner"), _texts(row.get("command", []), '"tests.command"')
    if runner not in get_args(Runner):
        raise MalformedAnswer(f'"tests.runner" {runner!r} is none of {", ".join(get_args(Runner))}')
    if runner in ("exit", "tap") and not command:
        raise MalformedAnswer(
            f'"tests.command" is needed with the runner {runner}: a list of words, {{files}} among them'
        )
    found: dict[str, None] = {}
    for pattern in _texts(row.get("files"), '"tests.files"'):
        plain = pattern.removeprefix("./")
        hits = [plain] if plain in files else sorted(fnmatch.filter(files, plain))
        if not hits:
            raise MalformedAnswer(f'"tests.files": no file of the tree matches {pattern!r}')
        found |= dict.fromkeys(hits)
    if not found:
        raise MalformedAnswer(
            '"tests.files" is empty: name the files that hold the tests, patterns as tests/*.py will do'
        )
    return TestPlan(cast(Runner, runner), command, tuple(found)[:MOST_FILES])


def _env(row: Any) -> dict[str, str]:
    if not isinstance(row, dict) or not all(isinstance(value, str) for value in row.values()):
        raise MalformedAnswer('"env" must be an object of texts')
    for name in row:
        if not _VARIABLE.fullmatch(name):
            raise MalformedAnswer(f'"env": {name!r} is no name of a variable')
        if name.lower() in _RESERVED:
            raise MalformedAnswer(
                f'"env": {name} is the sandbox\' own: the package indexes are reached as they are set'
            )
    return dict(row)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise MalformedAnswer(f"{where} must be a list of texts")
    return tuple(value)


def _object(text: str, key: str) -> dict[str, Any]:
    """The last JSON object of a message that has the key: alone, fenced, or among words and braces. Raises Malformed."""
    found: dict[str, Any] = {}
    at = text.find("{")
    while at >= 0:
        try:
            one, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            found = one if key in one else found
        at = text.find("{", end)
    if not found:
        raise MalformedAnswer(f'the message holds no JSON object that parses and has "{key}"')
    return found
