"""Which tensors vLLM is to load: of each of its modules in which one changed, all. vLLM joins what lies there side by side on disk (query,
key and value; all experts) and packs it, so parts of a module can't be put in alone."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Within these, tensors of one layer are joined, or computed from one another (the latent attention's).
JOINED = re.compile(r"model\.layers\.\d+\.(?:self_attn|mlp)(?=\.)")


def module_of(key: str) -> str:
    """The vLLM module, by its path, that a key of a checkpoint is loaded with."""
    joined = JOINED.match(key)
    return joined[0] if joined else key.rpartition(".")[0]


def to_load(loaded: Mapping[str, str], held: Mapping[str, str]) -> dict[str, list[str]]:
    """Keys by module, where the digests of what an engine has loaded differ from those of what its node holds now."""
    stale = {module_of(key) for key, digest in held.items() if loaded.get(key) != digest}
    found: dict[str, list[str]] = {}
    for key in held:
        if (module := module_of(key)) in stale:
            found.setdefault(module, []).append(key)
    return found
