"""A Django application's tests get the settings that they run under: its own, or plain ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

from etude.sandbox.spec import WORKDIR
from etude.tasks.generate.install.rules import python_django
from etude.tasks.generate.install.rules.python_rules import env, steps
from etude.tasks.generate.sources.fetched import Fetched
from etude.tasks.generate.sources.projects import CatalogueProject

TEST = "from django.test import TestCase\n\n\nclass T(TestCase):\n    def test_x(self): pass\n"
SETTINGS = "INSTALLED_APPS = []\nSECRET_KEY = 'x'\n"


def project(**files: str) -> Fetched:
    tree = {"shop/__init__.py": "", "shop/apps.py": "", "shop/urls.py": "", "shop/tests/test_x.py": TEST} | files
    return Fetched(
        CatalogueProject("shop", "sdist", "1.0"), {path: text.encode() for path, text in tree.items()}, "sdist shop"
    )


def test_its_own_settings_are_taken_those_for_tests_first() -> None:
    own = project(**{
        "example/manage.py": "", "example/site/__init__.py": "", "example/site/settings.py": SETTINGS,
        "tests/__init__.py": "", "tests/settings.py": SETTINGS,
    })  # fmt: skip
    assert env(own)["DJANGO_SETTINGS_MODULE"] == "tests.settings"
    example = project(**{"example/site/__init__.py": "", "example/site/settings.py": SETTINGS})
    assert env(example)["DJANGO_SETTINGS_MODULE"] == "site.settings"
    assert env(example)["PYTHONPATH"].split(":")[-1] == f"{WORKDIR}/example"
    assert not python_django.steps(own.texts()) and any("'pytest-django'" in step for step in steps(own))


def test_a_release_without_settings_gets_plain_ones_that_name_its_applications(tmp_path: Path) -> None:
    bare = project()
    assert env(bare)["DJANGO_SETTINGS_MODULE"] == python_django.PLAIN
    assert env(bare)["PYTHONPATH"].split(":")[-1] == python_django.PLACE
    (step,) = python_django.steps(bare.texts())
    subprocess.run(["/bin/sh", "-c", step.replace(python_django.PLACE, str(tmp_path))], check=True)
    found: dict = {}
    exec((tmp_path / "plain_settings.py").read_text(), found)
    assert "shop" in found["INSTALLED_APPS"] and found["ROOT_URLCONF"] == "shop.urls"


def test_a_project_that_says_its_settings_itself_or_is_none_of_django_is_left_alone() -> None:
    said = {
        "pytest.ini": "[pytest]\nDJANGO_SETTINGS_MODULE = a.b\n",
        "conftest.py": "from django.conf import settings\nsettings.configure()\n",
        "shop/tests/test_x.py": "def test_x(): pass\n",
    }
    for path, text in said.items():
        assert "DJANGO_SETTINGS_MODULE" not in env(project(**{path: text}))
