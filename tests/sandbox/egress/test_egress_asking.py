"""The upstream comes from the machine's own tools."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from etude.sandbox.egress.errors import BadRule
from etude.sandbox.egress.packages import discovery
from etude.sandbox.egress.packages.cache import Digest, FileCache


def tool(folder: Path, script: str) -> list[str]:
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return [str(path)]


def test_pips_environment_wins_over_its_files_and_extras_follow(tmp_path: Path) -> None:
    said = (
        "global.index-url='http://file.test/simple'\n:env:.index-url='http://user:pw@env.test/simple'\n"
        "install.index-url='http://install.test/simple'\nglobal.extra-index-url='file:///a file:///b'\nglobal.cert='/ca.pem'"
    )
    found = discovery.pip(tool(tmp_path, f'cat <<"E"\n{said}\nE'))
    assert found == discovery.IndexConfiguration(
        ("http://user:pw@env.test/simple", "file:///a", "file:///b"), "/ca.pem"
    )
    assert "pw" not in repr(found)


def test_without_a_setting_pip_tells_its_own_default(tmp_path: Path) -> None:
    words = ["  -i, --index-url <url>  Base URL of it (default", "       http://default.test/simple). More"]
    script = f'if [ "$1" = install ]; then printf "%s\\n" "{words[0]}" "{words[1]}"; fi'
    assert discovery.pip(tool(tmp_path, script)).urls == ("http://default.test/simple",)


def test_the_real_pip_has_an_index() -> None:
    assert discovery.pip().urls


def test_npm_tells_its_registry(tmp_path: Path) -> None:
    script = 'case "$3" in registry) echo http://npm.test/;; *) echo null;; esac'
    assert discovery.npm(tool(tmp_path, script)) == discovery.IndexConfiguration(("http://npm.test/",), "")


@pytest.mark.parametrize("script", ["exit 1", "true"])
def test_a_tool_that_has_no_answer_says_what_to_do(tmp_path: Path, script: str) -> None:
    for ask in (discovery.pip, discovery.npm):
        with pytest.raises(BadRule):
            ask(tool(tmp_path, script))
    with pytest.raises(BadRule, match="can't be asked"):
        discovery.npm([str(tmp_path / "absent")])


async def test_the_cache_keeps_what_was_used_last(tmp_path: Path) -> None:
    import hashlib
    import os

    cache = FileCache(tmp_path, most_bytes=250)

    async def source(data: bytes):
        yield data

    kept = []
    for number in range(3):
        data = bytes([number]) * 100
        digest = Digest("sha256", hashlib.sha256(data).hexdigest())
        async for _ in cache.pieces(digest, source(data)):
            pass
        os.utime(tmp_path / "sha256" / digest.hexadecimal, (number + 1, number + 1))
        kept.append(digest)
    assert [cache.size(digest) for digest in kept] == [None, 100, 100]
