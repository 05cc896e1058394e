"""What container engines with docker's command line have in common."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess

from etude.sandbox.errors import Unsupported

_FILES = 4096  # as the runner's own limit
_PATIENCE_S = 10.0  # 0.1 s on a quiet machine
_SHOWN = 500
# Where the engine is, and what it may be asked.
_NAMES = (
    "PATH",
    "HOME",
    "XDG_RUNTIME_DIR",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_CERT_PATH",
    "DOCKER_TLS_VERIFY",
)


def environment() -> dict[str, str]:
    return {"PATH": os.defpath} | {name: os.environ[name] for name in _NAMES if name in os.environ}


def require(words: tuple[str, ...], backend: str) -> None:
    """Raises Unsupported where no engine answers, with what was found."""
    if shutil.which(words[0]) is None:
        raise Unsupported(f"back end {backend}: there is no {words[0]}; install docker, or take podman or local")
    try:
        done = subprocess.run([*words, "version"], env=environment(), capture_output=True, timeout=_PATIENCE_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unsupported(f"back end {backend}: `{words[0]} version`: {error}") from None
    if done.returncode:
        raise Unsupported(
            f"back end {backend}: no engine answers: {engine_message(done)}; start it, set DOCKER_HOST, or take podman or local"
        )


def engine_message(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stderr.decode(errors="replace").strip()[-_SHOWN:] or f"it ended with {done.returncode}"


def volume(backend: str, source: str, target: str) -> str:
    if ":" in source + target:
        raise Unsupported(
            f"back end {backend}: {source} and {target} can't be bound, {backend} takes ':' for a separator"
        )
    return f"{source}:{target}:ro"


def ulimits() -> list[str]:
    """Those that engines would else raise beyond what they are allowed."""
    most = {"nofile": _at_most(_FILES, resource.RLIMIT_NOFILE), "nproc": _at_most(_FILES, resource.RLIMIT_NPROC)}
    return [word for name, value in most.items() for word in ("--ulimit", f"{name}={value}:{value}")]


def _at_most(wanted: int, limit: int) -> int:
    hard = resource.getrlimit(limit)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
