"""What makes an environment again: the commands that led there, in order, and nothing else. Content-addressed by its tree and itself.

The commands run in a fresh sandbox over the project's tree, with the package indexes behind the policed door and the project's own name
denied; replaying a recipe passes the same checks as the build did (`replay`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import tomli_w

from etude.core import bounded_toml
from etude.sandbox.spec import Network, PackageRule
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.errors import TaskError

NAME = "etude-env-"
INSTALL_MEMORY_MB, INSTALL_DISK_MB, INSTALL_PIDS = 3072, 2048, 1024


@dataclass(frozen=True)
class InstallRecipe:
    """`steps` run under /bin/sh in the workdir, each must end with 0. `until`: packages published later are not seen. `goals`: the three
    commands that behave afterwards. `tree`: digest of the files it starts from."""

    project: str
    version: str
    language: str
    tree: str
    steps: tuple[str, ...]
    tests: TestPlan
    env: Mapping[str, str] = field(default_factory=dict)
    until: str = ""
    goals: tuple[str, ...] = ()
    builder: str = "rules"
    start_script: str = ""
    deny: tuple[str, ...] = ()  # the project's own names in its registry: what was released is no build
    hosts: tuple[str, ...] = ()  # besides the package indexes: where a language fetches its modules from

    @property
    def digest(self) -> str:
        fields = self._fields() | {"goals": (), "builder": ""}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    @property
    def snapshot(self) -> str:
        """Its name in the layer store."""
        return f"{NAME}{self.digest[:24]}"

    @property
    def environment(self) -> Environment:
        return Environment(
            self.project, self.version, self.language, self.snapshot, self.tests, dict(self.env), self.start_script
        )

    @property
    def network(self) -> Network:
        """Everything that a build may need, but not the project itself."""
        pip = self.deny if self.language == "python" else ()
        npm = self.deny if self.language == "javascript" else ()
        rules = (PackageRule("pip", ("*",), self.until, pip), PackageRule("npm", ("*",), self.until, npm))
        return Network("allowlist", hosts=self.hosts, packages=rules)

    def _fields(self) -> dict[str, Any]:
        """`hosts` only where there are some: recipes from before they could be named keep their digests."""
        fields = asdict(self)
        return fields if self.hosts else {key: value for key, value in fields.items() if key != "hosts"}

    def to_toml(self) -> str:
        fields = self._fields() | {"env": dict(self.env), "digest": self.digest}
        return tomli_w.dumps(_plain(fields))


def read_recipe(text: str) -> InstallRecipe:
    """Raises TaskError for what is no recipe, or was changed by hand without its digest."""
    try:
        fields = bounded_toml.loads(text)
        digest = fields.pop("digest")
        plan = fields.pop("tests")
        tests = TestPlan(plan["runner"], tuple(plan["command"]), tuple(plan["files"]))
        recipe = InstallRecipe(
            **{
                **fields,
                "steps": tuple(fields["steps"]),
                "goals": tuple(fields["goals"]),
                "tests": tests,
                "deny": tuple(fields["deny"]),
                "hosts": tuple(fields.get("hosts", ())),
            }
        )
        actual = recipe.digest
    except (ValueError, KeyError, TypeError) as error:
        raise TaskError(f"this is no recipe of an environment ({error}); install the project again") from error
    if actual != digest:
        raise TaskError(
            f"the recipe of {recipe.project} says {str(digest)[:12]} and is {actual[:12]}: it was changed by hand"
        )
    return recipe


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
