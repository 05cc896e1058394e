"""A template that is no family's: what it writes around texts is found, proven by `model check`, and refused where it can't be found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.chat.check import check_model
from etude.agent.chat.families import UnknownFamily
from etude.agent.chat.load import load_renderer
from etude.agent.chat.template import ChatTemplate
from etude.agent.chat.trajectories import TOOLS
from etude.core.trace.message import Message, ToolCall
from etude.learn.corpus.tokenizer import train_tokenizer

TEXT = "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n<|user|>\n<|assistant|>\nUser: Assistant: <tool_call>"
EOS, MARKERS = "<|end_of_text|>", ("<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>")
# Roles spelt in words; the end of a turn is the only token.
SPELT = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ '<|system|>\\n' + m['content'] + '\\n' }}"
    "{% elif m['role'] == 'user' %}{{ '<|user|>\\n' + m['content'] + '\\n' }}{% else %}{{ '<|assistant|>\\n' + m['content'] + eos_token }}"
    "{% if not loop.last %}{{ '\\n' }}{% endif %}{% endif %}"
    "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}{% endfor %}"
)
# A default system prompt, roles as tokens.
MARKED = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_system|>system<|im_middle|>You help.<|im_end|>' }}{% endif %}{% for m in messages %}"
    "{{ '<|im_' + m['role'] + '|>' + m['role'] + '<|im_middle|>' + m['content'] | trim + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_assistant|>assistant<|im_middle|>' }}{% endif %}"
)
# The system prompt is refused.
SILENT = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system prompt here') }}{% endif %}{% if m['role'] == 'user' %}"
    "{{ 'User: ' + m['content'] + '\\n\\n' }}{% else %}{{ 'Assistant:' + m['content'] + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
AFTER_SYSTEM = SPELT.replace("{% if not loop.last %}{{ '\\n' }}", "{% if not loop.last %}{{ messages[0]['role'] }}")
TEMPLATES = {"spelt": SPELT, "marked": MARKED, "silent": SILENT}


def checkpoint(folder: Path, template: str) -> Path:
    tokenizer = train_tokenizer([TEXT] * 4, [EOS, *MARKERS], 400)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "olmo2", "vocab_size": 1000}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": EOS, "eos_token": {"content": EOS}}))
    (folder / "chat_template.jinja").write_text(template)
    return folder


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_without_tools_is_read_and_its_directory_is_sound(name: str, tmp_path: Path) -> None:
    report = check_model(checkpoint(tmp_path, TEMPLATES[name]))
    assert report.family == "template" and report.sound, [c for c in report.checks if c.state == "failed"]
    states = {check.name: check.state for check in report.checks}
    assert states["template"] == states["round trip"] == states["append-only"] == states["inert content"] == "ok"


@pytest.mark.parametrize("name", TEMPLATES)
def test_conversations_have_the_ids_of_the_template(name: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, TEMPLATES[name])
    renderer, template = load_renderer(folder), ChatTemplate.load(folder, "2025-01-01")
    assert template is not None
    words = st.text(st.characters(exclude_categories=["Cs", "Co"]), min_size=1, max_size=12).filter(
        lambda text: "<|" not in text and text == text.strip()
    )

    @settings(max_examples=40, deadline=None)
    @given(st.lists(words, min_size=1, max_size=5), words)
    def check(said: list[str], system: str) -> None:
        talk = [Message("user" if i % 2 == 0 else "assistant", text) for i, text in enumerate(said)]
        heads = [[]] if name == "silent" else [[], [Message("system", system)]]
        for messages in ([*head, *talk] for head in heads):
            if messages[-1].role == "user":
                rows = [{"role": m.role, "content": m.text} for m in messages]
                text = template.text(rows, (), generation=True)
                assert renderer.render(messages, ()) == renderer._tokenizer.encode(text)  # type: ignore[attr-defined]

    check()


def test_tools_are_in_the_system_prompt_and_calls_in_the_hermes_form(tmp_path: Path) -> None:
    renderer = load_renderer(checkpoint(tmp_path, SILENT))
    text = renderer._tokenizer.decode(renderer.render([Message("system", "Be brief."), Message("user", "Go.")], TOOLS))  # type: ignore[attr-defined]
    assert text.startswith("User: Be brief.\n\n# Tools") and text.endswith("Go.\n\nAssistant:")
    call = ToolCall("c0", "read_file", {"path": "a.py"})
    ids = renderer.answer(Message("assistant", "I read.", calls=(call,)))
    turn = renderer.parse(ids, tools=TOOLS)
    assert turn.calls == (call,) and turn.problem is None and ids[-1] in renderer.stop_ids


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (MARKED.replace("{% for", "{% if tools %}{{ tools }}{% endif %}{% for", 1), "a form of its own for what it calls 'tool'"),
        (SPELT.replace("+ eos_token", "+ ' ' + eos_token"), "which begins with no added token"),
        (SPELT.replace("m['content'] + eos_token", "m['content'] | upper + eos_token"), "writes a text of a conversation 0 times"),
        (MARKED.replace("{% for m", "{{ messages | length }}{% for m"), ""),
        (SPELT.replace("'<|user|>\\n'", "'<|user|>' ~ loop.index"), "depends on the place of the turn"),
        (AFTER_SYSTEM, "depends on the system prompt"),
        (SPELT.replace("for m in messages", "for m in messages[1:] + messages[:1]"), "another order"),
        ("{{ 1 // 0 }}", "refuses the conversation"),
        ("{% while %}", "does not compile"),
    ],
)  # fmt: skip
def test_what_can_not_be_found_is_refused_with_the_reason(template: str, why: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, template)
    if not why:  # words before the conversation may be anything, as long as its proof holds: here it does not
        assert not check_model(folder).sound
        return
    with pytest.raises(UnknownFamily, match="the chat format of model type 'olmo2' is unknown") as caught:
        load_renderer(folder)
    assert why in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_another_template_is_another_fingerprint(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, SPELT)
    before = load_renderer(folder).fingerprint
    (folder / "chat_template.jinja").write_text(SPELT.replace("<|user|>", "<|human|>"))
    assert load_renderer(folder).fingerprint != before


@pytest.mark.parametrize(
    ("model_type", "words"), [("llama", "none of chatml, smollm2"), ("olmo2", "known by model type 'olmo2'")]
)
def test_without_a_template_the_remedy_is_to_put_one_there(model_type: str, words: str, tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, SPELT)
    (folder / "chat_template.jinja").unlink()
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(UnknownFamily, match="there is no chat template.*as chat_template.jinja") as caught:
        load_renderer(folder)
    assert words in str(caught.value)


def test_a_base_model_with_tokens_of_chatml_and_no_template_has_no_other_models_name(tmp_path: Path) -> None:
    train_tokenizer([TEXT] * 4, ["<|im_start|>", "<|im_end|>", "<|endoftext|>"], 400).save(
        str(tmp_path / "tokenizer.json")
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert load_renderer(tmp_path).name == "chatml"
