"""A Makefile that compiles, tests and packs a Python project."""

from __future__ import annotations

from etude.tasks.generate.generators.devops.recipe import Breakage, DevopsProject, DevopsRecipe, run

PATH = "Makefile"


def _text(subject: DevopsProject) -> str:
    package = subject.package
    return f"""\
# Checks, tests and packs {package}.
PYTHON ?= python3
SRC := {subject.folder}
TESTS := {subject.test}
BUILD := build-out

.PHONY: all check test dist clean

all: check test dist

check:
\t$(PYTHON) -m compileall -q -f $(SRC)

test:
\t{_escaped(subject.test_command("$(TESTS)"))}

dist: $(BUILD)/{package}.tar.gz

$(BUILD)/{package}.tar.gz: $(shell find $(SRC) -name '*.py') | $(BUILD)
\ttar -czf $@ $(SRC)

$(BUILD):
\tmkdir -p $@

clean:
\trm -rf $(BUILD)
"""


def makefile(subject: DevopsProject) -> DevopsRecipe:
    folder = subject.folder
    archive = f"build-out/{subject.package}.tar.gz"
    look = run(f"tar -xzOf {archive} {folder}/_stamp.py")
    again = run(f"make dist && sleep 0.1 && printf 'STAMP = \"{{nonce}}\"\\n' > {folder}/_stamp.py && make dist")
    return DevopsRecipe(
        level="makefile",
        what="the `Makefile`",
        files={PATH: _text(subject)},
        breakages=_breakages(folder),
        scenarios=(
            subject.good("make test passes", run("make test")),
            subject.bad("make test fails where a test fails", run("make test"), **subject.spoilt()),
            subject.good("make check passes", run("make check")),
            subject.bad("make check fails on code that does not parse", run("make check"), **subject.unparsable()),
            subject.good("make dist packs the code", run("make dist"), look, **subject.stamp_files()),
            subject.good("make dist packs again what was changed", again, look, says="{nonce}"),
            subject.good("make clean removes what was built", run("make dist && make clean && ! test -e build-out")),
            subject.good("make all packs", run("make all"), look, **subject.stamp_files()),
            subject.bad("make all tests", run("make all"), **subject.spoilt()),
        ),
        promise=(
            f"`make check` compiles every module below `{folder}` and fails where one does not parse",
            f"`make test` runs `{subject.test}` and fails where a test fails",
            f"`make dist` packs `{folder}` into `{archive}`, again whenever a module has changed or come",
            "`make all` does all three, `make clean` removes what was built",
        ),
        demand="All of `make check`, `make test`, `make dist`, `make all` and `make clean` must do what they are for.",
    )


def _breakages(folder: str) -> tuple[Breakage, ...]:
    rule = "$(shell find $(SRC) -name '*.py') | $(BUILD)"
    return (
        Breakage("tab", PATH, "\t$(PYTHON) -m", "        $(PYTHON) -m", "`make` stops with a missing separator"),
        Breakage("ignored", PATH, "test:\n\t", "test:\n\t-", "`make test` is green although tests fail"),
        Breakage("folder", PATH, f"SRC := {folder}\n", f"SRC := {folder}/lib\n", "`make dist` can't find the code"),
        Breakage(
            "order", PATH, f"{rule}\n", "$(shell find $(SRC) -name '*.py')\n", "`make dist` fails on a fresh checkout"
        ),
        Breakage(
            "stale", PATH, f"{rule}\n", "| $(BUILD)\n", "`make dist` packs nothing new after the code has changed"
        ),
        Breakage("skipped", PATH, "all: check test dist", "all: check dist", "`make all` is green although tests fail"),
        Breakage("variable", PATH, "tar -czf $@ $(SRC)", "tar -czf $< $(SRC)", "`make dist` leaves no archive"),
        Breakage("dollar", PATH, "\ttar -czf $@", "\ttar -czf $$@", "`make dist` leaves no archive"),
        Breakage(
            "swallowed", PATH, "-q -f $(SRC)", "-q -f $(SRC) || true", "`make check` passes on code that does not parse"
        ),
        Breakage("cleaned", PATH, "rm -rf $(BUILD)", "rm -rf $BUILD", "`make clean` leaves everything where it is"),
    )


def _escaped(command: str) -> str:
    """A shell's dollar is two in a Makefile, but for the variable of ours."""
    return command.replace("$", "$$").replace("'$$(TESTS)'", "$(TESTS)").replace("$$(TESTS)", "$(TESTS)")
