"""`suite.toml`: what a suite is called, which limits its attempts have, where they run, and what changed from version to version."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from etude.agent.harness.settings import HarnessSettings
from etude.core import bounded_toml
from etude.core.plugins import is_import_path
from etude.evaluate.bench.errors import NewerSuite, SuiteError
from etude.rollout.settings import AttemptSettings

NAME = "suite.toml"
SCHEMA = 1
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SuiteRelease(BaseModel):
    """One entry of the changelog."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    date: date
    change: str = Field(min_length=1)
    retired: tuple[str, ...] = Field(
        default=(), description="ids of tasks that left with this version, never to come back"
    )


class SuiteEnvironment(BaseModel):
    """Where the tasks run, in addition to their own files."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pytest: bool = Field(default=False, description="bind the pinned pytest into the agent's and the grader's sandbox")
    requirements: str = Field(
        default="", description="a file of the suite with pinned requirements, installed once and bound"
    )
    python_path: tuple[str, ...] = Field(
        default=(), description="folders of the workspace that Python imports from, e.g. src"
    )
    images: dict[str, str] = Field(
        default_factory=dict, description="glob over task ids -> image of the layer store that those tasks run in"
    )


class SuiteManifest(BaseModel):
    """The file as a value. `harness` and `attempt` hold what the suite pins of HarnessSettings and AttemptSettings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    version: str
    released: date
    description: str = ""
    refresh: str = Field(default="", description="how and when the tasks are renewed, in words")
    harness: dict[str, Any] = Field(default_factory=dict)
    attempt: dict[str, Any] = Field(default_factory=dict)
    environment: SuiteEnvironment = SuiteEnvironment()
    changelog: tuple[SuiteRelease, ...] = ()

    def apply_limits(self, base: HarnessSettings) -> HarnessSettings:
        """`base` with what the suite pins."""
        return HarnessSettings.model_validate(base.model_dump() | self.harness)

    def attempts(self, base: AttemptSettings) -> AttemptSettings:
        """`base` with what the suite pins."""
        return AttemptSettings.model_validate(base.model_dump() | self.attempt)


def read_manifest(path: Path) -> SuiteManifest:
    """Raises SuiteError, NewerSuite."""
    try:
        row = bounded_toml.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SuiteError(f"{path} is missing: a suite is a folder with {NAME}; `etude bench make` writes one") from None
    except (bounded_toml.TomlRefused, UnicodeDecodeError) as error:
        raise SuiteError(f"{path} does not parse: {error}") from error
    schema = row.pop("schema", None)
    if not isinstance(schema, int) or schema < 1:
        raise SuiteError(f"{path} has schema = {schema!r}; this program writes {SCHEMA}")
    if schema > SCHEMA:
        raise NewerSuite(f"{path} has schema {schema}, this program reads up to {SCHEMA}: update it")
    return check(row, str(path))


def check(row: dict[str, Any], place: str) -> SuiteManifest:
    """The manifest of these values. Raises SuiteError that names the key."""
    try:
        found = SuiteManifest.model_validate(row)
        found.apply_limits(HarnessSettings.model_validate({}))
        found.attempts(AttemptSettings())
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise SuiteError(f"{place}: {key}: {first['msg']}, not {first['input']!r}") from error
    if is_import_path(str(found.harness.get("preset", ""))):
        raise SuiteError(
            f"{place}: harness.preset = {found.harness['preset']!r}: a suite may not name code; choose the preset with --preset"
        )
    for key in ("name", "version"):
        if not _PLAIN.fullmatch(value := getattr(found, key)):
            raise SuiteError(f"{place}: {key} = {value!r}: use letters, digits, '.', '_' and '-'")
    if found.changelog and found.changelog[0].version != found.version:
        raise SuiteError(
            f"{place}: the first entry of the changelog is of version {found.changelog[0].version}, "
            f"the suite is {found.version}: a version says what it changed, newest first"
        )
    return found


def write_manifest(path: Path, manifest: SuiteManifest) -> None:
    row = {"schema": SCHEMA, **manifest.model_dump(exclude_defaults=True)}
    path.write_text(tomli_w.dumps(row), encoding="utf-8")


# What every suite has through its manifest: name, version, digest. Its tasks lie in a folder or are generated each
# time.


# What of a manifest a score depends on; words, prices and the changelog may differ without another digest.
_TELLING = {"name", "version", "harness", "attempt", "environment"}


class ManifestSuite(ABC):
    """A suite by its manifest. Figures compare only within one `digest`."""

    manifest: SuiteManifest

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def version(self) -> str:
        return self.manifest.version

    @property
    def digest(self) -> str:
        """SHA-256 of all that a score depends on."""
        return self._digest()

    @abstractmethod
    def _content(self) -> Sequence[object]:
        """The tasks and what decides them, as JSON values."""

    @cache  # noqa: B019 - a suite lives as long as the command
    def _digest(self) -> str:
        described = self.manifest.model_dump(mode="json", include=_TELLING)
        return hashlib.sha256(json.dumps([described, *self._content()], sort_keys=True).encode()).hexdigest()

    def _require(self, task_id: str, ids: Collection[str]) -> None:
        if task_id not in ids:
            raise KeyError(f"suite {self.name}@{self.version} has no task {task_id!r}; `etude bench show` lists them")
