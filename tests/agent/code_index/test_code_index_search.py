"""What a search answers, in which order, and what it refuses."""

from __future__ import annotations

import pytest

from etude.agent.code_index.errors import IndexRefused, NotBuilt
from etude.agent.code_index.search import LINES, MOST_HITS, PER_FILE

FILES = {
    "src/config.py": (
        "class ConfigLoader:\n    '''Reads settings.'''\n\n    def load_file(self, path):\n        return path\n\n"
        "    def merge_defaults(self, found):\n        return found\n"
    ),
    "src/net/retry.py": "# How often a request is sent again after a failure.\ndef backoff_seconds(attempt):\n    return 2 ** attempt\n",
    "src/net/http.js": "export class HttpClient {\n  sendRequest(url) {\n    return fetch(url);\n  }\n}\n",
    "tests/test_config.py": "def test_load_file():\n    assert load_file('x')\n",
    "docs/guide.md": "# Configuration\n\nDefaults are merged with what the file says.\n",
}


@pytest.fixture
def index(lab):
    lab.write(FILES)
    return lab.built()


@pytest.mark.parametrize(
    ("query", "path", "symbol"),
    [
        ("ConfigLoader", "src/config.py", "ConfigLoader"),
        ("merge_defaults", "src/config.py", "ConfigLoader.merge_defaults"),
        ("mergeDefaults", "src/config.py", "ConfigLoader.merge_defaults"),
        ("where are defaults merged", "src/config.py", "ConfigLoader.merge_defaults"),
        ("send request", "src/net/http.js", "HttpClient.sendRequest"),
        ("how long to wait before a failed request is sent again", "src/net/retry.py", "backoff_seconds"),
        ("configuration guide", "docs/guide.md", "Configuration"),
    ],
)
def test_names_and_questions_find_their_place(index, query: str, path: str, symbol: str) -> None:
    hit = index.search(query)[0]
    assert (hit.path, hit.symbol) == (path, symbol)


def test_a_hit_says_where_and_what(index) -> None:
    (hit,) = index.search("backoff_seconds", limit=1)
    assert (hit.start_line, hit.end_line, hit.kind, hit.language) == (1, 3, "function", "python")
    assert hit.snippet == FILES["src/net/retry.py"].rstrip() and hit.snippet_line == 1 and hit.score > 0


def test_under_and_language_narrow_the_answer(index) -> None:
    assert {hit.path for hit in index.search("load file config", under="src")} == {"src/config.py"}
    assert {hit.path for hit in index.search("load file config", under="./tests/")} == {"tests/test_config.py"}
    assert {hit.path for hit in index.search("request", under="src/net/http.js")} == {"src/net/http.js"}
    assert {hit.language for hit in index.search("request", language="JavaScript")} == {"javascript"}
    assert index.search("request", language="rust") == []


