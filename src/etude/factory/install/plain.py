"""Installs a plain Python project by the plainest of rules: a virtual environment, the project's needs and its extras for tests, then pytest.

What a model or a cleverer rule would add (other languages, mocks, retries) is not here: where these rules fail the project is discarded with
the reason. The project itself is taken out of the environment again, so that what tests import is the workspace's (promise 10); no build
leaves anything in the tree. All of it runs in a sandbox; the index answers for anything but the project's own name.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping

from etude.factory.generators.generator import Baseline, Installed
from etude.factory.making.order import Discarded
from etude.factory.sources.listed import Listed, Pristine
from etude.sandbox.protocol import Disposable, SandboxPool
from etude.sandbox.spec import WORKDIR, Network, PackageRule, SandboxSpec
from etude.tasks.environment.environment import DEPS, Environment, TestPlan
from etude.tasks.graders.commands import machine
from etude.tasks.running.testrun import Tests, run_tests
from etude.tasks.task import Task
from etude.tasks.validation.change import PYTEST_FILE

VENV = f"{DEPS}/venv"
EXTRAS = ("test", "tests", "testing", "dev")
INSTALL_S, TESTS_S = 300.0, 60.0
MEMORY_MB, DISK_MB, PIDS = 1024, 768, 256
# The project's modules go from the environment, what tells of its version stays: some ask for it when they are imported.
# Isolated: what the workdir tells of itself (an egg-info) names the workdir's own files.
EMPTIED = """
import sys
from importlib.metadata import files
for file in files(sys.argv[1]) or ():
    path = file.locate()
    if ".dist-info" not in str(file) and ".egg-info" not in str(file) and path.is_file():
        path.unlink()
"""
RULES = "2"  # part of every snapshot's name: other rules make other environments


async def install(listed: Listed, pristine: Pristine, pool: SandboxPool) -> Installed:
    """Raises Discarded with the reason, and InfraError."""
    tests = sorted(
        path for path in pristine.files if PYTEST_FILE.search(path) and not path.startswith(("build/", "docs/"))
    )
    if not tests:
        raise Discarded("it has no Python tests that pytest would collect")
    name = f"env-{listed.name}-{listed.version}-{_digest(pristine.files)}"
    rule = PackageRule("pip", ("*",), deny=(listed.name,))
    spec = SandboxSpec(
        files=pristine.files,
        memory_mb=MEMORY_MB,
        disk_mb=DISK_MB,
        pids=PIDS,
        network=Network("allowlist", packages=(rule,)),
    )
    box = await pool.create(spec)
    try:
        for step in steps(listed.name, pristine.files):
            await _done(box, step)
        await box.snapshot(name)
    finally:
        await box.kill()
    texts = {path: text for path, data in pristine.files.items() if (text := _text(data)) is not None}
    environment = Environment(
        listed.name, listed.version, "python", name, TestPlan("pytest", (), tuple(tests)), _env(pristine.files),
        memory_mb=MEMORY_MB,
    )  # fmt: skip
    baseline = await _baseline(environment, texts, tests, pool)
    return Installed(environment, texts, baseline, pristine.origin)


def steps(name: str, files: Mapping[str, bytes]) -> list[str]:
    """What is run, for /bin/sh; the tree is copied before it is built."""
    extras = ",".join(extra for extra in EXTRAS if extra in _extras(files))
    target = f"{DEPS}/build[{extras}]" if extras else f"{DEPS}/build"
    pip = f"{VENV}/bin/python3 -m pip -q --disable-pip-version-check"
    listed = [
        path
        for path in files
        if re.fullmatch(r"(requirements[-_/])?(dev|tests?|testing)([-_]requirements)?\.txt", path)
    ]
    return [
        f"python3 -m venv {VENV} && cp -r {WORKDIR} {DEPS}/build",
        f"{pip} install setuptools wheel {' '.join(f'-r {WORKDIR}/{path}' for path in sorted(listed))} '{target}'",
        f"{VENV}/bin/python3 -I -c '{EMPTIED}' '{name}' && rm -rf {DEPS}/build $HOME/.cache",
        f"find {DEPS} -name __pycache__ -prune -exec rm -rf {{}} +",
    ]


async def _done(box: Disposable, step: str) -> None:
    result = await box.run(["sh", "-c", step], timeout_s=INSTALL_S)
    if result.rc:
        said = (result.err + result.out).decode("utf-8", "replace").strip().splitlines()
        errors = [line for line in said if "error" in line.lower()] or said or [f"status {result.rc}"]
        raise Discarded(f"`{step[:60]}…` failed: {'; '.join(errors[-2:])[:300]}")


async def _baseline(environment: Environment, files: dict[str, str], tests: list[str], pool: SandboxPool) -> Baseline:
    """Each test file on its own, twice: what passed both times, and what did not."""
    task = Task(environment.name, "", "", "", files, (), "commands", metadata={"environment": environment.told()})
    passed: set[str] = set()
    flaky: set[str] = set()
    by_file: dict[str, tuple[str, ...]] = {}
    seconds: dict[str, float] = {}
    said = ""
    tree = {path: text.encode() for path, text in files.items()}
    for test in tests:
        runs = []
        for _ in range(2):
            ran = await run_tests(
                Tests((test,), (), "pytest"), tree, machine(task, pool, lambda spec, task: spec), TESTS_S
            )
            runs.append(ran)
            said = ran.said if ran.said and not ran.run.passed else said
            if not ran.run.passed:
                break
        good = frozenset.intersection(*(ran.run.passed for ran in runs))
        passed |= good
        flaky |= frozenset.union(*(ran.run.passed for ran in runs)) - good
        if good:
            by_file[test], seconds[test] = tuple(sorted(good)), runs[0].run.seconds
    if not passed:
        raise Discarded(f"none of its tests passes: {' '.join(said.split())[-200:] or 'pytest said nothing'}")
    return Baseline(frozenset(passed), frozenset(flaky), by_file, seconds)


def _env(files: Mapping[str, bytes]) -> dict[str, str]:
    src = any(path.startswith("src/") and path.endswith(".py") for path in files)
    places = [f"{WORKDIR}/src", WORKDIR] if src else [WORKDIR]
    return {"PATH": f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": ":".join(places)}


def _extras(files: Mapping[str, bytes]) -> set[str]:
    """Names only: which of them may be asked for."""
    try:
        project = tomllib.loads(files.get("pyproject.toml", b"").decode()).get("project", {})
        declared = set(project.get("optional-dependencies", {}))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise Discarded(f"its pyproject.toml does not parse: {error}") from error
    told = re.findall(rb"(?m)^Provides-Extra: *(\S+)", files.get("PKG-INFO", b""))
    return declared | {name.decode("utf-8", "replace") for name in told}


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(RULES.encode())
    for path in sorted(files):
        digest.update(f"{path}\0{len(files[path])}\0".encode() + files[path])
    return digest.hexdigest()[:16]


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
