"""Operators over syntax trees: what they leave alone, and what they make of real mistakes' places."""

from __future__ import annotations

import ast
import bisect
import inspect
import shlex
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.tasks.generate.generators.bugs import listing
from etude.tasks.generate.generators.bugs.code import Code
from etude.tasks.generate.generators.bugs.edit import OverlappingEdits, SourceEdit, apply_edits
from etude.tasks.generate.generators.bugs.registry import OPERATORS

PYTHON = {
    "bound": ("if a < b:\n    return a", "a <= b"),
    "flip-comparison": ("if a in b:\n    return a", "a not in b"),
    "identity-for-equality": ("return a == b", "a is b"),
    "drop-not": ("return not a", "return a"),
    "and-or": ("return a and b", "a or b"),
    "drop-condition-part": ("return a and b", "return b"),
    "operator-change": ("if a and b:\n    return a + b", "a - b"),
    "augmented-change": ("a += b\nreturn a", "a -= b"),
    "operand-swap": ("if a and b:\n    return a - b", "b - a"),
    "constant-change": ("if a and b:\n    return a - 1", "a - 2"),
    "chain-break": ("if a:\n    return a - b * 2", "return b"),
    "drop-sign": ("return -a", "return a"),
    "invert-if": (
        "if a > 1 and b > 2 or a:\n    return 1\nelse:\n    return 2",
        "return 2\n    else:\n        return 1",
    ),
    "invert-choice": ("return a if b else 0", "return 0 if b else a"),
    "shuffle-statements": ("b = 1\nfor a in b:\n    print(a)\na = 3", "a = 3\n    for a in b"),
    "remove-assignment": ("if a and b:\n    a = 3\n    b = 2", "if a and b:\n        b = 2"),
    "remove-condition": ("a = 1\nif a and b:\n    return 1\nreturn 2", "a = 1\n    return 2"),
    "remove-branch": ("if a:\n    return 1\nelif b:\n    return 2\nreturn 3", "return 1\n    return 3"),
    "remove-loop": ("for a in b:\n    if a and b:\n        print(a)\nreturn 1", "c=None):\n    return 1"),
    "remove-wrapper": (
        "try:\n    a = 1\n    b = a and b\nexcept KeyError:\n    pass",
        "c=None):\n    a = 1\n    b = a and b",
    ),
    "break-continue": ("for a in b:\n    break", "continue"),
    "remove-call": ("if a:\n    a.sort()\nreturn a", "if a:\n        pass"),
    "slice-bound": ("return a[1:b]", "a[1:b - 1]"),
    "range-bound": ("return range(1, b)", "range(1, b + 1)"),
    "start-of-count": ("return enumerate(a)", "enumerate(a, 1)"),
    "subscript-place": ("return a[-1]", "a[-2]"),
    "narrow-except": ("try:\n    return 1\nexcept (KeyError, ValueError):\n    return 2", "except KeyError:"),
    "widen-except": ("try:\n    return 1\nexcept KeyError:\n    return 2", "except Exception:"),
    "swallow-exception": ("try:\n    a()\nexcept KeyError:\n    raise", "except KeyError:\n        pass"),
    "forgotten-raise": ("if a:\n    raise ValueError(b)\nreturn a", "c=None):\n    return a"),
    "wrong-exception": ("raise ValueError(a)", "raise TypeError(a)"),
    "forgotten-finally": ("try:\n    a()\nexcept KeyError:\n    b()\nfinally:\n    a.end()", "else:\n        a.end()"),
    "mutable-default": ("if c is None:\n    c = []\nreturn c", "def f(a, b, c=[]):"),
    "swapped-arguments": ("return g(a, b)", "g(b, a)"),
    "forgotten-keyword": ("return g(a, key=b)", "g(a)"),
    "flipped-flag": ("return g(a, deep=True)", "deep=False"),
    "unlocked": ("with self.lock:\n    a = 1\n    b = 2", "c=None):\n    a = 1\n    b = 2"),
    "unclosed": ("a.close()\nreturn b", "c=None):\n    return b"),
    "closed-early": ("with open(a) as f:\n    b = 1\n    return f.read()", "b = 1\n    return f.read()"),
    "without-with": ("with open(a) as f:\n    return f.read()", "f = open(a)\n    return f.read()"),
    "wrong-mode": ("return open(a, 'a')", "open(a, 'w')"),
    "sort-direction": ("return sorted(a, reverse=True)", "sorted(a)"),
    "sort-key": ("return sorted(a, key=len)", "sorted(a)"),
    "unsorted": ("return sorted(a)", "list(a)"),
    "first-for-last": ("return min(a)", "max(a)"),
    "popped-wrong-end": ("return a.pop()", "a.pop(0)"),
    "other-codec": ("return a.encode('utf-8')", "a.encode('latin-1')"),
    "forgotten-codec": ("return open(a, encoding='utf-8')", "open(a)"),
    "bytes-for-letters": ("return len(a.encode())", "len(a)"),
    "forgotten-zone": ("return datetime.now(timezone.utc)", "datetime.now()"),
    "local-for-universal": ("return time.gmtime(a)", "time.localtime(a)"),
    "stale-cache": ("self._cache.clear()\nreturn a", "c=None):\n    return a"),
    "poor-key": ("return cache[a, b]", "cache[b]"),
    "alias-for-copy": ("return a.copy()", "return a"),
    "alias-for-slice": ("return a[:]", "return a"),
    "truth-for-none": ("if a is not None:\n    return b", "if a:"),
    "or-for-none": ("return a if a is not None else b", "return a or b"),
    "unguarded-get": ("return a.get(b)", "a[b]"),
    "string-method": ("return a.strip()", "a.rstrip()"),
    "replace-once": ("return a.replace('x', 'y')", "a.replace('x', 'y', 1)"),
    "regex-function": ("return re.match(a, b)", "re.search(a, b)"),
    "regex-flag": ("return re.match(a, b, re.I)", "re.match(a, b)"),
    "regex-pattern": ("return re.match(r'x+?', b)", "r'x+'"),
    "other-return": ("return True", "return False"),
    "forgotten-return": ("if a:\n    return True\na()", "if a:\n        pass"),
    "other-variable": ("return g(a)", "return g(b)"),
    "comprehension-filter": ("return [x for x in a if x]", "[x for x in a]"),
    "forgotten-super": ("super().__init__()\nreturn a", "c=None):\n    return a"),
}
ASYNC = {
    "missing-await": ("return await a", "return a"),
    "wrong-gather": ("return await gather(a, b)", "gather(a)"),
    "sync-iteration": ("async for x in a:\n    print(x)", "    for x in a"),
    "sync-with": ("async with a as b:\n    print(b)", "    with a as b"),
}
JAVASCRIPT = {
    "js-bound": ("if (a < b) return a", "a <= b"),
    "js-flip-comparison": ("return a === b", "a !== b"),
    "js-loose-equality": ("return a === b", "a == b"),
    "js-drop-not": ("return !a", "return a"),
    "js-and-or": ("return a && b", "a || b"),
    "js-drop-condition-part": ("return a && b", "return a;"),
    "js-operator-change": ("if (a) return a + b", "a - b"),
    "js-augmented-change": ("a += b", "a -= b"),
    "js-operand-swap": ("if (a) return a - b", "b - a"),
    "js-constant-change": ("if (a) return a - 1", "a - 2"),
    "js-invert-choice": ("return a ? b : 0", "a ? 0 : b"),
    "js-slice-bound": ("return a.slice(1, b)", "a.slice(1)"),
    "js-subscript-place": ("return a[b]", "a[b + 1]"),
    "js-loop-start": ("for (let i = 0; i < a; i++) b(i)", "i = 1"),
    "js-length-bound": ("return a.length > b", "a.length - 1 >"),
    "js-wrong-exception": ("throw new TypeError(a)", "new RangeError(a)"),
    "js-swallow-exception": ("try { a() } catch (e) { b(e) }", "catch (e) {}"),
    "js-swapped-arguments": ("return g(a, b)", "g(b, a)"),
    "js-forgotten-argument": ("return g(a, b)", "g(a)"),
    "js-wrong-gather": ("return Promise.all(a)", "Promise.race(a)"),
    "js-first-for-last": ("a.push(b)", "a.unshift(b)"),
    "js-sort-order": ("return a.sort(b)", "a.sort()"),
    "js-other-codec": ("return a.toString('hex')", "toString('base64')"),
    "js-local-for-universal": ("return a.getUTCHours()", "a.getHours()"),
    "js-alias-for-copy": ("return [...a]", "return a"),
    "js-truth-for-null": ("if (a !== null) return b", "if (a)"),
    "js-string-method": ("return a.toLowerCase()", "a.toUpperCase()"),
    "js-regex-flag": ("return a.match(/x/gi)", "/x/g"),
    "js-regex-pattern": ("return a.match(/x+?/)", "/x+/"),
    "js-other-return": ("return true", "return false"),
    "js-stale-cache": ("this.cache.clear();\nreturn a", "{\n  return a"),
    "js-remove-condition": ("if (a && b || a) { return b }\nreturn a", "{\n  return a"),
    "js-forgotten-return-of-promise": ("return a.then(b)", "  a.then(b);"),
}


