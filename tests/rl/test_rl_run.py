"""The whole rl stage with real sandboxes, a real engine and a real trainer on a tiny random model, without Ray: the same
`drive`, with processes that are threads and die on demand (promises 3, 5, 6, 7, 8)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from recording import RecordingObserver
from run_in_threads import TINY, a_run, check_whole, live

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.harness.replay import ReplayDifference, replay
from etude.core.trace.entry import Entry
from etude.core.trace.gap_file import read_gaps
from etude.core.trace.reader import read_session
from etude.core.trace.segment import Rollout
from etude.core.trace.session import Session
from etude.evaluate.report.query.tables import find
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.checkpoint import save_checkpoint
from etude.learn.model.init import new_model
from etude.pipeline.run.harder_tasks import HarderTaskServices
from etude.rl.baseline import RunningMeans
from etude.rl.controller import StepResult
from etude.rl.groups import RolloutGroup
from etude.rl.ledger import RlLedger, fold
from etude.rl.restarts import Lifeline, ProcessDied, ProcessLost
from etude.rl.rewards.alarms import REFERENCE
from etude.rl.run_context import RunContext
from etude.rl.schedule import task_list
from etude.rl.sessions import KeptSessions
from etude.rl.step_follower import StepFollower
from etude.rl.steps import StepRecord, alarms_of, append, read
from etude.rl.store import GroupStore
from etude.rl.training_run import HARDER
from etude.sandbox.pool import open_pool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.generate.harder_tasks.variants import ExerciseVariants


def test_sessions_of_rollouts_replay_byte_for_byte(checkpoint, tmp_path):
    run = a_run(checkpoint, tmp_path, steps=1)
    live(run)
    renderer = NanoRenderer.load(checkpoint)

    async def again(session: Session) -> ReplayDifference | None:
        pool = await open_pool(run.sandbox)
        try:
            files = {path: text.encode() for path, text in run.source.task(session.header.task_id).files.items()}
            return await replay(session, await pool.create(SandboxSpec(files=files)), renderer=renderer)
        finally:
            await pool.close()

    found = [asyncio.run(again(read_session(path))) for path in (tmp_path / "sessions").rglob("*.jsonl")]
    assert found == [None] * 3


def test_a_run_leaves_policy_figures_and_a_probe_within_its_bars(checkpoint, tmp_path):
    tmp_path /= "rl"
    run = a_run(checkpoint, tmp_path, solvable_tasks=2)
    summary, _ = live(run)
    check_whole(run)
    assert summary["solvable"]["tasks"] == 2 and summary["solvable"]["attempts"] == 8
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    assert summary["mismatch"]["k3"] <= 1e-9 and summary["mismatch"]["p99"] <= 1e-5
    assert summary["mismatch"]["routes_equal"]
    assert summary["counts"]["rollouts"] == 18 and len(summary["curve"]) == 3
    assert summary["counts"]["summarized"] > 0 and summary["counts"]["replayed_tokens"] > 0
    assert summary["counts"]["segments"] > summary["counts"]["rollouts"]
    assert sum(summary["counts"]["tokens_by_version"].values()) == summary["counts"]["sampled_tokens"]
    for record in read(tmp_path / "steps.jsonl"):
        for first in range(0, 6, 3):
            assert sum(record.advantages[first : first + 3]) == pytest.approx(0, abs=1e-9)
        for group in record.groups:  # of every sampled token what the trainer's logprob was above the sampler's
            for member, rollout in enumerate(GroupStore(tmp_path / "groups").load(group)):
                gaps = read_gaps(tmp_path / "gaps" / f"{group:06d}.npy", member)
                assert len(gaps) == sum(int(s.sampled.sum()) for s in rollout.segments)
                assert (
                    record.step > 0 or abs(gaps).max(initial=0) < 1e-3
                )  # the first step's tokens are of its own weights
    check_joined(run)
    again, _ = live(run)  # nothing is trained twice
    assert again["counts"] == summary["counts"] and len(read(tmp_path / "steps.jsonl")) == 3


def check_joined(run: RunContext) -> None:
    """Each sequence on disk can be read with its advantage, the step that trained it and its versions, none without."""
    rows = list(find("rollouts").read(run.folder.parent))
    assert len(rows) == run.settings.steps * run.settings.groups_per_step * run.settings.group_size
    for record in read(run.folder / "steps.jsonl"):
        mine = [row for row in rows if row["step"] == record.step]
        assert [row["advantage"] for row in mine] == record.advantages
        assert all(record.step - run.settings.max_staleness <= row["admitted_version"] for row in mine)
        assert all(
            row["admitted_version"] <= row["oldest_version"] <= row["newest_version"] <= record.step for row in mine
        )


def test_a_chain_of_segments_is_one_member_with_one_advantage_and_its_summaries_are_sampled(checkpoint, tmp_path):
    run = a_run(checkpoint, tmp_path, steps=1)
    summary, _ = live(run)
    store, (record,) = GroupStore(tmp_path / "groups"), read(tmp_path / "steps.jsonl")
    assert len(record.advantages) == len(record.groups) * run.settings.group_size < record.values["segments"]
    checked = 0
    for path in sorted((tmp_path / "sessions").glob("step-*/*.jsonl")):
        session, (group, member) = read_session(path), map(int, path.stem.split("-"))
        sampled = [segment.ids[segment.sampled].tolist() for segment in store.load(group)[member].segments]
        entries = [entry for entry in session.entries if entry.type in ("message", "completion")]
        for before, entry in zip(entries, entries[1:], strict=False):
            if before.data.get("summary") and entry.type == "completion":
                assert entry.tokens is not None
                said = entry.tokens.ids[entry.tokens.lead : entry.tokens.lead + len(entry.tokens.logprobs)]
                assert (
                    said and sampled[segment_of(session, entry)][-len(said) :] == said
                )  # the last that its segment says
                checked += 1
    assert checked > 0 and summary["counts"]["summaries"] >= checked
    counts = [summary["counts"][name] for name in ("summaries", "broken_summaries", "summary_tokens")]
    assert (
        counts == [record.values[name] for name in ("summaries", "broken_summaries", "summary_tokens")]
        and counts[1] <= counts[0]
    )


def segment_of(session: Session, entry: Entry) -> int:
    """The segment that an entry ends: summaries before it."""
    return sum(one.type == "summary" and one.id < entry.id for one in session.entries)


@pytest.mark.nightly
def test_draft_layers_keep_up_with_the_policy(checkpoint, tmp_path):
    """Engines draft with the newest; and the trainer's death in the midst of it changes no bit: the run compares the digests."""
    run = a_run(checkpoint, tmp_path, drafts={"every": 1})
    summary, _ = live(replace(run, engine=EngineSettings(draft_tokens=1)), trainer={"train": 2})
    check_whole(run)
    assert summary["times"]["restarts"] == 1 and summary["mismatch"]["k3"] <= 1e-9
    assert all(0 <= point["draft_acceptance_1"] <= 1 and point["draft_loss"] > 0 for point in summary["curve"])
    assert 0 <= summary["times"]["engine_acceptance_1"] <= 1


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "die_at",
    [
        {"engine": {"poll": 5}},
        {"engine": {"stage": 2}},
        {"engine": {"apply": 3}},
        {"trainer": {"train": 3}},
        {"trainer": {"publish": 3}},
        {"trainer": {"publication_cost": 3}},
        {"trainer": {"acknowledge": 2}},
    ],
    ids=str,
)
def test_a_process_that_dies_comes_back_and_the_run_is_whole(checkpoint, tmp_path, die_at):
    run = a_run(checkpoint, tmp_path)
    summary, _ = live(run, **die_at)
    assert summary["times"]["restarts"] == 1
    check_whole(run)


