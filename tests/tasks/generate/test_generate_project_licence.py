"""The licence of a project is read from its metadata and its licence files."""

from __future__ import annotations

import pytest

from etude.tasks.generate.sources.licence import licence_of

MIT = """MIT License

Copyright (c) 2026 A. Person

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""


@pytest.mark.parametrize(
    ("files", "licence"),
    [
        ({"LICENSE": MIT}, "MIT"),
        ({"LICENSE.md": MIT, "a/LICENSE": "Other words."}, "MIT"),
        ({"COPYING.txt": MIT, "pyproject.toml": "[project]\nname = 'a'\n"}, "MIT"),
        ({"pyproject.toml": "[project]\nlicense = 'Apache-2.0'\n"}, "Apache-2.0"),
        ({"pyproject.toml": "[project]\nlicense = {text = 'MIT License'}\n"}, "MIT"),
        ({"setup.cfg": "[metadata]\nlicense = BSD-3-Clause\n"}, "BSD-3-Clause"),
        ({"package.json": '{"license": "ISC"}'}, "ISC"),
        ({"PKG-INFO": "Name: a\nLicense: My own words\n"}, "My own words"),
        ({"a.py": "x = 1\n", "README.md": "MIT"}, ""),
        ({}, ""),
    ],
)
def test_metadata_and_licence_files_say_it(files: dict[str, str], licence: str) -> None:
    assert licence_of(files, "git") == licence


@pytest.mark.parametrize(
    "broken",
    ["", "[" * 50_000, "{" * 50_000, '{"license": ' + "[" * 5000 + "]" * 5000 + "}", "\0", "[metadata", "license = 1"],
)
def test_no_file_of_a_project_raises(broken: str) -> None:
    names = ("pyproject.toml", "setup.cfg", "package.json", "PKG-INFO", "Cargo.toml", "LICENSE", "debian/copyright")
    assert licence_of(dict.fromkeys(names, broken), "git") == ""
