"""Set-up by the launcher on machines that lack this or that, interrupted here or there: Python, pip and nvidia-smi are fakes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TORCH = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
VERSION = TORCH.removeprefix("torch==")

# A Python that makes environments of itself. What a call's words match in FAKE_FAILS fails, in FAKE_HANGS it hangs.
PYTHON = r"""
matches() { [ -n "$1" ] && printf '%s\n' "$words" | grep -Eq -- "$1"; }
words="$*"
case "$words" in
-V) echo Python 3.12.1; exit ;;
*ensurepip*t) matches "${FAKE_FAILS:-}"; exit $((! $?)) ;;
*ensurepip*) matches "${FAKE_FAILS:-}" || matches "${FAKE_NEW:-}"; exit $((! $?)) ;;
esac
echo "$words" >>"$CALLS"
case "$words" in
"-m venv "*)
    mkdir -p "$3/bin" "$3/lib"
    matches "${FAKE_HANGS:-}" && sleep 60
    touch "$3/pyvenv.cfg"
    cp "$0" "$3/bin/python"
    printf '#!/bin/sh\necho ran "$@"\n' >"$3/bin/etude"
    chmod +x "$3/bin/etude" ;;
*"pip show"*) cat "$(dirname "$0")/../torch" 2>/dev/null ;;
*)
    matches "${FAKE_HANGS:-}" && sleep 60
    matches "${FAKE_FAILS:-}" && echo "pip: nothing found for $words" && exit 1
    case "$words" in *"torch="*) echo "Version: VERSION+cpu" >"$(dirname "$0")/../torch" ;; esac ;;
esac
exit 0
""".replace("VERSION", VERSION)


class Machine:
    """A checkout in a folder with a space in its name, and a PATH on which fakes come first."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "my checkout"
        self.fakes = folder / "fakes"
        self.calls_file = folder / "calls"
        self.calls_file.touch()
        self.root.mkdir()
        for name in ("etude", "pyproject.toml", "constraints.txt", "requirements.txt", "requirements-test.txt"):
            shutil.copy(ROOT / name, self.root / name)
        self.fake("python3", PYTHON)
        self.fake("nvidia-smi", "exit 1")

    def fake(self, name: str, script: str) -> None:
        self.fakes.mkdir(exist_ok=True)
        (self.fakes / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.fakes / name).chmod(0o755)

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        base = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")}
        base |= {"PATH": f"{self.fakes}:{os.environ['PATH']}", "CALLS": str(self.calls_file)} | environment
        command = [str(self.root / "etude"), *(words or ("doctor",))]
        return subprocess.Popen(
            command, env=base, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, *words: str, **environment: str) -> tuple[int, str, str]:
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def installs(self, *, of: str = "torch=") -> list[str]:
        """The words of every pip install that asked for `of`, after the options that all of them have."""
        lines = [line for line in self.calls_file.read_text().splitlines() if "pip install" in line and of in line]
        return [line.partition("constraints.txt ")[2] for line in lines]

    def kill_at(self, pattern: str, **environment: str) -> None:
        """Start, and SIGKILL launcher and children once a call that matches hangs."""
        process = self.start(FAKE_HANGS=pattern, **environment)
        deadline = time.monotonic() + 30
        while not any(pattern in line for line in self.calls_file.read_text().splitlines()):
            assert time.monotonic() < deadline and process.poll() is None, process.communicate()
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_cpu_build_that_pip_sees_is_taken_first(machine: Machine) -> None:
    code, out, err = machine.run("doctor", "a b")
    assert (code, out) == (0, "ran doctor a b\n"), err
    assert machine.installs() == [f"--no-deps torch=={VERSION}+cpu"]
    assert "setting up in" in err and "ready after" in err


ORDER: list[tuple[str, dict[str, str], list[str], str]] = [
    (
        "the index of ETUDE_TORCH_INDEX",
        {"FAKE_FAILS": r"--no-deps torch==[^ ]*\+cpu$", "ETUDE_TORCH_INDEX": "https://mine/simple"},
        [f"--no-deps torch=={VERSION}+cpu", f"--no-deps --index-url https://mine/simple torch=={VERSION}"],
        "from ETUDE_TORCH_INDEX",
    ),
    (
        "the official index when that one has none",
        {"FAKE_FAILS": r"--no-deps torch==[^ ]*\+cpu$|https://mine", "ETUDE_TORCH_INDEX": "https://mine/simple"},
        [
            f"--no-deps torch=={VERSION}+cpu",
            f"--no-deps --index-url https://mine/simple torch=={VERSION}",
            f"--no-deps --index-url https://download.pytorch.org/whl/cpu torch=={VERSION}+cpu",
        ],
        "ETUDE_TORCH_INDEX has no usable torch",
    ),
    (
        "the default build, its size announced",
        {"FAKE_FAILS": r"\+cpu"},
        [
            f"--no-deps torch=={VERSION}+cpu",
            f"--no-deps --index-url https://download.pytorch.org/whl/cpu torch=={VERSION}+cpu",
            f"torch=={VERSION}",
        ],
        "about 3 GB to download, 7 GB on disk",
    ),
]