def python(body: str, head: str = "def f(a, b, c=None)") -> Code:
    return Code("m.py", f"{head}:\n{textwrap.indent(body, '    ')}\n".encode())


def outcomes(code: Code, name: str) -> list[str]:
    operators = [one for one in OPERATORS if one.name == name]
    return [apply_edits(code.source, site.edits).decode() for one in operators for site in one.sites(code)]


@pytest.mark.parametrize("name", PYTHON)
def test_python_operator_makes_its_mistake(name: str):
    body, wanted = PYTHON[name]
    assert any(wanted in text for text in outcomes(python(body), name)), outcomes(python(body), name)


@pytest.mark.parametrize("name", ASYNC)
def test_async_operator_makes_its_mistake(name: str):
    body, wanted = ASYNC[name]
    code = python(body, "async def f(a, b, c=None)")
    assert any(wanted in text for text in outcomes(code, name)), outcomes(code, name)


@pytest.mark.parametrize("name", JAVASCRIPT)
def test_javascript_operator_makes_its_mistake(name: str):
    body, wanted = JAVASCRIPT[name]
    code = Code("m.js", ("function f(a, b) {\n" + textwrap.indent(body, "  ") + ";\n}\n").encode())
    assert any(wanted in text for text in outcomes(code, name)), outcomes(code, name)


