"""A recipe of somebody else costs neither minutes nor gigabytes: keys and depth beyond any recipe's are refused in a moment, by line."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import etude
from etude.core.bounded_toml import MOST_CHARS, MOST_KEY_PARTS, TomlRefused, loads
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import parse_override, read_recipe

LONG = 50_000
HOSTILE = {
    "dots": ".".join(["a"] * LONG) + " = 1",
    "blanks": " . ".join(["a"] * LONG) + " = 1",
    "quoted": ".".join(['"a b"'] * LONG) + " = 1",
    "escaped": ".".join([r'"\""'] * LONG) + " = 1",
    "literal": ".".join(["'a.b'"] * LONG) + " = 1",
    "mixed": ".".join(["a", '"b"', "'c'"] * LONG) + " = 1",
    "table": f"[{'.'.join(['a'] * LONG)}]",
    "tables": f"[[{'.'.join(['a'] * LONG)}]]",
    "inline": f"x = {{ {'.'.join(['a'] * LONG)} = 1 }}",
    "behind others": "a = 1\n[b]\n" + ".".join(["a"] * LONG) + " = 1",
    "many tables": "\n".join(f"[x{number}.{'.'.join(['a'] * 62)}]" for number in range(4000)),
    "many keys": "\n".join(f"x{number}.{'.'.join(['a'] * 62)} = 1" for number in range(4000)),
    "many inline": f"x = [{', '.join(['{ a.a.a.a.a = 1 }'] * 40_000)}]",
    "behind a string": f'x = [""" "b" \\""" """"", {{ {".".join(["a"] * LONG)} = 1 }}]',
    "quotes without an end": '"' + r"\"" * 500_000,
    "strings without an end": '"""' + r'\"""' * 250_000,
    "broken table": f"[{'.'.join(['a'] * LONG)}",
    "arrays": "a = " + "[" * 100_000,
    "inline tables": "a = " + "{a=" * 100_000,
    "digits": "a = " + "9" * 100_000,
    "long": "# " + "x" * MOST_CHARS,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_refused_in_a_moment(kind, tmp_path):
    start = time.process_time()
    with pytest.raises(TomlRefused):
        loads(HOSTILE[kind])
    (tmp_path / "r.toml").write_text(HOSTILE[kind])
    with pytest.raises(RecipeError, match="this is not TOML"):
        read_recipe([tmp_path / "r.toml"])
    assert time.process_time() - start < 5


def test_the_line_of_the_key_is_named():
    with pytest.raises(TomlRefused, match="line 3 has a key of more than 64 parts"):
        loads(HOSTILE["behind others"])


@pytest.mark.parametrize(
    "text", [f"{'a.' * LONG}b=1", "a=" + "[" * 100_000, f"a=1\n{HOSTILE['dots']}", "." * 70 + "=1"]
)
def test_an_override_is_bounded_too(text):
    start = time.process_time()
    try:
        parse_override(text)
    except RecipeError:
        pass
    assert time.process_time() - start < 2


KEYS = st.text("abc-_1", min_size=1, max_size=4)
VALUES = st.sampled_from(
    ["1", "1.5", '"a.b.c.d"', "true", "[1, [2, 3]]", '{ a = 1, b.c = "x" }', "1979-05-27", "'''\na.b\n'''"]
)


DOTS = ".".join(["1"] * 200)
DOTTED = [f'"{DOTS}"', f"'{DOTS}'", f'["{DOTS}", "{DOTS}"]', f"'''\n{DOTS} = 1\n[{DOTS}]\n'''", f'"""{DOTS}"""""', f"1 # {DOTS} = 1",
          f'"\\" {DOTS} ="', f'{{ "{DOTS}" = 1 }}', f'{{ a = "{DOTS}", "x" = 1 }}', str([[1.5]] * 20_000)]  # fmt: skip


@pytest.mark.parametrize("value", DOTTED, ids=range(len(DOTTED)))
def test_dots_in_strings_comments_and_numbers_are_no_keys(value):
    text = f"# {DOTS} = 1\nx = {value}\n[y]\nz = 1\n"
    assert loads(text) == tomllib.loads(text)


@given(st.dictionaries(KEYS, VALUES, max_size=8), st.integers(1, MOST_KEY_PARTS))
def test_any_other_document_is_what_it_was(rows, parts):
    text = "\n".join(f"{key} = {value}" for key, value in rows.items()) + f"\n[{'.'.join(['t'] * parts)}]\nx = 1\n"
    try:
        wanted = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(TomlRefused):
            loads(text)
    else:
        assert loads(text) == wanted


def test_a_byte_order_mark_at_the_beginning_is_dropped(tmp_path):
    assert loads("\ufeffa = 1") == {"a": 1}
    (tmp_path / "r.toml").write_bytes(b"\xef\xbb\xbf[rl]\nsteps = 3\n")
    assert read_recipe([tmp_path / "r.toml"]).rl.steps == 3


def test_every_toml_file_but_our_own_is_read_within_bounds():
    """The modules that parse without bounds read files of the package."""
    source = Path(etude.__file__).parent
    unbounded = {
        str(path.relative_to(source)) for path in source.rglob("*.py") if "tomllib" in path.read_text(encoding="utf-8")
    }
    own = {"core/licence/matching.py", "agent/harness/presets/preset.py", "tasks/running/pytest_tools.py"}
    assert unbounded == own | {"core/bounded_toml.py"}
