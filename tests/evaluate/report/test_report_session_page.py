"""A session's page: self-contained, and no text of a session can run or fetch anything."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from html.parser import HTMLParser

from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.session import Recorder, Session
from etude.evaluate.report.session_page import session_page

EVIL = "</style></pre><script>alert(1)</script><img src=x onerror=alert(1)>&\"'\ud800\x1b[31m"


def session() -> Session:
    recorder = Recorder(SessionHeader("s<1>", task_id=EVIL, policy=EVIL, effort="high", recipe={"stage": EVIL}))
    add = recorder.append
    root = add("message", {"role": "user", "text": EVIL}, tokens=EntryTokens([0, 1], 2))
    call = {"id": "c0", "name": EVIL, "arguments": {EVIL: EVIL}}
    said = {"role": "assistant", "text": EVIL, "thinking": EVIL, "calls": [call], "problem": EVIL}
    usage = {"input_tokens": 1234, "cached_tokens": 0, "output_tokens": 5, "seconds": 0.5}
    turn = {"message": said, "usage": usage}
    add("completion", turn, parent=root, tokens=EntryTokens([2, 1, 0], 0, [-0.05, -1.0, -4.0], [3, 3, 4]))
    add("tool_result", {"call_id": "c0", "name": EVIL, "text": EVIL, "failed": True})
    add("message", {"role": "user", "text": EVIL, "delivery": "steer"})
    add("summary", {"number": 1, "text": EVIL, "state": [EVIL]})
    add("foreign", {"foreign": {EVIL: EVIL}})
    add("counters", {"counters": {EVIL: 2.0}})
    add("end", {"reason": "done", "message": EVIL})
    return recorder.session


class Tags(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def test_no_text_of_a_session_becomes_markup_and_nothing_is_fetched() -> None:
    found = Tags(session_page(session(), [EVIL, "b", "c"]))
    assert not {"script", "img", "link", "iframe", "object", "form"} & {*found.tags}
    names = {name for name, _ in found.attributes}
    assert names <= {"lang", "charset", "name", "content", "http-equiv", "class", "title"}, names
    assert found.tags.count("style") == 1


def test_the_policy_allows_the_pages_own_style_alone() -> None:
    page = session_page(session())
    style = re.search(r"<style>(.*?)</style>", page, re.S)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert style and policy
    digest = b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy[1] == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    page.encode("utf-8")  # a lone surrogate would make the file unwritable


def test_results_fold_and_turns_tell_what_they_cost() -> None:
    page = session_page(session())
    assert page.count("<details>") == 4, "thinking, a tool result, a foreign line, the counters"
    assert "turn 1" in page and "1,234 in, 5 out" in page and "user (steer)" in page and "✗ failed" in page
    assert "Tokens</h2>" not in page


def test_tokens_are_shown_only_if_asked_for_coloured_by_doubt() -> None:
    page = session_page(session(), ["<a>", "b", "c"])
    assert 'title="logprob -4.000, version 4">&lt;a&gt;</span>' in page
    assert [page.count(f'class="t d{doubt}"') for doubt in range(4)] == [1, 0, 1, 1]
    assert page.count('class="given"') == 2 and "segment 0: 5 tokens, 3 sampled" in page


def test_a_calls_longer_texts_are_shown_as_they_are() -> None:
    recorder = Recorder(SessionHeader("s"))
    arguments = {"path": "a.py", "new": "def f():\n    return 1\n", "lines": [1, 2]}
    call = {"id": "c", "name": "edit", "arguments": arguments}
    recorder.append("completion", {"message": {"role": "assistant", "text": "", "calls": [call]}})
    recorder.append("edit", {"kind": "change", "path": "a.py", "added": 2, "removed": 1, "hunks": [], "call_id": "c"})
    page = session_page(recorder.session)
    assert "def f():\n    return 1\n</pre>" in page and "</span> [1, 2]" in page
    assert "<summary>change a.py +2 -1</summary>" in page


def test_what_would_reorder_a_line_or_steer_a_terminal_is_spelled_out() -> None:
    recorder = Recorder(SessionHeader("s\u202eevil"))
    hidden = "a\u202eb\u2066c\x1b[31md\x07\r\nend\x9b"
    call = {
        "id": "c",
        "name": hidden,
        "arguments": {"path": hidden, "old": hidden, "new": hidden + "x", "more": {"k": hidden}},
    }
    recorder.append("message", {"role": "user", "text": hidden})
    recorder.append(
        "completion", {"message": {"role": "assistant", "text": hidden, "thinking": hidden, "calls": [call]}}
    )
    recorder.append("tool_result", {"call_id": "c", "name": hidden, "text": hidden, "failed": False})
    recorder.append("undo", {"edits": [1], "paths": [hidden], "by": "user"})
    page = session_page(recorder.session)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    assert "a\\u202eb\\u2066c\\x1b[31md\\x07\nend\\x9b" in page
