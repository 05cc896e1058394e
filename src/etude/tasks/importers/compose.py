"""A task's docker-compose.yaml: one service is the machine itself; more would be other machines, which do not exist here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.core import bounded_yaml
from etude.tasks.errors import TaskError
from etude.tasks.importers.texts import maybe_text


def one_service(place: Path) -> None:
    """Nothing where there is no such file. Raises TaskError for more than one service, and for what is no such file."""
    text = maybe_text(place)
    if not text.strip():
        return
    document = parsed(text, place)
    services = document.get("services") if isinstance(document, Mapping) else None
    if not isinstance(services, Mapping) or not services:
        raise TaskError(f"{place} names no services")
    if len(services) > 1:
        raise TaskError(
            f"{place} is refused: it has {len(services)} services ({', '.join(map(str, services))}), and a task here has one machine"
        )


def parsed(text: str, place: Path) -> Any:
    """YAML of plain values, within bounds. Raises TaskError."""
    try:
        return bounded_yaml.loads(text)
    except bounded_yaml.YamlRefused as error:
        raise TaskError(f"{place} does not parse: {error}") from error
