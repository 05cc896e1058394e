"""Installs the trees of SWE-bench rows, for `etude tasks import swe-bench --install`: each commit of a clone is a project like any other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from etude.sandbox.protocol import SandboxPool
from etude.tasks.environment.environment import Environment
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.install.installing import Installer
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.projects import CatalogueProject
from etude.tasks.importers.swe_bench import Installer as RowInstaller
from etude.tasks.importers.swe_bench import mirror_of
from etude.tasks.importers.swe_bench_rows import SweBenchRow
from etude.tasks.running.pin import default_cache


def open_row_installer(mirrors: Path, pool: SandboxPool) -> RowInstaller:
    """By the rules, kept in the cache by repository and commit; what can't be installed is left out with the reason."""
    installer = Installer(pool, default_cache())

    async def install(row: SweBenchRow, files: Mapping[str, str]) -> Environment:
        try:
            built = await installer.install(wanted_of(row, mirrors, files))
        except ProjectDiscarded as error:
            raise CandidateRejected(f"it can't be installed here: {error}") from error
        return built.installed.environment

    return install


def wanted_of(row: SweBenchRow, mirrors: Path, files: Mapping[str, str]) -> CatalogueProject:
    """The row's commit as a project of the list. Raises CandidateRejected where there is no clone."""
    language = (
        "javascript"
        if "package.json" in files and not {"pyproject.toml", "setup.py", "setup.cfg"} & set(files)
        else "python"
    )
    path = str(mirror_of(row.repo, mirrors).resolve())
    return CatalogueProject(
        row.repo.replace("/", "__"), "git", row.base_commit, language, row.repo.rpartition("/")[2], path
    )
