"""The embedded pair for Python: ten goals from what the tree holds, and the steps of a virtual environment below DEPS.

The project is built from a copy, so that nothing appears in the tree; its needs and its metadata stay, its modules are taken out of the
environment again: what tests import is the workspace's (promise 10).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from etude.sandbox.spec import WORKDIR
from etude.tasks.environment.environment import DEPS, TestPlan
from etude.tasks.generate.install.goal import TEN, Goal
from etude.tasks.generate.install.left_out import LEFT_OUT
from etude.tasks.generate.install.rules import python_django, python_interpreter, python_version
from etude.tasks.generate.install.rules import python_layout as layout
from etude.tasks.generate.install.rules.outside import without_services
from etude.tasks.generate.install.rules.python_needs import (
    extras,
    own_extras,
    own_requirements,
    project_table,
    setup_cfg,
    test_requirements,
)
from etude.tasks.generate.install.rules.repairs import python_wants
from etude.tasks.generate.sources.fetched import Fetched
from etude.tasks.running.pytest_tools import PYTEST_FLAGS

# Takes what a build put of the project itself out of its environment: nothing but the workdir may tell what the
# project's code says.
#
# Compiled modules and libraries, which the tree has no Python for, move into the tree, as a build in place would have
# left them.
#
# The scripts run with the environment's own Python, isolated: what the workdir tells of itself (an egg-info) names
# the workdir's own files.


# Its installed modules go; of its metadata what tools ask for stays, and the README within it goes. An extension whose name is a module or a
# package of the tree too (mypyc, Cython over Python files) goes as well: it would be imported in place of the tree's.
_INSTALLED = """import re, shutil, sys
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
roots = [Path(root) for root in sys.argv[1].split(":")]
def place(file):
    if not re.search(r"[.]so([.][0-9]+)*$", file.name):
        return None
    root = next((root for root in roots if len(file.parts) > 1 and (root / file.parts[0]).is_dir()), roots[0])
    plain = root / file.parent / file.name.partition(".")[0]
    taken = [root / file, plain.with_suffix(".py"), plain / "__init__.py"]
    return None if any(one.exists() for one in taken) else root / file
for name in sys.argv[2:]:
    try:
        listed = files(name) or ()
    except PackageNotFoundError:
        continue
    for file in listed:
        path = file.locate()
        if not path.is_file() or "/bin/" in str(path.resolve()):
            continue
        if ".dist-info" not in str(file):
            if to := place(file):
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, to)
            path.unlink()
        elif path.name == "METADATA":
            headers = path.read_text("utf-8", "replace").partition("\\n\\n")[0]
            path.write_text(re.sub(r"(?m)^Description:.*\\n?(^[ \\t].*\\n?)*", "", headers).rstrip() + "\\n\\n", "utf-8")
"""
# What other packages carry of it (setuptools has more_itertools) is the workdir's.
_VENDORED = """import shutil, sys
from pathlib import Path
roots = [Path(root) for root in sys.argv[1].split(":")]
holders = {"_vendor", "vendor", "_vendored", "vendored", "third_party"}
for name in sys.argv[2:]:
    for copy in [*Path(sys.prefix).rglob(name), *Path(sys.prefix).rglob(name + ".py")]:
        own = [root / copy.name for root in roots if (root / copy.name).exists()]
        if copy.parent.name not in holders or copy.is_symlink() or not own:
            continue
        shutil.rmtree(copy) if copy.is_dir() else copy.unlink()
        copy.symlink_to(own[0])
"""


def remove_copies(
    python: str, distributions: Iterable[str], modules: Iterable[str], python_path: str
) -> tuple[str, ...]:
    """Steps of a recipe. `python_path`: where the project's own `modules` lie, as `PYTHONPATH` has it."""
    return (
        f"{python} -I -c {shlex.quote(_INSTALLED)} {python_path} {' '.join(distributions)}",
        f"{python} -I -c {shlex.quote(_VENDORED)} {python_path} {' '.join(modules)}".rstrip(),
    )


VENV = f"{DEPS}/venv"
PIP = f"{VENV}/bin/python3 -I -m pip install -q"
MOST_FILES = 400
_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def goals(project: Fetched) -> list[Goal]:
    """Ten at most: suites, imports, entry points, tools that the project's own files name."""
    files = project.texts()
    tests = without_services(layout.tests(files))
    found: list[Goal] = []
    if tests:
        command = " ".join(
            ("python3 -m pytest", *PYTEST_FLAGS, "-p no:randomly -o addopts= --continue-on-collection-errors")
        )
        found.append(
            Goal(
                f"{command} {' '.join(tests[:MOST_FILES])}",
                "a summary with most tests passed",
                r"\d+ passed",
                None,
                True,
            )
        )
        found.append(
            Goal(f"python3 -m pytest -o addopts= --collect-only -q {tests[0]}", "ids of the tests of one file", "::")
        )
    for name in layout.modules(files)[:3]:
        where = f"import {name}; print({name}.__file__)"
        found.append(
            Goal(f"python3 -c '{where}'", "a path in the workdir: the project's own code", rf"(?m)^{WORKDIR}/")
        )
    for script in sorted(_entry_points(files))[:2]:
        found.append(Goal(f"{script} --help", "usage of the entry point", r"(?i)usage|options|help", None))
    found.append(Goal("python3 -m compileall -q . -x build; echo done", "the sources compile", "done"))
    found.append(Goal("python3 -m pip --version", "pip of the environment", DEPS))
    found.append(Goal("python3 -m pip check", "no requirement is broken", "", None))
    found.append(Goal("python3 -c 'import sys; print(sys.prefix)'", "the environment's own folder", VENV))
    return found[:TEN]