@pytest.mark.sample(1)
@pytest.mark.parametrize("die_at", [{"poll": 5}, {"stage": 3}, {"apply": 4}, {"submit_many": 4}], ids=str)
def test_one_of_two_engines_dies_and_the_run_is_whole(checkpoint, tmp_path, die_at):
    run = a_run(checkpoint, tmp_path, engines=2, steps=4)
    summary, places = live(run, engine=die_at)
    assert summary["times"]["restarts"] == 1 and len(places.engines) == 3
    check_whole(run)


@pytest.mark.nightly
def test_an_engine_that_died_too_often_is_given_up_while_another_lives(checkpoint, tmp_path):
    run = a_run(checkpoint, tmp_path, engines=2, max_restarts=0, steps=4)
    live(run, engine={"stage": 3})
    check_whole(run)
    notes = (tmp_path / "events.jsonl").read_text()
    assert "is given up, 1 go on: the engine" in notes
    deltas = [record.values["delta_bytes"] for record in read(tmp_path / "steps.jsonl")]
    assert all(size > 0 for size in deltas[-2:])  # the chain waits for it no longer


@pytest.mark.nightly
def test_a_process_that_keeps_dying_stops_the_run_which_goes_on_when_run_again(checkpoint, tmp_path):
    run = a_run(checkpoint, tmp_path, max_restarts=0, eval_every=1, eval_tasks=1, save_every=3)
    with pytest.raises(ProcessLost, match="the trainer process died 1 times"):
        live(run, trainer={"train": 3})
    assert fold(RlLedger(tmp_path / "ledger.jsonl").entries).next_step >= 1
    before = read(tmp_path / "steps.jsonl")[0]  # of the second step the version may still have been on its way
    assert {"eval_pass_rate", "delta_bytes", "wait_s", "train_s"} <= before.values.keys()
    live(run)
    check_whole(run)
    assert read(tmp_path / "steps.jsonl")[0] == before  # trained again, for the next one's sake, but not measured again


