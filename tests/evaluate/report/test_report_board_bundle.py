"""The board's modules become one script that a browser can run without any other file."""

from __future__ import annotations

from importlib.resources import files

import pytest

from etude.evaluate.report.board.static_page import Unbundled, bundle

A = "export const one = 1;\nexport function two() { return 2; }\nconst own = 3;\nexport { own };\n"
B = 'import { one, two } from "./a.js";\nimport { own } from "./a.js";\nexport async function all() { return [one, two(), own]; }\n'


def test_a_module_comes_after_those_it_needs_and_only_once() -> None:
    script = bundle(
        {"b.js": B, "a.js": A, "main.js": 'import { all } from "./b.js";\nimport { one } from "./a.js";\nall(one);\n'},
        "main.js",
    )
    assert script.count("const $a = ") == script.count("const $b = ") == 1
    assert script.index("const $a = ") < script.index("const $b = ") < script.index("all(one);")
    assert "const { one, two } = $a;" in script and "return { one, two, own };" in script
    assert "import" not in script and "export" not in script


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('import { a as b } from "./a.js";\n', "of another form"),
        ('import * as a from "./a.js";\n', "of another form"),
        ("export default 1;\n", "of another form"),
        ('import { x } from "./main.js";\n', "in a circle"),
        ('const a = "</SCRIPT>";\n', "ends or hides a script"),
    ],
)
def test_what_can_not_be_bundled_is_refused_rather_than_broken(text: str, words: str) -> None:
    with pytest.raises(Unbundled, match=words):
        bundle({"a.js": A, "main.js": text}, "main.js")


def test_every_module_of_the_board_is_part_of_its_script() -> None:
    modules = {
        path.name: path.read_text()
        for path in (files("etude.evaluate.report.board") / "static").iterdir()
        if path.name.endswith(".js")
    }
    script = bundle(modules, "app.js")
    assert all(f"const ${name.removesuffix('.js')} = " in script for name in modules if name != "app.js")
