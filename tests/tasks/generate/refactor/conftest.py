"""A bench of real sandboxes, and a small project of three modules whose tests use what can be renamed and moved."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.generate.generator import Baseline, InstalledProject, ProofContext

FILES = {
    "ink/__init__.py": "from ink.lines import wrap_line\nfrom .pages import Page\n\n__all__ = ['Page', 'wrap_line']\n",
    "ink/lines.py": '''"""Lines."""

import textwrap

WIDTH = 8


def wrap_line(text):
    """Pieces of a line; see `wrap_line` of others."""
    return textwrap.wrap(text, WIDTH)


def count_lines(text):
    return len(text.splitlines())
''',
    "ink/pages.py": '''"""Pages."""

from . import lines


class Page:
    def __init__(self, text):
        self.rows = lines.wrap_line(text)  # wrap_line decides


def pad_page(page, rows):
    return page.rows + [""] * (rows - len(page.rows))
''',
    "ink/marks.py": '"""Marks."""\n\nDOT = "."\n',
    "tests/test_ink.py": """import unittest

from ink.lines import count_lines, wrap_line
from ink.pages import Page, pad_page


class Ink(unittest.TestCase):
    def test_wrap(self):
        self.assertEqual(wrap_line("one two three"), ["one two", "three"])

    def test_count(self):
        self.assertEqual(count_lines("a\\nb"), 2)

    def test_page(self):
        self.assertEqual(pad_page(Page("one"), 2), ["one", ""])
""",
    "README.md": "# Ink\n\nCall `wrap_line(text)`.\n",
}


@pytest.fixture
def ink() -> InstalledProject:
    plan = TestPlan("exit", ("python3", "-m", "unittest", "-q", "{files}"), ("tests/test_ink.py",))
    return InstalledProject(Environment("ink", "1.0", tests=plan), FILES, Baseline(frozenset()), "test")


@pytest.fixture
async def bench() -> AsyncIterator[ProofContext]:
    pool = await open_pool(SandboxSettings())
    yield ProofContext(pool, 20.0)
    await pool.close()