def test_only_a_step_killed_before_its_line_gets_one_when_it_is_trained_again(tmp_path):
    run = a_run(tmp_path / "none", tmp_path, eval_every=1)
    recorded = StepRecord(0, [0], {"eval_pass_rate": 0.5, "delta_bytes": 80_863.0}, {}, [{"outcome": 0.0}], [0.0])
    append(tmp_path / "steps.jsonl", recorded)
    follower = StepFollower(run, None, KeptSessions(tmp_path / "sessions", run.settings, []), None)  # type: ignore[arg-type]
    group = RolloutGroup(0, "t", 1, -1, {0: Rollout("r", "t", 0, [], {"outcome": 1.0})})
    for step in (0, 1):
        asyncio.run(follower.on_replay(StepResult(step, "digest", [{"outcome": 1.0}], [0.5]), [group]))
    first, second = read(tmp_path / "steps.jsonl")
    assert first == recorded
    assert second.values["pass_rate"] == 1.0 and second.advantages == [0.5]
    assert "eval_pass_rate" not in second.values  # no engine serves yet: a figure would be made up


def test_the_pass_rate_of_a_step_counts_the_groups_that_were_set_aside(tmp_path):
    run = a_run(tmp_path / "none", tmp_path)
    follower = StepFollower(run, None, KeptSessions(tmp_path / "sessions", run.settings, []), None)  # type: ignore[arg-type]
    trained, failed = (
        RolloutGroup(number, "t", 2, -1, {i: Rollout(f"{number}{i}", "t", number, [], {"outcome": outcome}) for i, outcome in enumerate(outcomes)})
        for number, outcomes in enumerate([[1.0, 0.0], [0.0, 0.0]])
    )  # fmt: skip
    follower.on_set_aside(failed)
    for step in (0, 1):
        asyncio.run(
            follower.on_replay(StepResult(step, "digest", [{"outcome": 1.0}, {"outcome": 0.0}], [0.5, -0.5]), [trained])
        )
    first, second = (record.values for record in read(tmp_path / "steps.jsonl"))
    assert (first["pass_rate"], first["uniform_groups"], first["set_aside"]) == (0.25, 0.5, 1)
    assert (second["pass_rate"], second["uniform_groups"], second["set_aside"]) == (0.5, 0, 0)


