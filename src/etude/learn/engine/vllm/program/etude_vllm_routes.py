"""What vLLM's worker gains so that it can report which experts each token was sent to, by callbacks of its routers.

vLLM's own flag for this needs a model runner that its CPU build lacks. The rows that a router sees in a step are those of the scheduled
requests, one request after the other in the order of the runner's batch. Callbacks are no part of a compiled or recorded graph, so the
engine has to run eagerly. Runs in the Python that has vLLM, imports nothing of Etude.
"""

# pyright: reportMissingImports=false
# (vLLM is not where this is checked.)
from __future__ import annotations

import base64
from functools import partial
from typing import Any


class CapturedRoutes:
    """`model_runner` is the worker's. Routes of a request are kept from its first step until `take_routes`."""

    model_runner: Any
    _steps: dict[str, list[tuple[int, Any]]]  # by request: first position and (tokens, layers, K) of each step

    def capture_routes(self) -> int:
        """Follows every router of the model from now on; how many layers have one. Raises ValueError for a router that reports nothing."""
        from vllm.model_executor.layers.fused_moe.layer import MoERunner

        self._steps = {}
        runners = [m for m in self.model_runner.get_model().modules() if isinstance(m, MoERunner)]
        if not runners:
            return 0
        chosen: dict[int, Any] = {}  # layer -> (tokens, K) of the step that is computed
        for layer, runner in enumerate(sorted(runners, key=lambda one: one.layer_id)):
            if runner._quant_method.is_monolithic or not hasattr(runner.router, "set_capture_fn"):
                raise ValueError(
                    f"the router of layer {runner.layer_id} ({type(runner.router).__name__}) reports no experts"
                )
            runner.router.set_capture_fn(partial(chosen.__setitem__, layer))
        execute = self.model_runner.execute_model

        def observed(scheduled: Any, *arguments: Any, **options: Any) -> Any:
            chosen.clear()
            result = execute(scheduled, *arguments, **options)
            if chosen and scheduled.total_num_scheduled_tokens:
                self._keep(scheduled.num_scheduled_tokens, [chosen[layer] for layer in range(len(runners))])
            return result

        self.model_runner.execute_model = observed
        return len(runners)

    def _keep(self, counts: dict[str, int], layers: list[Any]) -> None:
        import torch

        routes = torch.stack(layers, 1).cpu()  # (tokens, layers, K)
        batch, row = self.model_runner.input_batch, 0
        for index, request in enumerate(batch.req_ids):
            first, count = int(batch.num_computed_tokens_cpu[index]), counts[request]
            self._steps.setdefault(request, []).append((first, routes[row : row + count]))
            row += count

    def take_routes(self, request: str, wide: bool) -> tuple[int, list[int], str] | None:
        """Of a finished request, whose name vLLM lengthened: first position, shape (tokens, layers, K), and base64 of its bytes (uint16 or uint8).

        A position that was computed twice keeps its first routes. None where nothing was computed.
        """
        import torch

        names = [name for name in self._steps if name.rpartition("-")[0] == request]
        if not names:
            return None
        [steps] = [self._steps.pop(name) for name in names]
        start = min(first for first, _ in steps)
        end = max(first + len(rows) for first, rows in steps)
        whole = torch.empty((end - start, *steps[0][1].shape[1:]), dtype=torch.int64)
        for first, rows in reversed(steps):
            whole[first - start : first - start + len(rows)] = rows
        data = whole.numpy().astype("uint16" if wide else "uint8").tobytes()
        return start, list(whole.shape), base64.b64encode(data).decode()
