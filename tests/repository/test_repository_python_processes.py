"""A Python that we start imports no module of the folder in which it starts: that may be anybody's repository."""

from __future__ import annotations

import re
from pathlib import Path

import etude

STARTS = re.compile(r'sys\.executable,\s*"(?P<first>-[^"]*)"')


def test_every_python_that_we_start_leaves_its_folder_out_of_the_path() -> None:
    found = {}
    for path in sorted(Path(etude.__file__).parent.rglob("*.py")):
        for start in STARTS.finditer(path.read_text()):
            found[f"{path.name}: {start[0]}"] = start["first"]
    assert len(found) >= 8, "the pattern finds none"
    assert {where: first for where, first in found.items() if first not in ("-P", "-I")} == {}
