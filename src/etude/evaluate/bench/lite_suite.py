"""A lite list as a suite of its own: some of a suite's tasks, frozen under another name, with what the choice reached in its words."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.renewal import rubrics_of
from etude.evaluate.bench.suites.folder import FolderSuite
from etude.evaluate.bench.suites.freeze import freeze


def freeze_lite(root: Path, found: dict[str, Any], out: Path) -> FolderSuite:
    """`found` is the document of `etude bench lite`; the suite at `root` must be the one its runs were asked. Raises SuiteError."""
    whole = FolderSuite(root)
    if whole.digest != found["suite"]["digest"]:
        raise SuiteError(
            f"{root} is {whole.name}@{whole.version} with digest {whole.digest[:12]}, the runs asked {found['suite']['label']} with "
            f"{found['suite']['digest'][:12]}: give the folder of that suite"
        )
    reached = (
        f"{len(found['tasks'])} of {found['of_tasks']} tasks of {found['suite']['label']}, {found['cost_share']:.1%} of its "
        f"{found['cost_axis']}; held-out rank correlation {found['rank_correlation']:.2f} over {len(found['policies'])} policies"
    )
    described = whole.manifest.model_copy(
        update={
            "name": f"{whole.name}-lite",
            "released": date.today(),
            "description": f"{reached}. It ranks policies; its averages are not those of the whole suite.",
            "changelog": (),
        }
    )
    named = whole.manifest.environment.requirements
    return freeze(
        out,
        described,
        [whole.task(task_id) for task_id in found["tasks"]],
        price_list=whole.prices,
        rubrics=rubrics_of(whole, found["tasks"]),
        requirements=root / named if named else None,
    )
