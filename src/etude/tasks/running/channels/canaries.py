"""A test that must fail, written at the end of a test file, so that it runs in the process that loads the code under test.

By language and library; a file that none of these fits gets no canary. Test files are the reference's, never the agent's, so that
nothing but the run decides what becomes of the canary.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_ESM = re.compile(r"(?m)^[^\S\n]*+(import\s+(?!\()|export\s)")
_SCRIPTS = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".jsx", ".tsx")
_TYPED = (".ts", ".tsx", ".mts", ".cts")
_COMMENT = re.compile(r"(#![^\n]*\n)?\s*/\*.*?\*/|#![^\n]*", re.DOTALL)
_EXITS = re.compile(r"\bprocess\s*\.\s*exit\s*\(")
_TAPES = re.compile(r"""(?:require\(|from\s+)['"](tape|tap|node:test|test)['"]""")


def with_canary(path: str, text: str, nonce: str, kind: str) -> str | None:
    """The text and the canary `canary <nonce>` (or `canary_<nonce>`); None where there is no form for it."""
    suffix = PurePosixPath(path).suffix
    if suffix in _SCRIPTS:
        written = _script(path, text, nonce, kind)
    elif suffix == ".go":
        written = f'func TestCanary_{nonce}(t *testing.T) {{ t.Fatal("canary") }}' if '"testing"' in text else None
    elif suffix == ".rs":
        written = f'#[test]\nfn canary_{nonce}() {{ panic!("canary") }}'
    elif suffix == ".java":
        return _java(text, nonce)
    elif suffix == ".py":
        written = f"import unittest as unittest_{nonce}\n\n\nclass Test{nonce}(unittest_{nonce}.TestCase):\n"
        written += f"    def test_canary_{nonce}(self):\n        self.assertEqual(1, 2)\n\n\n" + GUARD.format(
            nonce[::-1]
        )
    else:
        written = None
    if written is None:
        return None
    if suffix in _TYPED:
        return f"{_unchecked(text)}\n\n// @ts-ignore\n{written}\n"  # for compilers before 3.7, which check in any case
    return f"{text.rstrip()}\n\n{written}\n"


def _unchecked(text: str) -> str:
    """Without the check of its types: the canary has none, and a compiler that complains runs no test. What the first comment says of
    the whole file stays first."""
    first = _COMMENT.match(text)
    at = first.end() if first else 0
    return f"{text[:at]}\n// @ts-nocheck\n{text[at:].rstrip()}" if at else f"// @ts-nocheck\n{text.rstrip()}"


def with_failure(path: str, text: str, nonce: str) -> str | None:
    """The text as a program that must end with a status other than 0: at its own ends, and where it has none after its last line. What
    ends the process elsewhere, with success, is thereby seen. None where there is no form for it."""
    if PurePosixPath(path).suffix not in _SCRIPTS:
        return with_canary(path, text, nonce, "exit")
    ended = _EXITS.sub("process.exit.call(process, 99, ", text)
    return with_canary(path, ended, nonce, "exit") or f'{ended.rstrip()}\n\n;throw new Error("canary {nonce}");\n'


# Must pass: no class of the workspace has objects that equal whatever they are compared with (as `inside/etude_watch.py` sees for pytest).
GUARD = """\
class TestGuard{0}(__import__("unittest").TestCase):
    def test_guard_{0}(self):
        import os
        strangers, waiting, seen = [type("S", (), {{}})() for _ in range(2)] + [[], 0.5], [object], set()
        while waiting:
            for kind in type.__subclasses__(waiting.pop()):
                if kind in seen or issubclass(kind, type):
                    continue
                seen.add(kind)
                waiting.append(kind)
                code = getattr(vars(kind).get("__eq__"), "__code__", None)
                if code is None or not os.path.abspath(code.co_filename).startswith(os.getcwd() + os.sep):
                    continue
                try:
                    universal = all(kind.__eq__(object.__new__(kind), other) is True for other in strangers)
                except Exception:
                    universal = False
                if universal:
                    raise ValueError(kind)"""


def guard(nonce: str) -> str:
    """The part of its name by which a guard is known."""
    return f"guard_{nonce[::-1]}"


def with_guard(path: str, text: str, nonce: str) -> str | None:
    """The text and the guard alone, where there is one for the language."""
    return f"{text.rstrip()}\n\n\n{GUARD.format(nonce[::-1])}\n" if path.endswith(".py") else None


def _script(path: str, text: str, nonce: str, kind: str) -> str | None:
    esm = path.endswith((".mjs", ".mts")) or (not path.endswith((".cjs", ".cts")) and bool(_ESM.search(text)))
    fails = f'("canary {nonce}", () => {{ {_must_throw(text, esm)} throw new Error("canary"); }});'
    if kind == "vitest":
        return f'import {{ test as canary_{nonce} }} from "vitest";\ncanary_{nonce}{fails}'
    if kind == "bun":
        return f'import {{ test as canary_{nonce} }} from "bun:test";\ncanary_{nonce}{fails}'
    if kind in ("jest", "mocha", "jasmine"):
        return f";(globalThis.it || globalThis.test){fails}"
    library = "node:test" if kind == "node" else (found[1] if (found := _TAPES.search(text)) else "")
    if not library:
        return None
    if library in ("tape", "tap"):
        fails = f'("canary {nonce}", (t) => {{ t.fail("canary {nonce}"); t.end(); }});'
        member = "default" if library == "tape" else "test"
        take = "" if library == "tape" else ".test"
        return (
            f'import {{ {member} as canary_{nonce} }} from "{library}";\ncanary_{nonce}{fails}'
            if esm
            else f';require("{library}"){take}{fails}'
        )
    return (
        f'import {{ test as canary_{nonce} }} from "node:test";\ncanary_{nonce}{fails}'
        if esm
        else f';require("node:test").test{fails}'
    )


# What tests of each library assert with, in ways that must throw. One that does not ends the canary early: it passes, and is caught.
_LIBRARIES = {
    "assert": (
        "(a) => [() => a(false), () => a.ok(0), () => a.equal(1, 2), () => a.strictEqual(1, 2), () => a.deepEqual([1], [2]),"
        " () => a.deepStrictEqual({a: 1}, {a: 2}), () => a.notEqual(1, 1), () => a.notStrictEqual(1, 1), () => a.throws(() => {})]"
    ),
    "chai": "(c) => [() => c.assert.equal(1, 2), () => c.expect(1).to.equal(2), () => c.expect([1]).to.deep.equal([2])]",
}
_EXPECT = "[() => expect(1).toBe(2), () => expect([1]).toEqual([2]), () => expect(() => {}).toThrow()]"
_TRY = "for (const f of LIST) { let threw = false; try { f(); } catch { threw = true; } if (!threw) return; }"
_NAMED = re.compile(r"""(?:require\(|from\s+|import\s+)['"](?:node:)?(assert|assert/strict|chai)['"]""")


def _must_throw(text: str, esm: bool) -> str:
    """Statements that leave the canary where an assertion of the file's own libraries does not throw."""
    found = []
    for name in dict.fromkeys(named.partition("/")[0] for named in _NAMED.findall(text)):
        load = "(process.getBuiltinModule || (() => undefined))('assert')" if name == "assert" else "undefined"
        load = f"require('{name}')" if not esm else load
        found.append(f"{{ const lib = {load}; if (lib) {_TRY.replace('LIST', f'({_LIBRARIES[name]})(lib)')} }}")
    if re.search(r"\bexpect\(", text) and not re.search(r"chai|should", text):
        found.append(f"if (typeof expect === 'function') {_TRY.replace('LIST', _EXPECT)}")
    return " ".join(found)


def _java(text: str, nonce: str) -> str | None:
    body, brace, _ = text.rstrip().rpartition("}")
    if brace and "junit.framework" in text and "extends TestCase" in text and " suite()" not in text:
        return f'{body}    public void testCanary_{nonce}() {{ throw new RuntimeException("canary"); }}\n}}\n'
    library = (
        "org.junit.jupiter.api.Test" if "org.junit.jupiter" in text else "org.junit.Test" if "org.junit" in text else ""
    )
    if not brace or not library:
        return None
    return f'{body}    @{library} public void canary_{nonce}() {{ throw new RuntimeException("canary"); }}\n}}\n'
