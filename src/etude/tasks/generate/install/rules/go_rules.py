"""The embedded pair for Go: the modules that go.mod names, below DEPS, and one goal for each kind of thing that a module says of itself.

Modules come from where this machine's Go takes them (`go env GOPROXY`), through the policed door; a module without requirements, or with
a folder `vendor`, needs none.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import PurePosixPath
from urllib.parse import urlsplit, urlunsplit

from etude.sandbox.spec import WORKDIR
from etude.tasks.environment.environment import DEPS, TestPlan
from etude.tasks.generate.install.goal import Goal
from etude.tasks.generate.sources.fetched import Fetched

PLACE = f"{DEPS}/go"
MOST_FILES = 400
_PATIENCE_S = 30.0
_NO_TESTS = re.compile(r"(^|/)(vendor|testdata|_[^/]*|\.[^/]*)/")
_PROGRAM = re.compile(r"(?m)^package main\b")


def tests(project: Fetched) -> list[str]:
    """Of the module at the root: a folder with a go.mod of its own is another module."""
    files = project.texts()
    other_modules = tuple(f"{PurePosixPath(path).parent}/" for path in files if path.endswith("/go.mod"))
    found = sorted(path for path in files if path.endswith("_test.go") and not _NO_TESTS.search(path))
    return [path for path in found if not path.startswith(other_modules)][:MOST_FILES]


def plan(project: Fetched) -> TestPlan:
    return TestPlan("go", ("go", "test", "{files}"), tuple(tests(project)))


def goals(project: Fetched) -> list[Goal]:
    files = project.texts()
    packages = dict.fromkeys(f"./{PurePosixPath(path).parent}".replace("/.", "/") for path in tests(project))
    found = [Goal("go version", "go's version", r"go1\.")]
    if packages:
        found.append(Goal(f"go test {' '.join(packages)}", "one line a package, most are ok", "", None, True))
    found.append(Goal("go env GOMOD", "the module of the tree", rf"^{WORKDIR}/go\.mod"))
    found.append(Goal("go list ./...", "the packages of the module", r"\w"))
    if any(_PROGRAM.search(files[path]) for path in files if "/" not in path and path.endswith(".go")):
        found.append(Goal(f"go build -o {PLACE}/program . && echo built", "the program is built", "built"))
    return found


def env(project: Fetched) -> dict[str, str]:
    """Sums are checked against go.sum, not against a public log. No version of Go but this machine's is fetched. A mirror that this machine
    takes modules from is the sandbox's too."""
    return {
        "GOPATH": f"{PLACE}/path",
        "GOCACHE": f"{PLACE}/cache",
        "GONOSUMDB": "*",
        "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0",
        **({"GOPROXY": own_proxy()} if own_proxy() else {}),
        "PATH": "/usr/local/go/bin:/usr/lib/go/bin:/usr/local/bin:/usr/bin:/bin",
    }


def steps(project: Fetched, wanted: Sequence[str] = (), *, plain: bool = False, bare: bool = False) -> tuple[str, ...]:
    files = project.texts()
    found = [f"mkdir -p {PLACE}"]
    if "go.mod" not in files:
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", project.wanted.name)
        found.append(f"go mod init example.test/{name}")
    elif "vendor/modules.txt" not in project.files and re.search(r"(?m)^[^\S\n]*+require\b", files["go.mod"]):
        found.append("go mod download")
    found.append("go test -count=1 -run '^$' ./... >/dev/null || true")  # fills the cache of builds
    return tuple(found)


def learned(project: Fetched, output: str, wanted: Sequence[str]) -> list[str]:
    return []


@cache
def own_proxy() -> str:
    """`GOPROXY` of this machine's Go, without credentials; empty where there is no Go."""
    try:
        done = subprocess.run(["go", "env", "GOPROXY"], capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return "".join(_public(one) for one in re.split(r"([,|])", done.stdout.strip()))


def _public(address: str) -> str:
    """An address without name and password: it is kept with the tasks."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def hosts() -> tuple[str, ...]:
    """Where this machine's Go fetches modules from, with the port where one is named; empty where it fetches from the repositories alone."""
    found = [urlsplit(one).netloc for one in re.split(r"[,|]", own_proxy())]
    return tuple(dict.fromkeys(one for one in found if one))
