"""The routers of a class of transformers: which experts they choose is recorded, and can be replayed.

Router modules of transformers 5 (named ...Router) call `topk` and compute weights of what it returns. The last call chooses the experts; calls before
it choose groups of them. Its answer is replaced by the experts that a rollout visited, with their live scores, so weights and gradients are the
class's own. A router that does not return what its last `topk` chose, or calls none (Phi-MoE), is not understood: the model then has no routes, and
nothing is replayed. Routers that choose by the token's id (named ...HashRouter, DeepSeek-V4's first layers) need no replay and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from etude.learn.model.router import FORCED_SCORE

_TOPK = (torch.topk, Tensor.topk)


class ClassRouter:
    """One router module: what trainer and replay use of our own `Router`. It has no selection bias that a trainer moves."""

    bias: Tensor | None = None

    def __init__(self, routing: Routing, index: int, layer: int, module: nn.Module) -> None:
        self.layer, self._routing, self._index = layer, routing, index
        self.seen: list[tuple[int, int]] = []  # of the last forward, (candidates, chosen) of each call of topk
        self.returned = False  # whether the last forward returned what its last topk chose
        self.experts: Tensor | None = None  # (N, K) of the last forward
        module.forward = self._watched(module.forward)

    def choose(self, scores: Tensor, forced: Tensor | None) -> Tensor:
        """(N, K) experts of scores (N, E); the forced (N, K) ones first and in their order, others where there is none."""
        count = self.seen[-1][1]
        if forced is None:
            return scores.topk(count, dim=-1).indices
        experts = scores.shape[-1]
        column = forced.long()
        column = column.masked_fill((column < 0) | (column >= experts), experts)  # column E takes what is not forced
        order = FORCED_SCORE - torch.arange(count, device=scores.device, dtype=torch.float32)
        padded = nn.functional.pad(scores.float(), (0, 1)).scatter(1, column, order.expand_as(column))
        return padded[:, :experts].topk(count, dim=-1).indices

    def top(self, scores: Tensor, values: Tensor, experts: Tensor) -> tuple[Tensor, Tensor]:
        """What `topk` of scores (N, E) is to have returned, instead of values (N, K) and experts (N, K)."""
        self.seen.append((scores.shape[-1], experts.shape[-1]))
        forced = self._routing.forced
        if forced is not None and len(self.seen) == self._routing.calls:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                experts = self.choose(scores.detach(), forced[:, self._index])
            values = scores.gather(-1, experts)
        self.experts = experts.detach()
        return values, experts

    def _watched(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*arguments: Any, **named: Any) -> Any:
            self.seen, self.experts = [], None
            with _TopK(self):
                found = plain(*arguments, **named)
            if not self._routing.calls:
                parts = found if isinstance(found, tuple) else (found,)
                self.returned = any(_same(part, self.experts) for part in parts)
            return found

        return forward


def _same(found: Any, chosen: Tensor | None) -> bool:
    return isinstance(found, Tensor) and chosen is not None and torch.equal(found.detach().to(chosen.dtype), chosen)


class _TopK(TorchFunctionMode):
    def __init__(self, router: ClassRouter) -> None:
        super().__init__()
        self._router = router

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return torch.return_types.topk(self._router.top(args[0], *found)) if func in _TOPK else found


@dataclass
class Routing:
    """All routers of one model. `calls`: of `topk` in each, the last of which chooses; 0 where routers are not understood. `forced` (N, L_moe, K):
    the choice that the running forward replays, -1 where there is none."""

    routers: list[ClassRouter] = field(default_factory=list)
    calls: int = 0
    forced: Tensor | None = None

    @classmethod
    def of(cls, inner: nn.Module) -> Routing:
        """Of the router modules of `inner`, in the order of layers; `understand` says later whether they are any use."""
        routing = cls()
        for name, module in inner.named_modules():
            kind = type(module).__name__
            if kind.endswith("Router") and not kind.endswith("HashRouter"):
                layer = next((int(part) for part in name.split(".") if part.isdigit()), len(routing.routers))
                routing.routers.append(ClassRouter(routing, len(routing.routers), layer, module))
        return routing

    def understand(self) -> dict[str, Any]:
        """After a forward, the fields of the model's configuration that say what is recorded; empty where there is no router, or one is not
        understood."""
        shapes = {tuple(router.seen) for router in self.routers}
        if len(shapes) != 1 or not all(router.returned for router in self.routers):
            return {}
        seen = next(iter(shapes))
        experts, chosen = seen[-1]
        self.calls = len(seen)
        layers = tuple(router.layer for router in self.routers)
        return {"experts": experts, "experts_per_token": chosen, "routed_layers": layers}

    @contextmanager
    def replaying(self, forced: Tensor | None) -> Iterator[None]:
        before, self.forced = self.forced, forced
        try:
            yield
        finally:
            self.forced = before

    def chosen(self) -> list[Tensor]:
        """(N, K) of each router in the last forward; empty where routers are not understood."""
        if not self.calls:
            return []
        return [router.experts for router in self.routers if router.experts is not None]
