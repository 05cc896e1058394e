"""The real vLLM, in a separate Python: its tokens and logprobs compared with our own engine and the trainer's forward, weights swapped in flight,
and its death. Needs ETUDE_VLLM_PYTHON (docs/vllm.md)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from vllm_lab import CHECKPOINT, collect, settings, vllm_python

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import Completion, SampledTokens
from etude.learn.engine.core import EngineCore
from etude.learn.engine.probe import ProbeMismatch, compare, probe_prompts
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.child import EngineGone
from etude.learn.engine.vllm.service import VllmService
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

PROMPTS = probe_prompts(768)
COUNT = 48  # tokens that a probe samples after each
# In float32 on CPUs: the order of sums, and rarely an expert that falls on the other side.
MAX_K3, MAX_P99 = 1e-7, 1e-3
OWNER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from vllm_lab import CHECKPOINT, settings
from etude.learn.engine.vllm.service import VllmService
from etude.learn.weights.store import WeightStore
folder = Path(sys.argv[2])
service = VllmService(CHECKPOINT, WeightStore(folder / "weights"), settings(sys.argv[1]), folder / "vllm")
service.stage()
service.apply()
print("serves", flush=True)
sys.stdin.read()
"""


class World:
    """vLLM over a store that begins with the committed checkpoint."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.folder = folder
        self.model = load_checkpoint(CHECKPOINT)
        self.publisher = Publisher(WeightStore(folder / "weights"), anchor_every=25)
        self.publisher.publish(self.model.state_dict(), 0)
        self.publisher.join("vllm")
        self.version, self.asked = 0, 0
        self.service = VllmService(
            CHECKPOINT, self.publisher.store, settings(vllm_python(), **changes), folder / "vllm"
        )
        self.serve()

    def serve(self) -> None:
        self.stage()
        self.apply()

    def stage(self) -> None:
        assert self.service.stage() == self.version

    def apply(self) -> None:
        assert self.service.apply() == self.version
        self.publisher.acknowledge("vllm", self.version)

    def learn(self) -> None:
        """Weights that say something else, as the next version."""
        torch.manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter += 0.02 * parameter.std() * torch.randn_like(parameter) if parameter.numel() > 1 else 0
        self.version += 1
        self.publisher.publish(self.model.state_dict(), self.version)

    def submit(self, name: str, count: int = COUNT, temperature: float = 1.0) -> range:
        """Every prompt, in sessions of this name; the numbers of the turns."""
        numbers = range(self.asked, self.asked + len(PROMPTS))
        self.asked += len(PROMPTS)
        asked = [
            (n, Request(f"{name}-{n}", (), prompt_ids=prompt, max_tokens=count, temperature=temperature, seed=n))
            for n, prompt in zip(numbers, PROMPTS, strict=True)
        ]
        self.service.submit_many("me", asked)
        return numbers

    def sample(self, name: str, **options: float) -> list[tuple[tuple[int, ...], SampledTokens]]:
        numbers = self.submit(name, **options)  # type: ignore[arg-type]
        return sampled(collect(self.service, len(PROMPTS)), numbers)


def sampled(found: dict[int, Completion], numbers: range) -> list[tuple[tuple[int, ...], SampledTokens]]:
    return [(prompt, found[n].tokens) for n, prompt in zip(numbers, PROMPTS, strict=True)]  # type: ignore[misc]


def print_mismatch(what: str, found: ProbeMismatch) -> ProbeMismatch:
    print(f"{what}: mean k3 {found.mean_k3:.2e}, p99 of |dlogp| {found.p99_dlogp:.2e}, max {found.max_dlogp:.2e}")
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("vllm"))
    yield made
    made.service.close()


def test_logprobs_are_those_of_the_trainers_forward_and_greedy_tokens_those_of_our_engine(world):
    found = print_mismatch("same weights", compare(world.model, world.sample("probe")))
    assert found.tokens == len(PROMPTS) * COUNT
    assert found.mean_k3 <= MAX_K3 and found.p99_dlogp <= MAX_P99
    greedy = world.sample("greedy", temperature=0.0)
    assert [tokens.ids for _, tokens in greedy] == ours(world.model)


def test_logprobs_are_of_the_distribution_that_was_sampled_from(world):
    """At half the temperature: those of the logits doubled."""
    prompt, tokens = world.sample("cool", temperature=0.5)[0]
    ids = torch.tensor([list(prompt) + tokens.ids])
    with torch.inference_mode():
        logprobs = (world.model(ids).logits[0].float() / 0.5).log_softmax(-1)
    at = torch.arange(len(prompt) - 1, len(prompt) - 1 + COUNT)
    assert torch.allclose(logprobs[at, torch.tensor(tokens.ids)], torch.tensor(tokens.logprobs), atol=MAX_P99)


def test_the_same_seed_gives_the_same_tokens_and_another_gives_others(world):
    prompt = PROMPTS[0]
    for number, seed in ((1000, 5), (1001, 5), (1002, 6)):
        request = Request(f"seed-{number}", (), prompt_ids=prompt, max_tokens=COUNT, seed=seed)
        world.service.submit_many("me", [(number, request)])
    found = collect(world.service, 3)
    assert found[1000].tokens.ids == found[1001].tokens.ids != found[1002].tokens.ids


def ours(model: CausalLM) -> list[list[int]]:
    """Greedy tokens of our own engine."""
    core = EngineCore(model, EngineSettings())
    tickets = [
        core.submit(Request(f"own-{n}", (), prompt_ids=prompt, max_tokens=COUNT, temperature=0.0))
        for n, prompt in enumerate(PROMPTS)
    ]
    done = {}
    while core.busy:
        done.update(core.step())
    return [done[ticket].tokens.ids for ticket in tickets]


def test_a_swap_in_flight_stamps_every_token_and_new_sessions_speak_with_the_new_weights_alone(world):
    old = load_checkpoint(CHECKPOINT)
    old.load_state_dict(world.model.state_dict())
    before = world.version
    began = time.monotonic()
    world.sample("cached", count=200)  # whatever vLLM may keep of these prompts is of the old weights
    pace_s = (time.monotonic() - began) / 200
    world.learn()
    world.stage()
    numbers = world.submit("flight", 800)
    time.sleep(100 * pace_s)  # an eighth of the way, however quick this machine is
    world.apply()
    flight = sampled(collect(world.service, len(PROMPTS)), numbers)
    for prompt, tokens in flight:
        assert set(tokens.versions) == {before, before + 1} and tokens.versions == sorted(tokens.versions)
        first = [(prompt, head(tokens, tokens.versions.count(before)))]
        assert compare(old, first).p99_dlogp <= MAX_P99, "tokens stamped old are the old weights'"
    copy = load_checkpoint(world.folder / "vllm" / "copy")
    assert state_digest(copy.state_dict()) == state_digest(world.model.state_dict())
    fresh = world.sample("fresh")
    assert compare(old, fresh).mean_k3 > 1e-4, "the weights differ, or this shows nothing"
    found = print_mismatch("after a swap in flight", compare(world.model, fresh))
    assert found.mean_k3 <= MAX_K3 and found.p99_dlogp <= MAX_P99
    assert [tokens.ids for _, tokens in world.sample("greedy again", temperature=0.0)] == ours(world.model)


def test_a_prompt_cached_under_old_weights_is_reused_by_its_own_session_alone_once_they_are_swapped(world):
    prompt = tuple(range(3, 203))

    def ask(session: str, ids: tuple[int, ...] = prompt) -> Completion:
        world.service.submit_many("me", [(1, Request(session, (), prompt_ids=ids, max_tokens=16, seed=1))])
        return collect(world.service, 1)[1]

    first = ask("first")
    assert first.usage.cached_tokens == 0 and ask("twin").usage.cached_tokens > 150
    world.learn()
    world.serve()
    fresh = ask("later")
    assert fresh.usage.cached_tokens == 0 and fresh.tokens is not None and first.tokens is not None
    assert compare(world.model, [(prompt, fresh.tokens)]).p99_dlogp <= MAX_P99
    assert ask("first", prompt + tuple(first.tokens.ids)).usage.cached_tokens > 150, "its own are kept"


def head(tokens: SampledTokens, count: int) -> SampledTokens:
    return SampledTokens(tokens.ids[:count], tokens.logprobs[:count], tokens.versions[:count])


def test_recomputed_caches_make_the_rest_of_a_turn_the_new_weights_own(tmp_path):
    world = World(tmp_path, swap_cache="recompute")
    try:
        world.sample("warm")  # the first steps of a process are slow
        world.learn()
        world.stage()
        numbers = world.submit("flight", 800)
        time.sleep(0.5)
        world.apply()
        flight = sampled(collect(world.service, len(PROMPTS)), numbers)
        assert all(set(tokens.versions) == {0, 1} for _, tokens in flight), [
            set(tokens.versions) for _, tokens in flight
        ]
        for prompt, tokens in flight:
            old = tokens.versions.count(0)
            rest = SampledTokens(tokens.ids[old:], tokens.logprobs[old:], tokens.versions[old:])
            found = compare(world.model, [(prompt + tuple(tokens.ids[:old]), rest)])
            assert found.p99_dlogp <= MAX_P99, found
    finally:
        world.service.close()


@pytest.mark.parametrize("victim", ["etude_vllm_serve.py", "VLLM::EngineCor", "VLLM::Worker"])
def test_whichever_of_its_processes_is_killed_turns_hear_it_and_none_is_left(tmp_path, victim):
    before = traces()
    world = World(tmp_path)
    running = processes(world.service)
    [pid] = [pid for pid, words in running.items() if victim in words]
    world.submit("lost", 900)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineGone):
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            assert not any(isinstance(result, Completion) for _, result in world.service.poll("me", 1.0))
    gone(running)
    left_over(before)


def test_nothing_is_left_where_its_owner_is_killed(tmp_path):
    python, before = vllm_python(), traces()
    Publisher(WeightStore(tmp_path / "weights")).publish(load_checkpoint(CHECKPOINT).state_dict(), 0)
    words = [sys.executable, "-c", OWNER, python, str(tmp_path), str(Path(__file__).parent)]
    owner = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None and owner.stdout.readline() == b"serves\n"
    running = below(owner.pid)
    assert sum("VLLM::" in words for words in running.values()) == 2
    owner.kill()
    owner.wait()
    gone(running)
    left_over(before)


def traces() -> set[Path]:
    """Sockets and shared memory of whatever vLLM is or was there."""
    return {*Path(tempfile.gettempdir()).glob("etude-vllm-*"), *Path("/dev/shm").glob("psm_*")}


def left_over(before: set[Path]) -> None:
    until_s = time.monotonic() + 20
    while left := traces() - before:
        assert time.monotonic() < until_s, left
        time.sleep(0.05)


def processes(service: VllmService) -> dict[int, str]:
    """Of vLLM: command lines by id."""
    pid = service._child._process.pid
    return {pid: words_of(pid)} | below(pid)


def below(root: int) -> dict[int, str]:
    found: dict[int, str] = {}
    for thread in Path(f"/proc/{root}/task").iterdir():
        for child in (thread / "children").read_text().split():
            found |= {int(child): words_of(int(child))} | below(int(child))
    return found


def words_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def gone(running: dict[int, str]) -> None:
    """Within seconds; one that is not reaped counts as gone."""
    until_s = time.monotonic() + 20
    while left := [pid for pid in running if Path(f"/proc/{pid}/stat").exists() and not zombie(pid)]:
        assert time.monotonic() < until_s, {pid: running[pid] for pid in left}
        time.sleep(0.05)


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
