"""vLLM for tests: the real one where a Python is named that has it, and a program that replaces its process where only that matters."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from engine_lab import small_model

from etude.core.trace.completion import Completion
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.found import VARIABLE
from etude.learn.engine.vllm.service import VllmService
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import save_checkpoint
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.store import WeightStore

CHECKPOINT = Path(__file__).parents[3] / "checkpoints" / "sft-nano"

# Answers each question with its prompt's length as often as it may, and says in a file what it received. A prompt that begins with 13 is
# refused, with 66 the process ends, with 7 it is never answered.
STAND_IN = """
import json, os, sys
calls = open(os.environ["STAND_IN_TOLD"], "a", buffering=1)
def say(**message):
    print(json.dumps(message), flush=True)
version = -1
say(said="ready", vllm="none")
for line in sys.stdin:
    calls.write(line)
    message = json.loads(line)
    n = message["n"]
    if message["do"] == "load":
        version = message["version"]
        say(said="done", n=n, seconds=0.5)
    elif message["do"] == "abort":
        say(said="aborted", n=n)
    elif message["do"] == "ping":
        say(said="done", n=n)
    elif message["prompt"][0] == 13:
        say(said="refused", n=n, why="unlucky")
    elif message["prompt"][0] == 66:
        say(said="failed", why="it had to come")
        sys.exit(1)
    elif message["prompt"][0] != 7:
        count = message["max_tokens"]
        ids = [len(message["prompt"])] * count
        say(said="answer", n=n, ids=ids, logprobs=[-0.5] * count, spans=[[version, 0]], finish="length", cached=0)
"""


def vllm_python() -> str:
    """Skips the test where none is named."""
    python = os.environ.get(VARIABLE, "")
    if not python:
        pytest.skip(f"{VARIABLE} names no Python that has vLLM (docs/vllm.md)")
    return python


def stand_in(folder: Path) -> str:
    """A "Python" that runs STAND_IN whatever it is to run."""
    (folder / "stand_in.py").write_text(STAND_IN)
    program = folder / "python"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {folder / 'stand_in.py'}\n")
    program.chmod(0o755)
    return str(program)


def checkpoint_of(model: CausalLM, folder: Path) -> Path:
    save_checkpoint(model, folder)
    return folder


def settings(python: str, **changes: object) -> EngineSettings:
    return EngineSettings.model_validate({"kind": "vllm", "vllm": {"python": python}, **changes})


def published(folder: Path, family: str = "qwen3_moe") -> tuple[CausalLM, Publisher, WeightStore]:
    """A small model, and a store that holds it as version 0."""
    model = small_model(family)
    publisher = Publisher(WeightStore(folder / "weights"), anchor_every=25)
    publisher.publish(model.state_dict(), 0)
    return model, publisher, publisher.store


def collect(service: VllmService, count: int, limit_s: float = 60.0) -> dict[int, Completion]:
    """This number of results of the client "me", by number. Raises the first that is an error."""
    found: dict[int, Completion] = {}
    until_s = time.monotonic() + limit_s
    while len(found) < count:
        assert time.monotonic() < until_s, f"{len(found)} of {count} turns came back"
        for number, result in service.poll("me", 1.0):
            if isinstance(result, Exception):
                raise result
            found[number] = result
    return found
