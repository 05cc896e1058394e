"""Grader `refactor`: the asked operation is in the tree, nothing else is, and the project's tests, adapted to it, pass in a fresh fork.

By structure first, over syntax trees and imports (`canonical.py`), so that a layout or a way of importing is no fault:

- rename: the old name is no identifier anywhere and in no `__all__`, the new one is defined once, where the old one was
- move: the target defines the name, the module that it left does not bind it in any way: no import, alias or `__getattr__`
- every module's other statements mean what they meant, no module came or went, a package offers the names it should offer
- files that are neither Python nor prose are as they were

Then the tests, by grader `commands`. Docstrings, comments and prose may say the old name or the new one. Nothing is run that was not
asked to be tested; a tree that can't be read is a score of 0 with the reason.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Mapping
from typing import Any

from etude.sandbox.protocol import Machines
from etude.tasks.bounded import LimitReached, run_bounded
from etude.tasks.graders.canonical import DEFINITION, Program, UnparsableModule, exports, imported_bindings, program
from etude.tasks.graders.commands import CommandsGrader
from etude.tasks.graders.judged import MAX_FILE_BYTES
from etude.tasks.protected import is_protected
from etude.tasks.solved import reference_files
from etude.tasks.task import Task, Verdict

NAME = "refactor"
PROSE = re.compile(r"\.(md|rst|txt)$|(^|/)(README|CHANGES|CHANGELOG|HISTORY|NEWS|AUTHORS)[^/]*$", re.IGNORECASE)


class RefactorGrader:
    """`hidden`: what grader `commands` asks for, and refactor: {operation, module, old, new, target}, modules: dotted names by path."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        """Raises InfraError for what is no fault of the attempt."""
        start = time.perf_counter()
        try:
            reason = await run_bounded(objection, task, files)
        except (UnparsableModule, RecursionError, LimitReached) as error:
            reason = str(error)
        if reason:
            return Verdict(0.0, {"structure": False}, reason, time.perf_counter() - start)
        verdict = await CommandsGrader().grade(task, files, pool)
        return Verdict(verdict.score, {"structure": True, **verdict.tests}, verdict.reason, time.perf_counter() - start)


def objection(task: Task, files: Mapping[str, bytes]) -> str:
    """Why the tree is not what was asked for; empty if it is. Raises Unreadable."""
    wanted, modules = reference_files(task), task.hidden["modules"]
    if reason := _strange(wanted, files, modules):
        return reason
    reference = program(_texts(wanted, modules), modules)
    submission = program(_texts(files, modules), modules)
    request = task.hidden["refactor"]
    reason = (
        _renamed(reference, submission, request)
        if request["operation"] == "rename"
        else _moved(reference, submission, request)
    )
    return reason or _public(reference, submission, request) or _tangled(reference, submission, request)


def _strange(wanted: Mapping[str, bytes], files: Mapping[str, bytes], modules: Mapping[str, str]) -> str:
    """Files that came, went or changed without having been asked to."""
    for path in sorted({*wanted, *files}):
        if is_protected(path) or PROSE.search(path):
            continue
        if path not in files:
            return f"{path} is missing"
        if path not in wanted:
            return f"{path} was not asked for"
        if len(files[path]) > MAX_FILE_BYTES:
            return f"{path} has {len(files[path])} bytes, {MAX_FILE_BYTES} at most are read"
        if path not in modules and bytes(files[path]) != bytes(wanted[path]):
            return f"{path} has no business changing"
    return ""


def _texts(files: Mapping[str, bytes], modules: Mapping[str, str]) -> dict[str, str]:
    try:
        return {path: files[path].decode() for path in modules if path in files}
    except UnicodeDecodeError as error:
        raise UnparsableModule(f"a module is no UTF-8: {error.reason}") from error


def _renamed(reference: Program, submission: Program, request: Mapping[str, Any]) -> str:
    old, new, module = request["old"], request["new"], request["module"]
    for name, tree in submission.trees.items():
        if old in identifiers(tree) or old in exports(tree):
            return f"`{old}` is still in {name}"
    places = _defined(submission, new)
    return (
        ""
        if places == _defined(reference, new)
        else f"`{new}` is defined in {', '.join(places) or 'no module'}, not in {module} alone"
    )


def _moved(reference: Program, submission: Program, request: Mapping[str, Any]) -> str:
    name, module, target = request["new"], request["module"], request["target"]
    places = _defined(submission, name)
    if places != _defined(reference, name):
        return f"`{name}` is defined in {', '.join(places) or 'no module'}, not in {target} alone"
    if name in submission.bound[module] or name in exports(submission.trees[module]):
        return f"{module} still has `{name}`: it was to move, not to be re-exported"
    return ""


def _defined(submission: Program, name: str) -> list[str]:
    return [
        module
        for module, tree in submission.trees.items()
        for node in tree.body
        if isinstance(node, DEFINITION) and node.name == name
    ]


def identifiers(tree: ast.AST) -> set[str]:
    """Every word of the code that is a name: of variables, attributes, parameters, keywords, definitions, imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        for name in ("id", "attr", "arg", "name", "asname"):
            if isinstance(word := getattr(node, name, None), str):
                found.update(word.split("."))
        if isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
    return found


