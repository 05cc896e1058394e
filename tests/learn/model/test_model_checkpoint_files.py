"""A checkpoint is complete: tokenizer configuration, chat template, generation configuration and model card, and a row for every token."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from etude.agent.chat.check import check_model
from etude.agent.chat.nano import NanoRenderer
from etude.agent.chat.special import CHAT_TOKENS, SPECIAL_TOKENS
from etude.core.trace.message import Message, ToolCall
from etude.learn.corpus.tokenizer import train_tokenizer
from etude.learn.model.card import Training, origin_of
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import check_companions, load_checkpoint, loadable, save_checkpoint
from etude.learn.model.config import ModelConfig
from etude.learn.model.init import draw
from etude.learn.model.settings import ModelSettings
from etude.learn.model.vocabulary import with_rows
from etude.learn.weights.hf_files import CheckpointError

VOCABULARY = 97
SMALL = {"hidden_size": 32, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16, "max_positions": 256}
SMALL |= {
    "kv_lora_rank": 20,
    "nope_dim": 12,
    "rope_dim": 8,
    "v_dim": 14,
    "dense_intermediate": 40,
    "moe_intermediate": 16,
    "experts": 4,
}
WHOLE = {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "README.md"}
TEMPLATE = "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}"
CARD = "---\nlicense: apache-2.0\nlicense_link: LICENSE\nlanguage: [en]\n---\n# Someone's model\n\nSolves 99%.\n"
GENERATION = '{"eos_token_id": [2, 3], "temperature": 0.6}'


def tiny(family: str = "qwen3_moe", vocabulary: int = VOCABULARY) -> CausalLM:
    settings = ModelSettings.model_validate(SMALL | {"family": family})
    model = CausalLM(ModelConfig.from_settings(settings, vocabulary))
    draw(model, settings)
    return model


def foreign_tokenizer(size: int = 90) -> Tokenizer:
    """Byte-less BPE as other people's: letters, two marks that begin and end a turn."""
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, "<eot>": 3}
    words |= {f"w{number}": number for number in range(4, size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.WordPiece()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in ("<pad>", "<s>", "</s>", "<eot>")])
    return tokenizer


