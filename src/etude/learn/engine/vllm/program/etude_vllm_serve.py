"""The program that runs vLLM, in whatever Python has it: token ids in, token ids out, over a pair of pipes. Imports nothing of Etude.

Started by `learn/engine/vllm/child.py` with one JSON argument, the engine's arguments. On standard input come lines of JSON, on what was
standard output at the start go lines of JSON; what vLLM prints goes to standard error. The end of the input is the end of this process,
however busy it is, and each process that it starts dies with it.

in:  {"do": "ask", "n", "prompt", "stop", "max_tokens", "temperature", "top_p", "seed", "salt", "wide"}
     {"do": "load", "n", "file", "modules": {module: [key, ...]}, "version", "recompute"}      {"do": "ping", "n"}
     {"do": "abort", "n" of a question}
out: {"said": "ready", "vllm"}      {"said": "answer", "n", "ids", "logprobs", "spans": [[version, start], ...], "finish", "cached", "routes"}
     {"said": "refused", "n", "why"}      {"said": "aborted", "n"}
     {"said": "done", "n", "seconds" of a load}      {"said": "failed", "why"}, the last word of all
"""

# pyright: reportMissingImports=false
# (vLLM is not where this is checked.)
from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

PR_SET_PDEATHSIG = 1
# A process that vLLM starts (multiprocessing by spawn) imports this module before anything else, under another name.
if __name__ == "__mp_main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

Message = dict[str, Any]
LOOK_S = 0.2
EXTENSION = "etude_vllm_weights.ChangedWeights"


class Server:
    """Answers messages with one engine; `failed` ends it with the first thing that went wrong with that."""

    def __init__(self, engine: Any, out: TextIO, routes: bool) -> None:
        self.engine, self._out, self._routes = engine, out, routes
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: dict[int, asyncio.Task[None]] = {}  # by the number of the question

    def say(self, message: Message) -> None:
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    async def watch(self) -> None:
        """vLLM notes that its core was killed, but does not report it to callers that wait for it."""
        while not self.engine.errored:
            await asyncio.sleep(LOOK_S)
        if not self.failed.done():
            self.failed.set_result("the process that samples ended; what vLLM printed tells more")

    async def read(self, inbox: asyncio.Queue[Message]) -> None:
        """Begins what is asked, in order; each goes on by itself."""
        answers = {"ask": self._ask, "load": self._load, "ping": self._ping, "abort": self._abort}
        while True:
            message = await inbox.get()
            task = asyncio.create_task(answers[message["do"]](message))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
            if message["do"] == "ask":
                self._turns[message["n"]] = task
                task.add_done_callback(lambda _, n=message["n"]: self._turns.pop(n))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_result(f"{type(error).__name__}: {error}")

    async def _ask(self, message: Message) -> None:
        from vllm import SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.sampling_params import RequestOutputKind

        n = message["n"]
        try:
            sampling = SamplingParams(
                temperature=message["temperature"],
                top_p=message["top_p"],
                seed=message["seed"],
                max_tokens=message["max_tokens"],
                stop_token_ids=message["stop"],
                ignore_eos=True,  # the asker's stop ids are all that counts
                logprobs=0,  # of the sampled token alone
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            prompt = {"prompt_token_ids": message["prompt"], "cache_salt": message["salt"]}
            [output] = [one async for one in self.engine.generate(prompt, sampling, str(n))]
        except VLLMClientError as error:  # of this request alone
            self.say({"said": "refused", "n": n, "why": str(error)})
            return
        found = answer(output)
        if self._routes:
            found["routes"] = (await self.engine.collective_rpc("take_routes", args=(str(n), message["wide"])))[0]
        self.say({"said": "answer", "n": n, **found})

    async def _abort(self, message: Message) -> None:
        """Ends a turn that is no longer wanted; says nothing of one that is over."""
        n = message["n"]
        task = self._turns.get(n)
        if task is None:
            return
        task.cancel()  # vLLM aborts a request whose generator is cancelled
        await asyncio.wait([task])
        if not task.cancelled():
            return  # it was answered or refused in the same moment
        if self._routes:
            await self.engine.collective_rpc("take_routes", args=(str(n), True))
        self.say({"said": "aborted", "n": n})

    async def _load(self, message: Message) -> None:
        """Between two steps: those that were scheduled before are over when the pause is, and none begins within it."""
        began = time.perf_counter()
        await self.engine.pause_generation(mode="keep", clear_cache=message["recompute"])
        await self.engine.collective_rpc("load_changed", args=(message["file"], message["modules"]))
        await self.engine.update_weight_version(str(message["version"]))
        await self.engine.resume_generation()
        self.say({"said": "done", "n": message["n"], "seconds": time.perf_counter() - began})

    async def _ping(self, message: Message) -> None:
        """A sign of life of the process that samples, not of this one."""
        await self.engine.get_weight_version()
        self.say({"said": "done", "n": message["n"]})


def answer(output: Any) -> Message:
    """What a finished request came to."""
    found = output.outputs[0]
    ids = list(found.token_ids)
    logprobs = [row[token].logprob for row, token in zip(found.logprobs or [], ids, strict=True)]
    spans = [[int(span.version), span.start] for span in found.weight_versions or []]
    cached = output.num_cached_tokens or 0
    return {"ids": ids, "logprobs": logprobs, "spans": spans, "finish": found.finish_reason, "cached": cached}


def own_pipes() -> tuple[TextIO, TextIO]:
    """Standard input and output for this process alone: what it starts inherits neither, so that their ends tell of this one's."""
    source, sink = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return source, sink


def listen(source: TextIO, loop: asyncio.AbstractEventLoop, take: Callable[[Message], None]) -> None:
    for line in source:
        loop.call_soon_threadsafe(take, json.loads(line))
    shutil.rmtree(os.environ["VLLM_RPC_BASE_PATH"], ignore_errors=True)  # the process that would do it is gone
    os._exit(0)


async def serve(arguments: Message, source: TextIO, sink: TextIO) -> str:
    """Until something fails; what it was."""
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    threading.Thread(target=listen, args=(source, loop, inbox.put_nowait), daemon=True).start()
    import vllm
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.outputs import WeightVersionSpan  # noqa: F401 - an older vLLM does not tell which weights sampled a token
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(worker_extension_cls=EXTENSION, **arguments))
    await engine.collective_rpc("repair_rotary")
    experts = arguments.get("enforce_eager") and (await engine.collective_rpc("capture_routes"))[0]
    server = Server(engine, sink, routes=bool(experts))
    await engine.update_weight_version("-1")
    server.say({"said": "ready", "vllm": vllm.__version__})
    tasks = [asyncio.create_task(server.read(inbox)), asyncio.create_task(server.watch())]
    why = await server.failed
    for task in tasks:
        task.cancel()
    return why


def main() -> None:
    source, sink = own_pipes()
    try:
        why = asyncio.run(serve(json.loads(sys.argv[1]), source, sink))
    except Exception as error:  # noqa: BLE001 - whatever it is, the client gets it before this process ends
        why = f"{type(error).__name__}: {error}"
    sink.write(json.dumps({"said": "failed", "why": why}) + "\n")
    sink.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
