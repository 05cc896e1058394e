"""What a project's own Dockerfile or devcontainer.json asks for is used, or reported where a sandbox can't have it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.generate.install.agents.builder import _hints
from etude.tasks.generate.install.container import Container, container, instructions
from etude.tasks.generate.install.goal import Goal
from etude.tasks.generate.install.pair import RuleBuilder
from etude.tasks.generate.install.system import missing_packages, notes
from etude.tasks.generate.sources.fetched import Fetched
from etude.tasks.generate.sources.projects import CatalogueProject

DOCKERFILE = """\
# syntax=docker/dockerfile:1
FROM python:3.12-slim AS base
ENV LANG=C.UTF-8 MODE="for tests" API_TOKEN=abc PATH=/opt/x:$PATH
ENV OLD way of saying
WORKDIR /app
RUN apt-get update && apt-get install -y --no-install-recommends \\
    # a comment in between
    libpq-dev=15.1 no-such-package-anywhere \\
 && rm -rf /var/lib/apt/lists/*
RUN --mount=type=cache,target=/var/cache/pip python3 -m pip install -r requirements.txt freezegun 'respx==0.20' -e .
RUN ["npm", "install", "-g", "typescript@5.4"]
RUN <<EOF
pip install hidden
EOF
CMD ["app"]
"""
DEVCONTAINER = """\
{ // as editors write it
  "image": "mcr.example.org/python:3", /* two kinds of comments */
  "features": {"ghcr.example.org/features/node:1": {}},
  "containerEnv": {"TZ": "UTC", "URL": "http://localhost // no comment"},
  "postCreateCommand": {"a": "pip install tox", "b": ["npm", "ci"]},
}
"""


def test_a_dockerfile_s_packages_and_variables_are_read_by_who_installs_them() -> None:
    found = container({"Dockerfile": DOCKERFILE})
    assert found.sources == ("Dockerfile",) and found.images == ("python:3.12-slim",) and found.workdir == "/app"
    assert dict(found.env) == {"LANG": "C.UTF-8", "MODE": "for tests", "OLD": "way of saying"}
    assert found.system == ("libpq-dev", "no-such-package-anywhere")
    assert found.pip == ("freezegun", "respx==0.20") and found.npm == ("typescript@5.4",)


def test_a_devcontainer_is_read_with_its_comments_and_the_dockerfile_that_it_names() -> None:
    built = DEVCONTAINER.replace('"image"', '"build": {"dockerfile": "../ci/Box"}, "image"')
    found = container({".devcontainer/devcontainer.json": built, "ci/Box": "FROM x\nRUN pip install nox\n"})
    assert found.sources == (".devcontainer/devcontainer.json", "ci/Box")
    assert dict(found.env) == {"TZ": "UTC", "URL": "http://localhost // no comment"}
    assert found.pip == ("tox", "nox") and found.runs == ("pip install tox", "npm ci", "pip install nox")
    assert "features/node:1" in notes(found)[0]


@given(st.text(alphabet='RUN pi\\\n"[]<EOF&;#={}/$', max_size=80))
def test_whatever_stands_in_such_a_file_it_is_read_without_an_error(text: str) -> None:
    assert list(instructions(text)) == list(instructions(text))
    assert isinstance(container({"Dockerfile": text, ".devcontainer.json": text}), Container)


def test_without_such_a_file_nothing_is_asked_for() -> None:
    assert not container({"setup.py": ""}) and _hints(container({})) == "" and notes(container({})) == ()


def test_packages_that_the_machine_has_not_are_reported_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dpkg-query"
    program.write_text("#!/bin/sh\necho libpq-dev installed\necho old config-files\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert missing_packages(["libpq-dev", "old", "none"]) == ("old", "none")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert missing_packages(["libpq-dev"]) == ("libpq-dev",)


async def test_rules_install_what_it_names_and_leave_it_out_once_it_can_t_be_had() -> None:
    files = {"Dockerfile": DOCKERFILE.encode(), "thing.py": b"", "tests/test_thing.py": b"", "setup.py": b""}
    project = Fetched(CatalogueProject("thing", "folder", "1", path="/nowhere"), files, "folder thing")
    recipe = await RuleBuilder("2024-01-01").build(project, [Goal("true", "")], [])
    assert any("'freezegun' 'respx==0.20'" in step for step in recipe.steps)
    assert (
        recipe.env["MODE"] == "for tests" and recipe.env["PATH"].startswith("/tmp/") and "API_TOKEN" not in recipe.env
    )


def test_a_model_is_shown_what_the_file_runs_and_what_the_machine_lacks() -> None:
    said = _hints(container({"Dockerfile": DOCKERFILE}))
    assert "run apt-get update && apt-get install" in said and "env MODE=for tests" in said
    assert "no-such-package-anywhere, which this machine does not have" in said