@pytest.mark.parametrize(("environment", "tried", "said"), [o[1:] for o in ORDER], ids=[o[0] for o in ORDER])
def test_without_it_comes(machine: Machine, environment: dict[str, str], tried: list[str], said: str) -> None:
    code, _, err = machine.run(**environment)
    assert code == 0 and said in err, err
    assert machine.installs() == tried


def test_a_machine_with_a_gpu_gets_the_default_build(machine: Machine) -> None:
    machine.fake("nvidia-smi", "echo 'GPU 0: H200 (UUID: x)'")
    code, _, err = machine.run()
    assert code == 0 and machine.installs() == [f"torch==={VERSION}"] and "about 3 GB" in err


def test_without_a_network_the_remedy_is_named_and_the_same_command_goes_on_later(machine: Machine) -> None:
    code, out, err = machine.run(FAKE_FAILS="pip install")
    assert code == 1 and out == ""
    assert "installing PyTorch failed" in err and "ETUDE_TORCH_INDEX" in err and "pip: nothing found" in err
    assert machine.run()[:2] == (0, "ran doctor\n")
    code, out, err = machine.run("test", FAKE_FAILS="requirements-test.txt")
    assert code == 1 and "installing the packages failed" in err
    assert machine.calls_file.read_text().count("-m venv") == 1, "what was done is kept"


def test_no_python_with_venv_is_one_line_and_a_newer_one_is_tried(machine: Machine) -> None:
    for name in ("python3.11", "python3.12", "python3.13"):
        machine.fake(name, "exit 1")
    code, _, err = machine.run(FAKE_FAILS="ensurepip")
    assert code == 1 and "apt install python3 python3-venv" in err and len(err.splitlines()) == 1
    code, out, err = machine.run(FAKE_NEW="ensurepip")
    assert code == 0 and "newer than the tested" in err


@pytest.mark.parametrize(
    "at", ["-m venv", "torch==", "pip install --disable-pip-version-check --no-input -c", "import torch"]
)
def test_killed_at_any_step_the_next_start_completes_the_set_up(machine: Machine, at: str) -> None:
    machine.kill_at(at)
    code, out, err = machine.run()
    assert (code, out) == (0, "ran doctor\n"), err
    before = machine.calls_file.read_text()
    assert machine.run()[:2] == (0, "ran doctor\n") and machine.calls_file.read_text() == before


def test_packages_that_do_not_load_are_reported_and_the_environment_is_made_afresh(machine: Machine) -> None:
    code, _, err = machine.run(FAKE_FAILS="import torch")
    assert code == 1 and "loading the packages failed" in err
    code, out, err = machine.run()
    assert (code, out) == (0, "ran doctor\n"), err
    assert machine.calls_file.read_text().count("-m venv") == 2


def test_a_moved_folder_is_set_up_again_in_its_new_place(machine: Machine) -> None:
    assert machine.run()[0] == 0
    machine.root = machine.root.rename(machine.root.with_name("elsewhere"))
    code, out, err = machine.run()
    assert (code, out) == (0, "ran doctor\n") and "setting up in" in err
    assert machine.calls_file.read_text().count("-m venv") == 2


def test_through_a_link_and_from_another_folder_it_is_the_same_checkout(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine.run()[0] == 0
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "etude").symlink_to(machine.root / "etude")
    monkeypatch.chdir(tmp_path)
    machine.root = tmp_path / "bin"
    assert machine.run() == (0, "ran doctor\n", "")


def test_of_two_started_together_one_sets_up_and_the_other_waits(machine: Machine) -> None:
    pair = [machine.start(), machine.start()]
    ends: list[tuple[str, str]] = [process.communicate(timeout=60) for process in pair]
    assert [process.returncode for process in pair] == [0, 0] and {out for out, _ in ends} == {"ran doctor\n"}
    assert len(machine.installs()) == 1, ends


def test_a_place_that_can_not_be_written_is_named(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = machine.run(ETUDE_VENV=str(tmp_path / "file" / "venv"))
    assert code == 1 and "can't write to" in err and "ETUDE_VENV" in err