def test_an_alarm_stands_in_its_step_with_its_cause_and_reaches_the_summary(tmp_path):
    run = a_run(tmp_path / "none", tmp_path)
    follower = StepFollower(run, None, KeptSessions(tmp_path / "sessions", run.settings, []), None)  # type: ignore[arg-type]
    group = RolloutGroup(0, "t", 1, -1, {0: Rollout("r", "t", 0, [], {"outcome": 1.0})})
    for step in range(40):  # apart from the outcome there is suddenly a reward, and as much is solved as before
        found = StepResult(step, "digest", [{"outcome": 1.0, "todos": 0.0 if step < REFERENCE else 0.5}], [0.5])
        asyncio.run(follower.on_replay(found, [group]))
    (alarm,) = alarms_of(read(tmp_path / "steps.jsonl"))
    assert REFERENCE < alarm["step"] < 40
    assert str(alarm["text"]).startswith("reward_without_outcome: extra 0 -> ")


class Life:
    def __init__(self, number: int) -> None:
        self.number, self.ended = number, False

    def kill(self) -> None:
        self.ended = True


@pytest.mark.parametrize("deaths", range(4))
async def test_dying_while_it_is_brought_back_is_one_more_death_within_the_same_bound(deaths):
    lives = []

    async def spawn(generation):
        lives.append(generation)
        if 2 <= len(lives) <= 1 + deaths:
            raise ProcessDied(f"killed at restore {len(lives)}")
        return Life(generation)

    observer = RecordingObserver()
    line = Lifeline("trainer", spawn, 3, observer)
    await line.start()
    first = line.handle
    if deaths < 3:
        await asyncio.gather(*(line.revive(0, "killed at train") for _ in range(3)))  # an observer of its death
        assert (line.generation, line.handle.number, line.restarts) == (1, 1, 1 + deaths)
        assert first.ended and not line.handle.ended and len(observer.notes) == 1 + deaths
    else:
        with pytest.raises(ProcessLost, match="died 4 times, the last time with: killed at restore 4"):
            await line.revive(0, "killed at train")
    assert lives == [0] + [1] * min(3, 1 + deaths)


@pytest.mark.parametrize("deaths", range(1, 5))
async def test_dying_before_it_was_ever_ready_is_one_death_within_the_same_bound(deaths):
    lives = []

    async def spawn(generation):
        lives.append(generation)
        if len(lives) <= deaths:
            raise ProcessDied(f"killed while it loaded, {len(lives)}")
        return Life(generation)

    line = Lifeline("engine", spawn, 3, RecordingObserver())
    if deaths <= 3:
        await line.start()
        assert (line.generation, line.handle.number, line.restarts) == (1, 1, deaths)
    else:
        with pytest.raises(ProcessLost, match="died 4 times, the last time with: killed while it loaded, 4"):
            await line.start()


def test_the_synchronous_baseline_trains_on_fresh_rollouts_only(checkpoint, tmp_path):
    run = a_run(checkpoint, tmp_path, mode="sync", steps=2)
    summary, _ = live(run)
    check_whole(run)
    assert summary["staleness"]["max"] == 0 and summary["counts"]["swapped_in_flight"] == 0


@pytest.mark.nightly
def test_a_mastered_template_is_served_harder_siblings_and_the_schedule_stays(checkpoint: Path, tmp_path: Path) -> None:
    """As after groups that were all solved: the journal of an earlier life says so."""
    run = a_run(checkpoint, tmp_path / "run", harder_above=0.8, keep_sessions=0)
    run = replace(run, harder=HarderTaskServices(run.source, ExerciseVariants()))
    run.folder.mkdir(parents=True)
    (run.folder / HARDER).write_text('{"kind": "depth", "template": "one-bug", "depth": 1, "mean": 0.9}\n')
    live(run)
    ids, store = task_list(run.settings, run.source).task_ids, GroupStore(run.folder / "groups")
    deeper = {f"two-bugs/{i.partition('/')[2]}" if i.startswith("one-bug/") else i for i in ids}
    assert deeper != set(ids)
    assert {rollout.task_id for group in range(len(ids)) for rollout in store.load(group)} == deeper
    shares = [record.values["harder_groups"] for record in read(run.folder / "steps.jsonl")]
    assert sum(shares) * run.settings.groups_per_step == len(deeper - set(ids))


