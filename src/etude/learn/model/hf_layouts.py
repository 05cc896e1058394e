"""Keys of `config.json` that describe a model's layers one by one, and keys that name a choice.

Each is read into fields of `ModelConfig`, and written from them. A family lists those that its class reads (`ModelFamily.layouts`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from etude.learn.model.config import ModelConfig
from etude.learn.model.families import ModelFamily
from etude.learn.model.hf_errors import UnsupportedConfig

FULL, WINDOWED = "full_attention", "sliding_attention"
GATES = {"head": "per-head", "element": "per-element"}


@dataclass(frozen=True)
class ConfigLayout:
    """`keys` of config.json that `read` looks at; `read` gets the content, the number of layers and the family, `write` the model."""

    keys: tuple[str, ...]
    read: Callable[[Mapping[str, Any], int, ModelFamily], dict[str, Any]]
    write: Callable[[ModelConfig], dict[str, Any]]


def _list(raw: Mapping[str, Any], key: str, layers: int | None = None) -> list[Any] | None:
    value = raw.get(key)
    if value is None:
        return None
    if not isinstance(value, list):
        raise UnsupportedConfig(f"{key} is {value!r:.60}, where a list belongs")
    if layers is not None and len(value) != layers:
        raise UnsupportedConfig(f"{key} has {len(value)} entries, and the model {layers} layers")
    return value


def _read_layer_types(raw: Mapping[str, Any], layers: int, family: ModelFamily) -> dict[str, Any]:
    kinds = _list(raw, "layer_types", layers)
    window = raw.get("sliding_window")
    if kinds is None:
        kinds = _derived_kinds(raw, layers, family)
    other = [kind for kind in kinds if kind not in (FULL, WINDOWED)]
    if other:
        raise UnsupportedConfig(f"layer_types holds {other[0]!r:.60}; supported are {FULL!r} and {WINDOWED!r}")
    places = tuple(layer for layer, kind in enumerate(kinds) if kind == WINDOWED)
    if not places:
        return {}
    if not isinstance(window, int) or window < 1:
        raise UnsupportedConfig(
            f"layer_types has windowed layers, and sliding_window is {window!r}: it has to be their width"
        )
    return {"window": window, "window_layers": places}


def _derived_kinds(raw: Mapping[str, Any], layers: int, family: ModelFamily) -> list[str]:
    """The kinds of layers as the family's class derives them without `layer_types`."""
    period = raw.get("sliding_window_pattern", family.window_period)
    if period:
        return [WINDOWED if (layer + 1) % period else FULL for layer in range(layers)]
    if not raw.get("use_sliding_window") or raw.get("sliding_window") is None:
        return [FULL] * layers
    first = raw.get("max_window_layers", 28)
    return [WINDOWED if layer >= first else FULL for layer in range(layers)]


def _write_layer_types(config: ModelConfig) -> dict[str, Any]:
    kinds = [WINDOWED if config.window_of(layer) else FULL for layer in range(config.layers)]
    windowed = bool(config.window_layers)
    family = config.of_family
    unused = family.absent.get("window")  # a class that needs a number has its own
    out: dict[str, Any] = {"layer_types": kinds, "sliding_window": config.window if windowed else unused}
    if not family.window_period:
        out["use_sliding_window"] = windowed
    return out


def _read_one_window(raw: Mapping[str, Any], layers: int, family: ModelFamily) -> dict[str, Any]:
    window = raw.get("sliding_window")
    if window is None:
        return {}
    if not isinstance(window, int) or window < 1:
        raise UnsupportedConfig(
            f"sliding_window is {window!r:.60}; it has to be a number of positions, or null for none"
        )
    return {"window": window, "window_layers": tuple(range(layers))}


def _write_one_window(config: ModelConfig) -> dict[str, Any]:
    return {"sliding_window": config.window or None}


def _read_free_layers(raw: Mapping[str, Any], layers: int, family: ModelFamily) -> dict[str, Any]:
    rotated = _list(raw, "no_rope_layers")
    if rotated:
        if len(rotated) != layers:
            raise UnsupportedConfig(f"no_rope_layers has {len(rotated)} entries, and the model {layers} layers")
        return {"rope_free_layers": tuple(layer for layer, flag in enumerate(rotated) if not flag)}
    period = raw.get("no_rope_layer_interval", 4)
    return {"rope_free_layers": tuple(layer for layer in range(layers) if (layer + 1) % period == 0)}


