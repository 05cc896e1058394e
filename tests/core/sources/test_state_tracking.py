"""State tracking asks for what git says a file became, and counts every character that is off."""

import pytest
from git_lab import commit, git
from hypothesis import given
from hypothesis import strategies as st

from etude.learn.corpus.state_tracking import StateQuestion, state_questions

BODY = "def total(items):\n    out = 0\n    for item in items:\n        out += {}\n    return out\n"
VERSIONS = [BODY.format(f"item * {n}") for n in range(6)]


@pytest.fixture
def repository(tmp_path):
    path = tmp_path / "tool"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    for number, text in enumerate(VERSIONS):
        commit(path, f"2024-01-0{number + 1}", a=text, b=text + "\nx = 1\n", short="x\n" * (number + 1))
    return path


def always(question):
    return True


def test_each_question_is_a_window_of_the_history(repository):
    questions = state_questions(repository, (1, 2, 5, 8), 2, 0, always)
    assert [question.changes for question in questions] == [1, 1, 2, 2, 5, 5]  # nothing changed 8 times
    for question in questions:
        end = "" if question.path == "a.py" else "\nx = 1\n"
        window = [text + end for text in VERSIONS]
        assert "\0".join(question.texts) in "\0".join(window)
    assert {question.path for question in questions[:2]} == {"a.py", "b.py"}  # another file each, and none of two lines


def test_the_draw_is_the_seed_s(repository):
    first = state_questions(repository, (1,), 4, 0, always)
    assert first == state_questions(repository, (1,), 4, 0, always)
    assert any(first != state_questions(repository, (1,), 4, seed, always) for seed in range(1, 5))
    assert len(set(first)) == 4


def test_what_does_not_fit_is_not_asked(repository):
    questions = state_questions(repository, (1,), 4, 0, lambda question: question.path == "b.py")
    assert {question.path for question in questions} == {"b.py"}
    assert state_questions(repository, (1,), 4, 0, lambda question: False) == []


def test_a_folder_without_history_is_distinguished_from_one_without_questions(tmp_path):
    assert state_questions(tmp_path, (1,), 4, 0, always) is None


def test_the_prompt_shows_the_first_version_and_every_change_and_never_the_last_version():
    question = StateQuestion("a.py", tuple(VERSIONS[:4]))
    prompt = question.prompt()
    assert prompt.startswith("a.py, first version:\n```\n" + VERSIONS[0] + "```\n")
    assert prompt.count("+        out += item") == 3 and "Change 3 of 3:" in prompt and VERSIONS[3] not in prompt
    assert prompt.endswith("a.py after change 3:\n```\n") and "diff --git" not in prompt


def test_an_answer_ends_at_the_fence_and_nothing_after_it_counts():
    question = StateQuestion("a.py", (VERSIONS[0], VERSIONS[1]))
    assert question.parse_answer(VERSIONS[1] + "```\nmore") == (VERSIONS[1], True)
    assert question.distance(VERSIONS[1] + "```\nmore") == 0 == question.distance(VERSIONS[1])
    assert question.parse_answer(VERSIONS[1] + "mo") == (VERSIONS[1] + "mo", False)
    assert question.distance("") == len(VERSIONS[1]) - 1 and question.distance("```") == len(VERSIONS[1]) - 1
    assert question.unchanged_distance == 1 == question.distance(VERSIONS[0])


@given(st.text("a`\n", max_size=40))
def test_no_text_closes_its_own_fence(text):
    question = StateQuestion("a.md", ("x\n", text))
    assert question.distance(text + "\n" * (not text.endswith("\n")) + question.fence()) == 0
