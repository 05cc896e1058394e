"""What `etude model check` proves of a checkpoint directory before a model is trained or served from it.

The verdict is about what the harness does: turns read back as they were said, prompts that only ever grow, content that stays
content, malformed turns that are answered. The checkpoint's own template is the measure of the renderer's words.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Sequence

from etude.agent.chat import trajectories
from etude.agent.chat.families import UnknownFamily
from etude.agent.chat.family import FamilyRenderer
from etude.agent.chat.files import read_json, read_template
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.load import NANO, family_of, load_renderer, read_config
from etude.agent.chat.parity import template_differences
from etude.agent.chat.renderer import Renderer
from etude.core.trace.message import Message

# Enough draws to meet every kind of damage many times; all of them take about a second.
MALFORMED_DRAWS = 300
# The remedy for a failure that no check foresees.
UNFORESEEN = "report it with the directory's files: this check must name what is wrong with them"


class CheckFailed(Exception):
    """A check that found something; `remedy` says what to do."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found)
        self.remedy = remedy


class CheckSkipped(Exception):
    """A check that has nothing to look at here; says why."""


class Incomplete(CheckFailed):
    """What keeps no model from being trained or served here, and is missing elsewhere."""


@dataclass(frozen=True)
class CheckpointCheck:
    """One proof. `state` is ok, failed, skipped or incomplete."""

    name: str
    state: str
    detail: str
    remedy: str = ""


@dataclass
class CheckpointReport:
    """All checks of one directory."""

    folder: str
    family: str = ""
    checks: list[CheckpointCheck] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return all(check.state != "failed" for check in self.checks)

    def run(self, name: str, proof: Callable[[], str]) -> bool:
        """Record one proof, which returns what it saw; False if it failed."""
        try:
            self.checks.append(CheckpointCheck(name, "ok", proof()))
        except CheckSkipped as skipped:
            self.checks.append(CheckpointCheck(name, "skipped", str(skipped)))
        except CheckFailed as failed:
            state = "incomplete" if isinstance(failed, Incomplete) else "failed"
            self.checks.append(CheckpointCheck(name, state, str(failed), failed.remedy))
        except (UnknownFamily, ValueError, OSError) as error:
            self.checks.append(CheckpointCheck(name, "failed", str(error), "see the message"))
        except Exception as error:  # noqa: BLE001 - the files are foreign: what they provoke fails this check and no other
            self.checks.append(CheckpointCheck(name, "failed", f"{type(error).__name__}: {error}", UNFORESEEN))
        return self.checks[-1].state != "failed"


@dataclass(frozen=True)
class CheckpointFormat:
    """What is checked."""

    folder: Path
    tokenizer: HubTokenizer
    renderer: Renderer
    answers: list[Message]
    tools: tuple[dict[str, Any], ...]
    markers: tuple[str, ...]


def check_model(folder: Path, family: str | None = None) -> CheckpointReport:
    """Every check of a directory; those that need what failed before are left out."""
    report = CheckpointReport(str(folder))
    report.run("files", lambda: _files(folder))
    loaded: list[HubTokenizer] = []
    if not report.run("tokenizer", lambda: _tokenizer(folder, loaded)):
        return report
    names: list[str] = []
    if not report.run("family", lambda: _family(folder, loaded[0], family, names)):
        return report
    report.family = names[0]
    made: list[CheckpointFormat] = []
    if not report.run("renderer", lambda: _renderer(folder, loaded[0], names[0], made)):
        return report
    for name, proof in PROOFS.items():
        report.run(name, lambda proof=proof: proof(made[0]))
    return report


def _files(folder: Path) -> str:
    """What a checkpoint holds for other programs and people, besides its weights."""
    missing = [
        name
        for name in ("tokenizer_config.json", "generation_config.json", "README.md")
        if not (folder / name).is_file()
    ]
    if read_template(folder) is None:
        missing.append("a chat template (chat_template.jinja)")
    if missing:
        raise Incomplete(
            f"it lacks {', '.join(missing)}",
            "take them from where the checkpoint was published; every stage of a run carries them over",
        )
    return "tokenizer configuration, generation configuration, chat template and model card are here"


def _tokenizer(folder: Path, loaded: list[HubTokenizer]) -> str:
    loaded.append(tokenizer := HubTokenizer.load(folder))
    back = tokenizer.decode(tokenizer.encode(trajectories.CODE))
    if back != trajectories.CODE:
        raise CheckFailed(
            f"text is lost: {trajectories.CODE!r} came back as {back!r}", "use a byte-level or byte-fallback tokenizer"
        )
    return f"{tokenizer.size:,} tokens, lossless on code"


def _family(folder: Path, tokenizer: HubTokenizer, asked: str | None, names: list[str]) -> str:
    names.append(asked or family_of(folder, tokenizer))
    return f"{names[0]} ({'as asked' if asked else 'by its files'})"


