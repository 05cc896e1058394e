"""A question is mined only where something that was looked up occurs in the edit, and could not have been known."""

from etude.core.trace.entry import SessionHeader
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Recorder
from etude.learn.corpus.fresh_knowledge import KnowledgeQuestion, knowledge_questions, mine_questions

REQUEST = "make the client retry"
FOUND = "lib/http.py:12 def with_retries(call, attempts=3, wait_s=0.5):"
SPAN = "with_retries(call, attempts=3"
EDIT = {"path": "client.py", "old": "return call()", "new": "return with_retries(call, attempts=3)"}


def session(*calls, verdict=None, name="s"):
    """A session of calls (tool, arguments, result[, failed])."""
    recorder = Recorder(SessionHeader(name))
    recorder.append("message", {"role": "user", "text": REQUEST})
    for number, (tool, arguments, result, *failed) in enumerate(calls):
        call = ToolCall(f"c{number}", tool, arguments)
        recorder.append("completion", {"message": Message("assistant", calls=(call,)).to_json(), "finish": "stop"})
        recorder.append("tool_result", {"call_id": call.id, "name": tool, "text": result, "failed": bool(failed)})
    if verdict is not None:
        recorder.append("verdict", {"score": verdict})
    return recorder.session


SEARCH = ("grep", {"pattern": "retries"}, FOUND)


def test_what_was_searched_for_and_then_written_is_a_question():
    (question,) = mine_questions(session(SEARCH, ("edit", EDIT, "ok")))
    assert question == KnowledgeQuestion("s", REQUEST, "grep retries", SPAN)
    assert question.prompt() == f"Task: {REQUEST}\n\nLooked up: grep retries\nFound and used:"


def test_what_was_read_in_another_file_counts_and_in_the_edited_one_does_not():
    read = ("view", {"path": "lib/http.py"}, FOUND.split(" ", 1)[1])
    (question,) = mine_questions(session(read, ("edit", EDIT, "ok")))
    assert question.looked_for == "view lib/http.py"
    assert not list(mine_questions(session(read, ("edit", EDIT | {"path": "lib/http.py"}, "ok"))))
    assert not list(mine_questions(session(SEARCH, ("edit", EDIT | {"path": "lib/http.py"}, "ok"))))


def test_what_an_edit_took_away_before_was_known():
    away = ("edit", {"path": "other.py", "old": EDIT["new"], "new": "pass"}, "ok")
    assert not list(mine_questions(session(SEARCH, away, ("edit", EDIT, "ok"))))
    assert not list(mine_questions(session(SEARCH, ("edit", EDIT | {"old": EDIT["new"] + " "}, "ok"))))


def test_an_edit_that_failed_or_a_session_that_was_judged_a_failure_teaches_nothing():
    assert not list(mine_questions(session(SEARCH, ("edit", EDIT, "no match", True))))
    assert not list(mine_questions(session((*SEARCH, True), ("edit", EDIT, "ok"))))
    assert not list(mine_questions(session(SEARCH, ("edit", EDIT, "ok"), verdict=0.0)))
    assert list(mine_questions(session(SEARCH, ("edit", EDIT, "ok"), verdict=1.0)))


def test_a_name_alone_or_what_came_later_is_no_answer():
    assert not list(mine_questions(session(SEARCH, ("edit", EDIT | {"new": "with_retries"}, "ok"))))
    assert not list(mine_questions(session(("edit", EDIT, "ok"), SEARCH)))


def test_equal_questions_are_asked_once_and_the_draw_is_the_seed_s():
    same = [session(SEARCH, ("edit", EDIT, "ok"), name=f"s{n}") for n in range(3)]
    assert [question.session for question in knowledge_questions(same, 10, 0)] == ["s0"]
    other = [session(("grep", {"pattern": f"p{n}"}, FOUND), ("edit", EDIT, "ok")) for n in range(20)]
    drawn = knowledge_questions(other, 5, 0)
    assert len(drawn) == 5 and drawn == knowledge_questions(other, 5, 0) != knowledge_questions(other, 5, 1)
