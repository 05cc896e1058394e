"""The embedded pair for JavaScript: ten goals from package.json, and npm's steps below DEPS with links from the workdir.

What is installed lies outside of what an agent exports: `node_modules` of the workdir is a link. Packages of a workspace stay links to
the workdir itself, so that the tested code is the tree's and not an index's. No install script runs.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from etude.sandbox.spec import WORKDIR
from etude.tasks.environment.environment import DEPS, TestPlan
from etude.tasks.generate.install.goal import TEN, Goal
from etude.tasks.generate.install.rules.node_build import imported_packages, main_file
from etude.tasks.generate.install.rules.node_install import (
    NEWER,
    NODE,
    PLACE,
    WITHOUT_TESTS,
    install_step,
    newer_node,
    own_node,
)
from etude.tasks.generate.install.rules.node_package import needs, package, required_node, workspaces
from etude.tasks.generate.install.rules.node_plan import BUILD_FAILED, builds_of, plan, programs, suite
from etude.tasks.generate.install.rules.repairs import javascript_wants, newer_node_wanted
from etude.tasks.generate.sources.fetched import Fetched

_TRANSLATED = re.compile(
    r"(?m)^[^\S\n]*+(import\s+[^(]|export\s|//\s*@flow|/\*\s*@flow)|</?[A-Za-z>]"
)  # not what node itself reads
_NO_PROGRAM = re.compile(r"(?m)^(?:/bin/)?sh: \d+: ([\w.-]+): not found")
_NOWHERE = ("vscode", "electron", "bun")  # parts of a program, not of the registry
_MISSING_OWN = re.compile(
    rf"Cannot find (module|package) '(\.{{1,2}}/|(file://)?{WORKDIR}/)|ENOENT[^\n]*{WORKDIR}/(?!node_modules)|Failed to resolve (entry|import)"
)


def goals(project: Fetched) -> list[Goal]:
    files = project.texts()
    chosen = plan(project)
    found: list[Goal] = []
    if chosen.files:
        found.append(Goal(suite(chosen), "the runner's summary, most tests passed", "", None, True))
    found.append(Goal("node -e 'console.log(process.version)'", "node's version", r"v\d+\."))
    document = package(files)
    if document.get("name") and document.get("type") != "module" and main_file(files):
        found.append(
            Goal(
                "node -e 'console.log(require.resolve(\"./\"))'",
                "a path in the workdir: the project's own code",
                rf"(?m)^{WORKDIR}/",
            )
        )
    if needs(package(files)):
        found.append(Goal("readlink -f node_modules", "where packages are installed", DEPS))
        found.append(Goal("ls node_modules", "installed packages", r"\w"))
    for member, folder in list(workspaces(files).items())[:3]:
        found.append(Goal(f"readlink -f node_modules/{member}", "the workspace's own folder", f"{WORKDIR}/{folder}"))
    entries = [path for path in sorted(files) if re.fullmatch(r"(index|lib/index|src/index)\.c?js", path)]
    for path in [path for path in entries if not _TRANSLATED.search(files[path])][:2]:
        found.append(Goal(f"node --check {path} && echo sound", "the file parses", "sound"))
    found.append(Goal("npm --version", "npm's version", r"\d+\."))
    return found[:TEN]


def with_plan(project: Fetched, goal: Goal, chosen: TestPlan) -> Goal:
    """The goal that runs the tests, with another plan for them."""
    return replace(goal, command=suite(chosen)) if goal.command == suite(plan(project)) else goal


def env(project: Fetched) -> dict[str, str]:
    """ts-node runs what does not pass its check of types, too: that is no test of the project."""
    path = f"{PLACE}/node_modules/.bin:/usr/local/bin:/usr/bin:/bin"
    return {"PATH": path, "NODE_ENV": "test", "TS_NODE_TRANSPILE_ONLY": "true"}


def steps(project: Fetched, wanted: Sequence[str] = (), *, plain: bool = False, bare: bool = False) -> tuple[str, ...]:
    """`wanted`: packages that an earlier try missed; `plain`: where all of what the project lists can't be installed at once, one by one,
    and what can't be had is left out; `bare`: for the other choice about its build (`plan`)."""
    files = project.texts()
    members = workspaces(files)
    chosen = plan(project, bare)
    build = bool(builds_of(files, bare).commands)
    named = imported_packages(files, build)
    found = [f"mkdir -p {PLACE}"]
    singly: dict[str, str] = {}
    for folder in ("", *members.values()):
        document = package(files, folder)
        required = {name: at for name, at in needs(document, build, named).items() if name not in members}
        if not folder:
            every = needs(document, True, named)
            missed = {name: "*" for name in wanted if name in required}  # what its version did not bring
            required |= {
                name: every.get(name, _version_of(name, every)) for name in (*programs(chosen), *wanted)
            } | missed
            required |= newer_node(required_node(files))
            singly = required
        described = {"name": document.get("name", "tree"), "version": "0.0.0", "dependencies": required}
        if members and not folder:
            described["workspaces"] = list(members.values())
        place = f"{PLACE}/{folder}".rstrip("/")
        found.append(f"mkdir -p {place} && cat > {place}/package.json <<'EOF'\n{json.dumps(described)}\nEOF")
    found.append(install_step(["", *members.values()], singly if plain else {}))
    found.append(f"mkdir -p {PLACE}/node_modules && ln -s {PLACE}/node_modules {WORKDIR}/node_modules")
    for name, folder in members.items():
        found.append(
            f"mkdir -p $(dirname {PLACE}/node_modules/{name}) && ln -sfn {WORKDIR}/{folder} {PLACE}/node_modules/{name}"
        )
        found.append(
            f"if [ -d {PLACE}/{folder}/node_modules ]; then ln -s {PLACE}/{folder}/node_modules {WORKDIR}/{folder}/node_modules; fi"
        )
    found += ["rm -rf /tmp/.npm", WITHOUT_TESTS]
    return tuple(found)


