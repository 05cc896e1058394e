"""Grader `rename`: the old name is gone from every file the agent may change, and the new one works everywhere."""

from __future__ import annotations

import re

from etude.sandbox.protocol import Machines
from etude.tasks.graders.outputs import behaviour
from etude.tasks.restore import editable, restore_files, text_of
from etude.tasks.task import Task, Verdict


class RenameGrader:
    """`hidden["old"]` is the old name; `hidden["calls"]` use the new one."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        graded = restore_files(task, files)
        old = re.compile(rf"\b{re.escape(task.hidden['old'])}\b")
        static: dict[str, bool] = {}
        for path in editable(task):
            text = text_of(graded.get(path))
            static[f"{path} without {task.hidden['old']}"] = text is not None and not old.search(text)
        return await behaviour(task, graded, pool, static)
