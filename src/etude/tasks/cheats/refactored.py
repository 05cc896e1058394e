"""Ways to look like one who renamed or moved: each must score 0 with grader `refactor`.

All but `nothing_done` start from the reference, so that its tests pass and structure alone can tell; each then leaves a way by the old name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from etude.tasks.cheats.exercise import Files, nop
from etude.tasks.solved import reference_files
from etude.tasks.task import Task


def nothing_done(task: Task) -> Files:
    return nop(task)


def alias(task: Task) -> Files:
    """The old name means the new thing."""
    return _left(task, "\n\n{imported}\n{old} = {new}\n" if _moves(task) else "\n\n{old} = {new}\n")


def re_export(task: Task) -> Files:
    """The old place imports it again, under the old name."""
    return _left(task, "\n\nfrom {target} import {new} as {old}\n")


def star_re_export(task: Task) -> Files:
    """All of the new place, in the old one; where nothing moved, a name by `globals()`."""
    return _left(task, "\n\nfrom {target} import *\n" if _moves(task) else "\n\nglobals()['{old}'] = {new}\n")


def module_getattr(task: Task) -> Files:
    """Made when it is asked for."""
    return _left(
        task,
        "\n\ndef __getattr__(name):\n    if name == '{old}':\n        from {target} import {new}\n"
        "        return {new}\n    raise AttributeError(name)\n",
    )


def wrapper(task: Task) -> Files:
    """A function of the old name that calls the new one."""
    return _left(
        task,
        "\n\ndef {old}(*args, **kwargs):\n    from {target} import {new} as found\n    return found(*args, **kwargs)\n",
    )


def shim_elsewhere(task: Task) -> Files:
    """A module of its own sets the old name."""
    text = "import {module} as old, {target} as new\nsetattr(old, '{old}', new.{new})\n"
    return reference_files(task) | {"compat_shim.py": text.format(**task.hidden["refactor"]).encode()}


def definition_only(task: Task) -> Files:
    """The definition is renamed in place, or copied to its target, and nothing uses it."""
    request = task.hidden["refactor"]
    path = _path(task, request["target"])
    if _moves(task):
        return nop(task) | {path: reference_files(task)[path]}
    changed = re.sub(
        rf"(?m)^((?:async )?(?:def|class) ){request['old']}\b", rf"\g<1>{request['new']}", task.files[path]
    )
    return nop(task) | {path: changed.encode()}


def copied(task: Task) -> Files:
    """The reference's files together with the old definition, which stays."""
    path = _path(task, task.hidden["refactor"]["module"])
    old = task.files[path].encode()
    return reference_files(task) | {path: old + (b"" if _moves(task) else _tail(task))}


def tangled(task: Task) -> Files:
    """The operation, and a change that was not requested."""
    return _left(task, "\n\ndef also_this_was_not_asked_for():\n    return 1\n")


REFACTORED: dict[str, Callable[[Task], Files]] = {
    cheat.__name__: cheat
    for cheat in (
        nothing_done,
        alias,
        re_export,
        star_re_export,
        module_getattr,
        wrapper,
        shim_elsewhere,
        definition_only,
        copied,
        tangled,
    )
}


def _moves(task: Task) -> bool:
    return task.hidden["refactor"]["operation"] == "move"


def _path(task: Task, module: str) -> str:
    return next(path for path, name in task.hidden["modules"].items() if name == module)


def _tail(task: Task) -> bytes:
    return "\n\n{new} = {old}\n".format(**task.hidden["refactor"]).encode()


def _left(task: Task, text: str) -> Files:
    """The reference, with `text` at the end of the module that had the old name."""
    request = task.hidden["refactor"]
    path = _path(task, request["module"])
    files = reference_files(task)
    addition = text.format(**request, imported="from {target} import {new}".format(**request))
    return files | {path: files[path] + addition.encode()}
