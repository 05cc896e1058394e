"""The memory of training and of sampling with a model, from its shape alone, before anything is loaded.

A training step keeps numbers of each token for its backward pass: what enters the products, the norms and the activation. The counts below follow the
model's code layer by layer; `tests/learn/model/test_model_step_memory.py` holds them against what autograd keeps, for every family. Numbers count
as fp32, also where products are bf16.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from etude.learn.model.adapters import add_adapters
from etude.learn.model.causal_attention import KEPT_BYTES, QUERY_BLOCK
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import product_layers
from etude.learn.model.config import ModelConfig
from etude.learn.model.count import count_parameters
from etude.learn.model.device import OWN_KERNELS
from etude.learn.model.linear import ROW_STEP
from etude.learn.model.lora_settings import LoraSettings

FLOAT, HALF = 4, 2  # bytes of a number in fp32 and in bf16
# Logits of one chunk of a loss in fp32 (`losses.LOGIT_BYTES`), its log-probabilities and the gradients of both.
LOGIT_COPIES = 4
LOGIT_BYTES = 64 << 20
# Python, torch and the package, before a model is loaded: measured for a stage's process and for a Ray actor.
PROCESS_BYTES = 320_000_000
# What a prompt takes on its way through a block, by the numbers that training keeps of one: measured with SmolLM2-135M, attention's masks included.
PREFILL_BLOCKS = 2


@dataclass(frozen=True)
class ModelSize:
    """Numbers of a model: all parameters, those that are trained, and what a step keeps of each token, with and without `recompute`. `rounded`: of
    the parameters, those that are held in bf16. `gathered`: what every rank that shares a row's tokens keeps of each, in layers without a window."""

    parameters: int
    trained: int
    kept: int
    kept_recomputing: int
    block: int  # of one token in the largest block
    rounded: int = 0
    gathered: int = 0

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        tokens: int,
        row_tokens: int,
        lora: LoraSettings | None = None,
        *,
        full: bool = False,
        shared: bool = False,
        device: str = "cpu",
    ) -> ModelSize:
        """For steps of `tokens` tokens in rows of `row_tokens` on a `device`; `lora`: of adapters, if only these are trained. `full`: every step has
        just as many, and no fewer. `shared`: ranks share the tokens of a row, and attention reads keys where they are."""
        here = OWN_KERNELS and device == "cpu"
        own, padded = here and not shared, here and not (full and tokens % ROW_STEP == 0)
        count = count_parameters(config.model_copy(update={"mtp_layers": 0})).total
        seen = [_probabilities(config, layer, row_tokens, own) for layer in range(config.layers)]
        seen = [0 if each * tokens * FLOAT > KEPT_BYTES else each for each in seen]
        blocks = [_block(config, layer, own, padded) + each for layer, each in enumerate(seen)]
        if lora is not None and lora.dora:
            blocks = [each + _scaled(config, layer) for layer, each in enumerate(blocks)]
        ends = 2 * config.hidden_size
        added, rounded = (0, 0) if lora is None else adapter_parameters(config, lora)
        trained, recomputing = count if lora is None else added, config.layers * config.hidden_size + ends
        gathered = sum(keys_of_token(config) for layer in range(config.layers) if not config.window_of(layer))
        return cls(count + added, trained, sum(blocks) + ends, recomputing, max(blocks), rounded, gathered)

    def of_token(self, recompute: bool) -> tuple[int, int]:
        """Numbers of a token: kept for the backward pass, and there in addition while its micro-batch goes through that pass."""
        return (self.kept_recomputing, 2 * self.block) if recompute else (self.kept, 0)


def adapter_parameters(config: ModelConfig, settings: LoraSettings) -> tuple[int, int]:
    """Numbers that adapters of these settings train, and those of the base that are held in bf16. Raises ValueError for a target that the model does
    not have."""
    with torch.device("meta"):
        model = CausalLM(config.model_copy(update={"mtp_layers": 0}))
        add_adapters(model, settings.model_copy(update={"base": "fp32"}))
    frozen = [p for layer in product_layers(model) for p in layer.parameters(recurse=False) if not p.requires_grad]
    rounded = sum(p.numel() for p in frozen) if settings.base == "bf16" else 0
    return sum(p.numel() for p in model.parameters() if p.requires_grad), rounded


def training_bytes(
    size: ModelSize, tokens: int, *, recompute: bool = False, kept_tokens: int | None = None, copies: int = 0
) -> int:
    """Peak of a training process with AdamW: weights, its two moments, and the larger of what `tokens` tokens keep before the backward pass and of
    the gradients after it.

    `kept_tokens`: tokens whose graphs are held at one time, where a step scores rollouts before it trains on them; the gradients of one micro-batch
    are there while graphs of others are kept. `copies`: how many more times the
    trained weights are held (a reference, states that are being published).
    """
    held = tokens if kept_tokens is None else max(tokens, kept_tokens)
    kept, again = size.of_token(recompute)
    step = FLOAT * (held * kept + tokens * again) + LOGIT_COPIES * LOGIT_BYTES
    gradients = FLOAT * size.trained
    return _states(size, copies) + (step + gradients if held > tokens else max(step, gradients))