SOURCES = [inspect.getsource(module) for module in (textwrap, shlex, bisect)]


_KNOWN: dict[str, dict[str, Code]] = {}


def _codes(source: str) -> dict[str, Code]:
    return _KNOWN.setdefault(source, listing.sources({"lib/m.py": source}))


_PROPOSED = {
    source: [site for operator in OPERATORS for site in operator.propose_sites(_codes(source)["lib/m.py"])]
    for source in SOURCES
}


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(SOURCES), st.randoms(use_true_random=False))
def test_a_bug_parses_says_something_else_and_leaves_every_other_byte(source: str, rng):
    code = _codes(source)["lib/m.py"]
    site = rng.choice(_PROPOSED[source])
    outcome = listing.outcome_of({"lib/m.py": code}, site)
    if outcome is None:
        return
    text = dict(outcome)["lib/m.py"]
    assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(source))
    first, last = min(e.start for e in site.edits), max(e.end for e in site.edits)
    assert text.startswith(code.source[:first]) and text.endswith(code.source[last:])


def test_a_list_is_the_same_for_the_same_seed_and_another_for_another():
    codes = _codes(SOURCES[2])
    one, again, other = ([site.key for site in listing.list_sites(codes, seed)][:40] for seed in (1, 1, 2))
    assert one == again != other
    assert len(set(one)) == len(one)


def test_no_two_bugs_of_a_list_have_the_same_outcome():
    codes = _codes(SOURCES[2])
    texts = [listing.outcome_of(codes, site) for site in listing.list_sites(codes, 3)]
    assert None not in texts and len(set(texts)) == len(texts)


def test_tests_documents_and_vendored_code_get_no_bugs():
    text = "def f(a):\n    return a + 1\n"
    paths = [
        "a/m.py",
        "tests/m.py",
        "docs/conf.py",
        "setup.py",
        "a/_vendor/m.py",
        "test_m.py",
        "a/m.min.js",
        "conftest.py",
    ]
    assert list(listing.sources(dict.fromkeys(paths, text))) == ["a/m.py"]


def test_signatures_drift_where_another_file_calls_and_own_calls_follow():
    files = {
        "a.py": "def pair(x, y):\n    return x - y\n\n\ndef own(p, q):\n    return pair(p, q)\n",
        "b.py": "from a import pair\nprint(pair(1, 2))\n",
    }
    found = [site for site in listing.list_sites(listing.sources(files), 1) if site.operator == "signature-drift"]
    assert len(found) == 1
    changed = listing.outcome_of(listing.sources(files), found[0])
    assert changed == (("a.py", b"def pair(y, x):\n    return x - y\n\n\ndef own(p, q):\n    return pair(q, p)\n"),)


def test_a_constant_drifts_in_the_module_that_imports_it():
    files = {"a.py": "LIMIT = 10\n", "b.py": "from a import LIMIT\n\n\ndef f(x):\n    return x < LIMIT\n"}
    found = [site for site in listing.list_sites(listing.sources(files), 1) if site.operator == "constant-drift"]
    changed = listing.outcome_of(listing.sources(files), found[0])
    assert changed is not None and b"import LIMIT\n\nLIMIT = 11\n" in dict(changed)["b.py"]


def test_edits_of_the_same_bytes_are_refused():
    with pytest.raises(OverlappingEdits, match="ends at 3"):
        apply_edits(b"abcdef", [SourceEdit("m.py", 0, 3, b"x"), SourceEdit("m.py", 2, 4, b"y")])
