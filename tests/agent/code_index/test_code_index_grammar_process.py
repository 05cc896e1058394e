"""Grammars are native code, and a text may crash them: it costs the result of that text and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from etude.agent.code_index import grammar_process
from etude.agent.code_index.analysis import analyse
from etude.agent.code_index.definitions import TooHard, read_syntax
from etude.agent.code_index.grammar_process import GrammarCrashed, first_error, syntax_of
from etude.agent.harness.edits.syntax import syntax_damage
from etude.tasks.generate.generators.bugs.code import Code

# tree-sitter-bash 0.25.1 reads behind the end of a table for the character after `$`.
DEADLY = ("* $\U000fffff\U0010fffd" * 3).encode()
SOURCES = {
    "python": b"class A:\n    def f(self):\n        # why\n        return 1\n",
    "go": b"type T struct{}\nfunc (t T) f() {}\n",
    "javascript": b"const f = () => 1 // why\n",
}


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A text on which a child dies by a signal, whatever the version of the grammar makes of it."""
    hook = tmp_path / "sitecustomize.py"
    hook.write_text(
        "import os, signal, sys\n"
        "import etude.agent.code_index.languages as languages\n"
        "ours = languages.parser\n"
        "class Deadly:\n"
        "    def __init__(self, parser): self.parser = parser\n"
        "    def parse(self, source): os.kill(os.getpid(), signal.SIGSEGV) if b'DEADLY' in source else None; return self.parser.parse(source)\n"
        "if 'grammar_child' in ' '.join(sys.orig_argv): languages.parser = lambda name: Deadly(ours(name))\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    grammar_process._children.end()
    yield "x = 'DEADLY'\n"
    grammar_process._children.end()


@pytest.mark.parametrize("grammar", SOURCES)
def test_answers_are_those_of_the_grammar_in_this_process(grammar: str) -> None:
    assert syntax_of(grammar, SOURCES[grammar]) == read_syntax(grammar, SOURCES[grammar])
    assert first_error(grammar, SOURCES[grammar]) == 0
    assert first_error(grammar, SOURCES[grammar] + b"\n) (\n") > 0


def test_a_text_that_crashes_the_grammar_costs_its_own_result(crashing: str) -> None:
    for _ in range(2):
        with pytest.raises(GrammarCrashed, match="javascript: the grammar crashed on a text of 13 bytes"):
            first_error("javascript", crashing.encode())
        with pytest.raises(GrammarCrashed):
            syntax_of("javascript", crashing.encode())
        assert first_error("javascript", b"x = 1\n") == 0
    assert syntax_damage("a.js", crashing, crashing + "(") == "" == syntax_damage("a.js", "x = 1\n", crashing)
    assert [made.chunk.symbol for made in analyse("a.js", crashing, b"").chunks] == [""]
    assert Code("a.js", crashing.encode()).root.has_error and not Code("a.js", b"x = 1\n").sound(crashing.encode())


def test_the_text_that_was_found_ends_no_process() -> None:
    """Newer grammars may read it; this process lives in either case."""
    for _ in range(20):
        with contextlib.suppress(TooHard):
            first_error("bash", DEADLY)
    assert first_error("bash", b"echo $x\n") == 0


def test_threads_and_forks_get_answers_of_their_own() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: first_error("javascript", b"\n" * n + b")"), range(40)))
    assert found == list(range(1, 41))
    if (child := os.fork()) == 0:
        os._exit(0 if first_error("javascript", b"\n\n)") == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert first_error("javascript", b"\n)") == 2


def test_a_grammar_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_error("javascript", b"x\n") == 0
    child = grammar_process._children._child
    assert child is not None
    monkeypatch.setattr(grammar_process, "ANSWER_S", 0.3)
    os.kill(child.process.pid, signal.SIGSTOP)
    with pytest.raises(GrammarCrashed, match=r"took more than 0\.3 s"):
        first_error("javascript", b"x\n")
    assert child.process.poll() == -signal.SIGKILL
    monkeypatch.undo()
    assert first_error("javascript", b"x\n") == 0


def test_a_killed_process_is_replaced_and_none_is_left_at_the_end() -> None:
    code = (
        "import os, signal\nfrom etude.agent.code_index import grammar_process as g\n"
        "for _ in range(3):\n    assert g.first_error('go', b'package a') == 0\n    os.kill(g._children._child.process.pid, signal.SIGKILL)\n"
        "g.first_error('go', b'package a')\nprint(g._children._child.process.pid)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert not Path("/proc", done.stdout.strip()).exists()


def test_modules_in_the_folder_where_it_runs_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder may be anybody's repository."""
    for name in ("json", "signal", "tree_sitter", "tree_sitter_go", "etude"):
        (tmp_path / f"{name}.py").write_text("import os\nopen('imported', 'w')\nos._exit(3)\n")
    monkeypatch.chdir(tmp_path)
    grammar_process._children.end()
    assert first_error("go", b"package a\n") == 0
    assert not (tmp_path / "imported").exists()


def test_many_open_files_do_no_harm() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this machine allows fewer than 2,048 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    grammar_process._children.end()
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        assert first_error("go", b"package a\n") == 0
    finally:
        for fd in held:
            os.close(fd)
        grammar_process._children.end()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_answer_to_an_interrupted_request_is_not_taken_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_error("javascript", b"x\n") == 0
    real = os.read

    def interrupted(fd: int, size: int) -> bytes:
        monkeypatch.setattr(grammar_process.os, "read", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(grammar_process.os, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        first_error("javascript", b"\n\n\n)")
    assert first_error("javascript", b"x\n") == 0
