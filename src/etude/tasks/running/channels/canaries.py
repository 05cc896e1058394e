"""A test that must fail, written at the end of a test file, so that it runs in the process that loads the code under test.

By language and library; a file that none of these fits gets no canary. Test files are the reference's, never the agent's, so that
nothing but the run decides what becomes of the canary.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_ESM = re.compile(r"(?m)^\s*(import\s+(?!\()|export\s)")
_SCRIPTS = (".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".jsx", ".tsx")
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
        written += f"    def test_canary_{nonce}(self):\n        self.assertEqual(1, 2)"
    else:
        written = None
    return None if written is None else f"{text.rstrip()}\n\n{written}\n"


def _script(path: str, text: str, nonce: str, kind: str) -> str | None:
    esm = path.endswith((".mjs", ".mts")) or (not path.endswith((".cjs", ".cts")) and bool(_ESM.search(text)))
    fails = f'("canary {nonce}", () => {{ throw new Error("canary"); }});'
    if kind == "vitest":
        return f'import {{ test as canary_{nonce} }} from "vitest";\ncanary_{nonce}{fails}'
    if kind in ("jest", "mocha"):
        return f";(globalThis.it ?? globalThis.test){fails}"
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


def _java(text: str, nonce: str) -> str | None:
    body, brace, _ = text.rstrip().rpartition("}")
    library = (
        "org.junit.jupiter.api.Test" if "org.junit.jupiter" in text else "org.junit.Test" if "org.junit" in text else ""
    )
    if not brace or not library:
        return None
    return f'{body}    @{library} public void canary_{nonce}() {{ throw new RuntimeException("canary"); }}\n}}\n'
