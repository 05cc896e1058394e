"""How a project is installed, as a Dockerfile: the steps of its recipe in their order, and the versions that they led to, pinned.

Recipes name few versions: here they were bounded by a day (`until`), through a door that other harnesses don't have. What the snapshot holds
is therefore written next to the steps: pip's as constraints, npm's by the same day (`npm_config_before`), the pinned pytest by its digests.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from etude.sandbox.spec import WORKDIR
from etude.tasks.environment.birth import DATE
from etude.tasks.environment.environment import Environment
from etude.tasks.running.pytest_tools import SOURCE_INSIDE, TOOLS_INSIDE, tools

# What every step has in its environment (`tasks/generate/install/site.py`).
QUIET = {"PIP_NO_INPUT": "1", "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "CI": "1"}
NPM = {"npm_config_audit": "false", "npm_config_fund": "false", "npm_config_update_notifier": "false"}
INSTALL = "/tmp/install"


@dataclass(frozen=True)
class Installation:
    """`steps` and `until` of the recipe; `image`: a public one with the interpreter of the snapshot; `constraints`: name==version of what pip
    put there; `binaries`: files of the project that no task holds, for they are no text."""

    environment: Environment
    steps: tuple[str, ...]
    image: str
    until: str = ""
    constraints: tuple[str, ...] = ()
    binaries: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def pytest(self) -> bool:
        """Whether its tests run under our pinned pytest."""
        return self.environment.tests.runner == "pytest" and not self.environment.tests.command

    def files(self) -> dict[str, bytes]:
        """Below environment/: the Dockerfile and what it copies in addition to the workspace."""
        texts = {"Dockerfile": self.dockerfile(), "install/steps.sh": self.script()}
        texts["install/constraints.txt"] = "".join(f"{line}\n" for line in self.constraints)
        if self.pytest:
            pins = (f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}\n" for pin in tools())
            texts["install/tools.txt"] = "".join(pins)
        return {path: text.encode() for path, text in texts.items()}

    def script(self) -> str:
        """Each step by a shell of its own in the workdir, as it was run here."""
        env = {**QUIET, **NPM, "PIP_CONSTRAINT": f"{INSTALL}/constraints.txt"}
        env |= {"npm_config_before": self.until} if self.until else {}
        lines = ["#!/bin/sh", "set -e", *(f"export {name}={shlex.quote(value)}" for name, value in env.items())]
        return "\n".join([*lines, *(f"cd {WORKDIR} && sh -c {shlex.quote(step)}" for step in self.steps)]) + "\n"

    def dockerfile(self) -> str:
        """Ends with one commit as history, as every agent's workspace here."""
        env = dict(self.environment.env)
        needs = "git ca-certificates" + ("" if self.environment.language == "python" else " python3")
        lines = [
            f"FROM {self.image}",
            f"RUN apt-get update && apt-get install -y --no-install-recommends {needs} && rm -rf /var/lib/apt/lists/*",
            f"WORKDIR {WORKDIR}",
            f"COPY files/ {WORKDIR}/",
            f"COPY install/ {INSTALL}/",
        ]
        if self.pytest:
            lines.append(
                f"RUN python3 -m pip install --no-deps --require-hashes --target {TOOLS_INSIDE} -r {INSTALL}/tools.txt"
            )
            paths = (TOOLS_INSIDE, SOURCE_INSIDE, *filter(None, [env.get("PYTHONPATH", "")]))
            env |= {"PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
        own = " ".join(f"{name}={_word(value)}" for name, value in self.environment.env.items())
        lines.append(f"RUN {own} sh {INSTALL}/steps.sh && rm -rf {INSTALL}".replace("RUN  ", "RUN "))
        lines += [f"ENV {name}={_word(value)}" for name, value in env.items()]
        return "\n".join([*lines, f"RUN {HISTORY}"]) + "\n"


_AUTHOR = "project@localhost"
_WHO = " ".join(
    f"GIT_{role}_NAME=project GIT_{role}_EMAIL={_AUTHOR} GIT_{role}_DATE={DATE}" for role in ("AUTHOR", "COMMITTER")
)
HISTORY = (
    "git init -q -b main . && printf 'node_modules\\n__pycache__/\\n*.pyc\\n.venv/\\n' > .git/info/exclude && git add -A "
    f"&& {_WHO} git commit -q --no-verify --allow-empty -m 'The project' && git config user.name developer "
    "&& git config user.email developer@localhost && rm -rf .git/logs"
)


def _word(value: str) -> str:
    """A value for Dockerfile's ENV and for a shell: quoted, its dollars its own."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$") + '"'