def _read_dense_layers(raw: Mapping[str, Any], layers: int, family: ModelFamily) -> dict[str, Any]:
    return {"dense_layers": tuple(_list(raw, "mlp_only_layers") or ())}


def _read_feed_kinds(raw: Mapping[str, Any], layers: int, family: ModelFamily) -> dict[str, Any]:
    kinds = _list(raw, "mlp_layer_types", layers)
    if kinds is None:
        return {"first_dense": raw.get("first_k_dense_replace", 1)}
    if bad := [kind for kind in kinds if kind not in ("dense", "sparse")]:
        raise UnsupportedConfig(f"mlp_layer_types holds {bad[0]!r:.60}; supported are 'dense' and 'sparse'")
    first = kinds.index("sparse") if "sparse" in kinds else layers
    later = tuple(layer for layer in range(first, layers) if kinds[layer] == "dense")
    return {"first_dense": first, "dense_layers": later}


def _write_feed_kinds(config: ModelConfig) -> dict[str, Any]:
    return {"mlp_layer_types": ["sparse" if config.has_experts(layer) else "dense" for layer in range(config.layers)]}


def _read_layer_heads(raw: Mapping[str, Any], layers: int, family: ModelFamily) -> dict[str, Any]:
    heads = _list(raw, "num_attention_heads_per_layer", layers) or []
    return {"layer_heads": tuple(heads) if any(count != raw.get("num_attention_heads") for count in heads) else ()}


def _read_gate(raw: Mapping[str, Any], layers: int, family: ModelFamily) -> dict[str, Any]:
    given = raw.get("gating")
    named = "per-head" if given is None or given is True else given
    for kind, name in GATES.items():
        if named == name:
            return {"attention_gate": kind}
    raise UnsupportedConfig(f"gating is {given!r:.60}; supported are true and {', '.join(map(repr, GATES.values()))}")


def _read_group_rank(raw: Mapping[str, Any], layers: int, family: ModelFamily) -> dict[str, Any]:
    method = raw.get("topk_method") or "greedy"
    if method == "greedy":
        return {"group_rank": "best", "expert_groups": 1, "groups_per_token": 1}
    if method != "group_limited_greedy":
        raise UnsupportedConfig(f"topk_method is {method!r:.60}; supported are 'greedy' and 'group_limited_greedy'")
    return {"group_rank": "best"}


LAYOUTS = {
    "layer_types": ConfigLayout(
        ("layer_types", "sliding_window", "use_sliding_window", "max_window_layers", "sliding_window_pattern", "_sliding_window_pattern"),
        _read_layer_types,
        _write_layer_types,
    ),
    "sliding_window": ConfigLayout(("sliding_window",), _read_one_window, _write_one_window),
    "no_rope_layers": ConfigLayout(
        ("no_rope_layers", "no_rope_layer_interval"),
        _read_free_layers,
        lambda config: {"no_rope_layers": [int(n not in config.rope_free_layers) for n in range(config.layers)]},
    ),
    "mlp_only_layers": ConfigLayout(
        ("mlp_only_layers",), _read_dense_layers, lambda config: {"mlp_only_layers": list(config.dense_layers)}
    ),
    "mlp_layer_types": ConfigLayout(("mlp_layer_types", "first_k_dense_replace"), _read_feed_kinds, _write_feed_kinds),
    # Read with the rope; vLLM's class needs it.
    "rotary_dim": ConfigLayout(
        ("rotary_dim",), lambda raw, layers, family: {}, lambda config: {"rotary_dim": round(config.head_dim * config.partial_rotary)}
    ),
    "layer_heads": ConfigLayout(
        ("num_attention_heads_per_layer",),
        _read_layer_heads,
        lambda config: {"num_attention_heads_per_layer": [config.heads_of(layer) for layer in range(config.layers)]},
    ),
    "gating": ConfigLayout(("gating",), _read_gate, lambda config: {"gating": GATES.get(config.attention_gate)}),
    "topk_method": ConfigLayout(
        ("topk_method",),
        _read_group_rank,
        lambda config: {"topk_method": "greedy" if config.expert_groups == 1 else "group_limited_greedy"},
    ),
}  # fmt: skip
