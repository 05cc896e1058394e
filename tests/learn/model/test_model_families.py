"""Every family equals transformers' class of it: logits, gradients, cached decoding, files both ways."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from family_lab import VOCABULARY, peer_class, transformers_model
from torch.nn import functional as F
from transformers import AutoConfig

from etude.learn.model.cache import KVCache
from etude.learn.model.causal_attention import causal_attention
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.config import ModelConfig
from etude.learn.model.families import FAMILIES
from etude.learn.model.hf_config import from_hf_config, to_hf_config
from etude.learn.model.hf_errors import UnsupportedConfig
from etude.learn.model.hf_keys import to_hf
from etude.learn.model.init import new_model
from etude.learn.model.rope import query_factors
from etude.learn.model.settings import ModelSettings

# Of the logits' standard deviation: the root mean square of the difference, and the largest one. Two attention kernels of transformers differ by as
# much (up to 4e-6 at the largest) on these models. Where transformers' own rounding is larger (7.7e-6 for two of the OLMo 2 models), twice that.
RMS_TOLERANCE, MAX_TOLERANCE = 1e-6, 5e-6
GRADIENT_TOLERANCE = 1e-5  # of the largest gradient of the parameter
SEEDS = [*range(2), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 30))]

all_families = pytest.mark.parametrize("family", list(FAMILIES))


def tokens(seed: int, rows: int = 3, length: int = 40) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def assert_equal_logits(ours: torch.Tensor, theirs: torch.Tensor, peer: torch.nn.Module, ids: torch.Tensor) -> None:
    difference = (ours - theirs) / theirs.std()
    assert theirs.std() > 0.1
    assert difference.square().mean().sqrt() <= RMS_TOLERANCE
    largest = float(difference.abs().max())
    assert largest <= MAX_TOLERANCE or largest <= 2 * own_rounding(theirs, peer, ids)


def own_rounding(theirs: torch.Tensor, peer: torch.nn.Module, ids: torch.Tensor) -> float:
    """The largest difference of transformers' fp32 logits from those of the same class in fp64, of their standard deviation."""
    exact = copy.deepcopy(peer).double()(ids).logits
    return float(((theirs.double() - exact) / theirs.std()).abs().max())


@all_families
@pytest.mark.parametrize("seed", SEEDS)
def test_logits_and_files_equal_transformers(family: str, seed: int, tmp_path: Path) -> None:
    peer, ids = transformers_model(family, seed), tokens(seed)
    peer.save_pretrained(tmp_path / "theirs")  # type: ignore[operator]
    model = load_checkpoint(tmp_path / "theirs")
    with torch.no_grad():
        theirs = peer(ids).logits
        assert_equal_logits(model(ids).logits, theirs, peer, ids)
    save_checkpoint(model, tmp_path / "ours")
    back, found = peer_class(family).from_pretrained(
        tmp_path / "ours", dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not found["missing_keys"] and not found["unexpected_keys"]
    state = back.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in peer.state_dict().items())
    with torch.no_grad():
        assert_equal_logits(back.eval()(ids).logits, theirs, peer, ids)
    again = load_checkpoint(tmp_path / "ours")
    assert again.config == model.config
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in model.state_dict().items())


@all_families
def test_gradients_equal_transformers(family: str, tmp_path: Path) -> None:
    peer, ids = transformers_model(family, 1), tokens(1)
    peer.save_pretrained(tmp_path)  # type: ignore[operator]
    model = load_checkpoint(tmp_path)
    for logits in (model(ids).logits, peer(ids, use_cache=False).logits):
        F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    grown = CausalLM(model.config)
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert gradients.keys() == dict(grown.named_parameters()).keys()
    ours = dict(to_hf(gradients, model.config))
    # transformers' own writer spells its gradients as files do.
    for parameter in peer.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    peer.save_pretrained(tmp_path / "gradients")  # type: ignore[operator]
    theirs = dict(
        to_hf(
            {n: t for n, t in load_checkpoint(tmp_path / "gradients").state_dict().items() if n in gradients},
            model.config,
        )
    )
    for key, gradient in theirs.items():
        bound = GRADIENT_TOLERANCE * max(1.0, float(gradient.abs().max()))
        assert (ours[key] - gradient).abs().max() <= bound, key


