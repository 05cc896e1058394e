"""Harbor's settings: every field kept, honoured or refused by its name; what tests leave is a verdict, and nothing planted counts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.sandbox.errors import ServiceFailed
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.snapshots import images
from etude.sandbox.snapshots.cache import open_store
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import environment_of
from etude.tasks.environment.workspace import spec_of
from etude.tasks.errors import TaskError
from etude.tasks.graders.script import ScriptGrader, sound
from etude.tasks.importers.terminal import read_foreign_task
from etude.tasks.task import Task

SOLVED = '[ "$(cat /app/out.txt)" = 42 ]'
SCRIPT = f"#!/bin/sh\nif {SOLVED}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
COMPOSE = "services:\n  main:\n    build: .\n"


def harbor(folder: Path, toml: str = "", variables: Any = None, **files: str) -> Task:
    """A directory with this task.toml; further files by `path__with__slashes` and dots."""
    files = {
        "task.toml": f'schema_version = "1.4"\n{toml}',
        "instruction.md": "Write the answer to out.txt.\n",
        "environment/Dockerfile": "FROM tiny:1\nWORKDIR /app\n",
        "tests/test.sh": SCRIPT,
        "solution/solve.sh": "echo 42 > /app/out.txt\n",
        **files,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return read_foreign_task(folder, variables or {})


def test_limits_variables_health_and_network_of_a_task_are_its_machines(tmp_path: Path):
    task = harbor(
        tmp_path,
        """
        artifacts = ["/app/x"]
        [task]
        name = "org/answer"
        description = "d"
        authors = [{name = "a"}]
        keywords = ["k"]
        [metadata]
        difficulty = "hard"
        category = "maths"
        [agent]
        timeout_sec = 100
        user = "root"
        [verifier]
        timeout_sec = 30.5
        network_mode = "no-network"
        [verifier.env]
        KEY = "${KEY:-none}"
        [environment]
        build_timeout_sec = 9.0
        cpus = 2
        memory = "2G"
        storage = "512M"
        workdir = "/srv"
        network_mode = "allowlist"
        allowed_hosts = ["*.Example.org", "index.example.com."]
        env = {A = "b", HOME_OF = "${WHO}", D = "${E:-f}"}
        new_field = 1
        [environment.healthcheck]
        command = "test -e '/srv/x'"
        interval_sec = 0.5
        retries = 4
        [solution.env]
        S = "t"
        """,
        {"WHO": "me"},
    )
    environment = environment_of(task.metadata)
    assert environment is not None and task.id == "org/answer" and task.category == "maths"
    assert environment.env == {"A": "b", "HOME_OF": "me", "D": "f"} and environment.memory_mb == 2048
    assert environment.hosts == (".example.org", "index.example.com") and environment.disk_mb == 512
    assert "in reach: .example.org, index.example.com" in task.instruction and "Work in /srv." in task.instruction
    assert (
        "timeout 30 sh -c 'test -e '\\''/srv/x'\\'''" in environment.start_script
        and "-lt 4" in environment.start_script
    )
    hidden, metadata = task.hidden, task.metadata
    assert (hidden["limit_s"], hidden["env"], hidden["solve_env"]) == (30.5, {"KEY": "none"}, {"S": "t"})
    assert (
        hidden["hosts"] == []
        and hidden["artifacts"] == []
        and metadata["agent_limit_s"] == 100
        and metadata["cpus"] == 2
    )
    assert metadata["unread"] == ["environment.new_field"] and metadata["told"]["metadata"]["difficulty"] == "hard"
    assert [word.split(":")[0] for word in metadata["differs"]] == ["agent.user", "artifacts"]
    spec = spec_of(task, SandboxSpec())
    assert spec.network.mode == "allowlist" and spec.network.hosts == environment.hosts and spec.env["A"] == "b"
    assert spec.memory_mb == 2048 and spec.start_script == environment.start_script


@pytest.mark.parametrize(
    "toml, complaint",
    [
        (
            '[environment]\nenv = {A = "${NOBODY}"}',
            "environment.env.A asks for the variable NOBODY: give it with --env NOBODY=VALUE",
        ),
        ("[environment]\nenv = {A = 1}", "environment.env must be a table of texts"),
        ("[environment]\ngpus = 1", "environment.gpus = 1 is refused: sandboxes have no GPU"),
        ('[environment.tpu]\ntype = "v4"', "environment.tpu"),
        ('[environment]\nos = "Windows"', "environment.os = 'windows' is refused"),
        ('[[environment.mcp_servers]]\nname = "x"', "environment.mcp_servers"),
        ('[[steps]]\nname = "one"', "steps = .* is refused: a task of several steps"),
        ('[[verifier.collect]]\ncommand = "x"', "verifier.collect"),
        ("[verifier.environment]\ncpus = 1", "verifier.environment = .* is refused: tests run in a fork"),
        ('[verifier]\nenvironment_mode = "other"', "verifier.environment_mode must be shared or separate"),
        ('[verifier]\nuser = "judge"', "verifier.user must be left out, or root"),
        ("[agent]\nuser = 1000", "agent.user must be left out, or root"),
        (
            '[environment]\nnetwork_mode = "some"',
            "environment.network_mode must be one of public, no-network, allowlist",
        ),
        (
            '[environment]\nallowed_hosts = ["a.org"]',
            "allowed_hosts must be left out where network_mode is not allowlist",
        ),
        (
            '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["10.0.0.0/8"]',
            "names of hosts: the door .* knows no addresses",
        ),
        (
            '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["https://a.org/x"]',
            "must be names of hosts, or",
        ),
        ('[environment]\nmemory = "two"', 'environment.memory must be a size like "2G"'),
        ('[environment]\nmemory = "2G"\nmemory_mb = 1', "the same as memory_mb = 1"),
        ("[environment]\nmemory_mb = -1", "a whole number of 0 or more"),
        ("[environment.healthcheck]\nretries = 2", "healthcheck.command must be a shell command"),
        ("[verifier]\ntimeout_sec = inf", "verifier.timeout_sec must be seconds above 0"),
        ("[verifier]\ntimeout_sec = true", "verifier.timeout_sec must be seconds above 0"),
        ('schema = 1\n[verifier]\nenvironment_mode = "separate"\n', ""),
        ('artifacts = ["/etc/../x"]', "artifacts must be paths without .."),
        ('artifacts = [{source = "/app/x", service = "db"}]', "of the main service"),
        (
            'artifacts = ["/data/x"]\n[verifier]\nenvironment_mode = "separate"',
            "the artifact /data/x is refused: only files below /app",
        ),
    ],
)
def test_what_a_machine_here_cant_give_is_refused_by_its_name(tmp_path: Path, toml: str, complaint: str):
    if not complaint:
        assert harbor(tmp_path, toml).metadata["unread"] == ["schema"]
        return
    with pytest.raises(TaskError, match=complaint):
        harbor(tmp_path, toml)


@pytest.mark.parametrize(
    "files, complaint",
    [
        ({"environment/docker-compose.yaml": COMPOSE + "  db:\n    image: x\n"}, r"has 2 services \(main, db\)"),
        ({"environment/docker-compose.yaml": "services: ["}, "docker-compose.yaml does not parse"),
        ({"environment/docker-compose.yaml": "a: 1"}, "names no services"),
        ({"tests/Dockerfile": "FROM x"}, "tests/Dockerfile is refused"),
        ({"trajectory.json": "{}"}, "trajectory.json is refused"),
        ({"task.toml": 'schema_version = "2.0"'}, "schema_version '2.0' is not known here"),
        ({"task.toml": "a" * (9 << 20)}, "more than 8 MiB"),
    ],
)
def test_what_a_folder_holds_that_cant_be_run_here_is_refused_by_its_name(
    tmp_path: Path, files: dict[str, str], complaint: str
):
    with pytest.raises(TaskError, match=complaint):
        harbor(tmp_path, **files)


def test_a_lone_service_is_the_machine_binary_tests_travel_and_marks_of_provenance_are_not_shown(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "data.bin").write_bytes(b"\x00\xff")
    marked = "<!-- canary GUID 1 -->\n# CANARY 2\n\nWrite it.\n"
    task = harbor(tmp_path, **{"environment/docker-compose.yaml": COMPOSE, "instruction.md": marked})
    assert task.instruction.startswith("Write it.\n\nWork in /app.") and task.hidden["tests_binary"] == {
        "data.bin": "AP8="
    }


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='abc[]{}="\n.123,', max_size=80))
def test_no_settings_file_ends_in_anything_but_a_task_or_a_task_error(text: str):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        try:
            harbor(Path(folder), **{"task.toml": text})
        except TaskError:
            return


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    """A pool whose layer store holds an image `tiny:1` of a shell and a few programs, with a folder /app."""
    root = tmp_path / "root"
    (root / "app").mkdir(parents=True)
    for name in (
        "/bin/sh",
        "/bin/cat",
        "/bin/rm",
        "/bin/mkdir",
        "/bin/ln",
        "/usr/bin/head",
        "/bin/sleep",
        "/usr/bin/timeout",
    ):
        program = shutil.which(name)
        if program is None or shutil.which("ldd") is None:
            pytest.skip(f"{name} or ldd is not here to make a root file system of")
        shown = subprocess.run(["ldd", program], capture_output=True, text=True).stdout.split()
        for file in (program, *(word for word in shown if word.startswith("/"))):
            target = root / file.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(file), target)
    made = await open_pool(SandboxSettings.model_validate({"layers": str(tmp_path / "layers")}))
    if not made.probe().images:
        await made.close()
        pytest.skip("this back end has no images here")
    with open_store(str(tmp_path / "layers")) as store:
        images.add(store, root, "tiny:1").release()
    yield made
    await made.close()


def fitted(spec: SandboxSpec, task: Task) -> SandboxSpec:
    return replace(spec, image="tiny:1", warm_python=False, workdir=task.metadata["workdir"])


GRADER = ScriptGrader(fitted)


def with_hidden(task: Task, **change: Any) -> Task:
    return replace(task, hidden={**task.hidden, **change})


async def test_rewards_that_are_none_are_verdicts_of_0_that_say_why(tmp_path: Path, pool: SandboxPool):
    """Test 54 of docs/sandbox.md: json, text, absent, NaN, huge, links; a stale reward that the agent planted does not count."""
    task = await sound(harbor(tmp_path / "t"), GRADER, pool)
    planted = {"out.txt": b"42\n", "reward.txt": b"1", "logs/verifier/reward.json": b"1"}
    for lines, score, reason in (
        ("exit 0", 0, "left no reward"),
        ("echo NaN > /logs/verifier/reward.json; echo 1 > /logs/verifier/reward.txt", 0, "reward is nan"),
        ('echo \'{"reward": 0.5, "n": 3}\' > /logs/verifier/reward.json', 0.5, "reward 0.5"),
        ("echo 1 > /logs/verifier/reward.json", 1, ""),
        ("echo 7 > /logs/verifier/reward.txt", 1, ""),
        (": > /logs/verifier/reward.txt", 0, "is empty"),
        ("head -c 10000000 /dev/zero > /logs/verifier/reward.json", 0, "has 10000000 bytes"),
        ("echo 1 > /app/r; ln -s /app/r /logs/verifier/reward.txt", 0, "is no plain file but a link"),
        ("mkdir /logs/verifier/reward.json", 0, "is no plain file but a dir"),
        ("rm -rf /logs/verifier; ln -s /app/logs/verifier /logs/verifier", 0, "no"),
        ("echo 1 > /logs/verifier/reward.txt; exit 3", 1, ""),
        ("sleep 60", 0, "longer than 2 s"),
    ):
        other = with_hidden(task, tests={"test.sh": f"#!/bin/sh\n{lines}\n"}, limit_s=2.0)
        verdict = await GRADER.grade(other, planted, pool)
        assert (verdict.score, reason in verdict.reason) == (score, True), (lines, verdict)


async def test_what_an_agent_planted_for_the_grader_does_not_reach_it(tmp_path: Path, pool: SandboxPool):
    """Test 51 of docs/sandbox.md, of a task with its own script: planted rewards, tests in the way, files in their place."""
    task = harbor(tmp_path / "t")
    for planted in (
        {"out.txt": b"41", "logs/verifier/reward.json": b"1", "tests/test.sh": b"echo 1 > /logs/verifier/reward.txt"},
        {"test.sh": b"echo 1 > /logs/verifier/reward.txt", "cat": b"#!/bin/sh\necho 42\n", "sh": b"#!/bin/sh\n"},
        {},
    ):
        verdict = await GRADER.grade(task, planted, pool)
        assert verdict.score == 0 and not verdict.passed, planted


async def test_variables_health_and_declared_artifacts_hold_in_the_graders_machine(tmp_path: Path, pool: SandboxPool):
    """Test 55 of docs/sandbox.md: a machine that does not come up is an error of ours, never a reward of 0."""
    script = '#!/bin/sh\n[ "$A$V" = bc ] && [ -e /app/ready ] && [ ! -e /app/other ] && [ -e out.txt ] && echo 1 > /logs/verifier/reward.txt\n'
    task = harbor(
        tmp_path / "t",
        'artifacts = ["/app/out.txt", "/app/ready"]\n[verifier]\nenvironment_mode = "separate"\n[verifier.env]\nV = "c"\n'
        '[environment]\nnetwork_mode = "no-network"\nenv = {A = "b"}\n[environment.healthcheck]\ncommand = "test -e /bin/sh"\n',
        **{"tests/test.sh": script},
    )
    files = {"out.txt": b"42\n", "other": b"x", "ready": b""}
    verdict = await GRADER.grade(task, files, pool)
    assert verdict.passed, verdict
    sick = replace(
        task, metadata={**task.metadata, "environment": {**task.metadata["environment"], "start_script": "exit 1"}}
    )
    with pytest.raises(ServiceFailed, match="start script ended with 1"):  # the machine's fault: no reward of 0
        await GRADER.grade(sick, files, pool)


async def test_a_script_without_a_first_line_is_bashs_or_shs(tmp_path: Path, pool: SandboxPool):
    task = harbor(tmp_path / "t", **{"tests/test.sh": SCRIPT.removeprefix("#!/bin/sh\n")})
    assert (await GRADER.grade(task, {"out.txt": b"42"}, pool)).passed
