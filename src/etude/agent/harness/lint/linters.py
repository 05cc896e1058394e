"""The linters we know, as data: by which files a repository configures each, how it is run, how its output is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from etude.agent.harness.lint.finding import LintFinding, read_eslint, read_go_vet, read_pyright, read_ruff, read_tsc

_PYTHON = (".py", ".pyi")
_SCRIPT = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")


@dataclass(frozen=True)
class Linter:
    """`marks`: files in the root that configure it; or a `table` in pyproject.toml, or a `key` in package.json. `whole`: it looks
    at the project and takes no files. `good`: exit statuses that come with output to read."""

    name: str
    program: str
    arguments: tuple[str, ...]
    suffixes: tuple[str, ...]
    marks: tuple[str, ...]
    read: Callable[[str, str], list[LintFinding]]
    table: str = ""
    key: str = ""
    whole: bool = False
    good: tuple[int, ...] = (0, 1)
    piped: tuple[str, ...] = ()  # instead of files: how it reads a text from its input, as of the file named next


LINTERS = (
    Linter("ruff", "ruff", ("check", "--no-fix", "--no-cache", "--force-exclude", "--output-format", "json"), _PYTHON,
           ("ruff.toml", ".ruff.toml"), read_ruff, table="[tool.ruff", piped=("-", "--stdin-filename")),
    Linter("pyright", "pyright", ("--outputjson",), _PYTHON, ("pyrightconfig.json",), read_pyright, table="[tool.pyright"),
    Linter("eslint", "eslint", ("--format", "json"), _SCRIPT,
           ("eslint.config.js", "eslint.config.mjs", "eslint.config.cjs", "eslint.config.ts", ".eslintrc", ".eslintrc.js",
            ".eslintrc.cjs", ".eslintrc.json", ".eslintrc.yml", ".eslintrc.yaml"), read_eslint, key='"eslintConfig"',
           piped=("--stdin", "--stdin-filename")),
    Linter("tsc", "tsc", ("--noEmit", "--pretty", "false"), (".ts", ".tsx", ".mts", ".cts"), ("tsconfig.json",), read_tsc,
           whole=True, good=(0, 1, 2)),
    Linter("go vet", "go", ("vet", "./..."), (".go",), ("go.mod",), read_go_vet, whole=True),
)  # fmt: skip
