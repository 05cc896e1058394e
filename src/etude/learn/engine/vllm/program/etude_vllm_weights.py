"""What vLLM's worker gains so that it can take changed tensors while requests wait: a class that vLLM mixes into its own.

vLLM packs weights after loading (and frees what it packed), so a module whose tensors changed is loaded as a whole and packed again;
the others are not touched. Runs in the Python that has vLLM, imports nothing of Etude.
"""

# pyright: reportMissingImports=false
# (vLLM is not where this is checked.)
from __future__ import annotations

from typing import Any

from etude_vllm_routes import CapturedRoutes


class ChangedWeights(CapturedRoutes):
    """`model_runner`, `model_config` and `vllm_config` are the worker's."""

    model_runner: Any
    model_config: Any
    vllm_config: Any

    def repair_rotary(self) -> int:
        """On CPUs, has vLLM rotate latent attention's positions by its code in Python; of how many modules.

        The kernel of its CPU build (0.32) rotates the wrong numbers where query and key are parts of wider heads, as latent attention's are:
        logits then differ by more than 1, by 1e-5 with the code in Python.
        """
        from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbeddingBase
        from vllm.platforms import current_platform

        if not (current_platform.is_cpu() and self.model_config.use_mla):
            return 0
        found = [m for m in self.model_runner.get_model().modules() if isinstance(m, RotaryEmbeddingBase)]
        for module in found:
            module._forward_method = module.forward_native
        if not found:
            raise RuntimeError(
                "this vLLM has no rotary module of the known class, so its latent attention can't be trusted on a CPU"
            )
        return len(found)

    def load_changed(self, file: str, modules: dict[str, list[str]]) -> int:
        """Loads these keys of a safetensors file, module by module; how many tensors vLLM says that it took."""
        from safetensors import safe_open
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        model = self.model_runner.get_model()
        taken = 0
        with set_current_vllm_config(self.vllm_config), safe_open(file, framework="pt") as tensors:
            for name, keys in modules.items():
                module = model.get_submodule(name)
                forget_kernels(module)
                initialize_layerwise_reload(module)
                taken += len(model.load_weights((key, tensors.get_tensor(key)) for key in keys))
                finalize_layerwise_reload(module, self.model_config)
            pack_tied_heads(model)
        return taken


def forget_kernels(module: Any) -> None:
    """On CPUs vLLM (0.32) packs experts when it makes their kernel and never again, so weights loaded later would be read as packed ones
    though they are not: the kernel is made again. Elsewhere packing is no matter of the kernel, and graphs hold on to it."""
    from vllm.platforms import current_platform

    for part in module.modules() if current_platform.is_cpu() else ():
        method: Any = getattr(part, "quant_method", None)
        if getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def pack_tied_heads(model: Any) -> None:
    """On CPUs a head that shares its weight with the embedding computes with a packed copy, which vLLM makes when the head itself is loaded: it is
    made again."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    parts = list(model.modules())
    embeddings = {
        id(m.weight) for m in parts if isinstance(m, VocabParallelEmbedding) and not isinstance(m, ParallelLMHead)
    }
    for head in (m for m in parts if isinstance(m, ParallelLMHead) and id(m.weight) in embeddings):
        head.quant_method.process_weights_after_loading(head)
