"""The version of a project that its build asks version control for: a sandbox has the files without their history.

Tools that derive versions from tags take one from a variable of the environment, each by its own documentation.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from packaging.version import InvalidVersion, Version

from etude.tasks.generate.install.rules.python_needs import project_table, table_or_empty
from etude.tasks.generate.sources.fetched import Fetched

UNKNOWN = "999.0.0"  # above every bound of another package that asks for a recent one
_TOOLS: tuple[tuple[str, str], ...] = (
    (r"setuptools[-_]scm|hatch[-_]vcs|use_scm_version|vcs-versioning", "SETUPTOOLS_SCM_PRETEND_VERSION"),
    (r"pdm-backend|pdm-pep517", "PDM_BUILD_SCM_VERSION"),
    (r"\bpbr\b", "PBR_VERSION"),
    (r"poetry-dynamic-versioning", "POETRY_DYNAMIC_VERSIONING_BYPASS"),
    (r"uv-dynamic-versioning", "UV_DYNAMIC_VERSIONING_BYPASS"),
)
LONGEST = 200  # characters of a version
_FILE_KEYS = ("write_to", "version_file", "version-file")
_WRITTEN = re.compile(r"""["']?(?:write_to|version_file)["']?\s*[:=]\s*["']([\w./-]+\.py)["']""")


def version(project: Fetched) -> str:
    """By the release's own metadata, the tag it is, the nearest tag before it, or UNKNOWN."""
    files = project.texts()
    released = re.search(r"(?m)^Version:\s*(\S+)", files.get("PKG-INFO", ""))
    texts = (released[1] if released else "", project.wanted.version, project.described)
    return next((found for text in texts if (found := _version_in(text))), UNKNOWN)


def _version_in(text: str) -> str:
    """Of a release's number, or a tag with one at its end: as PEP 440 writes it; empty where there is none."""
    text = text[-LONGEST:]
    found = re.search(r"\d+(\.\d+)+\S*$", text) or re.fullmatch(r"v?\d{1,4}", text)
    try:
        return str(Version(found[0])) if found else ""
    except InvalidVersion:
        return ""


def variables(project: Fetched) -> str:
    """Words before a build's command: `NAME=version …`, empty where no tool asks."""
    files = project.texts()
    settings = "\n".join(files.get(name, "") for name in ("pyproject.toml", "setup.cfg", "setup.py"))
    names = [name for pattern, name in _TOOLS if re.search(pattern, settings)]
    return " ".join(f"{name}={shlex.quote(version(project))}" for name in names)


def version_files(files: Mapping[str, str]) -> list[str]:
    """Files of the tree that the build writes the version into, by the project's own settings; those that the tree has are left out."""
    tool = table_or_empty(project_table(files).get("tool"))
    tables = [
        tool.get("setuptools_scm"),
        tool.get("setuptools-scm"),
        table_or_empty(table_or_empty(tool.get("pdm")).get("version")),
    ]
    build = table_or_empty(table_or_empty(tool.get("hatch")).get("build"))
    tables.append(table_or_empty(table_or_empty(build.get("hooks")).get("vcs")))
    found = [str(table[key]) for table in map(table_or_empty, tables) for key in _FILE_KEYS if key in table]
    found += _WRITTEN.findall(files.get("setup.py", ""))
    return [path for path in dict.fromkeys(found) if path not in files and _inside(path)]


def _inside(path: str) -> bool:
    return re.fullmatch(r"[\w.-]+(/[\w.-]+)*", path) is not None and ".." not in path.split("/")
