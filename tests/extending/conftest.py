"""The templates of `docs/extending/`: the Python blocks of a page become modules, named by their first lines."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "extending"
BLOCK = re.compile(r"```python\n# (\w+)\.py\n(.*?)```", re.DOTALL)


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """`template("graders")` writes the modules of that page and returns their folder, which Python and its processes search."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    names: list[str] = []

    def written(page: str) -> Path:
        blocks = BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))
        assert blocks, f"docs/extending/{page}.md has no template"
        for name, code in blocks:
            with open(folder / f"{name}.py", "a", encoding="utf-8") as module:
                module.write(code)
            names.append(name)
        return folder

    yield written
    for name in names:
        sys.modules.pop(name, None)
