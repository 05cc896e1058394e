"""The same work through other tools, as their own commands do it: podman, runc, and bubblewrap started for each command.

All of them see the host's system folders read-only, as our sandboxes do, without a network; nothing is pulled.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Protocol

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_PATIENCE_S = 60.0


class PeerFailed(Exception):
    """A tool is there, but can't do the work here; says what it said."""


class Peer(Protocol):
    name: str

    async def create(self) -> None: ...
    async def exec(self) -> None: ...
    async def close(self) -> None: ...


async def call(*argv: str) -> None:
    """Raises PeerFailed unless the command ends well."""
    with tempfile.TemporaryFile() as said:  # no pipe: what a tool leaves running in the background would hold it open
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
        )
        try:
            await asyncio.wait_for(process.wait(), _PATIENCE_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise PeerFailed(f"{argv[0]} did not end within {_PATIENCE_S} s") from None
        if process.returncode != 0:
            said.seek(0)
            raise PeerFailed(f"{' '.join(argv[:3])}: {said.read().decode(errors='replace').strip()[-300:]}")


class Bubblewrap:
    """A new sandbox for every command: there is no live one to exec in, so both are the same."""

    name = "bubblewrap"

    async def create(self) -> None:
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        for path in filter(os.path.exists, _SYSTEM):
            words += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
        await call(*words, "--", "true")

    exec = create

    async def close(self) -> None:
        return None


class Runc:
    name = "runc"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="etude-runc-"))
        _root(self._folder / "rootfs")
        self._number = 0
        self._live = ""

    async def create(self) -> None:
        self._number += 1
        await self._run(f"once-{self._number}", "true")

    async def exec(self) -> None:
        if not self._live:
            self._live = f"etude-live-{os.getpid()}"
            await self._run(self._live, "sleep", "600", detach=True)
        await call("runc", *self._state(), "exec", self._live, "true")

    async def close(self) -> None:
        if self._live:
            await call("runc", *self._state(), "delete", "--force", self._live)
        shutil.rmtree(self._folder)

    def _state(self) -> list[str]:
        return ["--root", str(self._folder / "state")]

    async def _run(self, name: str, *argv: str, detach: bool = False) -> None:
        bundle = self._folder / ("live" if detach else "bundle")
        bundle.mkdir(exist_ok=True)
        (bundle / "config.json").write_text(json.dumps(_oci(self._folder / "rootfs", list(argv))))
        more = ["--detach"] if detach else []
        await call("runc", *self._state(), "run", *more, "--bundle", str(bundle), name)


class Podman:
    name = "podman"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="etude-podman-speed-"))
        _root(self._folder / "rootfs")
        self._live = ""

    async def create(self) -> None:
        await call("podman", *self._words("run", "--rm"), "true")

    async def exec(self) -> None:
        if not self._live:
            self._live = f"etude-live-{os.getpid()}"
            await call("podman", *self._words("run", "--rm", "--detach", "--name", self._live), "sleep", "600")
        await call("podman", *self._storage(), "exec", self._live, "true")

    async def close(self) -> None:
        if self._live:
            await call("podman", *self._storage(), "kill", self._live)
        shutil.rmtree(self._folder, ignore_errors=True)  # overlay mounts of its storage end a moment later

    def _storage(self) -> list[str]:
        words = ["--cgroup-manager", "cgroupfs", "--log-level", "error"]
        hybrid = os.path.isdir("/sys/fs/cgroup/unified") and shutil.which("runc")  # crun refuses both versions at once
        return [*words, *(["--runtime", "runc"] if hybrid else [])]

    def _words(self, *verb: str) -> list[str]:
        words = [*self._storage(), *verb, "--pull", "never", "--network", "none", "--no-hosts", "--log-driver", "none"]
        words += ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]
        for path in filter(os.path.isdir, _SYSTEM):
            words += [] if os.path.islink(path) else ["--volume", f"{path}:{path}:ro"]
        return [*words, "--rootfs", str(self._folder / "rootfs")]


PEERS: dict[str, tuple[str, type[Bubblewrap] | type[Runc] | type[Podman]]] = {
    "podman": ("podman", Podman),
    "runc": ("runc", Runc),
    "bubblewrap": ("bwrap", Bubblewrap),
}


def _root(folder: Path) -> None:
    for name in ("proc", "dev", "sys", "tmp", "etc", "run", "var", "usr"):
        (folder / name).mkdir(parents=True)
    for path in filter(os.path.exists, _SYSTEM):
        if os.path.islink(path):
            os.symlink(os.readlink(path), f"{folder}{path}")
        else:
            Path(f"{folder}{path}").mkdir(exist_ok=True)


def _oci(root: Path, argv: list[str]) -> dict[str, object]:
    """As `runc spec` writes it, or `runc spec --rootless` for an ordinary user, with the system folders bound."""
    rootless = os.geteuid() != 0
    words = ["runc", "spec", *(["--rootless"] if rootless else [])]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(words, cwd=folder, capture_output=True, timeout=_PATIENCE_S)
        if done.returncode != 0:
            raise PeerFailed(f"runc spec: {done.stderr.decode(errors='replace').strip()}")
        config = json.loads(Path(folder, "config.json").read_text())
    config["process"] |= {"args": argv, "terminal": False}
    config["process"].pop("rlimits", None)  # raising the hard limit needs a right that containers of hosts often lack
    config["root"] = {"path": str(root), "readonly": True}
    for path in filter(os.path.isdir, _SYSTEM):
        if not os.path.islink(path):
            config["mounts"].append({"destination": path, "source": path, "type": "none", "options": ["rbind", "ro"]})
    return config
