"""A sandbox backend in a person's own package: a runtime that starts our runner, or a pool of machines from somewhere else."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from etude.cli.prepare import require_plugins
from etude.cli.sandbox.flags import settings as settings_of_flag
from etude.core.plugins import PluginError, source_digest
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.execute import Run
from etude.pipeline.run.plugins import plugin_sources
from etude.sandbox.errors import Unsupported, UserError
from etude.sandbox.fake.pool import FakePool
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings, tier
from etude.sandbox.spec import SandboxSpec

RUNTIME, POOL = "my_backend:NiceProcesses", "my_pool:open_pool"


@pytest.fixture
def modules(template: Callable[[str], Path]) -> Path:
    return template("backends")


async def test_a_runtime_of_the_template_makes_sandboxes(modules: Path) -> None:
    try:
        pool = await open_pool(settings_of_flag(RUNTIME))
    except Unsupported as error:
        pytest.skip(str(error))
    try:
        assert pool.probe().backend == "nice-process" and pool.probe().available
        box = await pool.create(SandboxSpec(files={"a.txt": b"a\n"}, warm_python=False))
        ended = await box.run("nice; cat a.txt")
        assert ended.out == f"{min(os.nice(0) + 10, 19)}\na\n".encode(), (
            ended
        )  # on top of what the tests themselves have
        await box.kill()
    finally:
        await pool.close()


async def test_a_pool_of_the_template_is_taken_as_it_is(modules: Path) -> None:
    pool = await open_pool(SandboxSettings(backend=POOL, max_live=3))
    assert isinstance(pool, FakePool)
    await pool.close()
    assert tier(POOL) == "custom"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("it = 1", "mine:it is int; a backend is a runtime's class or"),
        (
            "class it: backend = 'mine'",
            "mine:it lacks isolation, end_signal, drops_root, egress, becomes_native, group_spec()",
        ),
    ],
)
def test_what_is_no_backend_is_refused_before_a_stage(code: str, message: str, modules: Path, tmp_path: Path) -> None:
    (modules / "mine.py").write_text(code + "\n")
    run = Run(read_recipe([], ['sandbox.backend="mine:it"']), tmp_path / "run")
    sys.modules.pop("mine", None)
    with pytest.raises(RecipeError, match=re.escape(f"sandbox.backend: {message}")):
        require_plugins(run, ["rl"])


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("async def it(settings): return 1", PluginError, "it gave int, which lacks create(), restore()"),
        ("def it(python): return 1", PluginError, "it gave int, which lacks backend, isolation"),
        ("async def it(settings): return {}['token']", Unsupported, "it can't be opened: KeyError: 'token'"),
    ],
)
async def test_what_a_backend_raises_or_gives_when_it_opens_is_one_line(
    code: str, kind: type[Exception], message: str, modules: Path
) -> None:
    name = f"mine_{abs(hash(code))}"
    (modules / f"{name}.py").write_text(code + "\n")
    with pytest.raises(kind, match=re.escape(message)):
        await open_pool(SandboxSettings(backend=f"{name}:it"))


def test_a_misspelt_backend_is_refused_and_a_run_is_bound_to_the_source(modules: Path) -> None:
    with pytest.raises(ValidationError, match="'locl' is none of auto, local"):
        SandboxSettings(backend="locl")
    with pytest.raises(UserError, match="--backend locl: there is no such back end"):
        settings_of_flag("locl")
    recipe = read_recipe([], [f'sandbox.backend="{RUNTIME}"'])
    assert plugin_sources(recipe, ["sandbox"]) == {RUNTIME: source_digest(RUNTIME)}
