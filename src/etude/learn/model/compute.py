"""Which type a model computes in, and whether its blocks are computed twice to save memory.

With "bf16" the products of linear layers, experts and attention take bf16 operands; the parameters stay fp32 (master weights). In fp32 remain: the
residual stream, the statistics and weights of norms, router logits and scores, rotations, attention sinks, token embedding, output head and losses.
torch.autocast does the same, but for the head. torchtitan and transformers keep the stream and the head in bf16 as well. An fp32 head keeps the
log-probabilities of sampler and trainer together (MiniMax-M1, arXiv 2506.13585, section 3.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.expert_products import product_of
from etude.learn.model.experts import Experts
from etude.learn.model.linear import Linear
from etude.learn.model.settings import ExpertProducts
from etude.learn.model.transformers_backend.language_model import TransformersLM

Compute = Literal["fp32", "bf16"]


def compute_in(model: nn.Module, compute: Compute, recompute: bool = False, experts: ExpertProducts = "plain") -> None:
    """From now on the model's products are of this type, those of `experts` in this format; with `recompute` a training step keeps what enters each
    block, and computes the block again for its gradients. Raises ValueError for a format and a model without experts of this package."""
    dtype = torch.bfloat16 if compute == "bf16" else None
    for module in product_layers(model):
        module.compute = dtype
    multiply_experts(model, experts)
    if isinstance(model, TransformersLM):
        model.compute = dtype
    if isinstance(model, CausalLM):
        model.recompute = recompute


def multiply_experts(model: nn.Module, products: ExpertProducts) -> None:
    """From now on experts multiply in this format. Raises ValueError where there are none."""
    found = [module for module in model.modules() if isinstance(module, Experts)]
    if products != "plain" and not found:
        raise ValueError(
            f'expert_products = "{products}", and the model has no experts that this package computes; set it to "plain"'
        )
    for module in found:
        module.product = product_of(products)


@contextmanager
def computing(model: nn.Module, compute: Compute, recompute: bool, experts: ExpertProducts = "plain") -> Iterator[None]:
    """`compute_in` within the block; plain fp32 without recomputation after it."""
    compute_in(model, compute, recompute, experts)
    try:
        yield
    finally:
        compute_in(model, "fp32")


def hold_rounded(model: CausalLM) -> None:
    """Computes in bf16 from now on, and holds the weights of its products in bf16: half the memory, the same results, nothing to train. Weights of a
    class of transformers stay as they are, and are rounded at each use."""
    compute_in(model, "bf16")
    for module in product_layers(model):
        for parameter in module.parameters(recurse=False):
            parameter.data = parameter.data.to(torch.bfloat16)
    model.holds_rounded = True


def product_layers(model: nn.Module) -> list[Linear | Experts]:
    """The layers whose products take the type: all but the output head."""
    head = getattr(model, "head", None)
    return [module for module in model.modules() if isinstance(module, Linear | Experts) and module is not head]
