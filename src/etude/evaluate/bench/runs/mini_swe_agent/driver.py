"""mini-swe-agent's side: run by the Python of an environment that has it, which knows nothing of ours.

    PYTHON driver.py --describe      # version and prompts, as JSON
    PYTHON driver.py                 # one session, JSON lines: the job on stdin, then commands out and their results in

Its default agent with its own `mini.yaml` and its own client; only the environment is this one, which has the commands run elsewhere.
What it prints itself goes to stderr.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any, TextIO

CONFIG = Path("config") / "mini.yaml"
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class Elsewhere:
    """Its environment: a command goes out as a line, its result comes in as one."""

    def __init__(self, results: TextIO, commands: TextIO) -> None:
        self._results, self._commands = results, commands

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        from minisweagent.exceptions import Submitted  # pyright: ignore[reportMissingImports]

        tell(self._commands, {"command": action.get("command", "")})
        output = json.loads(self._results.readline())
        lines = output["output"].lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == SUBMIT and output["returncode"] == 0:  # as its own environments do
            said = "".join(lines[1:])
            raise Submitted(
                {"role": "exit", "content": said, "extra": {"exit_status": "Submitted", "submission": said}}
            )
        return output

    def get_template_vars(self, **more: Any) -> dict[str, Any]:
        return platform.uname()._asdict() | more

    def serialize(self) -> dict[str, Any]:
        return {}


def tell(out: TextIO, row: dict[str, Any]) -> None:
    out.write(json.dumps(row) + "\n")
    out.flush()


def describe() -> dict[str, Any]:
    """What a session depends on, found without importing it: that takes seconds."""
    found = importlib.metadata.distribution("mini-swe-agent")
    config = Path(str(found.locate_file("minisweagent"))) / CONFIG
    return {"version": found.version, "config": config.read_text(encoding="utf-8")}


def play(results: TextIO, commands: TextIO) -> dict[str, Any]:
    """One session; how it ended."""
    job = json.loads(results.readline())
    import yaml
    from minisweagent.agents.default import DefaultAgent  # pyright: ignore[reportMissingImports]
    from minisweagent.models.litellm_model import LitellmModel  # pyright: ignore[reportMissingImports]

    config = yaml.safe_load(describe()["config"])
    kept = {name: value for name, value in config["agent"].items() if name in ("system_template", "instance_template")}
    client = LitellmModel(model_name="openai/policy", cost_tracking="ignore_errors", **config["model"])
    agent = DefaultAgent(client, Elsewhere(results, commands), step_limit=job["turns"], cost_limit=0.0, **kept)
    try:
        end = agent.run(job["task"])
    except Exception as error:  # noqa: BLE001 - whatever it was, it ended the session; the other side knows what it means
        return {"end": type(error).__name__, "message": str(error)}
    return {"end": end.get("exit_status", ""), "message": end.get("submission", "")}


def main() -> None:
    if "--describe" in sys.argv:
        print(json.dumps(describe()))
        return
    commands = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    tell(commands, play(sys.stdin, commands))


if __name__ == "__main__":
    main()
