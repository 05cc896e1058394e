"""mini-swe-agent on the scripted task of `harness.py`, run by the Python of an environment that has it.

    PYTHON benchmarks/harness_peer.py '{"turns": 500, "output": "…", "save": true}'

Prints JSON: milliseconds of each turn outside of model and command. Its default agent and its own deterministic model; the
environment answers at once with the same output that ours gets.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


class Environment:
    """Answers at once, and remembers when it was asked."""

    def __init__(self, output: str) -> None:
        self.output = output
        self.busy_s = 0.0

    def execute(self, action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        return {"output": self.output, "returncode": 0, "exception_info": ""}

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}


def main() -> None:
    from minisweagent import __version__
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.models.test_models import DeterministicModel, make_output

    task = json.loads(sys.argv[1])
    asked: list[float] = []
    answered: list[float] = []

    class Model(DeterministicModel):
        def query(self, messages: list[dict[str, str]], **options: Any) -> dict[str, Any]:
            asked.append(time.perf_counter())
            answer = super().query(messages, **options)
            answered.append(time.perf_counter())
            return answer

    turns = task["turns"]
    outputs = [
        make_output("I look at the next part.", [{"command": f"sed -n {n},{n + 40}p core.py"}], 0.0)
        for n in range(turns + 1)
    ]
    model = Model(outputs=outputs, cost_per_call=0.0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trajectory.json" if task["save"] else None
        agent = DefaultAgent(
            model, Environment(task["output"]), system_template="You are a coding agent.", instance_template="{{task}}",
            step_limit=turns, cost_limit=0.0, output_path=file,
        )  # fmt: skip
        agent.run("fix it")
    overhead_ms = [1e3 * (begin - end) for end, begin in zip(answered, asked[1:], strict=False)]
    print(json.dumps({"version": __version__, "overhead_ms": overhead_ms}))


if __name__ == "__main__":
    main()
