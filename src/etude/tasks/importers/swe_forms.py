"""The family's many spellings of one row, distinguished by their keys and written as SWE-bench's own:

swe-bench      repo, base_commit, patch, test_patch, problem_statement, FAIL_TO_PASS, PASS_TO_PASS (Verified, Multilingual, Live, SWE-Gym;
               version 5 adds image, eval_script, log_parser, eval_type; SWE-rebench image_name/docker_image and install_config)
swe-bench-pro  the same with fail_to_pass, pass_to_pass as text, requirements and interface in addition to the statement, dockerhub_tag
swe-smith      no base commit and no tests of its own: `patch` makes the bug in a mirror that the repository's name tells
r2e-gym        repo_name, commit_hash, docker_image, expected_output_json: the image holds sources and tests
multi-swe      org, repo, number, base.sha, fix_patch; tests as {name: {run, test, fix}}, or the same by columns
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from typing import Any

RawRow = Mapping[str, Any]


def form_of(row: RawRow) -> str:
    """Which spelling these keys are of."""
    if "fix_patch" in row and "org" in row:
        return "multi-swe"
    if "expected_output_json" in row or "repo_name" in row and "commit_hash" in row:
        return "r2e-gym"
    if "base_commit" not in row and "patch" in row and "image_name" in row:
        return "swe-smith"
    return "swe-bench-pro" if "fail_to_pass" in row and "FAIL_TO_PASS" not in row else "swe-bench"


def canonical(row: RawRow) -> dict[str, Any]:
    """The same row in SWE-bench's keys; the caller checks values."""
    form = form_of(row)
    return {"form": form, "image": _image(row), **_FORMS[form](row)}


def _image(row: RawRow) -> Any:
    image = next((row[key] for key in ("image", "image_name", "docker_image") if row.get(key)), "")
    return image or (f"jefzda/sweap-images:{row['dockerhub_tag']}" if row.get("dockerhub_tag") else "")


def _plain(row: RawRow) -> dict[str, Any]:
    return dict(row) | {"image": _image(row)}


def _pro(row: RawRow) -> dict[str, Any]:
    parts = [row.get("problem_statement")]
    for key, title in (("requirements", "Requirements"), ("interface", "New interfaces introduced")):
        if isinstance(row.get(key), str) and row[key].strip():
            parts.append(f"{title}:\n{row[key].strip()}")
    whole = "\n\n".join(part.strip() for part in parts if isinstance(part, str))
    lists = {key.upper(): _literal(row[key]) for key in ("fail_to_pass", "pass_to_pass") if key in row}
    return {**row, **lists, "problem_statement": whole if isinstance(parts[0], str) else parts[0], "image": _image(row)}


def _literal(value: Any) -> Any:
    """A list as JSON or as Python writes it."""
    if not isinstance(value, str):
        return value
    for read in (json.loads, ast.literal_eval):
        try:
            return read(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue  # the other spelling may be it; the caller names what is neither
    return value


def _smith(row: RawRow) -> dict[str, Any]:
    """`swesmith/owner__name.0123abcd`: the mirror of a commit."""
    _, _, mirrored = str(row.get("repo", "")).rpartition("/")
    name, _, commit = mirrored.rpartition(".")
    owner, _, project = name.partition("__")
    return {**row, "repo": f"{owner}/{project}", "base_commit": commit, "test_patch": "", "reversed": True}


def _r2e(row: RawRow) -> dict[str, Any]:
    name, commit = str(row.get("repo_name") or row.get("repo") or ""), row.get("commit_hash") or row.get("base_commit")
    return {
        **row,
        "instance_id": row.get("instance_id") or f"{name}-{str(commit)[:12]}",
        "repo": name if "/" in name else f"{name}/{name}",
        "base_commit": commit,
        "patch": row.get("patch") or "",
        "test_patch": row.get("test_patch") or "",
        "FAIL_TO_PASS": row.get("FAIL_TO_PASS", []),
        "PASS_TO_PASS": row.get("PASS_TO_PASS", []),
    }


def _multi(row: RawRow) -> dict[str, Any]:
    base = row.get("base")
    issues = row.get("resolved_issues")
    first = issues[0] if isinstance(issues, list) and issues and isinstance(issues[0], Mapping) else row
    texts = [str(first.get(key) or "").strip() for key in ("title", "body")]
    kept = _outcomes(row.get("p2p_tests"))
    fixed = _outcomes(row.get("fixed_tests")) or [
        name for key in ("f2p_tests", "s2p_tests", "n2p_tests") for name in _outcomes(row.get(key))
    ]
    return {
        **row,
        "instance_id": row.get("instance_id") or f"{row.get('org')}__{row.get('repo')}-{row.get('number')}",
        "repo": f"{row.get('org')}/{row.get('repo')}",
        "base_commit": base.get("sha") if isinstance(base, Mapping) else base,
        "patch": row.get("fix_patch"),
        "problem_statement": "\n\n".join(part for part in texts if part),
        "FAIL_TO_PASS": fixed,
        "PASS_TO_PASS": kept,
    }


def _outcomes(tests: Any) -> list[str]:
    """Names of tests that pass with the fix, of either layout."""
    if isinstance(tests, Mapping) and isinstance(tests.get("name"), list):
        fixes = tests.get("fix") or [None] * len(tests["name"])
        pairs = list(zip(tests["name"], fixes, strict=False))
    else:
        entries = tests.items() if isinstance(tests, Mapping) else ()
        pairs = [(name, entry.get("fix") if isinstance(entry, Mapping) else entry) for name, entry in entries]
    return [name for name, fix in pairs if str(fix).upper() in ("PASS", "PASSED", "NONE")]


_FORMS: dict[str, Callable[[RawRow], dict[str, Any]]] = {
    "swe-bench": _plain,
    "swe-bench-pro": _pro,
    "swe-smith": _smith,
    "r2e-gym": _r2e,
    "multi-swe": _multi,
}
