"""A workflow of a continuous integration over a Python project: compile, test, pack."""

from __future__ import annotations

from etude.tasks.generate.generators.devops.recipe import Breakage, DevopsProject, DevopsRecipe, run

PATH = ".github/workflows/ci.yml"
COMPILE = 'python3 -m compileall -q -f "$SOURCE"'


def _text(subject: DevopsProject) -> str:
    return f"""\
name: ci
on: [push, pull_request]
env:
  SOURCE: {subject.folder}
jobs:
  lint:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - name: Compile
        run: {COMPILE}
  test:
    needs: lint
    runs-on: ubuntu-latest
    strategy:
      matrix:
        tests: ["{subject.test}"]
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
      - name: Test
        run: |
          {subject.test_command("${{ matrix.tests }}")}
  package:
    needs: [lint, test]
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - name: Pack
        run: |
          mkdir -p out
          tar -czf out/package.tar.gz "$SOURCE"
      - name: Look inside
        run: |
          tar -tzf out/package.tar.gz > out/files.txt
          grep -q "^$SOURCE/" out/files.txt
"""


def workflow(subject: DevopsProject) -> DevopsRecipe:
    folder = subject.folder
    flow = {"workflow": PATH}
    look = run(f"tar -xzOf out/package.tar.gz {folder}/_stamp.py")
    return DevopsRecipe(
        level="workflow",
        what=f"the workflow `{PATH}`",
        files={PATH: _text(subject)},
        breakages=_breakages(),
        scenarios=(
            subject.good("the workflow packs good code", flow, look, **subject.stamp_files()),
            subject.bad("it fails where a test fails", flow, **subject.spoilt()),
            subject.bad("it fails on code that does not parse", flow, **subject.unparsable()),
        ),
        promise=(
            f"It compiles every module below `{folder}` and fails where one does not parse",
            f"It runs `{subject.test}` and fails where a test fails",
            f"It packs `{folder}` into `out/package.tar.gz`, whose names begin with `{folder}/`",
            "Only `run` steps and the actions that set a machine up (checkout, setup-python) are there to be used",
        ),
        demand="It must pass on good code with `out/package.tar.gz` packed, and fail where a test fails or code does not parse.",
    )


def _breakages() -> tuple[Breakage, ...]:
    pack = "        run: |\n          mkdir -p out\n"
    return (
        Breakage("needs", PATH, "needs: [lint, test]", "needs: [lint, tests]", "the last job never starts"),
        Breakage("matrix", PATH, "        tests: [", "        test: [", "the test job can't be started: a value is missing"),
        Breakage("variable", PATH, "  SOURCE: ", "  SRC: ", "compiling says that there is no such variable, or no such folder"),
        Breakage("folded", PATH, pack, pack.replace("|", ">"), "packing makes strange folders and no archive"),
        Breakage("machine", PATH, "needs: lint\n    runs-on: ubuntu-latest\n", "needs: lint\n", "the file is refused as not valid"),
        Breakage("indent", PATH, "      - name: Look inside", "     - name: Look inside", "the file is refused as not valid"),
        Breakage("script", PATH, COMPILE, f"{COMPILE} || echo failed", "code that does not parse is green"),
        Breakage("folder", PATH, '"^$SOURCE/" out', '"^./$SOURCE/" out', "the last step fails although the archive is there"),
    )  # fmt: skip
