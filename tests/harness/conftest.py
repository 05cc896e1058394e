"""A sandbox in memory: the protocol's files for real, commands answered by a function."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from etude.chat.byte_tokenizer import byte_tokenizer
from etude.chat.nano import NanoRenderer
from etude.sandbox.protocol import Entry, ExecResult, SandboxSpec, UserError

Run = Callable[["FakeSandbox", Any], ExecResult]


class FakeSandbox:
    """`run` is given the argv; without one every command succeeds silently."""

    def __init__(self, files: dict[str, str], run: Run | None = None) -> None:
        self.id = "fake"
        self.spec = SandboxSpec()
        self.files = {path: text.encode() for path, text in files.items()}
        self._run = run or (lambda sandbox, argv: ExecResult(0, b"", b""))

    async def run(self, argv: Any, **options: Any) -> ExecResult:
        return self._run(self, argv)

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        if path not in self.files:
            raise UserError(f"no such file {path}")
        return self.files[path][offset : offset + max_bytes]

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        if path.startswith("/") or ".." in path.split("/"):
            raise UserError(f"outside of the workspace: {path}")
        self.files[path] = data

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[Entry]:
        return [Entry(p, "file", len(data), 0o644) for p, data in sorted(self.files.items())]

    async def remove(self, path: str) -> None:
        self.files.pop(path, None)

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        return dict(self.files)

    async def kill(self) -> None:
        """Nothing runs."""


FILES = {
    "shop.py": "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n",
    "main.py": "from shop import total\n\nprint(total([1, 2]))\n",
}


def run_tests(sandbox: FakeSandbox, argv: Any) -> ExecResult:
    """Green once the bug in FILES is gone."""
    fixed = b"out += x" in sandbox.files["shop.py"]
    return ExecResult(0, b"", b"") if fixed else ExecResult(1, b"total([1, 2]) = -3, not 3 in 0.01s\n", b"")


@pytest.fixture
def sandbox() -> FakeSandbox:
    return FakeSandbox(FILES, run_tests)


@pytest.fixture
def make_sandbox() -> Callable[..., FakeSandbox]:
    return lambda files=FILES, run=run_tests: FakeSandbox(files, run)


@pytest.fixture(scope="session")
def renderer() -> NanoRenderer:
    return NanoRenderer(byte_tokenizer())
