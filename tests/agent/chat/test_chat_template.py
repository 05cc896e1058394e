"""A checkpoint's template is foreign code: what it writes is read, what it costs is bounded, and whatever it does is a TemplateError."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

import etude
from etude.agent.chat.files import read_template
from etude.agent.chat.load import family_of, load_renderer, read_config
from etude.agent.chat.template import ChatTemplate, TemplateError

DATE = "2025-08-05"
ASKED = [{"role": "user", "content": "Grüße 世界"}]


def template(source: str, **limits: float) -> ChatTemplate:
    return ChatTemplate(source, {"bos_token": "<s>"}, DATE, **limits)


def test_it_renders_messages_tools_names_and_helpers_as_transformers_does():
    source = (
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m['content'] }}{% if loop.last %}{% break %}{% endif %}{% endfor %}"
        "{{ tools | tojson }}{{ strftime_now('%Y') }}{{ add_generation_prompt }}{{ depth }}"
    )
    text = template(source).text(ASKED, [{"name": "<b>"}], generation=True, depth=3)
    assert text == '<s>[user] Grüße 世界[{"name": "<b>"}]2025True3'


def test_a_block_that_names_what_the_model_writes_is_text_as_any_other():
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% if loop.last %}!{% endif %}{% endgeneration %};{% endfor %}"
    rows = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert template(source).text(rows, [], generation=False) == "a;b!;"


def test_one_template_renders_many_conversations():
    found = template("{{ messages[0].content }}")
    assert [found.text([{"role": "user", "content": str(n)}], (), generation=False) for n in range(5)] == list("01234")


HOSTILE = {
    "loops with text": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}x{% endfor %}{% endfor %}{% endfor %}",
    "loops without text": "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "characters": "{{ 'x' * 10000000000 }}",
    "a list": "{% set x = [0] * 10000000000 %}",
    "many texts": "{% for a in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
    "a power": "{% set n = messages | length + 8 %}{{ n ** (n ** n) }}",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_does_not_end_is_ended_and_the_template_can_be_asked_again(kind):
    found, start = template(HOSTILE[kind], limit_s=1.0), time.monotonic()
    for _ in range(2 if kind == "characters" else 1):
        with pytest.raises(TemplateError, match="the chat template refuses the conversation"):
            found.text(ASKED, (), generation=True)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(
    "source",
    [
        "{% for %}",
        "{{ ",
        "{% if x %}",
        "{{ x | no_such_filter }}",
        "(" * 5 + "{{" + "(" * 50_000,
        "{% if a %}" * 20_000,
    ],
)
def test_a_template_that_is_none_does_not_compile(source):
    with pytest.raises(TemplateError, match="the chat template does not compile"):
        template(source)


def test_a_template_whose_constants_do_not_end_does_not_compile_in_time():
    with pytest.raises(TemplateError, match="does not compile: it takes too long"):
        template("{{ 9 ** (9 ** 9) }}", limit_s=1.0)


@pytest.mark.parametrize(
    "source",
    ["{{ raise_exception('no system prompt') }}", "{{ messages[7].content }}", "{{ ''.__class__.__mro__[1].__subclasses__() }}",
     "{{ messages.append(1) }}", "{{ 1 / 0 }}", "{{ none.x.y }}", "{% include 'x' %}", "{{ cycler.__init__.__globals__.os.system('id') }}"],
)  # fmt: skip
def test_a_template_that_refuses_or_reaches_out_is_typed(source):
    with pytest.raises(TemplateError, match="refuses the conversation"):
        template(source).text(ASKED, (), generation=True)


DEEP = "[" * 100_000


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize(
    "text",
    [DEEP, '{"a":' * 100_000, "[]", "{", '"x"', "\udcff"],
    ids=["deep list", "deep object", "list", "cut", "text", "bytes"],
)
def test_a_damaged_file_of_a_checkpoint_is_a_typed_error(tmp_path: Path, make_renderer, name, text):
    make_renderer("qwen3")._tokenizer._tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    for reader in (
        load_renderer,
        read_config,
        read_template,
        lambda f: ChatTemplate.load(f, DATE),
        lambda f: family_of(f, make_renderer("qwen3")._tokenizer),
    ):
        try:
            reader(tmp_path)
        except ValueError as error:
            assert name in str(error) or "tokenizer" in str(error)


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        ("Traceback ...\nModuleNotFoundError: No module named 'jinja2'", 1, "exit status 1): ModuleNotFoundError: No module named 'jinja2'"),
        ("", 3, "exit status 3): it said nothing"),
        ("x" * 100_000 + "\nMemoryError", 1, "it needs more memory or time than is given"),
    ],
)  # fmt: skip
def test_a_process_that_ends_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, status: int, words: str
) -> None:
    (tmp_path / "said").write_text(said)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n/bin/cat {tmp_path / 'said'} >&2; exit {status}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(TemplateError) as failed:
        template("hello")
    assert words in str(failed.value) and len(str(failed.value)) < 300


MANY = """
import os, resource, threading
from etude.agent.chat.template import ChatTemplate
from etude.core.events.stopping import StopFlag

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (1500, hard))
held = [os.dup(0) for _ in range(1100)]
print(ChatTemplate("hello", {}, "2025-08-05").text([], [], generation=False))
with StopFlag() as stop:
    assert not stop.wait(0.01)
    threading.Timer(0.05, os.kill, (os.getpid(), 15)).start()
    assert stop.wait(30)
"""


def test_a_process_with_more_than_a_thousand_open_files_renders_and_waits() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1500:
        pytest.skip("this machine allows fewer than 1,500 open files")
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_nothing_waits_by_a_call_that_takes_no_descriptor_above_1023() -> None:
    found = [str(path) for path in Path(etude.__file__).parent.rglob("*.py") if "select.select(" in path.read_text()]
    assert found == []