@all_families
@pytest.mark.parametrize("long", [False, True], ids=["copied", "in place"])
def test_decoding_behind_a_cache_gives_the_logits_of_the_whole(
    family: str, long: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.learn.model.cache.LONG_CONTEXT", 0 if long else 1 << 40)
    peer, ids = transformers_model(family, 2), tokens(2, rows=2)
    peer.save_pretrained(tmp_path)  # type: ignore[operator]
    model = load_checkpoint(tmp_path)
    with torch.no_grad():
        whole = model(ids).logits
    cache, slots = KVCache(model.config, slots=3, max_len=64), torch.tensor([2, 0])
    at = 0
    for width in (5, 1, 1, 9, 1, 20, 1, 1, 1):  # shorter and longer than the window of 7
        step, _ = model.extend(ids[:, at : at + width], torch.full((2,), width), slots, cache)
        at += width
        assert (step - whole[:, at - 1]).abs().max() <= 2e-5 * whole.std()


@all_families
def test_a_new_model_of_every_family_takes_a_training_step(family: str) -> None:
    shape: dict[str, object] = {"family": family, "hidden_size": 32, "layers": 2, "head_dim": 8, "init_head_std": 0.02}
    if "layer_types" in FAMILIES[family].layouts:
        shape |= {"window": 5, "window_layers": (0,)}
    settings = ModelSettings.model_validate(shape)
    model, ids = new_model(settings, VOCABULARY), tokens(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(4):
        logits = model(ids).logits
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("family", [name for name in FAMILIES if FAMILIES[name].switches.get("experts") != 0])
def test_replayed_routes_give_the_same_logits_and_pin_the_choice(family: str, tmp_path: Path) -> None:
    peer, ids = transformers_model(family, 3), tokens(3)
    peer.save_pretrained(tmp_path)  # type: ignore[operator]
    model = load_checkpoint(tmp_path)
    with torch.no_grad():
        free = model(ids, return_routes=True)
        assert free.routes is not None
        assert torch.equal(model(ids, forced_experts=free.routes).logits, free.logits)
        other = (free.routes + 1) % model.config.experts
        pinned = model(ids, forced_experts=other, return_routes=True)
    assert pinned.routes is not None and torch.equal(pinned.routes, other)
    assert not torch.equal(pinned.logits, free.logits)


@all_families
def test_what_a_family_fixes_cannot_be_set_otherwise(family: str) -> None:
    fixed = FAMILIES[family].switches
    with pytest.raises(ValueError, match="a model of this family has"):
        ModelSettings.model_validate(
            {"family": family, "attention": "grouped" if fixed["attention"] == "latent" else "latent"}
        )


@all_families
def test_a_family_reads_what_it_writes(family: str) -> None:
    config = ModelConfig.from_settings(ModelSettings.model_validate({"family": family, "layers": 6}), VOCABULARY)
    assert from_hf_config(to_hf_config(config)) == config


# Keys of MiniMax-M2's published config.json that transformers' class leaves out when it writes.
MINIMAX = dict(
    scoring_func="sigmoid", shared_moe_mode="sigmoid", use_routing_bias=True, use_qk_norm=True, qk_norm_type="per_layer", rotary_dim=64, head_dim=128,
    attn_type_list=[1, 1], layernorm_full_attention_beta=1.0, layernorm_linear_attention_beta=1.0, layernorm_mlp_beta=1.0, mlp_intermediate_size=8192,
    use_mtp=True, num_mtp_modules=3, mtp_transformer_layers=1, shared_intermediate_size=0, num_hidden_layers=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, ""),
        ({"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ({"qk_norm_type": "per_head"}, "qk_norm_type is 'per_head'"),
        ({"attn_type_list": [1, 0]}, "attn_type_list is .1, 0."),
        ({"layernorm_mlp_beta": 3.5}, "layernorm_mlp_beta is 3.5"),
    ],
)
def test_what_minimax_publishes_is_read_and_written_and_other_values_are_refused(
    change: dict[str, object], message: str
) -> None:
    raw = AutoConfig.for_model("minimax_m2", vocab_size=97).to_dict()
    raw = (
        {key: value for key, value in raw.items() if key != "rope_parameters"} | {"rope_theta": 5e6} | MINIMAX | change
    )
    if message:
        with pytest.raises(UnsupportedConfig, match=message):
            from_hf_config(raw)
        return
    config = from_hf_config(raw)
    assert config.partial_rotary == 0.5
    written = to_hf_config(config)
    assert written["rotary_dim"] == 64 and written["scoring_func"] == "sigmoid", "vLLM reads them"


@pytest.mark.parametrize(
    ("family", "extra", "message"),
    [
        (
            "qwen3_moe",
            {"use_qk_norm": True, "qkv_bias": False, "shared_expert_intermediate_size": 0},
            "",
        ),  # Qwen3-Coder
        ("qwen3_moe", {"use_qk_norm": False}, "use_qk_norm is False, and a qwen3_moe model has it otherwise"),
        ("llama", {"use_qk_norm": True}, "use_qk_norm is True, and a llama model has it otherwise"),
        ("llama", {"transformers.js_config": {"dtype": "q4"}, "is_llama_config": True}, ""),  # SmolLM2
        ("deepseek_v3", {"auto_map": {"AutoModel": "modeling_deepseek.Model"}, "ep_size": 1}, ""),
    ],
)
def test_keys_that_only_published_files_have_are_read_by_their_meaning(
    family: str, extra: dict[str, object], message: str
) -> None:
    settings = ModelSettings.model_validate({"family": family, "layers": 2})
    config = ModelConfig.from_settings(settings, VOCABULARY)
    if message:
        with pytest.raises(UnsupportedConfig, match=message):
            from_hf_config(to_hf_config(config) | extra)
    else:
        assert from_hf_config(to_hf_config(config) | extra) == config


def test_what_gemma_3_4b_leaves_out_is_the_default_of_its_class() -> None:
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    rope = {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    whole = AutoConfig.for_model("gemma3", text_config=text | rope).text_config.to_dict()
    published = {"model_type": "gemma3", "text_config": text | rope | {"model_type": "gemma3_text"}}
    assert from_hf_config(published) == from_hf_config(whole)


def test_a_tied_head_is_trained_and_saved_once() -> None:
    settings = ModelSettings.model_validate({"family": "llama", "hidden_size": 32, "tied": True})
    model = new_model(settings, VOCABULARY)
    assert "head.weight" not in model.state_dict() and model.head.weight is model.embed.weight
    assert "lm_head.weight" not in dict(to_hf(model.state_dict(), model.config))
    model.to(torch.bfloat16)
    assert model.head.weight is model.embed.weight and model(tokens(0)).logits.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "shape",
    [{"sinks": True}, {"window": 8, "window_layers": (1,)}, {"norm_place": "both"}, {"activation": "gelu_tanh"}],
    ids=str,
)
def test_a_new_model_that_the_files_of_its_family_cannot_describe_is_refused(shape: dict[str, object]) -> None:
    settings = ModelSettings.model_validate({"family": "llama", "hidden_size": 32} | shape)
    with pytest.raises(ValueError, match=f"{next(iter(shape))} is .* a config.json of llama says"):
        new_model(settings, VOCABULARY)


def test_the_table_of_the_page_is_what_the_tests_prove() -> None:
    import families_table

    assert families_table.PUBLISHED.keys() == FAMILIES.keys()
    assert families_table.PAGE.read_text() == families_table.page(), "run python tests/learn/model/families_table.py"


@pytest.mark.parametrize("window", [0, 7, 64, 100, 150])
@pytest.mark.parametrize("with_sinks", [False, True], ids=["plain", "sinks"])
def test_windows_and_sinks_hold_over_several_blocks_of_queries(window: int, with_sinks: bool) -> None:
    """150 positions are more than two blocks; the reference is the whole square in double precision."""
    generator = torch.Generator().manual_seed(window)
    q, k, v, upstream = (torch.randn(2, 150, 4, 8, generator=generator, requires_grad=True) for _ in range(4))
    sinks = torch.randn(4, generator=generator, requires_grad=True) if with_sinks else None
    inputs = [q, k, v] if sinks is None else [q, k, v, sinks]
    ours = causal_attention(q, k, v, 0.3, window, sinks)
    got = torch.autograd.grad(ours, inputs, upstream.detach())
    scores = torch.einsum("dqhw,dkhw->dhqk", q.double(), k.double()) * 0.3
    distance = torch.arange(150).unsqueeze(1) - torch.arange(150)
    seen = (distance >= 0) & (distance < (window or 150))
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks.double().view(1, 4, 1, 1).expand(2, -1, 150, 1)), -1)
    exact = torch.einsum("dhqk,dkhw->dqhw", scores.softmax(-1)[..., :150], v.double())
    wanted = torch.autograd.grad(exact, inputs, upstream.detach().double())
    assert (ours - exact).abs().max() <= 1e-5
    for ours_gradient, gradient in zip(got, wanted, strict=True):
        assert (ours_gradient - gradient).abs().max() <= 1e-4 * max(1.0, float(gradient.abs().max()))


YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "llama_4_scaling_beta": 0.1,
}


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("ministral3", {"rope_parameters": None}, "rope_parameters are missing; a ministral3 model has some"),
        (
            "ministral3",
            {"rope_parameters": YARN | {"rope_type": "linear"}},
            "llama_4_scaling_beta is 0.1 with rope_type 'linear'",
        ),
        ("mistral", {"rope_parameters": YARN}, "llama_4_scaling_beta of the rope is 0.1"),
        ("mistral4", {"rope_parameters": YARN | {"partial_rotary_factor": 0.3}}, "partial_rotary_factor is 0.3"),
        ("laguna", {"gating": False}, "gating is False; supported are true and 'per-head', 'per-element'"),
        (
            "laguna",
            {"num_attention_heads_per_layer": [4]},
            "num_attention_heads_per_layer has 1 entries, and the model 2 layers",
        ),
        ("laguna", {"num_attention_heads_per_layer": [4, 3]}, "heads=3 is not a multiple of kv_heads=2"),
        ("laguna", {"moe_router_logit_softcapping": 30.0}, "moe_router_logit_softcapping is 30.0"),
        ("laguna", {"rope_parameters": None}, "rope_parameters are missing"),
    ],
)
def test_what_the_families_of_2026_do_not_compute_is_refused(
    family: str, change: dict[str, object], message: str
) -> None:
    settings = ModelSettings.model_validate({"family": family, "layers": 2})
    written = to_hf_config(ModelConfig.from_settings(settings, VOCABULARY))
    former = ("rope_theta", "rope_scaling") if "rope_parameters" in change else ()
    with pytest.raises(UnsupportedConfig, match=message):
        from_hf_config({key: value for key, value in written.items() if key not in former} | change)


def test_queries_of_the_first_context_are_as_they_are_and_later_ones_grow() -> None:
    settings = {
        "family": "ministral3",
        "yarn": {"factor": 4.0, "original_positions": 16},
        "query_growth": 0.5,
        "max_positions": 64,
    }
    factors = query_factors(ModelConfig.from_settings(ModelSettings.model_validate(settings), VOCABULARY))
    assert factors is not None and factors[:16].eq(1).all()
    assert torch.equal(factors[16:32], torch.full((16,), 1 + 0.5 * math.log(2)))
    with pytest.raises(ValueError, match="query_growth=0.5 counts in original contexts of yarn"):
        ModelSettings.model_validate(settings | {"yarn": None})