def _renderer(folder: Path, tokenizer: HubTokenizer, family: str, made: list[CheckpointFormat]) -> str:
    renderer = load_renderer(folder, family=family)
    markers = tuple(sorted(tokenizer.added)[:12])
    if family == NANO:
        answers, tools = trajectories.nano_turns(markers), trajectories.NANO_TOOLS
    else:
        thinks = isinstance(renderer, FamilyRenderer) and renderer.family.thinks
        answers, tools = trajectories.turns(thinks=thinks, markers=markers), trajectories.TOOLS
    made.append(CheckpointFormat(folder, tokenizer, renderer, answers, tools, markers))
    return f"fingerprint {renderer.fingerprint}"


def _vocabulary(subject: CheckpointFormat) -> str:
    config = read_config(subject.folder)
    inner = config.get("text_config")
    rows = config.get("vocab_size") or (inner.get("vocab_size") if isinstance(inner, dict) else None)
    if rows is None:
        raise CheckSkipped("config.json names no vocab_size")
    if not isinstance(rows, int):
        raise CheckFailed(
            f"config.json has {rows!r} as vocab_size, where the number of rows belongs", "save the checkpoint again"
        )
    if rows < subject.tokenizer.size:
        raise CheckFailed(
            f"the model has {rows:,} rows for {subject.tokenizer.size:,} tokens",
            "extend the checkpoint (`etude tokenizer extend`) or take the tokenizer it was trained with",
        )
    words = subject.tokenizer.words()
    absent = sorted(word for word in _named_marks(subject.folder) if word not in words)
    if rows < subject.tokenizer.size + len(absent):
        raise CheckFailed(
            f"tokenizer_config.json names {', '.join(absent)}, which tokenizer.json lacks: transformers adds it, and the model has no row for it",
            "name tokens of tokenizer.json in tokenizer_config.json",
        )
    padding = rows - subject.tokenizer.size
    return f"{rows:,} rows for {subject.tokenizer.size:,} tokens" + (f", {padding:,} are padding" if padding else "")


def _named_marks(folder: Path) -> set[str]:
    """The special tokens that tokenizer_config.json names, as text."""
    found: set[str] = set()
    for key, value in read_json(folder / "tokenizer_config.json").items():
        word = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(word, str):
            found.add(word)
    return found


def _stop_ids(subject: CheckpointFormat) -> str:
    ends = set(subject.renderer.stop_ids)
    file = subject.folder / "generation_config.json"
    settings = read_json(file) if file.is_file() else read_config(subject.folder)
    named = settings.get("eos_token_id")
    rows = [one for one in (named if isinstance(named, list) else [named]) if one is not None]
    if not all(type(one) is int for one in rows):
        raise CheckFailed(
            f"eos_token_id is {str(named)[:80]}, no number and no list of numbers",
            "take the file from where it was published",
        )
    declared = set(rows)
    words = ", ".join(f"{subject.tokenizer.decode([i])} {i}" for i in sorted(ends))
    if declared and not declared & ends:
        raise CheckFailed(
            f"turns end with {words}, the checkpoint declares {sorted(declared)}",
            "set eos_token_id in generation_config.json to the chat format's end of a turn",
        )
    return words


def _template(subject: CheckpointFormat) -> str:
    differences = template_differences(subject.folder, subject.renderer, subject.tokenizer, subject.answers)
    if differences is None:
        raise CheckSkipped("the directory has no chat template")
    if differences:
        raise CheckFailed(
            differences[0],
            "the checkpoint's template is another than the family's: name the right --family, or do not train "
            "through this renderer",
        )
    family = subject.renderer.family if isinstance(subject.renderer, FamilyRenderer) else None
    if family and (fault := family.fault_of(read_template(subject.folder) or "")):
        raise Incomplete(
            f"the published template is broken: {fault}",
            "train and serve through this renderer; a program that renders by the template loses calls",
        )
    named = f"; {family.differs}" if family and family.differs else ""
    return f"equal ids on all mock conversations{named}"


def _round_trip(subject: CheckpointFormat) -> str:
    made = 0
    for answer in subject.answers:
        ids = subject.renderer.answer(answer, first_call=made)
        turn = subject.renderer.parse(ids, tools=subject.tools, first_call=made)
        if essential_fields(turn) != essential_fields(answer):
            raise CheckFailed(
                f"said {essential_fields(answer)}, read {essential_fields(turn)}",
                "the tokenizer does not fit this family",
            )
        made += len(turn.calls)
    return f"{len(subject.answers)} turns with {made} calls"


