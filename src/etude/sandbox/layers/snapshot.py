"""A snapshot: a chain of layers, topmost first, and what an image says about how to live in it. Its digest is that of its record."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Snapshot:
    """`base` layers at the bottom came from an image: they are large, shared by many, and never flattened together with what is above."""

    layers: tuple[str, ...] = ()
    base: int = 0
    env: dict[str, str] = field(default_factory=dict)  # an image's own
    workdir: str = ""

    def text(self) -> bytes:
        record = {"layers": self.layers, "base": self.base, "env": self.env, "workdir": self.workdir}
        return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, text: bytes) -> Snapshot:
        """Raises ValueError, KeyError or TypeError for what is none."""
        try:
            record = json.loads(text)
        except RecursionError as error:
            raise ValueError("its JSON is nested too deeply") from error
        return cls(tuple(record["layers"]), int(record["base"]), dict(record["env"]), str(record["workdir"]))

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text()).hexdigest()

    @property
    def is_image(self) -> bool:
        """Whether its files are a whole root file system."""
        return self.base > 0

    def with_layer(self, layer: str) -> Snapshot:
        return replace(self, layers=(layer, *self.layers))
