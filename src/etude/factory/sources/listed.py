"""The project list of `etude tasks make --projects FILE`: what is named there, and each as the texts and bytes of its release.

[[project]]
name = "iniconfig"
kind = "sdist"          # the source of the corpus room that knows it
version = "2.0.0"
language = "python"
why = "small parser with a whole suite"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from etude.corpus.sources.fetch import Fetcher
from etude.corpus.sources.project import ProjectRefused
from etude.corpus.sources.sdist import SdistSource
from etude.tasks.errors import TaskError

MAX_BYTES = 16 << 20  # of a project's tree: a sandbox takes it, and every grading forks it


class Listed(BaseModel):
    """One project of the list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    kind: Literal["sdist"] = "sdist"
    version: str = Field(min_length=1)
    language: str = "python"
    why: str = ""


@dataclass(frozen=True)
class Pristine:
    """A release as it was published: whole files by path, where it came from, its licence's name or empty."""

    files: dict[str, bytes]
    origin: str


def read_list(path: Path) -> dict[str, Listed]:
    """By name. Raises TaskError that names the row."""
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("project", [])
    except FileNotFoundError:
        raise TaskError(f"{path}: there is no such file; --projects names a TOML file with [[project]] rows") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"{path} does not parse: {error}") from error
    found: dict[str, Listed] = {}
    for number, row in enumerate(rows, 1):
        try:
            listed = Listed.model_validate(row)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise TaskError(f"{path}, project {number}: {key}: {first['msg']}, not {first['input']!r}") from error
        if listed.name in found:
            raise TaskError(f"{path}, project {number}: {listed.name} is named twice")
        found[listed.name] = listed
    if not found:
        raise TaskError(f"{path} names no project: give it [[project]] rows")
    return found


def fetched(listed: Listed, fetcher: Fetcher) -> Pristine:
    """Raises SourceOffline, ProjectRefused."""
    source = SdistSource("projects", [listed.name], fetcher, releases=10_000)
    refs = [ref for ref in source.refs() if ref.version == listed.version]
    if not refs:
        raise ProjectRefused(f"the index has no source release {listed.version} of {listed.name}")
    with source.open(refs[0]) as project:
        files = {
            path.relative_to(project.root).as_posix(): path.read_bytes()
            for path in sorted(project.root.rglob("*"))
            if path.is_file() and not path.is_symlink() and not _built(path.relative_to(project.root))
        }
    size = sum(map(len, files.values()))
    if size > MAX_BYTES:
        raise ProjectRefused(f"its tree has {size} bytes; {MAX_BYTES} are the most")
    return Pristine(files, f"sdist {listed.name} {listed.version} {project.origin}")


def _built(path: Path) -> bool:
    """What building leaves in a release: no source, and a task's audit takes it for a leak."""
    return any(part.endswith(".egg-info") or part == "__pycache__" for part in path.parts)
