"""Logs drawn from what each runner prints: lines of its grammar, lines that are nearly of it, and noise, between marks that may lack."""

from __future__ import annotations

import random
from typing import Any

from etude.tasks.importers.swe_grading import END, EXIT_CODE, READERS, START, Expected, UnreadableLog, results

NAMES = (
    "tests/test_a.py::test_one", "tests/test_a.py::TestB::test_c[x-1]", "tests/b.py::test_p[log(photon /(s", "tests/b.py::test_q[/tmp/a/b.c]",
    "test_it (app.tests.Case)", "sympy/core/tests/test_expr.py:test_add", "test_mul", "Suite > deep > works (really)", "adds two, and three",
    "com.example.FooTest > testBar", "pkg::mod::case", "TestX/sub_case", "a test with [brackets] and: colons", "handles - a dash",
    "ein Täst ✓ Zeichen", "[100%]", "test_float[1.5e-3]", "test_url[//host/*]", "dir/spec.test.js", "x",
)  # fmt: skip
NOISE = (
    "", " ", "some words", "=== short test summary info ===", "Traceback (most recent call last):", "    at Object.<anonymous> (a.js:1:2)",
    "3 passing", "  2 passing (4s)", "1 failing", "Executed 3 of 3", "Executed 0 of 0", "TOTAL: 2 SUCCESS", "Tests:  4 passed, 4 total",
    "ok", "OK", "FAILED", "PASSED", "ERROR", "ERRORS happen", "PASSEDx y", "FAIL:", "SUMMARY:", "\tindented", "{", "}", "[", "]", "<a>", "</a>",
    "12 specs, 0 failures", "case x': ok", "+ echo hello", "Killed", "no tests ran", "test result: ok. 1 passed", "Starting browser Chrome",
    "Cannot find module 'x'", "\x1b[32mgreen\x1b[0m", "a\rb", "half\x0bline", "a\u2028b", "AssertionError: #1", "Error: no", "  TypeError: x",
)  # fmt: skip
_PYTEST = (
    "PASSED {n}", "FAILED {n} - assert 1 == 2", "FAILED {n} - a - b", "ERROR {n}", "SKIPPED [1] {n}:3: why", "SKIPPED {n}", "XFAIL {n}",
    "XPASS {n}", "{n} PASSED", "{n} FAILED", "\x1b[32mPASSED\x1b[0m {n}", "PASSED: {n}", "FAILED", "[31mFAILED[0m {n} - x", "{n} PASSED [ 10%]",
    "FAILED MouseButton.LEFT-{n}", "XFAIL {n} - known",
)  # fmt: skip
_MOCHA = (
    "  suite {n}",
    "    ✓ {n}",
    "    ✔ {n} (12ms)",
    "    1) {n}",
    "      nested {n}",
    "  3) {n}",
    "✔ {n}",
    "  ✓ {n} (3ms)",
    "deep",
)
_FILES = (
    "PASS {n} (3 s)",
    "PASS {n} (3.5s)",
    "FAIL {n} (12ms)",
    "PASS {n}",
    "FAIL {n}",
    "PASS {n} (2 s) (3ms)",
    "PASS {n} (5s) tail",
)
_JSON = (
    '{{"stats": {{}}, "passes": [{{"fullTitle": "{n}"}}], "failures": []}}', '{{"passes": [], "failures": [{{"fullTitle": "{n}"}}]}}',
)  # fmt: skip
_LISTED = ('  "passes": [\n      "fullTitle": "{n}",\n  ],', '  "failures": [\n      "fullTitle": "{n}",\n  ],')
GRAMMARS: dict[str, tuple[str, ...]] = {
    "django": (
        "{n} ... ok", "{n} ... OK", "{n} ...  OK", "{n} ... FAIL", "{n} ... ERROR", "{n} ... skipped 'why'", "FAIL: {n}", "ERROR: {n}",
        "{n} ... noise", "ok", "--version is equivalent to version", "{n} ... System check identified no issues (0 silenced)\nok",
        "{n} ... Internal Server Error: /a/\nok", "{n} ... Testing against Django installed in 'x' (0 silenced).\nok",
        "Applying sites.0002_alter_domain_unique...test_no_migrations ({n}) ... ok",
    ),
    "seaborn": ("FAILED {n} - x", "{n} PASSED [ 5%]", "PASSED {n}", "x {n} PASSED y"),
    "sympy": ("____ sympy/a.py:{n} ____", "test_x ok", "test_{n} E", "test_y F", "__ a/b.py:test_z __"),
    "gotest": ("--- PASS: {n} (0.01s)", "    --- FAIL: {n} (0.01s)", "--- SKIP: {n} (0s)", "=== RUN {n}"),
    "cargo": ("test {n} ... ok", "test {n} ... FAILED", "test a::b ... ignored", "test a::b ... ok", "test c - should panic ... ok"),
    "ant": ("  [junit] [PASS] {n}", "[junit] [FAIL] {n}", "[junit] [ERR] {n}", "[junit] Tests run: 3"),
    "jq": ("PASS: {n}", "FAIL: {n}", "XFAIL: {n}"),
    "tap": ("ok 1 {n}", "not ok 2 {n}", "ok 3 {n} # SKIP", "# tests 3", "    ok 1 {n}"),
    "micropython_test": ("pass  {n}", "FAIL  {n}", "skip  {n}", "pass"),
    "googletest": ("[       OK ] {n} (0 ms)", "[  FAILED  ] {n} (1 ms)", "[ RUN      ] {n}", "x [ OK ] {n} (0 ms)"),
    "redis": ("[ok]: {n} (12 ms)", "[err]: {n} in tests/unit/a.tcl", "[skip]: {n}", "[ignore]: {n}", "[ok]: {n}", "[err]: {n} in x (3 ms)"),
    "jest": ("  ✓ {n} (12 ms)", "  ✕ {n} (1 s)", "  ○ skipped {n}", "✓ {n}", "✓ {n}  (3ms)"),
    "jest_json": ("[PASSED] {n}", "[FAILED] {n}", "[PENDING] {n}"),
    "vitest": (" ✓ {n} 12ms", " × {n} 3", " ↓ {n} [skipped]", "✓ {n}", "✓ {n}  4 ms"),
    "minitest": ("{n}. = 0.01 s = .", "{n}. = 0.02 s = F", "{n}. = 0 s = E", "{n}. x=y"),
    "cucumber": ("{n} ....", "{n} ..F", "{n} ."),
    "ruby_unit": ("test: {n}: .: (0.01)", "{n}:  F", "{n}: E", "{n}: O", "  {n}:\tE: x"),
    "rspec_transformed_json": ("{n} - passed", "{n} - failed", "{n} - pending", "{n} - passed - failed"),
    "doctest": (
        '<doctest><TestCase name="{n}"><SubCase name="s"><Expression success="true"/></SubCase></TestCase></doctest>',
        '<doctest><TestCase name="t"><SubCase name="{n}"><Expression success="false"/></SubCase><SubCase/></TestCase></doctest>',
        "<doctest>", '<doctest><TestCase name="a"/></doctest>',
    ),
    "maven": ("+ mvn test -Dtest={n} -x", "[INFO] BUILD SUCCESS", "[INFO] BUILD FAILURE", "+ mvn -Dtest=Foo#bar"),
    "gradle_custom": ("{n} PASSED", "{n} FAILED", "com.a.B > c", "PASSED", "FAILED", "> Task :test", "com.a.D > e PASSED"),
    "phpunit": ("Suite A (Tests\\A)", " ✔ {n}", " ✘ {n}", " ↩ {n}", "✔", "{n} (x)"),
    "eslint": ("  1) {n}\n     x:\n  AssertionError: a", "  2) {n} TypeError: b", "  3)", "1) {n}"),
    "chart_js": ("Chrome 100.0.1 (Linux x86_64) {n} FAILED", "\x1b[31mChrome 99.0 (Linux) {n} FAILED", "Chrome (x) FAILED"),
    "marked": ("1) {n}", "12)  {n} ", " 3) {n}"),
    "bpmn_js": (
        "2KPhantomJS 2.1.1 (Linux 0.0.0) {n} FAILED", "Chrome Headless 9 (Linux x86_64) {n} FAILED", "HeadlessChrome 7.0 (Linux 0.0.0) {n} FAILED",
        "2KPhantomJS 2 (Linux x86_64) {n}FAILED",
    ),
    "openlayers": (
        "Chrome Headless 99.0 (Linux x86_64) {n} FAILED", "Chrome 99.0.1 (Linux x) {n} FAILED", "  1) {n}\n   more\n  Error: x",
        "case {n}: mismatch 3",
    ),
    "p5js": ("  1) {n}\n     inner\n       more:", "1) {n}:", "  2) {n}: x", "config {{", "}}", "list [", "]", "<b><b>x</b>",
        "\x1b[1m 3) {n}:", "{{x}}"),
    "calypso": ("+ ./node_modules/.bin/jest --x", "  suite", "    ✓ {n}", "    ✕ {n} (12ms)", "Test Suites: 1", "  ● {n}", "      inner", "✓ {n}"),
    "next": (
        "+ xvfb-run npm", "Starting browser Chrome", "  suite", "    ✓ {n}", "    ✗ {n}", "TOTAL: 3 SUCCESS", "  LOG: x", "AssertionError: #a\n\n",
        "Running: a (1 of 2)\n\n\n  suite {n}\n    ✓ works (2ms)\n    1) {n}",
    ),
    "karma": ("Starting browser Chrome", "  suite", "    ✔ {n}", "    ✖ {n}", "      deeper", " back", "SUMMARY:", "✔ {n}"),
    "highlightjs": _MOCHA,
    "carbon": _FILES, "react_pdf": _FILES, "grommet": (*_FILES, "FAIL ", "PASS \t{n}"),
    "prismjs": tuple(f"./node_modules/.bin/mocha tests/pipeline/run.js --reporter json\n{text}" for text in (*_JSON, "no report")),
    "lighthouse": (
        *_FILES, *_MOCHA, "running 3 test files", "12 passing",
        *(f"./node_modules/.bin/mocha --reporter json\n{text}" for text in _LISTED),
    ),
    "quarto_cli": (
        "[smoke] > {n} ... \x1b[32mok\x1b[0m", "[unit] > {n} ... \x1b[31mFAILED\x1b[0m", "[smoke] > /tmp/ab12.qmd {n} ... 32mok", "[smoke] > {n} ...",
        "[unit] /tmp/q/ x ... 31mFAILED", "[smoke] 3 passed 1 failed 2 steps ... 32mok", "[unit] 34mINFO {n} 32mok", "ERRORS", "failures:",
        "[unit] > {n} ... 32mok 31mFAILED",
    ),
    "immutable_js": ("  ✓ {n} (12 ms)", "[PASSED] {n}", "[FAILED] {n}", "✕ {n}"),
    "jekyll": ("{n}. = 0.01 s = .", "{n}. = 0 s = F", "{n} ....", "{n} ..F"),
}  # fmt: skip
IDS = {
    "immutable_js": ("o__r-2005", "o__r-2006", "o__r-7"),
    "jekyll": ("j__jekyll-9141", "j__jekyll-8761", "j__jekyll-7", "jekyll"),
}
VERSIONS = {"next": ("1.27", "1.20"), "lighthouse": ("9.5", "10.2", "5.0", "2.4", "x")}


