"""A causal language model of transformers behind the interface of `CausalLM`: trainer and engine call the same methods.

The class of transformers computes everything but attention, which is ours (`attention.py`), so that packing, shared beginnings and continuous
batching work as for our own classes. Classes that can't be called so go by rows (`rows.py`). `survey.py` decides. A checkpoint directory is read
whole or refused, and written so that it reads back bit for bit.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from etude.core.trace.segment import NO_ROUTE, NO_ROUTE_WIDE
from etude.learn.model.cache import CacheSpan, KVCache
from etude.learn.model.causal_lm import CausalLM, ModelOutput
from etude.learn.model.hf_errors import UnsupportedConfig
from etude.learn.model.mask import DocumentMask
from etude.learn.model.transformers_backend.attention import CachedAttention, MaskedAttention, attach
from etude.learn.model.transformers_backend.config import (
    TransformersConfig,
    config_of,
    read_transformers_config,
    transformers,
)
from etude.learn.model.transformers_backend.routers import Routing
from etude.learn.model.transformers_backend.rows import RowPass, SlotCaches
from etude.learn.model.transformers_backend.survey import survey
from etude.learn.weights.hf_files import CheckpointError

INNER = "inner."  # what names of a `TransformersLM`'s state and modules begin with
ROUTERS = ("gate", "router", "shared_expert_gate")  # last names of linear layers that have no adapters


class GivenStates:
    """States in place of a base model's output, which has nothing else: no caches, no attentions, no router logits."""

    def __init__(self, states: Tensor) -> None:
        self.last_hidden_state = states

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)

    def __getitem__(self, key: Any) -> Tensor | tuple[()]:
        return self.last_hidden_state if key in (0, "last_hidden_state") else ()


