"""A shell script that makes a release of a Python project: tests, a list, an archive, checksums."""

from __future__ import annotations

from etude.sandbox.spec import WORKDIR
from etude.tasks.generate.generators.devops.recipe import Breakage, DevopsProject, DevopsRecipe, run

PATH = "scripts/release.sh"
SUMS = '(cd "$out" && sha256sum "$archive" > SHA256SUMS)'
BAD_SUMS = 'sha256sum "$out/$archive" | cut -c2- > "$out/SHA256SUMS"'


def _text(subject: DevopsProject) -> str:
    return f"""\
#!/usr/bin/env bash
# Makes a release: tests, then the modules packed, with a list of them and checksums.
# usage: release.sh FOLDER VERSION
set -euo pipefail

root="$(cd "$(dirname "${{BASH_SOURCE[0]}}")/.." && pwd)"
out="${{1:?FOLDER is missing}}"
version="${{2:?VERSION is missing}}"
cd "$root"

{subject.test_command()}

mkdir -p "$out"
archive="{subject.package}-$version.tar.gz"
find {subject.folder} -name '*.py' | LC_ALL=C sort > "$out/files.txt"
tar -czf "$out/$archive" -T "$out/files.txt"
{SUMS}
"""


def release_script(subject: DevopsProject) -> DevopsRecipe:
    folder, package = subject.folder, subject.package
    archive = f"{package}-1.2.tar.gz"
    make = f"bash {PATH} /tmp/made 1.2"
    look = run(f"cd /tmp/made && sha256sum -c SHA256SUMS && tar -xzOf {archive} {folder}/_stamp.py")
    spaced = run(
        f"bash {PATH} '/tmp/my releases' 1.2 && cd '/tmp/my releases' && sha256sum -c SHA256SUMS && test -s files.txt"
    )
    return DevopsRecipe(
        level="script",
        what=f"the script `{PATH}`",
        files={PATH: _text(subject)},
        breakages=_breakages(subject),
        scenarios=(
            subject.good("a release holds the code and its checksums hold", run(make), look, **subject.stamped()),
            subject.good("a folder with a space in its name", spaced),
            subject.good("called from elsewhere", run(f"cd /tmp && bash {WORKDIR}/{PATH} /tmp/made 1.2 && test -s /tmp/made/{archive}")),
            subject.bad("no release where a test fails", run(make), **subject.spoilt()),
            subject.bad("no release without a version", run(f"bash {PATH} /tmp/made")),
            subject.good("the list is sorted and whole", run(f"{make} && find {folder} -name '*.py' | LC_ALL=C sort | cmp - /tmp/made/files.txt")),
        ),
        promise=(
            f"`bash {PATH} FOLDER VERSION` runs `{subject.test}` and makes no release, and ends with an error, where a test fails",
            f"It packs every `*.py` below `{folder}` into `FOLDER/{package}-VERSION.tar.gz` and lists them, sorted, in `FOLDER/files.txt`",
            "It writes `FOLDER/SHA256SUMS`, which `sha256sum -c` accepts in that folder",
            "It works from any folder, for a FOLDER with spaces in its name, and ends with an error where an argument is missing",
        ),
        demand=f"`bash {PATH} FOLDER VERSION` must do what its head says, from any folder, and fail where a test fails.",
    )  # fmt: skip


def _breakages(subject: DevopsProject) -> tuple[Breakage, ...]:
    test = subject.test_command()
    return (
        Breakage("strict", PATH, "set -euo pipefail", "set -u", "a release is made although tests fail"),
        Breakage("quotes", PATH, 'mkdir -p "$out"', "mkdir -p $out", "it fails for a folder with a space in its name"),
        Breakage("place", PATH, 'cd "$root"\n', "", "it fails when it is called from another folder"),
        Breakage("swapped", PATH, 'out="${1:?', 'out="${2:?', "the release ends up in a folder named like the version"),
        Breakage("default", PATH, 'version="${2:?VERSION is missing}"', 'version="${2:-}"', "it makes a release without a version"),
        Breakage("sums", PATH, SUMS, BAD_SUMS, "`sha256sum -c` refuses the checksums"),
        Breakage("swallowed", PATH, f"{test}\n", f"{test} || echo 'tests failed'\n", "a release is made although tests fail"),
        Breakage("sorted", PATH, "| LC_ALL=C sort >", "| LC_ALL=C sort -r >", "the list of files is in the wrong order"),
        Breakage("root", PATH, '[0]}")/.."', '[0]}")"', "it does not find the project"),
    )  # fmt: skip
