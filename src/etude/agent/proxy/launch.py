"""An agent's command, run with its endpoint and key in the environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

# What a command that was asked to end may take for it.
PARTING_S = 5.0


def environment(address: str, key: str) -> dict[str, str]:
    """The variables that agents and SDKs read; OPENAI_API_BASE is LiteLLM's older name."""
    return {
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_BASE": f"{address}/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_AUTH_TOKEN": key,
    }


async def launch(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Runs the command to its end and returns its exit status (128 + the signal that ended it). It shares our terminal.
    Cancelled, the command is asked to end, then ended. Raises OSError if it can't be started."""
    child = await asyncio.create_subprocess_exec(*command, env={**os.environ, **variables})
    try:
        status = await child.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(child.wait(), PARTING_S)
        except TimeoutError:
            child.kill()
            await child.wait()
        raise
    return status if status >= 0 else 128 - status
