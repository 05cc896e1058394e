"""`model check` on directories that hold anything: a report, and every failure foreseen."""

from __future__ import annotations

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.agent.chat.check import UNFORESEEN, CheckpointReport, check_model
from etude.agent.chat.families import FAMILIES
from etude.agent.chat.family import FamilyRenderer

NAMES = [family.name for family in FAMILIES]
VALUES: list[Any] = [None, True, -1, 1e999, 3, "", "x", "\ud800", [], [[]], {}, {"content": 3}, {"type": "x"}, ["a", 1]]
TEXTS = [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 5000, b'{"a": NaN}', b"{{ x", b"{% for %}"]
FILES = ["tokenizer.json", "config.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"]


def altered(value: Any, draw: random.Random, by: Any, depth: int = 0) -> Any:
    """The value with one of its parts replaced or removed."""
    if isinstance(value, dict) and value and (depth < 1 or draw.random() < 0.8):
        key = draw.choice(sorted(value))
        if draw.random() < 0.2:
            return {other: inner for other, inner in value.items() if other != key}
        return {**value, key: altered(value[key], draw, by, depth + 1)}
    if isinstance(value, list) and value and draw.random() < 0.8:
        place = draw.randrange(len(value))
        return [*value[:place], altered(value[place], draw, by, depth + 1), *value[place + 1 :]]
    return by


def write_directory(folder: Path, tokenizer: str, model_type: str) -> None:
    """A sound directory."""
    texts = {
        "tokenizer.json": tokenizer,
        "config.json": json.dumps({"model_type": model_type, "vocab_size": 9999, "text_config": {"vocab_size": 9999}}),
        "tokenizer_config.json": json.dumps({"bos_token": {"content": "<s>"}, "chat_template": [{"name": "default"}]}),
        "generation_config.json": json.dumps({"eos_token_id": [1, 2]}),
        "chat_template.jinja": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)


def damage(folder: Path, draw: random.Random) -> None:
    """One file lost, cut, replaced or altered, or made a folder."""
    file = folder / draw.choice(FILES)
    if not file.is_file():
        return
    kind, data = draw.randrange(6), file.read_bytes()
    if kind == 0:
        file.unlink()
    elif kind == 1:
        file.write_bytes(data[: draw.randrange(len(data) + 1)])
    elif kind == 2:
        file.write_bytes(draw.choice(TEXTS))
    elif kind == 3 and draw.random() < 0.3:
        file.unlink()
        file.mkdir()
    elif file.suffix == ".json":
        try:
            rows = json.loads(data)
        except ValueError:
            return
        file.write_text(json.dumps(altered(rows, draw, draw.choice(VALUES))))


def unforeseen(report: CheckpointReport) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in report.checks if check.remedy == UNFORESEEN]


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 1 << 32),
    written=st.sampled_from(["qwen3", "llama-3.1", "gemma-3", "mistral", "gpt-oss"]),
    asked=st.sampled_from([None, "nano", "no such family", *NAMES]),
    model_type=st.sampled_from(["", "qwen3", "llama", "gemma3", "deepseek_v3", "nothing"]),
)
def test_no_directory_and_no_family_ends_the_check(
    make_renderer: Callable[..., FamilyRenderer], seed: int, written: str, asked: str | None, model_type: str
) -> None:
    draw = random.Random(seed)
    with TemporaryDirectory() as place:
        folder = Path(place)
        write_directory(folder, make_renderer(written)._tokenizer.serialized, model_type)
        for _ in range(draw.randrange(1, 4)):
            damage(folder, draw)
        report = check_model(folder, asked)
    assert unforeseen(report) == []
    assert report.checks and all(check.state != "failed" or check.remedy for check in report.checks)


def test_what_a_check_does_not_foresee_fails_it_and_is_named() -> None:
    report = CheckpointReport("d")

    def proof() -> str:
        raise LookupError("gone")

    assert not report.run("stop ids", proof) and not report.sound
    assert unforeseen(report) == ["stop ids: LookupError: gone"]
