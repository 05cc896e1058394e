"""What a GPU and its links can do at best, by the data sheets of their makers. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """`memory` in bytes; `flops` a second of dense products in bf16; bytes a second that a GPU sends: `link` within a machine of `machine` GPUs, and
    `network` between machines."""

    memory: float
    flops: float
    link: float
    network: float
    machine: int = 8

    def rate(self, ranks: tuple[int, ...]) -> float:
        """Bytes a second that a rank of this group sends: at the network's rate if the group is on several machines."""
        return self.link if len({rank // self.machine for rank in ranks}) == 1 else self.network


# NVIDIA's data sheets: dense bf16 without sparsity; NVLink in one direction; one network port of 200 or 400 Gbit/s for each GPU, as in DGX systems.
ACCELERATORS = {
    "a100-80gb": Accelerator(80e9, 312e12, 300e9, 25e9),
    "h100": Accelerator(80e9, 989e12, 450e9, 50e9),
    "h200": Accelerator(141e9, 989e12, 450e9, 50e9),
    "b200": Accelerator(180e9, 2250e12, 900e9, 50e9),
}
