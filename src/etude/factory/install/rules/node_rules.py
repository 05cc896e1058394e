"""The embedded pair for JavaScript: ten goals from package.json, and npm's steps below DEPS with links from the workdir.

What is installed lies outside of what an agent exports: `node_modules` of the workdir is a link. Packages of a workspace stay links to
the workdir itself, so that the tested code is the tree's and not an index's. No install script runs.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence

from etude.factory.install.goal import TEN, Goal
from etude.factory.install.left_out import LEFT_OUT
from etude.factory.install.rules.node_package import needs, package, workspaces
from etude.factory.install.rules.node_plan import BY_NEED, builds_of, plan
from etude.factory.install.rules.repairs import javascript_wants
from etude.factory.sources.fetched import Fetched
from etude.sandbox.spec import WORKDIR
from etude.tasks.environment.environment import DEPS

PLACE = f"{DEPS}/js"
_NPM = "HOME=/tmp npm install --ignore-scripts --no-package-lock --legacy-peer-deps --loglevel=error --cache=/tmp/.npm"
# Packages of one author resemble each other down to their tests, and no test of the project runs those of its dependencies.
_WITHOUT_TESTS = (
    f"find {PLACE}/node_modules -type d -name test -path '*/node_modules/*/test' -prune"
    """ -exec sh -c 'if [ -f "$1/../package.json" ]; then rm -rf "$1"; fi' _ {} \\;"""
)


def goals(project: Fetched) -> list[Goal]:
    files = project.texts()
    chosen = plan(project)
    found: list[Goal] = []
    if chosen.files:
        words = [word for one in chosen.command for word in (chosen.files if one == "{files}" else (one,))]
        found.append(Goal(shlex.join(words), "the runner's summary, most tests passed", "", None, True))
    found.append(Goal("node -e 'console.log(process.version)'", "node's version", r"v\d+\."))
    name = package(files).get("name", "")
    built = not builds_of(files)
    if (
        name
        and built
        and package(files).get("type") != "module"
        and (package(files).get("main") or "index.js" in files)
    ):
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
    for path in [path for path in sorted(files) if re.fullmatch(r"(index|lib/index|src/index)\.c?js", path)][:2]:
        found.append(Goal(f"node --check {path} && echo sound", "the file parses", "sound"))
    found.append(Goal("npm --version", "npm's version", r"\d+\."))
    return found[:TEN]


def env(project: Fetched) -> dict[str, str]:
    return {"PATH": f"{PLACE}/node_modules/.bin:/usr/local/bin:/usr/bin:/bin", "NODE_ENV": "test"}


def steps(project: Fetched, wanted: Sequence[str] = (), *, plain: bool = False, bare: bool = False) -> tuple[str, ...]:
    """`wanted`: packages that an earlier try missed; `plain`: what the project lists for development, but its runner, is
    installed one by one, and left out where it can't be had; `bare` has no
    meaning here: nothing of the project is built at its installation."""
    files = project.texts()
    members = workspaces(files)
    runner = {need for need, _, _ in BY_NEED} | {"tsx", "ts-node", "typescript"}
    build = bool(builds_of(files))
    apart: dict[str, str] = {}
    found = [f"mkdir -p {PLACE}"]
    for folder in ("", *members.values()):
        told = package(files, folder)
        asked = {name: at for name, at in needs(told, build).items() if name not in members}
        if plain:
            own = needs({"dependencies": told.get("dependencies")})
            apart |= {name: at for name, at in asked.items() if name not in own and name not in runner and not folder}
            asked = {name: own.get(name, "*") for name in asked if name in own or name in runner}
        asked |= dict.fromkeys(wanted if not folder else (), "*")
        document = {"name": told.get("name", "tree"), "version": "0.0.0", "dependencies": asked}
        if members and not folder:
            document["workspaces"] = list(members.values())
        place = f"{PLACE}/{folder}".rstrip("/")
        found.append(f"mkdir -p {place} && cat > {place}/package.json <<'EOF'\n{json.dumps(document)}\nEOF")
    found.append(f"cd {PLACE} && {_NPM}")
    found += [_each(apart)] if apart else []
    found.append(f"mkdir -p {PLACE}/node_modules && ln -s {PLACE}/node_modules {WORKDIR}/node_modules")
    for name, folder in members.items():
        found.append(
            f"mkdir -p $(dirname {PLACE}/node_modules/{name}) && ln -sfn {WORKDIR}/{folder} {PLACE}/node_modules/{name}"
        )
        found.append(
            f"if [ -d {PLACE}/{folder}/node_modules ]; then ln -s {PLACE}/{folder}/node_modules {WORKDIR}/{folder}/node_modules; fi"
        )
    found += ["rm -rf /tmp/.npm", _WITHOUT_TESTS]
    return tuple(found)


def _each(apart: Mapping[str, str]) -> str:
    words = " ".join(shlex.quote(f"{name}@{at}") for name, at in apart.items())
    return f'cd {PLACE} && for one in {words}; do {_NPM} "$one" || echo "$one" >> {LEFT_OUT}; done'


def learned(project: Fetched, output: str, wanted: Sequence[str]) -> list[str]:
    own = {package(project.texts()).get("name", "")}
    return [name for name in javascript_wants(output, set(wanted)) if name not in own]


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
    """No released copy of the project stays: whoever asks for it gets the working tree."""
    found = []
    for name, place in own_packages(project).items():
        link = f'rm -rf "$1" && ln -s {shlex.quote(place)} "$1"'
        where = shlex.quote(f"*/node_modules/{name}")
        found.append(
            f"find {PLACE}/node_modules -type d -path {where} -prune -exec sh -c {shlex.quote(link)} _ {{}} \\;"
        )
    return tuple(found)
