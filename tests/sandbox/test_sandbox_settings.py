"""Settings of sandboxes: which backends there are, and what is said about former ones."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from etude.cli.sandbox import flags
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import read_recipe
from etude.sandbox.errors import Unsupported, UserError
from etude.sandbox.pool import LADDER, open_pool
from etude.sandbox.settings import BACKENDS, EXPERIMENTAL_BACKENDS, SUPPORTED_BACKENDS, SandboxSettings, tier
from etude.sandbox.spec_validation import FOLDER_BACKENDS

REMEDY = "it was removed because no guest could ever be started here; use local or podman"
FORMER_TABLE = """
[sandbox]
backend = "local"

[sandbox.firecracker]
program = "firecracker"
kernel = ""
rootfs = ""
arguments = "console=ttyS0 reboot=k panic=1 pci=off quiet"
"""


def test_a_removed_backend_is_refused_with_its_reason_and_a_remedy(tmp_path: Path) -> None:
    """Test 30 of docs/sandbox.md."""
    recipe = tmp_path / "old.toml"
    recipe.write_text('sandbox.backend = "firecracker"\n')
    with pytest.raises(RecipeError) as refused:
        read_recipe([recipe])
    assert str(refused.value) == f"{recipe}: sandbox.backend: 'firecracker': there is no such backend: {REMEDY}"
    with pytest.raises(RecipeError, match=f"^--set: sandbox.backend: .*{REMEDY}$"):
        read_recipe([], ["sandbox.backend=firecracker"])


def test_a_removed_backend_as_option_is_refused_with_a_remedy() -> None:
    with pytest.raises(UserError, match=f"^--backend firecracker: there is no such back end: {REMEDY}$"):
        flags.settings("firecracker")


def test_a_run_directory_with_the_former_table_still_opens(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(FORMER_TABLE)
    assert read_recipe([recipe]).sandbox == read_recipe([], ["sandbox.backend=local"]).sandbox


@pytest.mark.parametrize("key", ["kernel", "program", "unheard"])
def test_a_key_of_a_removed_backend_is_refused_with_its_value(key: str) -> None:
    problem = re.escape(f"--set: sandbox: firecracker.{key} = '/x': there is no such backend: {REMEDY}")
    with pytest.raises(RecipeError, match=f"^{problem}$"):
        read_recipe([], [f"sandbox.firecracker.{key}=/x"])


def test_every_backend_has_a_tier_and_none_is_taken_unasked_that_is_experimental() -> None:
    names = {*BACKENDS}
    assert names == {"auto", "fake", *SUPPORTED_BACKENDS, *EXPERIMENTAL_BACKENDS}
    assert {tier(name) for name in (*LADDER, *FOLDER_BACKENDS)} == {"supported"}
    assert tier("fake") == "for tests"


async def test_an_experimental_backend_is_announced_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(settings: SandboxSettings, backend: str, why: str) -> None:
        raise Unsupported(f"no {backend} today")

    monkeypatch.setattr("etude.sandbox.pool._opened", refuse)
    with caplog.at_level(logging.WARNING):
        for backend in ("auto", *SUPPORTED_BACKENDS):
            with pytest.raises(Unsupported):
                await open_pool(SandboxSettings.model_validate({"backend": backend}))
        assert not caplog.records
        for backend in EXPERIMENTAL_BACKENDS:
            with pytest.raises(Unsupported):
                await open_pool(SandboxSettings.model_validate({"backend": backend}))
    assert [record.getMessage() for record in caplog.records] == [
        f"sandbox.backend={name!r} is experimental: few machines have tested it; supported are local, bubblewrap, podman, docker"
        for name in EXPERIMENTAL_BACKENDS
    ]
