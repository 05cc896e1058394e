"""Environments for commits that the environment of their project does not run: each is installed from the commit, as a project is.

Commits with equal needs (dependency files, and the packages that their code imports) share one environment. Which commit was installed for
which needs is kept in the cache, so that another run installs nothing twice. A run installs `most` of each project.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from etude.core.files import replace_file
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.protocols import InstallResult, ProjectDiscarded
from etude.tasks.generate.sources.projects import CatalogueProject

MOST = 4  # environments of a project that a run installs: one takes about two minutes
OPTION = "--commit-environments"
_DEPENDENCIES = re.compile(
    r"(^|/)((pyproject|Pipfile|Cargo)(\.toml|\.lock)?|setup\.(py|cfg)|tox\.ini|[\w.-]*(requirements|constraints)[\w.-]*\.(txt|in)"
    r"|requirements/[^/]+|(poetry|uv|pdm|yarn)\.lock|package(-lock)?\.json|npm-shrinkwrap\.json|pnpm-(lock|workspace)\.yaml"
    r"|environment\.ya?ml|go\.(mod|sum)|pom\.xml|(Docker|Container)file)$"
)
_IMPORTS = (
    re.compile(r"(?m)^[ \t]*(?:import|from)[ \t]+([A-Za-z_]\w*)"),
    re.compile(r"(?:\bfrom|\bimport|\b(?:require|import)\s*\()\s*['\"]([^'\"\n.][^'\"\n]*)['\"]"),
)
_ALWAYS = frozenset(("pytest", "_pytest"))  # every environment of Python has it
_CODE = re.compile(r"\.(py|[cm]?[jt]sx?)$")

Install = Callable[[CatalogueProject], Awaitable[InstallResult]]  # raises Discarded, InfraError


class Environments(Protocol):
    async def of(self, project: str, commit: str, files: Mapping[str, str]) -> InstallResult:
        """The environment of a commit of the project. Raises CandidateRejected with the reason why there is none, InfraError."""
        ...

    def installed_as(self, environment: str) -> InstallResult | None:
        """What was installed under an environment's name; None for one that was not installed here."""
        ...


@dataclass
class CommitEnvironments:
    """`install`: of a project as its list says it; `listed`: the list, by name; `folder`: where to keep which commit serves which needs."""

    install: Install
    listed: Mapping[str, CatalogueProject]
    folder: Path
    most: int = MOST
    _by_name: dict[str, InstallResult] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)  # by needs
    _found: dict[str, InstallResult] = field(default_factory=dict)  # by needs
    _installed: Counter[str] = field(default_factory=Counter)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def of(self, project: str, commit: str, files: Mapping[str, str]) -> InstallResult:
        key = f"{project}-{needs(files)}"
        async with self._locks.setdefault(key, asyncio.Lock()):
            if key not in self._found and key not in self._refused:
                await self._try(project, commit, key)
        if key in self._refused:
            raise CandidateRejected(self._refused[key])
        return self._found[key]

    def installed_as(self, environment: str) -> InstallResult | None:
        return self._by_name.get(environment)

    async def _try(self, project: str, commit: str, key: str) -> None:
        """Raises CandidateRejected beyond the bound, which another run may lift, and InfraError."""
        kept = self._kept(key)
        for state in dict.fromkeys(one for one in (kept, commit) if one):
            if state != kept:  # a kept one costs no build, so that another run gets further
                self._count(project)
            try:
                built = await self.install(replace(self.listed[project], version=state))
            except ProjectDiscarded as error:  # of a kept commit: it is no longer there, or other rules judge it now
                self._refused[key] = f"it needs a separate environment, which can't be installed: {error}"
                continue
            self._refused.pop(key, None)
            self._keep(key, state)
            self._found[key] = self._by_name[built.installed.name] = built
            return

    def _count(self, project: str) -> None:
        if self._installed[project] >= self.most:
            raise CandidateRejected(
                f"it needs a separate environment; {self.most} commits of {project} are installed in this run, the most that "
                f"{OPTION} allows"
            )
        self._installed[project] += 1

    def _kept(self, key: str) -> str | None:
        try:
            commit = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))["commit"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None  # not there, or torn: it is installed again, and written again
        return commit if isinstance(commit, str) and re.fullmatch(r"[0-9a-f]{40,64}", commit) else None

    def _keep(self, key: str, commit: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.folder / f"{key}.json", json.dumps({"commit": commit}))


def needs(files: Mapping[str, str]) -> str:
    """Digest of what decides an environment: dependency files, and the packages that code imports and the tree does not hold."""
    own = {part.partition(".")[0] for path in files for part in path.split("/")}
    imported = {
        module
        for path, text in files.items()
        if (suffix := _CODE.search(path))
        for module in _IMPORTS[suffix[1] != "py"].findall(text)
    }
    required = sorted(imported - own - sys.stdlib_module_names - _ALWAYS)
    listed = sorted((path, text) for path, text in files.items() if _DEPENDENCIES.search(path))
    return hashlib.sha256(json.dumps([listed, required]).encode()).hexdigest()[:24]