def plan(project: Fetched) -> TestPlan:
    return TestPlan("pytest", (), tuple(layout.tests(project.texts())[:MOST_FILES]))


def env(project: Fetched) -> dict[str, str]:
    more = python_django.env(project.texts())
    path = ":".join(filter(None, (layout.python_path(project.files), more.pop("PYTHONPATH", ""))))
    return {"PATH": f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": path, **more}


def steps(project: Fetched, wanted: Sequence[str] = (), *, plain: bool = False, bare: bool = False) -> tuple[str, ...]:
    """`wanted`: distributions that an earlier try missed; `plain`: what the project lists for its tests is installed one by one, and left
    out where it can't be had; `bare`: the project itself is not built, its requirements alone are installed, since tests import it from
    the tree."""
    files = project.texts()
    named = extras(files)
    target = f"{DEPS}/build[{','.join(named)}]" if named and not plain else f"{DEPS}/build"
    needs = [line for line in test_requirements(files) if not line.lower().startswith("pytest=")]
    needs += [python_django.PLUGIN] if python_django.needs_settings(files) else []
    if plain:
        apart, needs = [*own_extras(files, named), *needs], []
    else:
        apart = []
    needs = [*(own_requirements(files, named if not plain else ()) if bare else ()), *needs]
    demanded = python_interpreter.demands(wanted)
    quoted = _quoted(needs)
    names = layout.distribution(project.wanted.in_registry, files)
    found = [f"mkdir -p {DEPS}", python_interpreter.venv(files, demanded, VENV), f"{PIP} setuptools wheel"]
    if {"setup.py", "pyproject.toml", "setup.cfg"} & set(files) and not bare:
        before = f"{variables} " if (variables := python_version.variables(project)) else ""
        kept = "".join(
            f" && if [ -f {DEPS}/build/{path} ]; then cp {DEPS}/build/{path} {WORKDIR}/{path}; fi"
            for path in python_version.version_files(files)
        )
        found.append(f"cp -r {WORKDIR} {DEPS}/build && {before}{PIP} '{target}'{kept} && rm -rf {DEPS}/build")
    if quoted:
        found.append(f"{PIP} {quoted}")
    if apart := _quoted(apart):
        found.append(f'for one in {apart}; do {PIP} "$one" || echo "$one" >> {LEFT_OUT}; done')
    if guessed := _quoted([one for one in wanted if one not in demanded]):
        found.append(f'for one in {guessed}; do {PIP} "$one" || true; done')  # what lacks may be no distribution
    found += [*python_django.steps(files), *(_programs(files) if bare else [])]
    found += remove_copies(f"{VENV}/bin/python3", names, layout.modules(files), layout.python_path(files))
    found.append(f"find {DEPS} -name __pycache__ -prune -exec rm -rf {{}} + ; rm -rf /tmp/pip-* /tmp/.cache /tmp/tmp*")
    return tuple(found)


def _quoted(needs: Sequence[str]) -> str:
    return " ".join(f"'{need}'" for need in dict.fromkeys(needs) if "'" not in need)


def learned(project: Fetched, output: str, wanted: Sequence[str]) -> list[str]:
    """What to add after a failed try, a demand on the interpreter among it; modules of the project itself are not looked for in an index."""
    own = {name.replace("_", "-") for name in layout.modules(project.files)} | {"tests", "test", "conftest"}
    missing = [name for name in python_wants(output, set(wanted)) if name not in own]
    return [*missing, *(one for one in python_interpreter.learn_demand(output) if one not in wanted)]


def _entry_points(files: Mapping[str, str]) -> dict[str, str]:
    """`module:function` of the project's programs, by their names."""
    scripts = project_table(files).get("project", {}).get("scripts", {})
    found = {name: str(target) for name, target in scripts.items()} if isinstance(scripts, dict) else {}
    config = setup_cfg(files)
    for line in config.get("options.entry_points", "console_scripts", fallback="").splitlines():
        name, equals, target = line.partition("=")
        if equals:
            found[name.strip()] = target.strip()
    return {name: target for name, target in found.items() if _PROGRAM.fullmatch(name)}


def _programs(files: Mapping[str, str]) -> list[str]:
    """Steps that write the project's programs, where no build does."""
    found = []
    for name, target in _entry_points(files).items():
        if shape := re.fullmatch(r"([\w.]+):([\w.]+)(\s*\[.*\])?", target):
            first = shape[2].split(".")[0]
            text = f"#!{VENV}/bin/python3\nimport sys\nfrom {shape[1]} import {first}\nsys.exit({shape[2]}())\n"
            place = f"{VENV}/bin/{name}"
            found.append(f"printf %s {shlex.quote(text)} > {place} && chmod 755 {place}")
    return found
