"""Rope in `config.json`, in and out: the present form (`rope_parameters`), the former one (`rope_theta`, `rope_scaling`), and one entry a kind of
layer where windowed layers have a rope of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from etude.learn.model.config import ModelConfig
from etude.learn.model.families import ModelFamily
from etude.learn.model.hf_errors import UnsupportedConfig
from etude.learn.model.settings import RopeScaling, YarnSettings

YARN_FIELDS = {
    "factor": "factor",
    "original_positions": "original_max_position_embeddings",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "mscale": "mscale",
    "mscale_all_dim": "mscale_all_dim",
    "attention_factor": "attention_factor",
    "truncate": "truncate",
}
SCALING_FIELDS = {
    "factor": "factor",
    "original_positions": "original_max_position_embeddings",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "short_factors": "short_factor",
    "long_factors": "long_factor",
    "attention_factor": "attention_factor",
}
# What each kind needs, and reads if it is there.
NEEDS = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "original_positions", "low_freq_factor", "high_freq_factor"),
    "longrope": ("short_factors", "long_factors"),
}
READS = {"longrope": ("factor", "original_positions", "attention_factor")}
FULL, WINDOWED = "full_attention", "sliding_attention"
QUERY_GROWTH = "llama_4_scaling_beta"
# Keys of the entries that the table above does not hold.
NAMES = ("rope_type", "type", "rope_theta", "partial_rotary_factor", "max_position_embeddings")


def rope_keys(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of a config.json that this module reads."""
    return (
        *("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "rotary_dim"),
        *("rope_local_base_freq", "original_max_position_embeddings"),
    )


def read_rope(raw: Mapping[str, Any], family: ModelFamily) -> dict[str, Any]:
    """The rope fields of the model that a config.json describes. Raises UnsupportedConfig."""
    absent = family.absent
    rope, local = _entries(raw)
    if family.own_rope and not rope:
        raise UnsupportedConfig(
            f"rope_parameters are missing; a {raw.get('model_type')} model has some, and they are not the usual ones"
        )
    theta = _first(rope.get("rope_theta"), raw.get("rope_theta"), absent.get("rope_theta"), 10000.0)
    found: dict[str, Any] = {"rope_theta": theta} | _scaling(rope, raw, family)
    share = _share(rope, raw)
    if "partial_rotary" in absent:
        found["partial_rotary"] = absent["partial_rotary"] if share is None else share
    elif share not in (None, 1) and not _of_latent(share, raw, family):
        raise UnsupportedConfig(
            f"partial_rotary_factor is {share!r:.60}, which this model code does not compute for {raw.get('model_type')}"
        )
    if local:
        _check_local(local, found, family)
    if family.layer_ropes:
        own = (local.get("rope_theta"), raw.get("rope_local_base_freq"), absent.get("window_rope_theta"))
        found["window_rope_theta"] = _first(*own, theta)
    if "window_partial_rotary" in absent:
        found["window_partial_rotary"] = local.get("partial_rotary_factor", absent["window_partial_rotary"])
    return found


def _of_latent(share: Any, raw: Mapping[str, Any], family: ModelFamily) -> bool:
    """Whether a share is that of a family with latent attention whose class reckons it from the width of a whole key (Mistral 4)."""
    rotated, kept = raw.get("qk_rope_head_dim"), raw.get("qk_nope_head_dim")
    if not family.own_rope or not isinstance(rotated, int) or not isinstance(kept, int):
        return False
    return isinstance(share, float) and math.isclose(share, rotated / max(1, rotated + kept))


def _check_local(local: Mapping[str, Any], found: Mapping[str, Any], family: ModelFamily) -> None:
    """Raises UnsupportedConfig for an entry of windowed layers that is not computed here."""
    if local.get("rope_type", "default") != "default":
        raise UnsupportedConfig(f"windowed layers have rope_type {local['rope_type']!r}; only 'default' is supported")
    share = found.get("partial_rotary", 1.0)
    if "window_partial_rotary" not in family.absent and local.get("partial_rotary_factor", share) != share:
        raise UnsupportedConfig(
            "partial_rotary_factor differs between kinds of layers, which this model code does not compute"
        )


def write_rope(config: ModelConfig) -> dict[str, Any]:
    """The rope keys of config.json, those of readers before and after transformers 5."""
    entry: dict[str, Any] = {"rope_type": "default"}
    if config.yarn is not None:
        entry = {"rope_type": "yarn"} | {key: getattr(config.yarn, name) for name, key in YARN_FIELDS.items()}
        if not config.yarn.attention_factor:
            del entry["attention_factor"]
        if config.query_growth:
            entry[QUERY_GROWTH] = config.query_growth
    elif (scaling := config.rope_scaling) is not None:
        names = (*NEEDS[scaling.kind], *READS.get(scaling.kind, ()))
        given = {SCALING_FIELDS[name]: getattr(scaling, name) for name in names}
        entry = {"rope_type": scaling.kind} | {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in given.items()
            if value not in (0, 0.0)
        }
    if config.attention == "latent" and config.of_family.own_rope:
        # transformers reckons the rotated width of this family from the width of a whole key.
        entry["partial_rotary_factor"] = config.rope_dim / (config.nope_dim + config.rope_dim)
    former = None if len(entry) == 1 else entry | {"type": entry["rope_type"]}
    entry["rope_theta"] = config.rope_theta
    if config.attention == "grouped" and config.partial_rotary != 1.0:
        entry["partial_rotary_factor"] = config.partial_rotary
    if config.of_family.layer_ropes:
        # Without windowed layers nothing reads their base; it is written because transformers would fill in its own.
        base = config.window_rope_theta or config.of_family.absent.get("window_rope_theta", config.rope_theta)
        windowed: dict[str, Any] = {"rope_type": "default", "rope_theta": base}
        if config.window_partial_rotary:
            windowed["partial_rotary_factor"] = config.window_partial_rotary
        return {"rope_parameters": {FULL: entry, WINDOWED: windowed}}
    out = {"rope_theta": config.rope_theta, "rope_parameters": entry, "rope_scaling": former}
    return out | ({"partial_rotary_factor": entry["partial_rotary_factor"]} if "partial_rotary_factor" in entry else {})


def _entries(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The rope of most layers and that of windowed ones, each possibly empty."""
    rope = _object(raw, "rope_parameters") or _object(raw, "rope_scaling")
    if FULL in rope or WINDOWED in rope:
        return _object(rope, FULL), _object(rope, WINDOWED)
    return rope, {}


def _object(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key) or {}
    if not isinstance(value, Mapping):
        raise UnsupportedConfig(f"{key} is {value!r:.60}, where an object belongs")
    return value


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _share(rope: Mapping[str, Any], raw: Mapping[str, Any]) -> Any:
    """The share of a head's width that rope turns, None where the file says nothing."""
    given = _first(rope.get("partial_rotary_factor"), raw.get("partial_rotary_factor"))
    width = raw.get("rotary_dim")  # MiniMax-M2 gives the width itself
    if given is None and isinstance(width, int) and isinstance(raw.get("head_dim"), int) and raw["head_dim"]:
        return width / raw["head_dim"]
    return given


def _scaling(rope: Mapping[str, Any], raw: Mapping[str, Any], family: ModelFamily) -> dict[str, Any]:
    kind = rope.get("rope_type", rope.get("type", "default"))
    growth = rope.get(QUERY_GROWTH) if "query_growth" in family.absent else None
    if growth and kind != "yarn":
        raise UnsupportedConfig(
            f"{QUERY_GROWTH} is {growth!r:.60} with rope_type {kind!r}; it is supported with 'yarn'"
        )
    if kind == "default":
        return {}
    if kind != "yarn" and kind not in NEEDS:
        raise UnsupportedConfig(f"rope_type is {kind!r}; supported are default, yarn, {', '.join(NEEDS)}")
    fields = YARN_FIELDS if kind == "yarn" else {n: SCALING_FIELDS[n] for n in (*NEEDS[kind], *READS.get(kind, ()))}
    read = (*fields.values(), *NAMES, *([QUERY_GROWTH] if growth is not None else []))
    unknown = [key for key in rope if key not in read]
    if unknown and rope[unknown[0]] is not None:
        raise UnsupportedConfig(
            f"{unknown[0]} of the rope is {rope[unknown[0]]!r:.60}, which this model code does not compute"
        )
    given = {name: rope[key] for name, key in fields.items() if rope.get(key) is not None}
    given = _derived(given, kind, raw)
    for name in NEEDS.get(kind, ("factor", "original_positions")):
        if name not in given:
            raise UnsupportedConfig(f"rope_parameters lack {fields[name]}")
    if kind == "yarn":
        # Absent temperatures mean off to transformers, while our own default is on.
        yarn = YarnSettings.model_validate({"mscale": 0.0, "mscale_all_dim": 0.0} | given)
        return {"yarn": yarn} | ({"query_growth": growth} if growth else {})
    return {"rope_scaling": RopeScaling.model_validate({"kind": kind} | given)}


def _derived(given: dict[str, Any], kind: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """What transformers derives where an entry leaves it out: the original positions, and longrope's factor."""
    if kind != "longrope":
        return given
    claimed = raw.get("max_position_embeddings")
    original = _first(raw.get("original_max_position_embeddings"), given.get("original_positions"), claimed)
    if isinstance(claimed, int) and isinstance(original, int) and original > 0:
        given = {"factor": max(1.0, claimed / original)} | given
    return given | {"original_positions": original}
