"""What every suite has through its manifest: name, version, digest. Its tasks lie in a folder or are generated each time."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from functools import cache

from etude.evaluate.bench.suites.manifest import SuiteManifest

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
