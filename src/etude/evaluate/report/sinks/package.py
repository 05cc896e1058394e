"""The trackers that speak wandb's words: `init`, `log`, `finish`. trackio is made to be a drop-in for wandb, so one adapter serves both."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from etude.evaluate.report.sinks.protocol import Opening, SinkError

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