def _version_of(name: str, every: Mapping[str, str]) -> str:
    """The version of a package that the project does not list: that of the package whose part it is."""
    if name == NODE:
        return f"^{NEWER}"
    for part, whole in (("@vitest/", "vitest"), ("jest-environment-", "jest"), ("babel-jest", "jest")):
        if name.startswith(part) and whole in every:
            return every[whole]
    return "*"


def other_build(project: Fetched, outputs: Sequence[str]) -> bool:
    """Whether earlier tries ask for the other choice about the build: it failed, or a file of the project is missing without it."""
    builds = bool(builds_of(project.texts()).commands)
    if builds:
        return any(BUILD_FAILED in one for one in outputs)
    return any(_MISSING_OWN.search(one) for one in outputs)


def learned(project: Fetched, output: str, wanted: Sequence[str]) -> list[str]:
    """Packages of the registry that a failed try missed, and listed programs that were taken for needless."""
    files = project.texts()
    document = package(files)
    folders = {path.split("/")[0] for path in files}
    named = [name for name in javascript_wants(output, set(wanted)) if name not in folders]
    listed = {_program_of(name): name for name in needs(document, True, [*_listed(document)])}
    missed = [listed[one] for one in _NO_PROGRAM.findall(output) if one in listed and listed[one] not in wanted]
    newer = [NODE] if newer_node_wanted(output) and NODE not in wanted and own_node() < NEWER else []
    return [
        name for name in dict.fromkeys([*named, *missed, *newer]) if name not in (document.get("name", ""), *_NOWHERE)
    ]


def _listed(document: Mapping[str, Any]) -> list[str]:
    found = document.get("devDependencies")
    return list(found) if isinstance(found, dict) else []


def _program_of(name: str) -> str:
    return {"typescript": "tsc", "@babel/cli": "babel", "webpack-cli": "webpack", "@swc/cli": "swc"}.get(
        name, name.split("/")[-1]
    )


def own_packages(project: Fetched) -> dict[str, str]:
    """The names under which the registry may have the project and its packages, each with its folder in the workdir."""
    files = project.texts()
    name = str(package(files).get("name") or project.wanted.in_registry)
    found = {project.wanted.in_registry: WORKDIR, name: WORKDIR}
    return found | {member: f"{WORKDIR}/{folder}" for member, folder in workspaces(files).items()}


def needs_itself(project: Fetched, output: str) -> bool:
    """Whether what its own tests are run with needs a release of it, which is denied."""
    return "403" in output and any(
        re.search(rf"/npm/{re.escape(name.replace('/', '%2f'))}(?![\w.-])", output, re.IGNORECASE)
        for name in own_packages(project)
    )


def in_place_of_copies(project: Fetched) -> tuple[str, ...]:
    """No released copy of the project stays: every import of it gets the working tree."""
    found = []
    for name, place in own_packages(project).items():
        link = f'rm -rf "$1" && ln -s {shlex.quote(place)} "$1"'
        where = shlex.quote(f"*/node_modules/{name}")
        found.append(
            f"find {PLACE}/node_modules -type d -path {where} -prune -exec sh -c {shlex.quote(link)} _ {{}} \\;"
        )
    return tuple(found)
