"""A session sees the shared index with its own edits, exactly, and no other session's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.agent.code_index import overlay as overlays
from etude.agent.code_index.errors import IndexRefused
from etude.agent.code_index.search import MOST_HITS

BASE = {
    "a.py": "def parse_config(path):\n    return path\n",
    "pkg/b.py": "class Store:\n    def size(self):\n        return 1\n",
    "pkg/c.js": "function retryPolicy(value) {\n  return value;\n}\n",
    "notes.md": "# Needle\n\nHow to parse a config file.\n",
}
QUESTIONS = ["parse config file", "retry_policy", "class Store size", "needle", "return value"]
contents = st.sampled_from([*BASE.values(), "needle = 1\n", "\0", "", None])
puts = st.lists(st.dictionaries(st.sampled_from([*BASE, "new.py", "pkg/new.py"]), contents, min_size=1), max_size=6)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=st.lists(
        st.dictionaries(st.sampled_from(sorted(BASE)), st.sampled_from(sorted(BASE.values())), min_size=1),
        min_size=1,
        max_size=3,
    ),
    changes=puts,
)
def test_an_overlay_equals_an_index_built_from_scratch_with_the_changes(
    fresh_lab: Callable, base: list, changes: list
) -> None:
    lab = fresh_lab()
    for files in base:  # several updates: dead files and segments of their own
        lab.write(files)
        index = lab.built()
    overlay = index.overlay()
    for files in changes:
        overlay.put(files)
        lab.write({path: text for path, text in files.items() if text is not None or (lab.root / path).exists()})
    scratch = lab.built("scratch")
    for question in QUESTIONS:
        assert overlay.search(question, limit=MOST_HITS) == scratch.search(question, limit=MOST_HITS)


def test_sessions_do_not_see_each_other_and_the_base_sees_neither(lab) -> None:
    lab.write(BASE)
    index = lab.built()
    one, two = index.overlay(), index.overlay()
    one.put({"a.py": "def frobnicate():\n    return 1\n"})
    two.put({"a.py": None})
    assert [hit.path for hit in one.search("frobnicate")] == ["a.py"]
    assert not two.search("frobnicate") and not index.search("frobnicate")
    assert [hit.path for hit in index.search("parse_config")][0] == "a.py"
    assert "a.py" not in {hit.path for hit in two.search("parse_config")}


def test_an_overlay_is_pinned_while_the_base_goes_on(lab) -> None:
    lab.write(BASE)
    index = lab.built()
    overlay = index.overlay()
    before = overlay.search("needle config")
    lab.write({"a.py": "needle = config\n", "notes.md": None})
    index.update(workers=1)
    assert overlay.search("needle config") == before != index.search("needle config")


def test_a_file_put_back_as_it_was_is_no_change(lab) -> None:
    lab.write(BASE)
    overlay = lab.built().overlay()
    overlay.put({"a.py": "x = 1\n", "new.py": "y = 1\n"})
    assert overlay.changed == ["a.py", "new.py"]
    overlay.put({"a.py": BASE["a.py"], "new.py": None})
    assert overlay.changed == []


def test_what_is_not_indexed_of_a_put_is_reported(lab) -> None:
    lab.write(BASE)
    overlay = lab.built().overlay()
    refused = overlay.put({"a.py": b"\0", "b.txt": b"x" * (2 << 20), "pkg/b.py": "", "./c.py": "ok = 1\n"})
    assert refused == {"a.py": "binary", "b.txt": "too large", "pkg/b.py": "empty"}
    assert not overlay.search("parse_config", under="c.py") and overlay.search("ok")[0].path == "c.py"


@pytest.mark.parametrize("path", ["", ".", "../a.py", "/etc/passwd", "a\nb", "\ud800"])
def test_paths_that_no_file_of_the_base_could_have_are_refused(lab, path: str) -> None:
    lab.write(BASE)
    with pytest.raises(IndexRefused):
        lab.built().overlay().put({path: "x"})


def test_a_session_that_puts_a_whole_build_is_refused(lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlays, "MOST_FILES", 3)
    lab.write(BASE)
    overlay = lab.built().overlay()
    overlay.put({"x.py": "x\n", "y.py": "y\n"})
    with pytest.raises(IndexRefused, match="more than 3 changed files"):
        overlay.put({"z.py": "z\n", "w.py": "w\n"})
    assert overlay.changed == ["x.py", "y.py"]


def test_two_hundred_sessions_share_one_base(lab) -> None:
    lab.write({f"f{n}.py": BASE["pkg/b.py"] + f"x{n} = {n}\n" for n in range(200)})
    index = lab.built()
    sessions = [index.overlay() for _ in range(200)]
    for n, overlay in enumerate(sessions):
        overlay.put({"f0.py": f"def frobnicate_{n}():\n    return {n}\n"})
    for n, overlay in enumerate(sessions):
        assert overlay.search(f"frobnicate_{n}", limit=1)[0].path == "f0.py"
    bases = {id(part.segment) for overlay in sessions for part in overlay.view.parts[:-1]}
    assert len(bases) == 1