@pytest.fixture(params=["deepseek_v3", "qwen3_moe"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A published base: 90 tokens, 97 rows, everything that hubs hold."""
    folder = tmp_path / "somebodys-base"
    save_checkpoint(tiny(request.param), folder, extra_config={"eos_token_id": 2, "pad_token_id": 0})
    foreign_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class":"PreTrainedTokenizerFast", "eos_token":"</s>","pad_token":"<pad>", "padding_side": "left"}'
    )
    (folder / "special_tokens_map.json").write_text('{"eos_token":"</s>"}')
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "generation_config.json").write_text(GENERATION)
    (folder / "README.md").write_text(CARD)
    (folder / "LICENSE").write_text("Apache License\n")
    return folder


def trained(folder: Path, source: Path | None, stage: str = "sft", **more: object) -> Path:
    model = load_checkpoint(source) if source is not None and (source / "config.json").is_file() else tiny()
    save_checkpoint(model, folder, tokenizer_from=source, trained=Training(stage, "12 sessions"), **more)  # type: ignore[arg-type]
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_the_base_had_is_carried_over_byte_by_byte(base: Path, tmp_path: Path) -> None:
    once = trained(tmp_path / "a", base)
    twice = trained(tmp_path / "b", once, stage="rl")
    assert names(twice) >= WHOLE | {"chat_template.jinja", "LICENSE"}
    for name in names(base) - {"README.md", "config.json"}:
        assert (twice / name).read_bytes() == (base / name).read_bytes(), name


def test_the_card_names_base_licence_and_stages_and_nothing_that_the_base_claimed(base: Path, tmp_path: Path) -> None:
    last = trained(tmp_path / "b", trained(tmp_path / "a", base), stage="rl")
    origin = origin_of(last)
    assert origin.base == "somebodys-base" and dict(origin.licence)["license"] == "apache-2.0"
    assert [stage.stage for stage in origin.stages] == ["sft", "rl"]
    text = (last / "README.md").read_text()
    assert "99%" not in text and "AutoModelForCausalLM" in text and "12 sessions" in text
    assert "7 rows are padding" in text


@pytest.mark.parametrize(
    "card",
    [
        "",
        "no front matter",
        "---\n[: broken\n---\n",
        "---\netude: 7\nbase_model: []\n---\n",
        "---\n- a\n---\n",
        "\0\xff",
    ],
)
def test_a_card_that_says_nothing_names_the_folder_as_base(tmp_path: Path, card: str) -> None:
    base = tmp_path / "org-model"
    base.mkdir()
    (base / "README.md").write_text(card)
    assert origin_of(base).base == "org-model" and origin_of(base).licence == ()


def test_a_base_in_the_hubs_cache_is_named_as_on_the_hub(tmp_path: Path) -> None:
    folder = tmp_path / "models--org--Some-4B" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    assert origin_of(folder).base == "org/Some-4B"


def test_a_base_with_weights_and_tokenizer_alone_is_completed(base: Path, tmp_path: Path) -> None:
    for name in names(base) - {"config.json", "tokenizer.json"}:
        if not name.startswith("model"):
            (base / name).unlink()
    made = trained(tmp_path / "a", base)
    assert names(made) >= WHOLE
    settings = json.loads((made / "tokenizer_config.json").read_text())
    assert settings["eos_token"] == "</s>" and settings["pad_token"] == "<pad>"
    assert json.loads((made / "generation_config.json").read_text()) == {"eos_token_id": 2, "pad_token_id": 0}
    report = check_model(base)
    found = next(check for check in report.checks if check.name == "files")
    assert found.state == "incomplete"
    for name in ("tokenizer_config.json", "generation_config.json", "README.md", "chat template"):
        assert name in found.detail


def test_transformers_reads_as_many_tokens_as_the_tokenizer_has_and_never_more_than_rows(
    base: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (base / name).unlink()
    made = trained(tmp_path / "a", base)
    read = AutoTokenizer.from_pretrained(str(made))
    rows = load_checkpoint(made).embed.weight.shape[0]
    assert len(read) == 90 and rows == VOCABULARY == json.loads((made / "config.json").read_text())["vocab_size"]
    assert read.eos_token_id == 2


def test_a_base_with_a_tokenizer_of_another_format_keeps_it(base: Path, tmp_path: Path) -> None:
    (base / "tokenizer.json").unlink()
    (base / "tiktoken.model").write_text("YQ== 0\n")
    (base / "tokenization_kimi.py").write_text("class TikTokenTokenizer: ...\n")
    made = trained(tmp_path / "a", base)
    for name in ("tiktoken.model", "tokenization_kimi.py", "tokenizer_config.json", "generation_config.json"):
        assert (made / name).read_bytes() == (base / name).read_bytes()


def test_padding_rows_of_the_base_stay_bit_by_bit(base: Path, tmp_path: Path) -> None:
    before, after = load_checkpoint(base), load_checkpoint(trained(tmp_path / "a", base))
    assert torch.equal(before.embed.weight[90:], after.embed.weight[90:])
    assert torch.equal(before.head.weight[90:], after.head.weight[90:])


def test_more_tokens_than_rows_is_refused(tmp_path: Path) -> None:
    foreign_tokenizer(VOCABULARY + 1).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="tokenizer has the id 97, and the model 97 rows.*tokenizer extend"):
        save_checkpoint(tiny(), tmp_path / "c", tokenizer_from=tmp_path)
    assert not (tmp_path / "c").exists()


def test_config_rows_and_tensor_rows_must_agree(base: Path) -> None:
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"vocab_size": 96}))
    with pytest.raises(CheckpointError, match="97 rows, and config.json says vocab_size 96"):
        loadable(base)


def nano_base(tmp_path: Path) -> tuple[Path, CausalLM]:
    """What the laptop's stage corpus leaves, and a model with a row for each token."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    tokenizer = train_tokenizer(["def total(items):\n    return sum(items)\n"] * 4, SPECIAL_TOKENS, 300)
    tokenizer.save(str(corpus / "tokenizer.json"))
    return corpus, tiny(vocabulary=tokenizer.get_vocab_size())


def save_nano(tmp_path: Path) -> Path:
    corpus, model = nano_base(tmp_path)
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    save_checkpoint(model, tmp_path / "base", tokenizer_from=corpus, extra_config=ids, trained=Training("base", "code"))
    return trained(tmp_path / "made", tmp_path / "base")


def test_a_laptop_checkpoint_is_complete_and_has_a_row_for_each_token(tmp_path: Path) -> None:
    from transformers import AutoTokenizer, GenerationConfig

    made = save_nano(tmp_path)
    assert names(made) >= WHOLE | {"chat_template.jinja"}
    read = AutoTokenizer.from_pretrained(str(made))
    assert len(read) == load_checkpoint(made).embed.weight.shape[0]
    assert (read.bos_token_id, read.eos_token_id, read.pad_token_id) == (1, 2, 0)
    assert GenerationConfig.from_pretrained(str(made)).eos_token_id == 2
    origin = origin_of(made)
    assert origin.base == "" and [stage.stage for stage in origin.stages] == ["base", "sft"]
    report = check_model(made)
    assert report.sound and {check.state for check in report.checks if check.name in ("files", "template")} == {"ok"}


def test_a_token_that_only_the_configuration_names_needs_a_row(tmp_path: Path) -> None:
    made = save_nano(tmp_path)
    settings = json.loads((made / "tokenizer_config.json").read_text())
    (made / "tokenizer_config.json").write_text(json.dumps(settings | {"unk_token": {"content": "<|endoftext|>"}}))
    found = next(check for check in check_model(made).checks if check.name == "vocabulary")
    assert found.state == "failed" and "<|endoftext|>, which tokenizer.json lacks" in found.detail


def test_the_laptop_template_writes_what_the_renderer_does(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    made = save_nano(tmp_path)
    messages = [
        Message("system", ""),
        Message("system", "Be brief."),
        Message("user", " Fix f.\n\n"),
        Message(
            "assistant",
            "look",
            calls=(ToolCall("c0", "grep", {"pattern": "def  f\t"}), ToolCall("c1", "test", {})),
        ),
        Message("tool", "a.py:1\n", call_id="c0"),
        Message("tool", "", call_id="c1"),
        Message("assistant", "", calls=(ToolCall("c2", "edit", {"path": "a.py", "old": " x\n", "new": "\ty"}),)),
        Message("user", "so far", summary=True),
    ]
    rows = [
        {
            "role": message.role,
            "content": message.text,
            "summary": message.summary,
            "tool_calls": [
                {"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in message.calls
            ],
        }
        for message in messages
    ]
    read = AutoTokenizer.from_pretrained(str(made))
    theirs = read.apply_chat_template(rows, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert theirs == NanoRenderer.load(made).render(messages, ())


def test_a_base_that_gets_the_laptop_format_changes_template_marks_and_ends(base: Path, tmp_path: Path) -> None:
    tokenizer = foreign_tokenizer()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in CHAT_TOKENS])
    first = 90
    model = with_rows(load_checkpoint(base), {number: [5] for number in range(first, first + len(CHAT_TOKENS))})
    ids = {
        key: tokenizer.token_to_id(f"<|{word}|>") for key, word in (("eos_token_id", "end"), ("pad_token_id", "pad"))
    }
    save_checkpoint(model, tmp_path / "made", tokenizer_from=base, extra_config=ids, tokenizer=tokenizer)
    made = tmp_path / "made"
    assert "<|assistant|>" in (made / "chat_template.jinja").read_text()
    settings = json.loads((made / "tokenizer_config.json").read_text())
    assert (settings["eos_token"], settings["padding_side"]) == ("<|end|>", "left")
    generation = json.loads((made / "generation_config.json").read_text())
    assert generation == {"eos_token_id": ids["eos_token_id"], "pad_token_id": ids["pad_token_id"], "temperature": 0.6}
    assert not (made / "special_tokens_map.json").exists()


def test_longer_positions_change_the_tokenizers_length(tmp_path: Path) -> None:
    save = save_nano(tmp_path)
    model = load_checkpoint(save)
    longer = CausalLM(model.config.model_copy(update={"max_positions": 1024}))
    longer.load_state_dict(model.state_dict())
    save_checkpoint(longer, tmp_path / "longer", tokenizer_from=save)
    assert json.loads((save / "tokenizer_config.json").read_text())["model_max_length"] == 256
    assert json.loads((tmp_path / "longer" / "tokenizer_config.json").read_text())["model_max_length"] == 1024


def test_a_link_out_of_the_base_is_not_published_with_the_checkpoint(base: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key\n")
    (base / "LICENSE").unlink()
    (base / "LICENSE").symlink_to(tmp_path / "secret")
    made = trained(tmp_path / "a", base)
    assert "LICENSE" not in names(made)


def _loop(base: Path) -> Path:
    (base / "LICENSE").unlink()
    (base / "LICENSE").symlink_to("LICENSE")
    return base


def _licence_without_encoding(base: Path) -> Path:
    (base / "README.md").write_text('---\nlicense: "\\ud800"\n---\n')
    return base


def _name_without_encoding(base: Path) -> Path:
    return base.rename(base.parent / os.fsdecode(b"m\xff"))


def _setting_without_encoding(base: Path) -> Path:
    (base / "generation_config.json").write_text('{"eos_token_id": [3], "x": "\\ud800"}')
    (base / "tokenizer_config.json").write_text('{"x": "\\ud800", "model_max_length": 7}')
    return base


def _unhashable_template_name(base: Path) -> Path:
    (base / "chat_template.jinja").unlink()
    (base / "generation_config.json").unlink()
    config = json.loads((base / "config.json").read_text())
    del config["eos_token_id"]
    (base / "config.json").write_text(json.dumps(config))
    (base / "tokenizer_config.json").write_text('{"chat_template": [{"name": ["x"], "template": "x"}]}')
    return base


@pytest.mark.parametrize(
    "damage",
    [_loop, _licence_without_encoding, _name_without_encoding, _setting_without_encoding, _unhashable_template_name],
)
def test_no_file_or_name_of_a_base_keeps_a_trained_model_from_being_saved(base: Path, tmp_path: Path, damage) -> None:
    base = damage(base)
    save_checkpoint(tiny(), tmp_path / "b", base, trained=Training("sft", os.fsdecode(b"sessions of c\xff")))
    assert "sessions of c\ufffd" in (tmp_path / "b" / "README.md").read_text(encoding="utf-8")
    assert names(tmp_path / "b") >= WHOLE
    check_companions(load_checkpoint(tmp_path / "b").config, base)


def test_a_tokenizer_that_is_too_large_to_be_carried_over_is_refused_before_training(base: Path) -> None:
    with (base / "tokenizer.json").open("ab") as file:
        file.truncate((256 << 20) + 1)
    with pytest.raises(CheckpointError, match="tokenizer.json has 268,435,457 bytes, and .* at most 268,435,456"):
        check_companions(load_checkpoint(base).config, base)


def test_a_tokenizer_of_another_model_is_refused_before_training(base: Path) -> None:
    with pytest.raises(CheckpointError, match="the tokenizer has the id 89, and the model 80 rows"):
        check_companions(tiny(vocabulary=80).config, base)
