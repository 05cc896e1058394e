"""Runs under the Python of a venv that has `harbor` and `terminal-bench`'s parsers: JSON lines in, what those tools decide out.

A case holds reward files (in base64), the text of a task.toml, the path of a task's directory, or a parser and what tests printed.
"""

from __future__ import annotations

import base64
import functools
import importlib
import importlib.metadata
import importlib.util
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any


def rewards(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    from harbor.models.verifier.result import VerifierResult  # pyright: ignore[reportMissingImports]
    from harbor.verifier.verifier import Verifier  # pyright: ignore[reportMissingImports]

    asked = types.SimpleNamespace(
        trial_paths=types.SimpleNamespace(
            reward_json_path=folder / "reward.json", reward_text_path=folder / "reward.txt"
        )
    )
    for name in ("reward.json", "reward.txt"):
        (folder / name).unlink(missing_ok=True)
        if case.get(name) is not None:
            (folder / name).write_bytes(base64.b64decode(case[name]))
    if case.get("reward.json") is not None:
        found = Verifier._parse_reward_json(asked)
    elif case.get("reward.txt") is not None:
        found = Verifier._parse_reward_text(asked)
    else:
        raise FileNotFoundError
    # A number alone passes the verifier's own checks; only its result class has no room for one in this version.
    return {"rewards": VerifierResult(rewards=found if isinstance(found, dict) else {"reward": found}).rewards}


def settings(case: dict[str, Any]) -> dict[str, Any]:
    from harbor.models.task.config import TaskConfig  # pyright: ignore[reportMissingImports]

    read = TaskConfig.model_validate_toml(case["task.toml"])
    return {"settings": json.loads(read.model_dump_json())}


def directory(case: dict[str, Any]) -> dict[str, Any]:
    from harbor.models.task.task import Task  # pyright: ignore[reportMissingImports]

    place = Path(case["directory"])
    valid = Task.is_valid_dir(place)
    task = Task(place)  # raises where the directory is not valid, with the reason
    settings = json.loads(task.config.model_dump_json())
    return {"valid": valid, "name": task.name, "instruction": task.instruction, "settings": settings}


@functools.cache
def parsers() -> Any:
    spec = importlib.util.find_spec("terminal_bench")
    assert spec is not None and spec.submodule_search_locations is not None
    for name in ("terminal_bench", "terminal_bench.parsers"):  # their doors import docker
        door = types.ModuleType(name)
        door.__path__ = [str(Path(spec.submodule_search_locations[0], *name.split(".")[1:]))]
        sys.modules[name] = door
    return importlib.import_module("terminal_bench.parsers.parser_factory")


def printed(case: dict[str, Any]) -> dict[str, Any]:
    factory = parsers()
    parser = factory.ParserFactory.get_parser(factory.ParserName(case["parser"]))
    return {"tests": {name: status.value == "passed" for name, status in parser.parse(case["printed"]).items()}}


def decided(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    try:
        if "parser" in case:
            return printed(case)
        if "directory" in case:
            return directory(case)
        return settings(case) if "task.toml" in case else rewards(case, folder)
    except Exception as error:  # noqa: BLE001 - what it is is the answer
        found: dict[str, Any] = {"error": type(error).__name__}
        if "directory" in case:  # and the settings that a refusal is about
            found["keys"] = [".".join(map(str, row["loc"])) for row in getattr(error, "errors", list)()]
        return found


def main() -> None:
    versions = {}
    for name in ("harbor", "terminal-bench"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    print(json.dumps(versions))
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            print(json.dumps(decided(json.loads(line), Path(folder))), flush=True)


if __name__ == "__main__":
    main()