@pytest.mark.nightly
def test_evaluations_run_on_a_lent_engine_at_the_steps_own_version_while_training_goes_on(checkpoint, tmp_path):
    run = a_run(checkpoint, tmp_path, engines=2, eval_every=1, eval_tasks=2)
    summary, _ = live(run)
    check_whole(run)
    records = read(tmp_path / "steps.jsonl")
    assert len(records) == 3 and all("eval_pass_rate" in one.values and one.values["eval_s"] > 0 for one in records)
    lines = [json.loads(line)["step"] for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert sorted(lines) == [0, 0, 1, 1, 2, 2]  # each evaluation came behind its step
    assert summary["steps"] == 3


@pytest.mark.nightly
def test_groups_of_one_are_held_against_what_their_category_earned_also_by_a_trainer_that_came_back(
    checkpoint, tmp_path
):
    single = {"group_size": 1, "groups_per_step": 4, "baseline": "category", "slots": 4, "keep_sessions": 0}
    run = a_run(checkpoint, tmp_path, **single)
    live(
        run, trainer={"train": 3}
    )  # a checkpoint holds two steps; without their means the third would come out otherwise
    store, records = GroupStore(run.folder / "groups"), read(run.folder / "steps.jsonl")
    means = RunningMeans(run.settings.baseline_horizon)
    for record in records:
        rewards = [sum(parts.values()) for parts in record.components]
        categories = [store.load(group)[0].info["category"] for group in record.groups]
        assert record.advantages == means.advantages(rewards, categories)
    assert any(record.advantages != [0.0] * 4 for record in records)


@pytest.mark.nightly
def test_rewards_and_feedback_of_a_killed_run_are_those_of_its_first_life(checkpoint, tmp_path):
    changes = {"todos": {"from_step": 2, "weights": {"broken_calls": 0.1, "unfinished_todos": 0.0}}}
    settings = {"rewards": {"schedule": changes}, "feedback": {"weight": 0.5}, "save_every": 3}
    run = a_run(checkpoint, tmp_path / "rl", **settings)
    live(run, trainer={"train": 3})  # the third step is trained by another process, the first two once more
    records = read(run.folder / "steps.jsonl")
    assert [record.weights.get("broken_calls", 0.0) for record in records] == [0.0, 0.0, 0.1]
    assert ["unfinished_todos" in record.weights for record in records] == [True, True, False]
    rows = [json.loads(line) for line in (run.folder / "mixed.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [row["weights"] for row in rows] == [record.weights for record in records]
    assert all("raw_broken_calls" in record.values and len(record.measured) == 6 for record in records)
    flags = [hint for group in GroupStore(run.folder / "groups").groups() for r in GroupStore(run.folder / "groups").load(group)
             for hint in r.info["hints"]]  # fmt: skip
    assert all(
        r.rewards["quality"] <= 0.0 and r.info["effort"] == "medium" for r in GroupStore(run.folder / "groups").load(0)
    )
    assert flags and sum(record.values.get("feedback_turns", 0.0) for record in records) == len(flags)
    with pytest.raises(ValueError, match="from_step 3 or later"):
        live(a_run(checkpoint, tmp_path / "rl", rewards={"cap": 0.1}, feedback={"weight": 0.5}, save_every=3))


@pytest.mark.nightly
def test_a_model_of_256_experts_trains_on_the_routes_that_its_engine_recorded(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    wide = TINY.model_copy(update={"experts": 256, "moe_intermediate": 4})
    save_checkpoint(new_model(wide, tokenizer.get_vocab_size()), tmp_path / "model", tmp_path)
    summary, _ = live(a_run(tmp_path / "model", tmp_path / "rl", steps=2))
    assert summary["steps"] == 2 and summary["counts"]["replayed_tokens"] > 0
    assert summary["mismatch"]["k3"] <= 1e-9 and summary["mismatch"]["routes_equal"]
