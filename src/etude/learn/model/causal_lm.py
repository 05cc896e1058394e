"""The language model: one forward for learning, one `extend` for sampling, over the same weights.

Both choose the same experts and give the same logits to 1e-5, so a rollout's logprobs can be recomputed (promise 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from etude.core.trace.segment import NO_ROUTE, NO_ROUTE_WIDE
from etude.learn.model.block import TransformerBlock
from etude.learn.model.cache import CacheSpan, KVCache
from etude.learn.model.config import ModelConfig
from etude.learn.model.linear import Linear, linear
from etude.learn.model.mask import DocumentMask
from etude.learn.model.mtp import MtpLayer
from etude.learn.model.norm import RMSNorm
from etude.learn.model.rope import Rope, Rotations
from etude.learn.model.router import Router


@dataclass
class ModelOutput:
    """`logits` (B, T, V), or (N, V) at the N positions asked for. `hidden` (B, T, H) is the normed input of the head.

    `routes` (B, T, L_moe, K) if asked for: the experts chosen, uint8, or int32 above 255 experts.
    """

    logits: Tensor
    hidden: Tensor
    routes: Tensor | None = None


class TokenEmbedding(nn.Embedding):
    """Ids (...) to (..., hidden), in some families times the square root of the width, in the weight's type."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.vocab_size, config.hidden_size)
        self.scale = config.hidden_size**0.5 if config.embed_scale else 1.0

    def reset_parameters(self) -> None:
        """Nothing is drawn here: `init.draw` or a checkpoint fills the rows, as all other parameters."""

    def forward(self, ids: Tensor) -> Tensor:
        x = super().forward(ids)
        return x if self.scale == 1.0 else x * x.new_tensor(self.scale)


