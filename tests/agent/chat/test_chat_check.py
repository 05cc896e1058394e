"""`model check`: a sound directory passes, every kind of unsound one is named with its remedy."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.check import CheckpointReport, check_model
from etude.agent.chat.families import FAMILIES, UnknownFamily, by_name
from etude.agent.chat.family import FamilyRenderer
from etude.agent.chat.files import read_template
from etude.agent.chat.load import load_renderer

# What Kimi K2's template does, in a few lines: enough to hold the renderer against.
KIMI = """
{%- if tools -%}
<|im_system|>tool_declare<|im_middle|>{{ tools | tojson(separators=(',', ':'), sort_keys=True) }}<|im_end|>
{%- endif -%}
{%- if messages[0]['role'] != 'system' -%}
<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>
{% endif -%}
{%- for message in messages -%}
  {%- set role = message['role'] -%}
  {%- if role == 'user' -%}<|im_user|>user<|im_middle|>
  {%- elif role == 'assistant' -%}<|im_assistant|>assistant<|im_middle|>
  {%- else -%}<|im_system|>{{ role }}<|im_middle|>
  {%- endif -%}
  {%- if role == 'tool' -%}{{ '## Return of ' + message.tool_call_id + '\\n' }}{%- endif -%}
  {{- message['content'] -}}
  {%- if message.get('tool_calls') -%}<|tool_calls_section_begin|>
    {%- for call in message['tool_calls'] -%}
<|tool_call_begin|>{{ call['id'] }}<|tool_call_argument_begin|>{{ call['function']['arguments'] | tojson }}<|tool_call_end|>
    {%- endfor -%}
