"""What an agent can ask in addition to its workspace: services of its sandbox, with what they know, by `metadata["services"]`.

    [{"name": "log_service", "files": {"log.jsonl": "{...}\\n{...}\\n"}}]

Only an agent's sandbox starts them; a grader's fork has no use for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.sandbox.services.presets import seed_service
from etude.sandbox.spec import ServiceSpec
from etude.tasks.errors import TaskError

KEY = "services"


def services_of(metadata: Mapping[str, Any]) -> tuple[ServiceSpec, ...]:
    """Raises TaskError for rows that are none, UserError for a service that there is not."""
    rows = metadata.get(KEY, ())
    if not isinstance(rows, list | tuple):
        raise TaskError(f"metadata.{KEY} is no list of services but {type(rows).__name__}")
    return tuple(_service(row) for row in rows)


def _service(row: object) -> ServiceSpec:
    service = row if isinstance(row, Mapping) else {}
    name, files = service.get("name"), service.get("files", {})
    texts = isinstance(files, Mapping) and all(isinstance(one, str) for pair in files.items() for one in pair)
    if not isinstance(name, str) or not texts:
        raise TaskError(f"metadata.{KEY} holds {row!r:.80}: a row has a `name`, and `files` with texts by path")
    return seed_service(name, files)