def _append_only(subject: CheckpointFormat) -> str:
    exact = steps = 0
    for held, whole, suffix in grow_session(subject.renderer, subject.answers, subject.tools, subject.markers):
        steps += 1
        exact += held == whole
        # A turn may end where the template writes an end of its own: what follows that is the same either way.
        if not any(whole[-len(part) :] == part for part in (suffix, suffix[1:], suffix[2:])):
            at = next(
                (i for i, (a, b) in enumerate(zip(held, whole, strict=False)) if a != b), min(len(held), len(whole))
            )
            raise CheckFailed(
                f"step {steps}: the appended prompt leaves the rendered one at token {at} of {len(whole)}",
                "the renderer does not fit the template: name another --family",
            )
    return f"{steps} steps appended, {exact} of them equal to the whole rendered again"


def _inert(subject: CheckpointFormat) -> str:
    text = trajectories.spellings(subject.markers)
    ids = subject.renderer.render([Message("user", text)], ())
    plain = subject.renderer.render([Message("user", "x")], ())
    known = set(subject.tokenizer.added.values())
    forged = [i for i in ids if i in known]
    if forged != [i for i in plain if i in known]:
        raise CheckFailed("text that spells markers became markers", "report it: content must never forge a role")
    return f"{len(subject.markers)} markers spelt in content stay text"


def _malformed(subject: CheckpointFormat) -> str:
    typed = 0
    draw = random.Random(0)
    spoken = [subject.renderer.answer(answer) for answer in subject.answers]
    for _ in range(MALFORMED_DRAWS):
        turn = subject.renderer.parse(damage_turn(draw, spoken, subject.tokenizer.size), tools=subject.tools)
        if turn.problem is not None and turn.calls:
            raise CheckFailed(f"a turn with a problem kept its calls: {turn}", "report it")
        typed += turn.problem is not None
    return f"{MALFORMED_DRAWS} damaged turns read, {typed} of them malformed"


def _effort(subject: CheckpointFormat) -> str:
    if subject.renderer.at_effort("low") is subject.renderer:
        raise CheckSkipped("the family has no field for effort")
    asked = [Message("user", "x")]
    seen = {tuple(subject.renderer.at_effort(effort).render(asked, ())) for effort in ("low", "medium", "high")}
    if len(seen) < 3:
        raise CheckFailed(f"three efforts give {len(seen)} prompts", "report it")
    return "low, medium and high give prompts of their own"


PROOFS: dict[str, Callable[[CheckpointFormat], str]] = {
    "vocabulary": _vocabulary,
    "stop ids": _stop_ids,
    "template": _template,
    "round trip": _round_trip,
    "append-only": _append_only,
    "inert content": _inert,
    "malformed turns": _malformed,
    "effort": _effort,
}


def essential_fields(message: Message) -> tuple[Any, ...]:
    """What must survive a round trip: formats trim text at its ends, and name calls by themselves."""
    calls = [(call.name, call.arguments) for call in message.calls]
    return message.text.strip(), message.thinking.strip(), calls, message.problem


def grow_session(
    renderer: Renderer, answers: Sequence[Message], tools: Sequence[dict[str, Any]], markers: Sequence[str]
) -> list[tuple[list[int], list[int], list[int]]]:
    """Grow a session turn by turn: (appended prompt, the whole rendered from scratch, what the last bridge appended) of every step.
    Raises Failed where a bridge within a tool cycle can't be proven."""
    called = [answer for answer in answers if answer.calls]
    first, *results = trajectories.trajectory(called, markers)
    messages, held = [*first], renderer.render(first, tools)
    steps: list[tuple[list[int], list[int], list[int]]] = []
    made = 0
    for answer, came in zip(called, results, strict=True):
        ids = renderer.answer(answer, first_call=made)
        turn = renderer.parse(ids, tools=tools, first_call=made)
        new = [Message("tool", m.text, call_id=call.id) for m, call in zip(came, turn.calls, strict=True)]
        bridge = renderer.bridge(turn, ids, new, tools)
        if bridge is None:
            raise CheckFailed(f"the results of turn {len(steps) + 1} can't be appended", "name another --family")
        held = [*held, *ids, *bridge.ids]
        messages += [turn, *new]
        made += len(turn.calls)
        steps.append((held, renderer.render(messages, tools), bridge.ids))
    return steps


def damage_turn(draw: random.Random, spoken: Sequence[list[int]], size: int) -> list[int]:
    """A turn with something wrong: cut, a token lost, doubled, swapped or replaced, two turns crossed, or mere noise."""
    ids = list(draw.choice(spoken))
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(ids)) if ids else 0
        kind = draw.randrange(6)
        if kind == 0:
            ids = ids[:at]
        elif kind == 1:
            ids[at : at + 1] = []
        elif kind == 2:
            ids[at:at] = ids[at : at + 2]
        elif kind == 3:
            ids[at : at + 1] = [draw.randrange(-2, size + 2)]
        elif kind == 4:
            ids = ids[:at] + draw.choice(spoken)[at // 2 :]
        else:
            ids[at:at] = [draw.randrange(size) for _ in range(draw.randint(1, 5))]
    return ids
