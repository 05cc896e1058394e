"""What a person typed wrongly is answered in words, without a traceback, and with no suggestion beyond a few keystrokes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from etude.cli.answer import give
from etude.cli.main import app
from etude.core.spelling import distance
from etude.evaluate.bench.suite import shares
from etude.sandbox.layers.names import SnapshotNames

ROOT: Any = typer.main.get_command(app)
# They serve until they are stopped, work without a bound on other people's data, or repeat another group.
UNBOUNDED = {"agent", "agents", "capture", "index", "sandbox layers import", "sessions", "tasks import", "tasks make"}


def verbs(command: Any = ROOT, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in command.commands.items():
        if hasattr(inner, "commands"):
            yield from verbs(inner, (*words, name))
        else:
            yield (*words, name), inner


VERBS = dict(verbs())
Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Run a command line; its exit status and what it printed to stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> tuple[int, str]:
        code = give(lambda: app(list(words), standalone_mode=False), as_json=False, words=words)
        return code, capfd.readouterr().err

    return run


def test_an_option_that_no_verb_has_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    for words, verb in VERBS.items():
        if verb.context_settings.get("ignore_unknown_options"):  # what follows is another program's
            continue
        code = parsed(words, "--no-such-option-anywhere")
        said = capfd.readouterr().err
        assert code != 0 and said == "error: No such option: --no-such-option-anywhere\n", (words, said)


def test_every_option_takes_or_refuses_any_value_in_words(capfd: pytest.CaptureFixture[str]) -> None:
    """Parsed and not run: what a verb makes of a value that its type takes is another question."""
    for words, verb in VERBS.items():
        for option in (one for one in verb.params if one.param_type_name == "option" and not one.is_flag):
            for value in ("", "no/such", "-1", "nan", "1e999", "\x00", "é\udce9", "²"):
                parsed(words, option.opts[0], value)
    assert "Traceback" not in capfd.readouterr().err


def parsed(words: tuple[str, ...], *given: str) -> int:
    """The exit status of a command line that is read, and not carried out."""
    return give(lambda: VERBS[words].make_context(words[-1], [*given]), as_json=False)


@pytest.mark.nightly
@pytest.mark.parametrize("value", ["no/such/thing", "é\udce9", ""])
@pytest.mark.parametrize(
    "words",
    [words for words in VERBS if not {words[0], " ".join(words[:2]), " ".join(words)} & UNBOUNDED],
    ids=" ".join,
)
def test_a_verb_given_nonsense_for_everything_it_requires_answers_in_words(
    words: tuple[str, ...], value: str, say: Say
) -> None:
    needed = [one for one in VERBS[words].params if one.required or one.param_type_name == "argument"]
    if not needed:
        pytest.skip("requires nothing")
    given = [word for one in needed for word in ([one.opts[0], value] if one.param_type_name == "option" else [value])]
    _, said = say(*words, *given)
    assert "Traceback" not in said, said


@pytest.mark.parametrize("typed", ["help", "init", "train", "eval", "deploy", "push", "ps"])
def test_a_word_that_is_no_slip_of_a_verb_gets_no_suggestion(typed: str, say: Say) -> None:
    code, said = say(typed)
    assert code != 0 and f"No such command '{typed}'." in said and "--help lists the commands" in said
    assert "mean" not in said


@pytest.mark.parametrize(("typed", "meant"), [("rum", "run"), ("benhc", "bench"), ("docter", "doctor")])
def test_a_slip_of_a_verb_is_recognised(typed: str, meant: str, say: Say) -> None:
    assert f"Did you mean {meant}?" in say(typed)[1] and distance(typed, meant) <= 2


def test_a_slip_of_an_option_is_recognised_and_a_distant_one_is_not(say: Say) -> None:
    assert "(Possible options: --json)" in say("doctor", "--jsno")[1]
    assert say("doctor", "--jupyter")[1] == "error: No such option: --jupyter\n"


def test_too_few_tasks_are_one_line_that_names_the_option(capfd: pytest.CaptureFixture[str]) -> None:
    assert give(lambda: shares({"easy": 1.0, "hard": 1.0}, 1), as_json=False) == 1
    said = capfd.readouterr().err
    assert said.startswith(
        "error: 1 tasks are too few for 2 levels: ask for 2 or more (bench.tasks, in `etude bench run` --tasks)"
    )
    assert said.count("\n") == 1


def test_only_a_value_error_that_our_own_code_raises_has_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """One that Python raises is a fault of ours, and the person who reports it needs the place."""
    ours: dict[str, Any] = {"__name__": "etude.somewhere"}
    exec("def stated(): raise ValueError('3 is too few')\ndef fault(): int('x')", ours)
    assert give(ours["stated"], as_json=False) == 1
    assert capfd.readouterr().err == "error: 3 is too few\n"
    assert give(ours["fault"], as_json=False) == 1
    assert "Traceback" in capfd.readouterr().err


def test_what_can_not_be_the_name_of_an_image_names_none(tmp_path: Path) -> None:
    for name in ("é\udce9", "", ".", "..", "a\0b", "../x"):
        assert not SnapshotNames(tmp_path).take(name)
    assert os.listdir(tmp_path) == []
