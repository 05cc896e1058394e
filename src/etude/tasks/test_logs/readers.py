"""The readers by the names that rows use: those of `swebench` 5.0.2, of its older sets' repositories, and of the family's own variants."""

from __future__ import annotations

from etude.tasks.errors import TaskError
from etude.tasks.test_logs import (
    compiled_runners,
    failures_only,
    javascript_reports,
    one_line,
    python_runners,
    suites,
)
from etude.tasks.test_logs.log import Reader

_PYTEST = ("pytest", "astroid", "flask", "marshmallow", "pvlib", "pyvista", "sqlfluff", "xarray")
_BY_WORD: dict[str, Reader] = {
    **dict.fromkeys(_PYTEST, python_runners.pytest),
    **dict.fromkeys(("pytest_options", "pydicom", "requests", "pylint"), python_runners.pytest_options),
    **dict.fromkeys(("pytest_v2", "astropy", "scikit", "sphinx"), python_runners.pytest_v2),
    "django": python_runners.django,
    "matplotlib": python_runners.matplotlib,
    "seaborn": python_runners.seaborn,
    "sympy": python_runners.sympy,
    "calypso": suites.calypso,
    "next": suites.fusion_next,
    "karma": suites.karma,
    "highlightjs": suites.highlightjs,
    **dict.fromkeys(("carbon", "react_pdf"), javascript_reports.jest_files),
    "grommet": javascript_reports.grommet,
    "prismjs": javascript_reports.prismjs,
    "lighthouse": javascript_reports.lighthouse,
    "quarto_cli": javascript_reports.quarto_cli,
    "immutable_js": javascript_reports.immutable_js,
    "jekyll": javascript_reports.jekyll,
    "bpmn_js": failures_only.bpmn_js,
    "chart_js": failures_only.chart_js,
    "eslint": failures_only.eslint,
    "marked": failures_only.marked,
    "openlayers": failures_only.openlayers,
    "p5js": failures_only.p5js,
    "jest": one_line.jest,
    "jest_json": one_line.jest_json,
    "vitest": one_line.vitest,
    "tap": one_line.tap,
    "redis": one_line.redis,
    "jq": one_line.jq,
    "micropython_test": one_line.micropython,
    "googletest": one_line.googletest,
    "gotest": one_line.gotest,
    "ant": one_line.ant,
    "minitest": one_line.minitest,
    "cucumber": one_line.cucumber,
    "ruby_unit": one_line.ruby_unit,
    "rspec_transformed_json": one_line.rspec,
    "cargo": one_line.cargo,
    "doctest": compiled_runners.doctest,
    "maven": compiled_runners.maven,
    "gradle_custom": compiled_runners.gradle,
    "phpunit": compiled_runners.phpunit,
}
READERS: dict[str, Reader] = {f"parse_log_{word}": reader for word, reader in _BY_WORD.items()}


def reader(name: str) -> Reader:
    """The reader of this name, with or without `parse_log_`. Raises TaskError."""
    found = READERS.get(name if name.startswith("parse_log_") else f"parse_log_{name}")
    if found is None:
        raise TaskError(f"no reader of logs is called {name!r}; there are {', '.join(READERS)}")
    return found
