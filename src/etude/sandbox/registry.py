"""Which sandboxes of a pool are alive, by name."""

from __future__ import annotations

from etude.sandbox.wire.live import LiveSandbox


class SandboxRegistry:
    """A sandbox is in it from the moment it is handed out until it is dead."""

    def __init__(self) -> None:
        self._live: dict[str, LiveSandbox] = {}
        self.created = 0

    def __len__(self) -> int:
        return len(self._live)

    def enter(self, sandbox: LiveSandbox) -> None:
        self._live[sandbox.id] = sandbox
        self.created += 1
        sandbox.call_on_death(lambda: self._live.pop(sandbox.id, None))

    def find(self, labels: dict[str, str] | None = None) -> list[LiveSandbox]:
        """Those that carry all these labels."""
        wanted = (labels or {}).items()
        return [one for one in self._live.values() if wanted <= one.spec.labels.items()]
