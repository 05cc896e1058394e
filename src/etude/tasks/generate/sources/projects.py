"""The list of projects: `recipes/projects.toml`, one table each.

[[projects]]
name = "click"          # how it is called here, and in the ids of its tasks
kind = "sdist"          # sdist | npm | debian | git | folder
version = "8.1.8"       # pinned; of git a commit or tag, by default the commit that is checked out; of a folder anything
package = "click"       # its name in the registry; default: name
path = "../click"       # of git and folder
language = "python"
command = ["…"]         # how its tests are run, where the rules should not look for it
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from etude.agent.git_links.git import GitError, git
from etude.core import bounded_toml
from etude.tasks.errors import TaskError

Kind = Literal["sdist", "npm", "debian", "git", "folder"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LANGUAGES = ("python", "javascript", "go", "rust", "java")
_LOCAL = ("git", "folder")


@dataclass(frozen=True)
class CatalogueProject:
    """One project of the list."""

    name: str
    kind: Kind
    version: str
    language: str = "python"
    package: str = ""
    path: str = ""
    note: str = ""  # what it is there for, for people
    command: tuple[str, ...] = ()
    runner: str = ""  # runner of `command`; default: detected from its words
    workspaces: bool = False  # a monorepo, or several packages in one tree

    @property
    def id(self) -> str:
        return f"{self.name}-{self.version}"

    @property
    def in_registry(self) -> str:
        return self.package or self.name


def read_projects(file: Path) -> list[CatalogueProject]:
    """Raises TaskError that names the file, the table and the key."""
    try:
        document = bounded_toml.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskError(f"{file} can't be read ({error.strerror}): give a list of projects with --projects") from error
    except ValueError as error:
        raise TaskError(f"{file} does not parse: {error}") from error
    tables = document.get("projects")
    if not isinstance(tables, list) or not tables or set(document) != {"projects"}:
        raise TaskError(f"{file}: it must hold [[projects]] tables, and nothing besides them")
    found: dict[str, CatalogueProject] = {}
    for number, table in enumerate(tables, 1):
        one = _wanted(table, f"{file}, project {number}", file.parent)
        if one.name in found:
            raise TaskError(f"{file}, project {number}: {one.name!r} is listed twice; give one another name")
        found[one.name] = one
    return list(found.values())


def _fits(key: str, value: Any) -> bool:
    if key == "command":
        return isinstance(value, list) and all(isinstance(word, str) for word in value)
    return isinstance(value, bool if key == "workspaces" else str)


def _wanted(table: Any, where: str, folder: Path) -> CatalogueProject:
    known = {field.name for field in fields(CatalogueProject)}
    if not isinstance(table, dict):
        raise TaskError(f"{where}: it is no table but {type(table).__name__}")
    if unknown := sorted(set(table) - known):
        raise TaskError(f"{where}: no key {unknown[0]!r}; there are {', '.join(sorted(known))}")
    if table.get("kind") == "git" and isinstance(table.get("path"), str) and "version" not in table:
        table = {**table, "version": _checked_out(folder / table["path"], where)}
    for key in ("name", "kind", "version"):
        if not isinstance(table.get(key), str) or not table[key]:
            raise TaskError(f"{where}: {key} must be a text, not {table.get(key)!r}")
    for key, value in table.items():
        if not _fits(key, value):
            raise TaskError(
                f"{where}: {key} can't be {value!r}; see the list that comes with Etude, recipes/projects.toml"
            )
    if table["kind"] not in KINDS:
        raise TaskError(f"{where}: kind {table['kind']!r} is none of {', '.join(KINDS)}")
    if table.get("language", "python") not in LANGUAGES:
        raise TaskError(f"{where}: language {table['language']!r} is none of {', '.join(LANGUAGES)}")
    if (table["kind"] in _LOCAL) != bool(table.get("path")):
        raise TaskError(f"{where}: path is for {' and '.join(_LOCAL)}, which need it")
    if "path" in table:
        table = {**table, "path": str((folder / table["path"]).resolve())}
    return CatalogueProject(**{**table, "command": tuple(table.get("command", ()))})


def _checked_out(folder: Path, where: str) -> str:
    """The commit of a clone that is checked out. Raises TaskError."""
    try:
        return git(folder, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()[:12]
    except GitError as error:
        raise TaskError(
            f"{where}: it names no version, and no commit is checked out ({error}); name a commit or tag"
        ) from error
