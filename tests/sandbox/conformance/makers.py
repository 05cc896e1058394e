"""Who makes the sandboxes that the suite is run against. A new back end is a line here."""

from __future__ import annotations

import dataclasses
import subprocess
from dataclasses import dataclass
from typing import Any

from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import BACKENDS, SandboxSettings
from etude.sandbox.spec import Capabilities, SandboxSpec


@dataclass(frozen=True)
class Maker:
    """A back end and which of the two runners serves in it. `slow`: starts programs for each sandbox, so it belongs to the nightly set.
    `hidden`: what runs inside is no process of the host's, so no test can look at it from there."""

    backend: str
    runner: str = "python"
    slow: bool = False
    hidden: bool = False
    program: str = ""  # what makes its kernel, where that is another than the host's

    def release(self) -> str:
        """For messages that name the one that lacks something."""
        if not self.program:
            return f"back end {self.backend}"
        said = subprocess.run([self.program, "--version"], capture_output=True, text=True, timeout=10).stdout
        return f"back end {self.backend} ({said.splitlines()[0]})"


MAKERS = {
    "local": Maker("local"),
    "local-native": Maker("local", runner="native"),
    "bubblewrap": Maker("bubblewrap"),
    "bubblewrap-native": Maker("bubblewrap", runner="native"),
    "podman": Maker("podman", slow=True),
    "podman-native": Maker("podman", runner="native", slow=True),
    "runc": Maker("runc", slow=True),
    "runc-native": Maker("runc", runner="native", slow=True),
    "docker": Maker("docker", slow=True),
    "docker-native": Maker("docker", runner="native", slow=True),
    "gvisor": Maker("gvisor", slow=True, hidden=True, program="runsc"),
}


class MadePool:
    """A maker's pool: whatever is asked for comes with the maker's runner."""

    def __init__(self, maker: Maker, pool: SandboxPool) -> None:
        self.maker, self.pool = maker, pool

    @property
    def is_warm(self) -> bool:
        """Whether it has an interpreter to fork."""
        return self.maker.runner == "python"

    async def create(self, spec: SandboxSpec) -> Sandbox:
        return await self.pool.create(dataclasses.replace(spec, warm_python=self.is_warm))

    def probe(self) -> Capabilities:
        return self.pool.probe()

    async def close(self) -> None:
        await self.pool.close()


async def open_maker(maker: Maker) -> MadePool:
    """Raises Unsupported with the reason where this machine can't."""
    settings: dict[str, Any] = {"backend": maker.backend}
    if maker.backend not in BACKENDS:
        raise Unsupported(f"back end {maker.backend} is not built yet")
    pool = await open_pool(SandboxSettings(**settings))
    if maker.runner == "native" and pool.probe().runner != "native":
        found = pool.probe().runner
        await pool.close()
        raise Unsupported(f"back end {maker.backend} has no native runner here: {found}")
    return MadePool(maker, pool)
