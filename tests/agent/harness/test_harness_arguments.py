"""Arguments: an object of the right types or an objection that names what is wrong, whatever was sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.presets.arguments import ArgumentError, check, closest
from etude.agent.harness.tools.parameter import Parameter, object_schema, optional

SHAPE = (
    Parameter("path"),
    optional("limit", "integer", least=1, most=9),
    optional("all", "boolean"),
    optional("mode", choices=("a", "b")),
    optional("paths", "array", item=Parameter("path")),
    optional("edits", "array", item=Parameter("edit", "object", fields=(Parameter("old"), optional("n", "integer")))),
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["5", "true", "[]", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["old", "n", "x"]), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["path", "limit", "all", "mode", "paths", "edits", "file", "Path"])


@given(arguments=values | st.dictionaries(names, values, max_size=6), strict=st.booleans())
def test_whatever_is_sent_is_typed_or_refused(arguments: Any, strict: bool) -> None:
    try:
        found = check(SHAPE, arguments, strict=strict)
    except ArgumentError as bad:
        assert str(bad) and len(str(bad)) < 400
        return
    assert check(SHAPE, found.values, strict=True).values == found.values
    assert found.bent == 0 or not strict


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "path is missing; it must be a string"),
        ({"path": 5}, "path must be a string, got 5"),
        ({"path": "a", "limit": "5"}, 'limit must be an integer, got "5"'),
        ({"path": "a", "limit": True}, "limit must be an integer, got true"),
        ({"path": "a", "limit": 0}, "limit must be at least 1, got 0"),
        ({"path": "a", "limit": 10}, "limit must be at most 9, got 10"),
        ({"path": "a", "mode": "c"}, 'mode must be one of a, b, got "c"'),
        ({"path": "a", "paths": ["a", 1]}, r"paths\[1\] must be a string, got 1"),
        ({"path": "a", "edits": [{"n": 1}]}, r"edits\[0\].old is missing"),
        ({"path": "a", "edits": [{"old": "x", "m": 1}]}, r"unknown argument edits\[0\].m; known are: old, n"),
        ({"path": "a", "lmit": 1}, "unknown argument lmit; did you mean limit"),
        ({"path": "a", "limit": None}, "limit must be an integer, got null"),
        ({"path": "\ud800"}, r"path holds \\ud800, half a surrogate pair"),
        ([], "the arguments must be an object, got"),
    ],
)
def test_an_objection_names_argument_value_and_remedy(arguments: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        check(SHAPE, arguments, strict=True)


def test_lenient_takes_what_says_the_same_and_counts_it() -> None:
    sent = {"path": 7, "limit": "5", "all": "True", "paths": '["a"]', "edits": '[{"old": "x", "n": 2.0}]', "mode": None}
    found = check(SHAPE, sent, strict=False)
    assert found.values == {"path": "7", "limit": 5, "all": True, "paths": ["a"], "edits": [{"old": "x", "n": 2}]}
    assert found.bent == 7
    assert check(SHAPE, {"path": "a", "paths": "b.py"}, strict=False).values["paths"] == ["b.py"]
    for wrong in ({"path": "a", "limit": "five"}, {"path": None}, {"path": "a", "file": "b"}):
        with pytest.raises(ArgumentError):
            check(SHAPE, wrong, strict=False)


def test_the_closest_name_ignores_case_and_underscores() -> None:
    assert closest("filePath", ["file_path", "contents"]) == "file_path"
    assert closest("zzz", ["file_path"]) == ""


def test_a_schema_says_what_the_check_wants() -> None:
    schema = object_schema(SHAPE)
    assert schema["required"] == ["path"] and schema["additionalProperties"] is False
    assert schema["properties"]["limit"] == {"type": "integer", "minimum": 1, "maximum": 9}
    assert schema["properties"]["mode"] == {"type": "string", "enum": ["a", "b"]}
    assert schema["properties"]["edits"]["items"]["required"] == ["old"]
    json.dumps(schema)
