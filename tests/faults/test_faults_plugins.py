"""A run whose reward component, importance weight and advantages are a person's own: they are found in the trainer's process, and bind the run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from rl_lab import STEPS, lives, tiny_checkpoint

from etude.rl.local_ray import sweep

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]
MODULE = Path(__file__).parents[1] / "rl" / "my_rewards.py"
OWN = {
    "rewards": {"weights": {"my_rewards:many_turns": 0.05}},
    "update": {"trust": {"kind": "my_rewards:square_root"}},
    "baseline": "my_rewards:centred",
}


def test_a_component_and_a_weight_by_import_path_work_in_rays_processes(tmp_path: Path) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    module = Path(shutil.copy(MODULE, folder))
    environment = os.environ | {"PYTHONPATH": str(folder)}
    with lives(tiny_checkpoint(tmp_path), tmp_path) as begun:
        assert begun(OWN, env=environment).wait(timeout=400) == 0, (tmp_path / "driver-0.log").read_text()[-2000:]
        rows = [json.loads(line) for line in (tmp_path / "rl" / "steps.jsonl").read_text().splitlines()]
        assert len(rows) == STEPS and all("raw_my_rewards:many_turns" in row["values"] for row in rows), rows[0]
        module.write_text(module.read_text() + "# changed\n")
        assert begun(OWN, env=environment).wait(timeout=400) != 0
        assert "has changed since the run began" in (tmp_path / "driver-1.log").read_text()
    sweep(tmp_path / "rl" / "ray.json")
