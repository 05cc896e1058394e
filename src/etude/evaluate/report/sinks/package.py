"""The trackers that speak wandb's words: `init`, `log`, `finish`. trackio is made to be a drop-in for wandb, so one adapter serves both."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

# What a tracker has to do for us; adapters are `trackio.py` and `wandb.py`, and a test's recorder.


class SinkError(RuntimeError):
    """The tracker can't be used; says what to do."""


@dataclass(frozen=True)
class Opening:
    """What a tracker receives at the start. `run_id` stays the same for the same folder, so that a tracker can go on."""

    project: str
    name: str
    run_id: str
    config: Mapping[str, Any] = field(default_factory=dict)


class Sink(Protocol):
    """One run at one tracker. Steps of a stage come in order; a step may come again with other figures after a resume."""

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        """Figures of one step of one stage."""
        ...

    def close(self) -> None:
        """Everything logged is out. Called once, also after a failure."""
        ...


KINDS = ("trackio", "wandb")


def open_sink(kind: str, opening: Opening) -> PackageSink:
    """Raises SinkError for a tracker that is not known or not installed."""
    if kind not in KINDS:
        raise SinkError(f"there is no sink {kind!r}; there are {', '.join(KINDS)}")
    try:
        module = importlib.import_module(kind)
    except ModuleNotFoundError as error:
        if error.name != kind:  # it is there and lacks something itself
            raise SinkError(f"{kind} is installed, but needs {error.name}: pip install {error.name}") from error
        raise SinkError(f"{kind} is not installed: pip install {kind}, then run the same command again") from error
    return PackageSink(module, kind, opening)


class PackageSink:
    """Each stage counts its own steps, so each has its own step metric: wandb draws `rl/reward` over `rl/step`."""

    def __init__(self, module: ModuleType | Any, kind: str, opening: Opening) -> None:
        self._module = module
        self._kind = kind
        self._stages: set[str] = set()
        more: dict[str, Any] = {"id": opening.run_id} if kind == "wandb" else {}
        try:
            self._run = module.init(
                project=opening.project, name=opening.name, config=dict(opening.config), resume="allow", **more
            )
        except Exception as error:
            raise SinkError(f"{kind} did not open a run: {type(error).__name__}: {error}") from error

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        if stage not in self._stages and self._kind == "wandb":
            self._module.define_metric(f"{stage}/step")
            self._module.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
        self._stages.add(stage)
        row = {f"{stage}/{name}": value for name, value in values.items()} | {f"{stage}/step": step}
        # trackio orders by the step it is given; wandb's own counter may not go back, which stages after one another would.
        self._module.log(row, **({"step": step} if self._kind == "trackio" else {}))

    def close(self) -> None:
        self._module.finish()