def test_a_folder_is_no_prefix_of_a_name(lab) -> None:
    lab.write({"pkg/a.py": "needle = 1\n", "pkg2/a.py": "needle = 1\n", "pkg-x/a.py": "needle = 1\n"})
    assert [hit.path for hit in lab.built().search("needle", under="pkg")] == ["pkg/a.py"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"query": ""}, "no word"),
        ({"query": " … !"}, "no word"),
        ({"query": "x", "limit": 0}, "limit is 0"),
        ({"query": "x", "limit": MOST_HITS + 1}, "limit is 201"),
        ({"query": "x", "language": "klingon"}, "'klingon' is unknown; known are python"),
        ({"query": "x", "under": "nowhere"}, "under 'nowhere'; the root has docs, src, tests"),
        ({"query": "x", "under": "../etc"}, "leads out"),
        ({"query": "x", "under": "/etc"}, "leads out"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_remedy(index, asked: dict, said: str) -> None:
    with pytest.raises(IndexRefused, match=said):
        index.search(**asked)


def test_a_folder_that_was_never_indexed_says_so(lab) -> None:
    with pytest.raises(NotBuilt, match="etude index build"):
        lab.index().search("x")


def test_equal_scores_come_by_path_then_line(lab) -> None:
    same = "".join(f"def needle(v):\n    return {n}\n\n\n" for n in range(3))
    lab.write({path: same for path in ("b.py", "a.py", "c/a.py", "a/b.py")})
    hits = lab.built().search("needle", limit=4 * PER_FILE)
    assert [hit.path for hit in hits] == sorted(hit.path for hit in hits)
    assert all(a.start_line < b.start_line for a, b in zip(hits, hits[1:], strict=False) if a.path == b.path)


def test_ties_beyond_the_candidates_do_not_depend_on_how_segments_lie(lab) -> None:
    lab.write({f"f{n:04}.py": "needle = 1\n" for n in range(150)})
    index = lab.built()
    lab.write({f"e{n:04}.py": "needle = 1\n" for n in range(150)})
    index.update(workers=1)
    hits = index.search("needle", limit=MOST_HITS)
    assert hits == lab.built("scratch").search("needle", limit=MOST_HITS)
    assert [hit.path for hit in hits][:2] == ["e0000.py", "e0001.py"]


def test_one_file_cannot_crowd_out_the_others_but_shows_what_outranks_them(lab) -> None:
    lab.write(
        {
            "many.py": "".join(f"def needle_{n}():\n    return needle\n\n\n" for n in range(40)),
            "one.md": "A needle.\n",
            "far.md": "Words, words, words.\n" * 40 + "needle\n",
        }
    )
    index = lab.built()
    paths = [hit.path for hit in index.search("needle", limit=30)]
    assert paths[: PER_FILE + 1] == ["many.py"] * (PER_FILE + 1)  # better than any other by far
    assert "one.md" in paths[:15] and "far.md" in paths and paths.count("many.py") == 28
    assert paths.index("one.md") < paths.index("far.md")


def test_the_right_method_of_a_large_file_is_shown_next_to_its_better_known_siblings(lab) -> None:
    """Three methods of one file answer better than anything else does: all three come first."""
    methods = ["suggest_command", "suggest_similar", "suggest_names"]
    body = "".join(
        f"    def {name}(self, typed):\n        return [c for c in self.commands if similar(c, typed)]\n\n"
        for name in methods
    )
    lab.write({"command.py": f"class Command:\n{body}", **{f"docs/{n}.md": "Conduct: be similar.\n" for n in range(9)}})
    hits = lab.built().search("suggest a similar command for what was typed", limit=4)
    assert [hit.path for hit in hits[:3]] == ["command.py"] * 3


def test_equal_copies_of_a_file_come_after_everything_else(lab) -> None:
    text = "def parse_reference(link):\n    return link.reference\n"
    lab.write({f"copies/{n}/links.py": text for n in range(5)} | {"src/other.py": "# A reference.\nx = 1\n"})
    assert [hit.path for hit in lab.built().search("parse reference", limit=3)] == [
        "copies/0/links.py",
        "src/other.py",
        "copies/1/links.py",
    ]


def test_data_ranks_below_code_unless_the_question_is_about_data(lab) -> None:
    rows = ",\n".join(f'{{"parse": "link reference {n}", "definition": "link [a{n}]"}}' for n in range(600))
    code = 'def link_definition(text):\n    """Parse one, with its reference."""\n    return text.split()\n'
    lab.write({"cases.json": f"[{rows}]\n", "records.csv": "parse link reference definition\n" * 3, "lexer.py": code})
    index = lab.built()
    assert index.search("parse link reference definitions")[0].path == "lexer.py"
    assert index.search("json cases of parse, link, reference")[0].path == "cases.json"
    lab.write({"package.json": '{"scripts": {"parse": "link reference"}}\n'})  # a short one is written by people
    index.update()
    assert "package.json" in [hit.path for hit in index.search("parse link reference", limit=2)]


def test_the_words_of_a_sentence_count_less_than_what_it_asks_for(lab) -> None:
    lab.write(
        {
            "handlers.py": 'def before_where_handled():\n    """Handle what is found before where it was handled."""\n',
            "preprocess.py": "def preprocess(chunk):\n    return chunk.replace(NUL, '').expandtabs()  # nul, tab\n",
        }
    )
    index = lab.built()
    assert index.search("where are NUL and tabs handled before it is tokenized")[0].path == "preprocess.py"
    assert index.search("before_where_handled")[0].path == "handlers.py"  # a name is no sentence
    assert index.search("where is it handled")[0].path == "handlers.py"  # nothing else is left to go by


def test_a_function_that_the_best_place_calls_is_shown_next_to_it(lab) -> None:
    doc = "Output of characters as HTML, escaped."
    caller = (
        f"class Renderer:\n    def text(self, output):\n        # {doc}\n        return escape_html_entities(output)\n"
    )
    helper = (
        "def escape_html_entities(raw):\n"
        + "".join(f"    raw = raw.replace(a{n}, b{n})\n" for n in range(30))
        + "    return raw\n"
    )
    others = {
        f"o{n}.py": f"def html_output_{n}(characters):\n    return characters  # html, escaped\n" for n in range(3)
    }
    lab.write({"renderer.py": caller, "helpers.py": helper, **others})
    lab.write({f"n{n}.py": f"value = {n}\n" for n in range(20)})

    def places() -> list[str]:
        return [hit.symbol for hit in lab.built().search("output of HTML characters, escaped")]

    assert places().index("escape_html_entities") == places().index("Renderer.text") + 1
    lab.write({"renderer.py": caller.replace("escape_html_entities", "other")})
    assert places()[-1] == "escape_html_entities"


def test_a_word_that_stands_everywhere_still_answers_alone(lab) -> None:
    lab.write({f"f{n}.py": "import os\nself = 1\n" for n in range(20)})
    assert len(lab.built().search("self", limit=20)) == 20


def test_a_long_chunk_shows_its_telling_lines(lab) -> None:
    lines = [f"    x += {n}" for n in range(40)]
    lines[30] = "    frobnicate(x)"
    lab.write({"a.py": "def f(x):\n" + "\n".join(lines) + "\n"})
    (hit,) = lab.built().search("frobnicate")
    shown = hit.snippet.split("\n")
    assert len(shown) <= LINES and shown[32 - hit.snippet_line] == "    frobnicate(x)"
    assert (hit.start_line, hit.end_line) == (1, 41)


def test_a_pasted_page_is_a_question_too(index) -> None:
    page = " ".join(f"word{n}" for n in range(5000))
    assert index.search(f"{page} backoff_seconds {page}")[0].path == "src/net/retry.py"


def test_what_is_tested_comes_before_its_tests_unless_tests_are_asked_for(index) -> None:
    assert index.search("load_file")[0].path == "src/config.py"
    assert index.search("test of load_file")[0].path == "tests/test_config.py"