def _public(reference: Program, submission: Program, request: Mapping[str, Any]) -> str:
    """What packages offer, and other names for the thing that was renamed or moved."""
    thing = f"{request['target']}.{request['new']}"
    for module in reference.trees:
        mine, found = _meant(reference, module), _meant(submission, module)
        if module in reference.packages:
            for name in sorted(mine.keys() | found.keys()):
                if not name.startswith("_") and mine.get(name) != found.get(name):
                    return f"{module} {'offers' if name in found else 'no longer offers'} `{name}`, which was not asked for"
        for name, meant in found.items():
            if meant == thing and name != request["new"] and mine.get(name) != thing:
                return f"{module} has `{thing}` under another name, `{name}`"
        aliases = {n for node in ast.walk(submission.trees[module]) for n in _imported(submission, node, module, thing)}
        known = {n for node in ast.walk(reference.trees[module]) for n in _imported(reference, node, module, thing)}
        if extra := aliases - known - {request["new"]}:
            return f"{module} imports `{thing}` as `{min(extra)}`"
        mine_all, their_all = (set(exports(each.trees[module])) - {request["new"]} for each in (reference, submission))
        if mine_all != their_all:
            return f"`__all__` of {module} differs: {', '.join(sorted(mine_all ^ their_all))}"
    return ""


def _imported(made: Program, node: ast.AST, module: str, thing: str) -> list[str]:
    bound = imported_bindings(node, module, module in made.packages)
    return [name for name, meant in bound.items() if made.resolve_name(meant) == thing]


def _meant(made: Program, module: str) -> dict[str, str]:
    """Top-level names that mean something of the project, and what."""
    found = {name: made.resolve_name(meant) for name, meant in made.bound[module].items()}
    return {name: meant for name, meant in found.items() if made.split(meant)[0] and meant not in made.trees}


def _tangled(reference: Program, submission: Program, request: Mapping[str, Any]) -> str:
    """Statements that are not the reference's, whatever way they are written in."""
    words = spelling(request)
    for module in reference.trees:
        mine, found = reference.statements(module, words), submission.statements(module, words)
        if extra := found - mine:
            return f"{module} has code that was not asked for: {_one_line(next(iter(extra)))}"
        if lost := mine - found:
            return f"{module} lacks {_one_line(next(iter(lost)))}"
    return ""


def spelling(request: Mapping[str, Any]) -> tuple[re.Pattern[str], str]:
    """In strings, the old name is as good as the new one; tests say where it is not."""
    if request["operation"] == "rename":
        return re.compile(rf"\b{re.escape(request['old'])}\b"), request["new"]
    return re.compile(rf"\b{re.escape(request['module'])}\.{request['new']}\b"), f"{request['target']}.{request['new']}"


def _one_line(dumped: str) -> str:
    return dumped.replace("\n", " ")[:120]
