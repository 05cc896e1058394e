"""Takes out of a text who wrote it: names of policies, session ids, and paths that hold either. A judge that knows the author judges
the author.

Names of well-known model families go too: agents like to introduce themselves. A word that merely looks like one goes with
them, which costs a judge nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

AUTHOR = "[author]"
PATH = "[path]"
_FAMILIES = (
    r"claude|chatgpt|gpt-?[0-9][\w.-]*|o[1345]-(?:mini|pro|preview)|codex|gemini|qwen[\w.-]*|deepseek[\w.-]*|kimi[\w.-]*|glm-[\w.-]+|"
    r"llama-?[0-9][\w.-]*|mistral[\w.-]*|devstral[\w.-]*|grok[\w.-]*|composer-?[0-9][\w.-]*|anthropic|openai"
)
_PATH = r"[\w.~@%+=:-]*(?:/[\w.~@%+=:#-]*)+"


def hide_names(text: str, names: Iterable[str] = ()) -> str:
    """The text without the `names` (whole words, in any case), without family names, and without paths that hold any of them."""
    own = [re.escape(name) for name in sorted(set(names), key=len, reverse=True) if len(name) > 1]
    word = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join([*own, _FAMILIES])})(?![A-Za-z0-9])", re.IGNORECASE)
    without = re.sub(_PATH, lambda path: PATH if word.search(path[0]) else path[0], text)
    return word.sub(AUTHOR, without)
