"""What the package.json files of a tree say: scripts, packages of a workspace, and what has to be installed. Read as data."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from etude.tasks.generate.install.rules.node_script import glob

# Slow to install, and no test runs them: linters, formatters, releases, hooks, types, sites, browsers.
_TOOLS = re.compile(
    r"eslint|prettier|husky|lint-staged|standard(-|$)|semantic-release|release-it|commitlint|^@changesets|typedoc|jsdoc"
    r"|^np$|^xo$|^tsd$|^dtslint|coveralls|codecov|karma|playwright|puppeteer|^auto-changelog|^aud$|^eclint$|^nyc$|^c8$|in-publish|npmignore|^evalmd"
    r"|^safe-publish|^@arethetypeswrong|^docs?ify|^snyk|template-oss|^@ljharb/(eslint|tsconfig)|^size-limit|^lerna|^nx$|^remark-(cli|lint|preset)|^type-coverage|^gzip-size|^marked-man$"
)
# What builds a project is installed where its tests need the build.
_BUILDERS = re.compile(r"^webpack|^browserify$|^rollup|^node-gyp$")
_VERSION = re.compile(r"^(npm:|[\^~<>=\d*.vx |-]|[a-z]+$)(?!.*(://|file:|link:))")
MOST_YAML = 20_000  # characters of pnpm's list


def package(files: Mapping[str, str], folder: str = "") -> dict[str, Any]:
    """package.json of a folder, or nothing where it is absent or broken."""
    try:
        document = json.loads(files.get(f"{folder}/package.json" if folder else "package.json", "{}"))
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def scripts(document: Mapping[str, Any]) -> dict[str, str]:
    listed = document.get("scripts")
    return {name: one for name, one in listed.items() if isinstance(one, str)} if isinstance(listed, dict) else {}


def workspaces(files: Mapping[str, str]) -> dict[str, str]:
    """Folders of a monorepo's packages, by the package's name: of `workspaces`, or of pnpm's own list."""
    listed = package(files).get("workspaces", [])
    globs = listed.get("packages", []) if isinstance(listed, dict) else listed
    shapes = [glob(one.removeprefix("./").rstrip("/")) for one in [*_texts(globs), *_of_pnpm(files)]]
    found: dict[str, str] = {}
    for path in sorted(files):
        folder = PurePosixPath(path).parent.as_posix()
        if path.endswith("/package.json") and any(shape.fullmatch(folder) for shape in shapes):
            if isinstance(name := package(files, folder).get("name"), str) and name:
                found[name] = folder
    return found


def needs(document: Mapping[str, Any], build: bool = False, named: Collection[str] = ()) -> dict[str, str]:
    """Of dependencies all, of those for development what tests, and with `build` the build, may need, and what the project's files
    import (`named`). Addresses and paths are left out; what pnpm lists elsewhere is taken at any version."""
    listed = [document.get(key) for key in ("devDependencies", "peerDependencies", "dependencies")]
    dev, peers, own = (one if isinstance(one, dict) else {} for one in listed)
    tools = {name for name in dev if _TOOLS.search(name) or (not build and _BUILDERS.search(name))}
    dev = {name: at for name, at in dev.items() if name not in tools or name in named}
    every = {name: str(at) for name, at in {**dev, **peers, **own}.items()}
    every = {name: "*" if at.startswith(("catalog:", "workspace:")) else at for name, at in every.items()}
    return {name: at for name, at in every.items() if _VERSION.match(at)}


def required_node(files: Mapping[str, str]) -> int:
    """The oldest major version of node that the package says it runs with; where it says none, the one that its developers use; else 0."""
    document = package(files)
    engines, developed = document.get("engines"), document.get("devDependencies")
    if isinstance(engines, dict) and (required := _oldest(engines.get("node"))):
        return required
    typed = developed.get("@types/node") if isinstance(developed, dict) else None
    used = [files.get(".nvmrc"), files.get(".node-version"), typed]
    return next((found for one in used if (found := _oldest(one))), 0)


def _oldest(ranges: Any) -> int:
    """Of alternatives like `^20.19 || >=22`; 0 where there is no number."""
    ways = [re.search(r"\d+", one) for one in str(ranges or "").split("||")]
    return min((int(way[0][:3]) for way in ways if way), default=0)


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _of_pnpm(files: Mapping[str, str]) -> list[str]:
    try:
        listed = yaml.safe_load(files.get("pnpm-workspace.yaml", "")[:MOST_YAML])
    except (yaml.YAMLError, RecursionError, ValueError):
        return []
    return (
        [one for one in _texts(listed.get("packages")) if not one.startswith("!")] if isinstance(listed, dict) else []
    )