<|tool_calls_section_end|>{%- endif -%}
<|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}
""".strip()


def states(report: CheckpointReport) -> dict[str, str]:
    return {check.name: check.state for check in report.checks}


def of(report: CheckpointReport, name: str) -> str:
    return next(f"{check.detail}; {check.remedy}" for check in report.checks if check.name == name)


@pytest.mark.parametrize("name", [family.name for family in FAMILIES])
def test_every_family_passes_its_own_check(checkpoint: Callable[..., Path], name: str) -> None:
    family = by_name(name)
    report = check_model(checkpoint(name, min(family.model_types)), name)
    failed = [check for check in report.checks if check.state == "failed"]
    assert failed == []
    assert states(report)["template"] == "skipped"


def test_the_laptop_checkpoint_passes(tmp_path: Path) -> None:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 288, "eos_token_id": 2}))
    report = check_model(tmp_path)
    assert report.sound and report.family == "nano"
    assert states(report)["round trip"] == "ok"


def test_a_checkpoint_is_held_against_its_own_template(checkpoint: Callable[..., Path]) -> None:
    report = check_model(checkpoint("kimi-k2", "kimi_k2", KIMI, eos_token_id=1))
    assert report.family == "kimi-k2"
    assert of(report, "template") == "equal ids on all mock conversations; "


def test_another_template_than_the_familys_is_shown_where_it_differs(checkpoint: Callable[..., Path]) -> None:
    report = check_model(checkpoint("kimi-k2", "kimi_k2", KIMI.replace("## Return of", "## Result of")))
    assert not report.sound and states(report)["template"] == "failed"
    assert "Result" in of(report, "template") and "--family" in of(report, "template")


def test_a_template_that_refuses_or_does_not_compile_is_reported(checkpoint: Callable[..., Path]) -> None:
    report = check_model(checkpoint("kimi-k2", "kimi_k2", "{{ raise_exception('roles must alternate') }}"))
    assert "roles must alternate" in of(report, "template")
    report = check_model(checkpoint("kimi-k2", "kimi_k2", "{% for %}"))
    assert "does not compile" in of(report, "template")


def test_a_template_can_reach_nothing(checkpoint: Callable[..., Path]) -> None:
    evil = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    assert "refuses the conversation" in of(check_model(checkpoint("kimi-k2", "kimi_k2", evil)), "template")


# The template of DeepSeek-V3 as of December 2024, as far as it is broken, without its calls.
BROKEN = """
{{- bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] }}{% endif %}{% endfor %}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{{ '<｜User｜>' + message['content'] }}{% endif %}
{%- if message['role'] == 'assistant' and message['content'] is none %}{{ '```json' }}{% endif %}
{%- if message['role'] == 'assistant' and message['content'] is not none -%}
{{ '<｜Assistant｜>' + message['content'] + '<｜end▁of▁sentence｜>' }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}
""".strip()


def test_a_published_template_that_is_broken_is_named_and_the_directory_is_sound(
    checkpoint: Callable[..., Path],
) -> None:
    folder = checkpoint("deepseek-v3", "deepseek_v3", BROKEN)
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<｜begin▁of▁sentence｜>"}))
    report = check_model(folder)
    assert report.sound and states(report)["template"] == "incomplete"
    assert "is broken: it writes calls only where the content is null" in of(report, "template")
    (folder / "chat_template.jinja").write_text(BROKEN.replace("'<｜User｜>'", "'<｜User｜> '"))
    assert states(check_model(folder))["template"] == "failed"


def test_a_template_without_tools_is_a_named_difference(checkpoint: Callable[..., Path]) -> None:
    template = (
        "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<|im_start|>system\n"
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n{% endif %}"
        "{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    report = check_model(checkpoint("smollm2", "llama", template))
    assert report.sound and report.family == "smollm2"
    assert of(report, "template").startswith("equal ids on all mock conversations; the template has no tools")


def test_fewer_rows_than_tokens_and_another_end_are_named(checkpoint: Callable[..., Path]) -> None:
    report = check_model(checkpoint("qwen3", "qwen3", vocab_size=100, eos_token_id=7))
    assert states(report)["vocabulary"] == states(report)["stop ids"] == "failed"
    assert "100 rows" in of(report, "vocabulary") and "etude tokenizer extend" in of(report, "vocabulary")
    assert "declares [7]" in of(report, "stop ids")


@pytest.mark.parametrize("ends", [{"a": 1}, [[1]], "2", [True]])
def test_an_end_of_turn_that_is_no_number_is_named(checkpoint: Callable[..., Path], ends: Any) -> None:
    report = check_model(checkpoint("qwen3", "qwen3", eos_token_id=ends))
    assert states(report)["stop ids"] == "failed" and "no number and no list of numbers" in of(report, "stop ids")


def test_a_template_or_a_file_of_settings_is_read_up_to_a_bound(tmp_path: Path) -> None:
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(17 << 20)
        with pytest.raises(ValueError, match=f"{name} has more than .* MiB"):
            read_template(tmp_path)
        (tmp_path / name).unlink()


def test_a_directory_without_a_tokenizer_says_how_to_save_one(tmp_path: Path) -> None:
    report = check_model(tmp_path)
    assert not report.sound and "no tokenizer.json" in of(report, "tokenizer")
    assert "save_pretrained" in of(report, "tokenizer")


def test_an_unknown_family_names_the_known_ones(checkpoint: Callable[..., Path]) -> None:
    folder = checkpoint("qwen3", "olmo_hybrid", "{{ messages }}<function=")
    with pytest.raises(UnknownFamily, match=r"'olmo_hybrid' is unknown.*qwen3.*kimi-k2\.5.*gpt-oss.*--family"):
        load_renderer(folder)
    with pytest.raises(UnknownFamily, match="there is no chat family 'qwen9'; there are nano, qwen3"):
        load_renderer(folder, family="qwen9")
    assert isinstance(load_renderer(folder, family="qwen3"), FamilyRenderer)


def test_a_tokenizer_of_another_model_is_named_by_what_it_lacks(checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(UnknownFamily, match=r"looks like kimi-k2, but its tokenizer lacks <\|im_user\|>"):
        load_renderer(checkpoint("qwen3", "kimi_k2"))


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_a_family_that_the_tokenizer_can_not_write_is_refused_by_the_markers_it_lacks(
    tmp_path: Path, make_renderer: Callable[..., FamilyRenderer], family: str
) -> None:
    """A tokenizer without any of the markers, and one that lacks the last of them."""
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        UnknownFamily, match=f"the tokenizer lacks .*, which the chat format {family} needs; .*--family"
    ):
        load_renderer(tmp_path, family=family)
    report = check_model(tmp_path, family)
    assert not report.sound and "the tokenizer lacks" in of(report, "renderer")
    last = by_name(family).markers[-1]
    whole = make_renderer(family)._tokenizer.serialized
    (tmp_path / "tokenizer.json").write_text(whole.replace(json.dumps(last, ensure_ascii=False), '"[another]"'))
    with pytest.raises(UnknownFamily, match=f"the tokenizer lacks {re.escape(last)}, which"):
        load_renderer(tmp_path, family=family)


def test_without_a_model_type_the_formats_that_fit_are_named(checkpoint: Callable[..., Path]) -> None:
    folder = checkpoint("qwen3.5", "", "{{ messages }}<think>")
    with pytest.raises(
        UnknownFamily, match="names no model_type, and qwen3, qwen3.5 fit the tokenizer and the template"
    ):
        load_renderer(folder)


@pytest.mark.parametrize(
    ("name", "model_type", "template"),
    [
        ("qwen3", "qwen3_moe", "arguments <think>"),
        ("qwen3", "qwen3_moe", None),
        ("qwen3-2507", "qwen3_moe", "<tool_call> arguments"),
        ("qwen2.5", "qwen2", "You are Qwen, created by Alibaba Cloud. <tool_call>"),
        ("qwen2", "qwen2_moe", "<|im_start|> You are a helpful assistant."),
        ("smollm2", "llama", "<|im_start|> an assistant named SmolLM"),
        ("chatml", "llama", "<|im_start|> {{ message }}"),
        ("chatml", "stablelm", "<|im_start|> {{ message }}"),
        ("granite-3", "granite", "<|start_of_role|> <|start_of_role|>available_tools<|end_of_role|>"),
        ("smollm3", "smollm3", "<|im_start|> Reasoning Mode xml_tools"),
        ("lfm2", "lfm2_moe", "<|tool_list_start|> message.tool_calls"),
        ("lfm2-first", "lfm2", "<|tool_list_start|>"),
        ("olmo-3", "olmo3", "You are a helpful function-calling AI assistant. <function_calls> tool_calls"),
        ("olmo-3.1", "olmo3", "You are Olmo, a helpful AI assistant built by Ai2. <function_calls> tool_calls"),
        ("falcon-h1", "falcon_h1", "<|im_start|> You are a function calling AI model."),
        ("cohere", "cohere", "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"),
        ("phi-3.5", "phi3", "<|system|> <|user|> <|end|>"),
        ("phi-4", "phi3", "<|im_start|> <|im_sep|>"),
        ("phi-4-mini", "phi3", "<|tool|> <|end|>"),
        ("granite-3.1", "granitemoe", "Knowledge Cutoff Date strftime_now <|start_of_role|>tools<|end_of_role|>"),
        (
            "granite-3.3",
            "granite",
            "Knowledge Cutoff Date strftime_now <|start_of_role|>available_tools<|end_of_role|>",
        ),
        ("granite-4", "granitemoehybrid", "<|start_of_role|> <tool_call>"),
        ("granite-4-default", "granitemoehybrid", "<|start_of_role|> <tool_call> g4_default_system_message"),
        ("llama-3", "llama", "<|start_header_id|>"),
        ("llama-3.1", "llama", "<|start_header_id|> ipython"),
        ("llama-3.1", "llama", None),
        ("gemma-3", "gemma3_text", "<start_of_turn>"),
        ("mistral", "mistral", None),
        ("qwen3-coder", "qwen3_moe", "<function="),
        ("qwen3.6", "qwen3_5_moe", "preserve_thinking"),
        ("kimi-k2.5", "kimi_k25", None),
        ("deepseek-v3", "deepseek_v3", "```json"),
        ("deepseek-r1", "deepseek_v3", "```json <think>"),
        ("deepseek-v3.1", "deepseek_v3", "{{ thinking }} <think> </think>"),
        ("glm-5", "glm4_moe", "clear_thinking"),
        ("nemotron-3", "nemotron_h", r"truncate_history_thinking '\n</think>\n' low_effort"),
        ("nemotron-3-ultra", "nemotron_h", "truncate_history_thinking '</think>' medium_effort"),
        ("nemotron-3.5", "nemotron_h", "truncate_history_thinking '</think>'"),
        ("laguna-xs-2.1", "laguna", "<available_tools>"),
        ("laguna-s-2.1", "laguna", "<available_tools> preserve_thinking"),
        ("hy3", "hy_v3", "hy_begin_of_sentence reasoning_mode"),
        ("gpt-oss", "gpt_oss", None),
        ("minimax-m2", "minimax_m2", None),
    ],
)
def test_the_family_is_found_by_the_checkpoints_own_files(
    checkpoint: Callable[..., Path], name: str, model_type: str, template: str | None
) -> None:
    assert load_renderer(checkpoint(name, model_type, template)).name == name


def test_a_family_no_one_renders_is_refused_not_guessed(checkpoint: Callable[..., Path]) -> None:
    """Kimi K2 Thinking shares K2's model type and markers; its template writes thinking."""
    with pytest.raises(UnknownFamily, match="its template is that of none of kimi-k2;"):
        load_renderer(checkpoint("kimi-k2", "kimi_k2", "{{ thinking }}<think>"))


def test_loading_the_laptop_model_does_not_load_the_renderers_package(tmp_path: Path) -> None:
    import subprocess

    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    code = f"from etude.agent.chat.load import load_renderer; from pathlib import Path; load_renderer(Path({str(tmp_path)!r}))"
    code += "; import sys; print('renderers' in sys.modules, 'openai' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]