class TransformersLM(CausalLM):
    """Holds `inner`, an `AutoModelForCausalLM`, and registers nothing else: names in its state are those of transformers behind "inner.".

    It has no draft layers and no adapters. Dropout is off in training too. `compute` is the type of products in the forward of the base model, as
    torch.autocast chooses them; the head stays in the type of its weight.
    """

    config: TransformersConfig
    compute: torch.dtype | None = None

    def __init__(self, inner: Any) -> None:
        nn.Module.__init__(self)
        self.inner = inner.eval()
        self._hidden_base = (_decoder_of(inner),)  # in a tuple, so that it is no submodule a second time
        self._given: Tensor | None = None  # what the base model answers with, while the head is asked
        self._attention, self._routing = attach(inner), Routing.of(inner)
        config = config_of(inner.config, vocab_size=inner.get_input_embeddings().weight.shape[0])
        self.survey = survey(inner, self._base, self._attention, config)
        self._rows = None if self.survey.widths else RowPass(self._base, in_pieces=self.survey.in_pieces)
        self.config = config.model_copy(
            update={"cached": max(self.survey.widths, default=0), **self._routing.understand()}
        )
        self.mtp = nn.ModuleList()
        self.moe_index = {layer: index for index, layer in enumerate(self.config.moe_layers)}
        wide = self.config.experts > NO_ROUTE
        self.route_dtype, self.no_route = (torch.int32, NO_ROUTE_WIDE) if wide else (torch.uint8, NO_ROUTE)
        self._base.forward = self._answering(self._base.forward)
        self._require_head()
        for layer in self._layers():
            layer.forward = self._recomputing(layer.forward)

    @property
    def way(self) -> str:
        """Which way the class goes, in words."""
        way = f"by rows ({self.survey.why})" if self._rows else "with our attention"
        return way if self.moe_index or not self.config.experts else f"{way}; its choice of experts is not recorded"

    @property
    def embed(self) -> Any:  # type: ignore[override]
        """The token embedding of the class."""
        return self.inner.get_input_embeddings()

    @property
    def head(self) -> Any:  # type: ignore[override]
        """(..., H) to (..., V): all that the class does behind its base model, such as scales and caps of logits."""
        return self._logits

    def train(self, mode: bool = True) -> TransformersLM:
        super().train(mode)
        self.inner.eval()  # no dropout
        return self

    def routers(self) -> list[Any]:  # type: ignore[override]
        return list(self._routing.routers) if self.moe_index else []

    def new_cache(self, slots: int, max_len: int, dtype: torch.dtype) -> KVCache:
        kind = SlotCaches if self._rows else KVCache
        return kind(self.config, slots, max_len, self.embed.weight.device, dtype)

    def forward(
        self,
        ids: Tensor,
        mask: DocumentMask | None = None,
        positions: Tensor | None = None,
        forced_experts: Tensor | None = None,
        return_routes: bool = False,
        logits_at: Tensor | None = None,
    ) -> ModelOutput:
        """As `CausalLM.forward`. By rows, positions other than those within documents are refused."""
        batch, length = ids.shape
        mask = mask or DocumentMask.rows(batch, length)
        places = mask.positions if positions is None else positions
        self._reaches(int(places.max()) + 1)
        forced = self._forced(forced_experts, batch, length) if self.moe_index else None
        if self._rows:
            if positions is not None:
                raise ValueError(
                    "this class of transformers goes by rows, which have no other positions than those within documents"
                )
            hidden, chosen = self._train_rows(self._rows, ids, mask, forced)
        else:
            with self._attention.running(MaskedAttention(mask)), self._routing.replaying(forced):
                hidden = self._flat(ids.flatten(), places.flatten())
            chosen = self._routing.chosen()
        logits = self.head(hidden if logits_at is None else hidden[logits_at.flatten()])
        return ModelOutput(
            logits if logits_at is not None else logits.view(batch, length, -1),
            hidden.view(batch, length, -1),
            self._routes(chosen, batch * length).view(batch, length, *self._route_shape) if return_routes else None,
        )

    def _train_rows(
        self, rows: RowPass, ids: Tensor, mask: DocumentMask, forced: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """States (N, H), and by router the experts chosen (N, K)."""
        spread = None if forced is None else mask.to_rows(forced).flatten(0, 1)
        with self._typed(), self._routing.replaying(spread):
            hidden, shape = rows.hidden(ids.flatten(), mask)
        chosen = [mask.to_tokens(experts.view(*shape, -1)) for experts in self._routing.chosen()]
        return hidden, chosen

    @torch.inference_mode()
    def extend(self, ids: Tensor, lengths: Tensor, slots: Tensor, cache: KVCache) -> tuple[Tensor, Tensor]:
        span = CacheSpan(cache, slots, lengths, ids.shape[1])
        hidden, routes = self._through(ids, span)
        return self.head(hidden.index_select(0, span.last)), routes

    @torch.inference_mode()
    def extend_all(
        self, ids: Tensor, lengths: Tensor, slots: Tensor, cache: KVCache, *, every_logit: bool = True
    ) -> ModelOutput:
        span = CacheSpan(cache, slots, lengths, ids.shape[1])
        hidden, routes = self._through(ids, span)
        rows = span.to_rows(hidden)  # (B, Tn, H)
        return ModelOutput(self.head(rows if every_logit else hidden.index_select(0, span.last)), rows, routes)

    def _through(self, ids: Tensor, span: CacheSpan) -> tuple[Tensor, Tensor]:
        """New tokens into the cache: states (N, H) as the head reads them, and routes (B, Tn, L_moe, K)."""
        if self._rows:
            assert isinstance(span.cache, SlotCaches)
            with self._typed():
                hidden, chosen = self._rows.extend(ids, span, span.cache, self._routing.chosen)
        else:
            with self._attention.running(CachedAttention(span)):
                hidden = self._flat(span.to_tokens(ids), span.positions)
            chosen = self._routing.chosen()
        span.commit()
        flat = self._routes(chosen, len(hidden))
        return hidden, self._padded(flat, span) if span.ragged else span.to_rows(flat)

    def _flat(self, ids: Tensor, places: Tensor) -> Tensor:
        """States (N, H) of flat ids (N,) at places (N,), by the attention that is running."""
        places = places.to(ids.device)[None]
        with self._typed():
            return self._base(input_ids=ids[None], position_ids=places, use_cache=False).last_hidden_state[0]

    def _typed(self) -> AbstractContextManager[Any]:
        if self.compute is None:
            return nullcontext()
        return torch.autocast(self.embed.weight.device.type, self.compute)

    def _logits(self, x: Tensor) -> Tensor:
        """(..., H) to (..., V)."""
        if x.numel() == 0:
            return x.new_zeros(*x.shape[:-1], self.config.vocab_size)
        flat = x.reshape(1, -1, x.shape[-1])
        self._given = flat
        try:
            logits = self.inner(inputs_embeds=flat, use_cache=False).logits
        finally:
            self._given = None
        return logits.view(*x.shape[:-1], -1)

    def linear_layers(self) -> Iterator[tuple[str, nn.Linear]]:
        """By name the linear layers that may have adapters: those within blocks, but routers, gates of experts and experts. A subclass of nn.Linear
        computes something else and is left out."""
        blocks = {id(module) for block in self._layers() for module in block.modules()}
        for name, module in self.inner.named_modules():
            *parents, last = name.split(".")
            if id(module) in blocks and type(module) is nn.Linear and last not in ROUTERS and "experts" not in parents:
                yield INNER + name, module

    @torch.no_grad()
    def require_called(self, names: Sequence[str]) -> None:
        """Raises ValueError for a module that a forward does not call: the class reads its weight in another way, and an adapter would change
        nothing."""
        called: set[str] = set()
        hooks = [
            self.get_submodule(name).register_forward_hook(lambda *_, name=name: called.add(name)) for name in names
        ]
        try:
            self(torch.zeros(1, 2, dtype=torch.long, device=self.embed.weight.device))
        finally:
            for hook in hooks:
                hook.remove()
        if unused := [name.removeprefix(INNER) for name in names if name not in called]:
            raise ValueError(
                f"{unused[0]} ({len(unused)} such) can have no adapter: {type(self.inner).__name__} does not call it; leave "
                f"{unused[0].rpartition('.')[2]} out of lora.targets"
            )

    @property
    def _base(self) -> Any:
        """What gives the states that the head reads."""
        return self._hidden_base[0]

    def _answering(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """The base model's forward, which answers with given states where the head alone is asked."""

        def forward(*arguments: Any, **named: Any) -> Any:
            return plain(*arguments, **named) if self._given is None else GivenStates(self._given)

        return forward

    @torch.no_grad()
    def _require_head(self) -> None:
        """Raises UnsupportedConfig for a class whose logits are not its head over the states of its decoder."""
        ids = torch.arange(min(5, self.config.vocab_size), device=self.embed.weight.device)[None]
        with self._attention.running(MaskedAttention(DocumentMask.rows(1, ids.shape[1]))):
            expected = self.inner(input_ids=ids, use_cache=False).logits
            found = self._logits(self._base(input_ids=ids, use_cache=False).last_hidden_state)
        if not torch.allclose(found, expected, rtol=1e-3, atol=1e-3 * float(expected.std())):
            raise UnsupportedConfig(
                f"{type(self.inner).__name__} computes its logits otherwise than by a head over its decoder's states"
            )

    def _layers(self) -> list[Any]:
        """The blocks, which a step may compute twice."""
        block = transformers("modeling_layers").GradientCheckpointingLayer
        return [module for module in self.inner.modules() if isinstance(module, block)]

    def _recomputing(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A block's forward, which is computed again for its gradients where `recompute` says so, under the attention of the first time."""

        def forward(*arguments: Any, **named: Any) -> Any:
            if not (self.recompute and torch.is_grad_enabled()):
                return plain(*arguments, **named)
            call, forced = self._attention.call, self._routing.forced

            def again(*arguments: Any, **named: Any) -> Any:
                with self._attention.running(call), self._routing.replaying(forced):
                    return plain(*arguments, **named)

            return checkpoint(again, *arguments, use_reentrant=False, preserve_rng_state=False, **named)

        return forward

    def _reaches(self, length: int) -> None:
        if length > self.config.context_length:
            raise ValueError(
                f"a document has {length:,} tokens, and the model has {self.config.context_length:,} positions; shorten it"
            )


def _decoder_of(inner: Any) -> Any:
    """The part that ends before the head. Raises UnsupportedConfig."""
    decoder = inner.get_decoder()
    if decoder is not None and decoder is not inner:
        return decoder
    parts = [part for part in inner.children() if isinstance(part, transformers().PreTrainedModel)]
    if len(parts) != 1:
        raise UnsupportedConfig(f"{type(inner).__name__} has no decoder apart from its head, which is not supported")
    return parts[0]


def load_transformers(
    folder: Path | str, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> TransformersLM:
    """The model of a checkpoint directory. Raises CheckpointError or UnsupportedConfig, naming what does not fit."""
    read_transformers_config(folder)
    try:
        inner, report = transformers().AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=dtype, trust_remote_code=False, local_files_only=True, output_loading_info=True
        )
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{folder}: transformers can't load the weights: {line:.300}") from error
    for what in ("missing_keys", "mismatched_keys"):
        if odd := sorted(str(key) for key in report.get(what, ())):
            raise CheckpointError(
                f"{folder}: {odd[0]} ({len(odd)} such) is {what.removesuffix('_keys')}: the weights are not those of the class "
                f"{type(inner).__name__}"
            )
    _require_finite(inner)
    return TransformersLM(inner.to(device))


def _require_finite(inner: nn.Module) -> None:
    for name, tensor in inner.state_dict().items():
        if tensor.is_floating_point() and tensor.numel() and not all(bound.isfinite() for bound in tensor.aminmax()):
            raise CheckpointError(
                f"{name} holds numbers that are not finite (NaN or infinity): the checkpoint is damaged; take another"
            )


def write_weights(model: TransformersLM, folder: Path, state: Mapping[str, Tensor]) -> None:
    """The weights of `state`, whose names are those of `model`, into `folder` by the names that the class has on disk. config.json stays."""
    named = {name.removeprefix(INNER): tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    with tempfile.TemporaryDirectory(prefix="etude-weights-", dir=folder) as place:
        model.inner.save_pretrained(place, state_dict=named)
        for path in Path(place).glob("*.safetensors*"):
            path.rename(folder / path.name)
