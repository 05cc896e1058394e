"""Runs under the Python of a venv that has `swebench`: JSON lines of cases in, what the package decides out, one line each.

The package's harness imports docker and data sets at its door; grading itself needs neither, so the door is left out.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any


def grading() -> Any:
    spec = importlib.util.find_spec("swebench")
    assert spec is not None and spec.submodule_search_locations is not None
    door = types.ModuleType("swebench.harness")
    door.__path__ = [str(Path(spec.submodule_search_locations[0]) / "harness")]
    sys.modules["swebench.harness"] = door
    return importlib.import_module("swebench.harness.grading")


def decided(harness: Any, case: dict[str, Any], place: Path) -> dict[str, Any]:
    from swebench.types import TestSpec  # pyright: ignore[reportMissingImports]

    place.write_bytes(case["log"].encode())
    keys = ("instance_id", "version", "FAIL_TO_PASS", "PASS_TO_PASS", "log_parser", "eval_type")
    spec = TestSpec(image="", eval_script_list=[], repo="", **{key: case[key] for key in keys})
    prediction = {"instance_id": case["instance_id"], "model_patch": "x", "model_name_or_path": "m"}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            statuses, _ = harness.get_logs_eval(spec, place)
            report = harness.get_eval_report(spec, prediction, place, True)[case["instance_id"]]
    except Exception as error:  # noqa: BLE001 - what it is is the answer
        return {"error": type(error).__name__}
    keys = ("patch_successfully_applied", "resolved", "tests_status", "infra_failure", "infra_failure_reason")
    return {"statuses": statuses, **{key: report[key] for key in keys if key in report}}


def main() -> None:
    harness = grading()
    print(json.dumps({"version": importlib.metadata.version("swebench")}))
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            print(json.dumps(decided(harness, json.loads(line), Path(folder) / "test_output.txt")), flush=True)


if __name__ == "__main__":
    main()
