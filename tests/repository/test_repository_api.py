"""The public API: every name is there, importing the package is light, and the examples of the page run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import etude

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("name", etude.__all__)
def test_every_public_name_can_be_imported_and_is_on_the_page(name: str) -> None:
    assert getattr(etude, name) is not None
    assert name == "__version__" or f"`{name}`" in PAGE


def test_an_unknown_name_is_an_error_that_lists_the_public_ones() -> None:
    with pytest.raises(AttributeError, match="open_pool"):
        _ = etude.open_pol


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys, etude; print(*sorted(m for m in sys.modules if m.startswith('etude.') or m in ('torch', 'ray', 'pydantic')))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_page_runs(number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", EXAMPLES[number]], capture_output=True, text=True, timeout=100, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ["0 hello", "4"][number]