def fitting_tokens(
    size: ModelSize, memory: int, wanted: int, *, recompute: bool = False, copies: int = 0
) -> tuple[int, int]:
    """Tokens of a micro-batch, at most `wanted`, and tokens whose graphs a training process of `memory` bytes can hold with it; 0 where it has no
    room. `copies`: as in `training_bytes`. Gradients count in full."""
    room = memory - _states(size, copies) - FLOAT * size.trained - LOGIT_COPIES * LOGIT_BYTES
    numbers = max(0, room // FLOAT)
    kept, again = size.of_token(recompute)
    batch = min(wanted, numbers // (kept + again))
    return batch, (numbers - batch * again) // kept


def _states(size: ModelSize, copies: int) -> int:
    """Bytes of the process, the weights, AdamW's moments and `copies`."""
    return PROCESS_BYTES + FLOAT * (size.parameters + (2 + copies) * size.trained) - (FLOAT - HALF) * size.rounded


def engine_bytes(
    config: ModelConfig,
    parameters: int,
    slots: int,
    length: int,
    *,
    prefill_tokens: int,
    rounded: bool = False,
    states: int = 0,
) -> int:
    """Peak of an engine with `slots` sessions of `length` tokens, whose cache is there from the start.

    `prefill_tokens`: prompt tokens that go through the model at a time. `rounded`: it holds bf16 (`engine.compute`). `states`: weights in fp32
    that it holds in addition to the model, where it follows a weight store.
    """
    width = 2 if rounded else FLOAT
    cache = config.layers * slots * length * config.cache_width
    logits = LOGIT_COPIES * slots * config.vocab_size
    block = max(_block(config, layer, own=False, padded=False) for layer in range(config.layers))
    prefill = PREFILL_BLOCKS * prefill_tokens * block
    return PROCESS_BYTES + width * (parameters + cache) + FLOAT * (logits + prefill + states * parameters)


def _block(config: ModelConfig, layer: int, own: bool, padded: bool) -> int:
    """Numbers of one token in a block, by this package's `own` kernels of products and attention or by torch's; `padded`: by the former a product
    keeps a copy of its input."""
    norms = 2 if config.norm_place == "both" else 1
    stream = 2 * (2 * norms + 1) * config.hidden_size  # what enters a norm, normalised, and what enters the products
    attention = _latent(config) if config.attention == "latent" else _grouped(config, layer, own)
    copies = 3 * config.hidden_size if padded else 0  # for each product of one input
    return stream + copies + attention + (_experts(config) if config.has_experts(layer) else _dense(config))


def _grouped(config: ModelConfig, layer: int, own: bool) -> int:
    queries, keys = config.heads_of(layer) * config.head_dim, config.kv_heads * config.head_dim
    normed = 2 * (queries + keys) if config.qk_norm != "none" else 0
    expanded = 2 * (queries - keys) if own or config.window or config.sinks else 0
    return normed + expanded + 3 * queries + 2 * keys + _gates(config, layer)


def keys_of_token(config: ModelConfig) -> int:
    """Numbers of a token that queries of other tokens read in a layer: keys and values, with latents what they are expanded from too."""
    if config.attention == "latent":
        return config.kv_lora_rank + config.rope_dim + config.heads * (config.nope_dim + config.rope_dim + config.v_dim)
    return 2 * config.kv_heads * config.head_dim


def _gates(config: ModelConfig, layer: int) -> int:
    """The scaled output and its gates, before and after softplus."""
    heads = config.heads_of(layer)
    gates = {"none": 0, "head": heads, "element": heads * config.head_dim}[config.attention_gate]
    return heads * config.head_dim + 2 * gates if gates else 0


def _scaled(config: ModelConfig, layer: int) -> int:
    """Outputs of the layers with adapters, whose rows DoRA scales."""
    inner = 0 if config.has_experts(layer) else 2 * config.dense_intermediate
    return (config.heads_of(layer) + 2 * config.kv_heads) * config.head_dim + 2 * config.hidden_size + inner


def _probabilities(config: ModelConfig, layer: int, row_tokens: int, own: bool) -> int:
    """Of one token in a layer whose attention goes in blocks of queries; the fused kernel keeps none."""
    window = config.window_of(layer)
    if not (window or config.sinks or config.attention == "latent" or own):
        return 0
    seen = (row_tokens + QUERY_BLOCK) // 2
    return config.heads_of(layer) * (min(seen, window + QUERY_BLOCK) if window else seen)


def _latent(config: ModelConfig) -> int:
    queries, values = config.heads * (config.nope_dim + config.rope_dim), config.heads * config.v_dim
    low_rank = 3 * (config.q_lora_rank or 0) + 3 * config.kv_lora_rank
    return low_rank + 2 * queries + config.heads * (config.nope_dim + config.v_dim) + 2 * values


def _dense(config: ModelConfig) -> int:
    return _activation(config) * config.dense_intermediate


def _activation(config: ModelConfig) -> int:
    """Numbers kept for each of an inner layer's: gate, up and their product; others than SwiGLU keep steps between."""
    return {"silu": 3, "gelu_tanh": 4}.get(config.activation, 8)


def _experts(config: ModelConfig) -> int:
    visited = config.experts_per_token * (2 * config.hidden_size + _activation(config) * config.moe_intermediate)
    return visited + 3 * config.experts + _activation(config) * config.shared_width