class TiedHead(nn.Module):
    """The token embedding as the output head. It has no parameter of its own: the weight is trained, saved and sent once."""

    def __init__(self, embed: nn.Embedding) -> None:
        super().__init__()
        self._embed = (embed,)  # in a tuple, so that it is no submodule

    @property
    def weight(self) -> Tensor:
        return self._embed[0].weight

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 2:
            return linear(x, self.weight)
        return linear(x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


class CausalLM(nn.Module):
    """Parameters are uninitialised until `init.draw` or a checkpoint fills them.

    `mtp` holds the draft layers, none by default. They read what the trunk leaves (`model.mtp`) and nothing here runs them.
    `model.compute` sets the two switches below.
    """

    recompute = False  # a training step computes each block again for its gradients
    holds_rounded = False  # weights of products are held in bf16, which takes states in fp32
    base_digest = ""  # of the weights as they were loaded, where adapters have rounded those that are frozen

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = TokenEmbedding(config)
        self.rope = Rope(config)
        self.blocks = nn.ModuleList(TransformerBlock(config, layer, self.rope) for layer in range(config.layers))
        self.norm = RMSNorm(config.hidden_size, config.norm_eps, config.norm_offset)
        self.head = TiedHead(self.embed) if config.tied else Linear(config.hidden_size, config.vocab_size)
        self.mtp = nn.ModuleList(MtpLayer(config, index, self.rope) for index in range(config.mtp_layers))
        self.moe_index = {layer: index for index, layer in enumerate(config.moe_layers)}
        # A byte holds every expert and the marker; wider models get wider routes.
        wide = config.experts > NO_ROUTE
        self.route_dtype, self.no_route = (torch.int32, NO_ROUTE_WIDE) if wide else (torch.uint8, NO_ROUTE)

    def forward(
        self,
        ids: Tensor,
        mask: DocumentMask | None = None,
        positions: Tensor | None = None,
        forced_experts: Tensor | None = None,
        return_routes: bool = False,
        logits_at: Tensor | None = None,
    ) -> ModelOutput:
        """All tokens of a batch ids (B, T) at once.

        `mask` defaults to one document per row; `positions` (B, T) to places within documents. `forced_experts`
        (B, T, L_moe, K) replays a choice; -1, or the largest number of the routes' type, where there is none. `logits_at`
        (B, T) bool computes the head only there, in row-major order. Raises ValueError for a document longer than the model's positions.
        """
        batch, length = ids.shape
        mask = mask or DocumentMask.rows(batch, length)
        forced = self._forced(forced_experts, batch, length)
        places = mask.positions if positions is None else positions
        self.rope.reaches(int(places.max()) + 1)
        places = places.to(ids.device)
        x = self.embed(ids.flatten())  # (N, H)
        turns = self.rope.at(places.flatten())
        routes: list[Tensor] = []
        for block in self.blocks:
            index = self.moe_index.get(block.layer)  # type: ignore[arg-type]
            pinned = forced[:, index] if forced is not None and index is not None else None
            x, experts = self._block(block, x, turns, mask, pinned)
            if experts is not None and return_routes:
                routes.append(experts)
        hidden = self.norm(x)
        logits = self.head(hidden if logits_at is None else hidden[logits_at.flatten()])
        return ModelOutput(
            logits if logits_at is not None else logits.view(batch, length, -1),
            hidden.view(batch, length, -1),
            self._routes(routes, batch * length).view(batch, length, *self._route_shape) if return_routes else None,
        )

    def _block(
        self, block: nn.Module, x: Tensor, turns: Rotations, mask: DocumentMask, pinned: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if self.recompute and torch.is_grad_enabled():
            found = checkpoint(block, x, turns, mask, pinned, use_reentrant=False, preserve_rng_state=False)
            return found  # type: ignore[return-value]
        return block(x, turns, mask, pinned)

    def routers(self) -> list[Router]:
        """The trunk's routers in the order of route arrays."""
        return [module for module in self.blocks.modules() if isinstance(module, Router)]

    def new_cache(self, slots: int, max_len: int, dtype: torch.dtype) -> KVCache:
        """An empty cache of this model for the engine, on its device."""
        return KVCache(self.config, slots, max_len, self.embed.weight.device, dtype)

    @torch.inference_mode()
    def extend(self, ids: Tensor, lengths: Tensor, slots: Tensor, cache: KVCache) -> tuple[Tensor, Tensor]:
        """Append tokens to cached sessions: prefill and decode are the same call.

        Row b adds ids[b, :lengths[b]] (ids (B, Tn), padded right) behind the `cache.lengths[slots[b]]` tokens its slot holds;
        `lengths` and `slots` (B,) are CPU tensors, slots without repeats. Returns logits (B, V) at each row's last new token,
        and routes (B, Tn, L_moe, K), `no_route` at padding. Raises CacheFull before anything is written.
        """
        span = CacheSpan(cache, slots, lengths, ids.shape[1])
        x, routes = self._through(ids, span)
        last = x if span.width == 1 else x.index_select(0, span.last)
        return self.head(self.norm(last)), routes

    @torch.inference_mode()
    def extend_all(
        self, ids: Tensor, lengths: Tensor, slots: Tensor, cache: KVCache, *, every_logit: bool = True
    ) -> ModelOutput:
        """As `extend`, with what speculation needs: `hidden` (B, Tn, H) of all new tokens, and logits (B, Tn, V) of all too.

        Without `every_logit` they are (B, V), at each row's last new token. Hidden states at padding are zero, logits there
        are the head's of zero.
        """
        span = CacheSpan(cache, slots, lengths, ids.shape[1])
        x, routes = self._through(ids, span)
        hidden = self.norm(x)  # (N, H)
        rows = span.to_rows(hidden)  # (B, Tn, H)
        return ModelOutput(self.head(rows if every_logit else hidden.index_select(0, span.last)), rows, routes)

    def _through(self, ids: Tensor, span: CacheSpan) -> tuple[Tensor, Tensor]:
        """New tokens through all blocks into the cache: the stream (N, H) and routes (B, Tn, L_moe, K)."""
        x = self.embed(span.to_tokens(ids))  # (N, H)
        turns = self.rope.at(span.positions)
        routes: list[Tensor] = []
        for block in self.blocks:
            x, experts = block.extend(x, turns, span)  # type: ignore[operator]
            if experts is not None:
                routes.append(experts)
        span.commit()
        flat = self._routes(routes, x.shape[0])  # (N, L_moe, K)
        return x, self._padded(flat, span) if span.ragged else span.to_rows(flat)

    @property
    def _route_shape(self) -> tuple[int, int]:
        return len(self.moe_index), self.config.experts_per_token

    def _padded(self, flat: Tensor, span: CacheSpan) -> Tensor:
        rows = flat.new_full((span.batch * span.width, *self._route_shape), self.no_route)
        return rows.index_copy_(0, span.valid, flat).view(span.batch, span.width, *self._route_shape)

    def _routes(self, routes: list[Tensor], tokens: int) -> Tensor:
        """(N, L_moe, K) of the blocks' choices."""
        if not routes:
            return torch.empty(tokens, *self._route_shape, dtype=self.route_dtype, device=self.embed.weight.device)
        return torch.stack(routes, dim=1).to(self.route_dtype)

    def _forced(self, forced: Tensor | None, batch: int, length: int) -> Tensor | None:
        """Checked and flat (N, L_moe, K)."""
        if forced is None:
            return None
        expected = (batch, length, *self._route_shape)
        if tuple(forced.shape) != expected:
            raise ValueError(f"forced_experts have shape {tuple(forced.shape)}, the model routes {expected}")
        wanted = forced.int()  # (B, T, L_moe, K)
        marker = NO_ROUTE if forced.dtype == torch.uint8 else self.no_route
        free = (wanted == marker) | (wanted == NO_ROUTE_WIDE) | (wanted == -1)
        bad = ((wanted < 0) | (wanted >= self.config.experts)) & ~free
        if bool(bad.any()):
            raise ValueError(f"forced expert {int(wanted[bad][0])} does not exist, the model has {self.config.experts}")
        return wanted.masked_fill_(free, -1).view(batch * length, *self._route_shape)