def drawn(parser: str, seed: int) -> dict[str, Any]:
    """A case of this parser: the same seed, the same case."""
    rng = random.Random(f"{parser} {seed}")
    word = parser.removeprefix("parse_log_")
    grammar = GRAMMARS.get(word, _PYTEST)
    lines = [rng.choice(grammar if rng.random() < 0.7 else NOISE) for _ in range(rng.randrange(12))]
    body = "\n".join(line.format(n=rng.choice(NAMES)) if line in grammar else line for line in lines)
    if rng.random() < 0.05:
        body = body.replace("\n", "\r\n")
    case = {
        "log_parser": parser,
        "log": _marked(body, rng),
        "instance_id": rng.choice(IDS.get(word, ("owner__repo-1",))),
        "version": rng.choice(VERSIONS.get(word, ("1.0",))),
        "eval_type": "fail_only" if rng.random() < 0.25 else "pass_and_fail",
    }
    return case | _lists(case, rng)


def _marked(body: str, rng: random.Random) -> str:
    code = rng.choice((0, 0, 1, 1, 2, -9, None))
    end = [f"{EXIT_CODE}: {code}"] if code is not None else []
    shape = rng.randrange(12)
    if shape == 0:
        return body
    if shape == 1:
        return "\n".join(["+ git apply", f"+ : '{START}'", body])
    if shape == 2:
        return "\n".join([">>>>> Tests Timed Out", START, body, END])
    if shape == 3:
        return "\n".join([body, START, END, *end])  # next to the marks: read only where nothing is between them
    if shape == 4:
        return "\n".join([START, "x", END, START, body, END, *end])
    return "\n".join(["+ git checkout base", f"+ : '{START}'", body, f"+ : '{END}'", *end])


def _lists(case: dict[str, Any], rng: random.Random) -> dict[str, list[str]]:
    """Names of the log and others; some cut off within a parameter, as those of Verified are."""
    expected = Expected(case["instance_id"], case["log_parser"], (), (), case["eval_type"], case["version"])
    try:
        named = [*results(case["log"], expected)[0]]
    except UnreadableLog:
        named = []
    named = [
        name.partition("[")[0] + "[" + name.partition("[")[2][:1] if "[" in name and rng.random() < 0.5 else name
        for name in named
    ]
    known = [name for name in named if rng.random() < 0.8]
    strange = [rng.choice(NAMES)] if rng.random() < 0.2 else []
    rng.shuffle(known)
    half = rng.randrange(len(known) + 1)
    return {"FAIL_TO_PASS": known[:half] + strange, "PASS_TO_PASS": known[half:]}


PARSERS = tuple(READERS)
