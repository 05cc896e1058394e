"""Every generator by name, in the order in which a making takes turns between them; `bound` gives those that need them their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from etude.core.plugins import PluginError, import_object
from etude.tasks.generate.generator import Generator
from etude.tasks.generate.generators.bugs.injection import BugInjection
from etude.tasks.generate.generators.combined import CombinedBugs
from etude.tasks.generate.generators.commit_environments import Environments
from etude.tasks.generate.generators.debian import DebianPatches
from etude.tasks.generate.generators.deletion.generator import FeatureDeletion
from etude.tasks.generate.generators.devops.generator import DevopsRepair
from etude.tasks.generate.generators.devops.log_triage import LogTriage
from etude.tasks.generate.generators.documentation import Documentation
from etude.tasks.generate.generators.history import HistoryGenerator
from etude.tasks.generate.generators.log_debugging import LogDebugging
from etude.tasks.generate.generators.migration.generator import Migration
from etude.tasks.generate.generators.recorded import RecordedSessions
from etude.tasks.generate.generators.refactor.generator import Refactor
from etude.tasks.generate.generators.release import Releases
from etude.tasks.generate.generators.review import Review
from etude.tasks.generate.generators.test_writing import TestWriting
from etude.tasks.generate.sources.projects import CatalogueProject

GENERATORS: dict[str, Generator] = {
    each.name: each
    for each in (
        BugInjection(),
        CombinedBugs(),
        LogDebugging(),
        TestWriting(),
        Review(),
        DevopsRepair(),
        Documentation(),
        LogTriage(),
        FeatureDeletion(),
        FeatureDeletion("large"),
        Refactor(),
        Migration(),
        Releases(),
        DebianPatches(),
        HistoryGenerator(),
        RecordedSessions(),
    )
}


def custom_generator(path: str) -> Generator:
    """The generator at an import path. Raises PluginError where it does not follow `Generator`."""
    found: Any = import_object(path)
    if isinstance(found, type):
        raise PluginError(f"{path} is a class; a generator is an object, so name an instance of it")
    name, languages = getattr(found, "name", None), getattr(found, "languages", None)
    if not isinstance(name, str) or not name or name in GENERATORS:
        raise PluginError(f"{path}: its name is {name!r}; it needs a name that no built-in generator has")
    if not isinstance(getattr(found, "category", None), str):
        raise PluginError(f"{path} has no category; see docs/extending/generators.md")
    if not isinstance(languages, tuple) or not languages:
        raise PluginError(f'{path}: its languages are {languages!r}; give a tuple such as ("python",)')
    if not callable(getattr(found, "candidates", None)):
        raise PluginError(f"{path} has no method candidates(project, bench, seed); see docs/extending/generators.md")
    return cast(Generator, found)


def with_environments(chosen: Mapping[str, Generator], environments: Environments) -> dict[str, Generator]:
    """History installs the commits that its projects' own environments do not run."""
    return {
        name: replace(each, environments=environments) if isinstance(each, HistoryGenerator) else each
        for name, each in chosen.items()
    }


def bound(
    chosen: Mapping[str, Generator], listed: Mapping[str, CatalogueProject], sessions: Sequence[Path]
) -> dict[str, Generator]:
    """The chosen ones; history and recorded sessions over the local repositories of the list."""
    repositories = {name: Path(one.path) for name, one in listed.items() if one.kind == "git"}
    own: tuple[Generator, ...] = (HistoryGenerator(repositories), RecordedSessions(repositories, tuple(sessions)))
    by_name = {each.name: each for each in own}
    return {name: by_name.get(name, each) for name, each in chosen.items()}
