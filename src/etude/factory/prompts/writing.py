"""The three prompts of a task, written by rules from its facts: as a person types it, as a person types it badly, and in full.

terse        one or two sentences written from the outcome; what the evaluation suite of the target is made of (median 390 characters)
ambiguous    the same with pronouns for names, without capitals, with typing errors; nothing in it is wrong
full         symptom, steps, expected and actual, demands, and the interface where hidden tests need names

Pure in (category, facts, seed).
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Literal, get_args

from etude.factory.prompts.facts import Facts
from etude.factory.prompts.typing_errors import hasty

Style = Literal["terse", "ambiguous", "full"]
STYLES: tuple[Style, ...] = get_args(Style)
Prompts = Mapping[Style, str]

BROKEN = ("debugging", "devops")  # categories whose headline says what is wrong; the others' says what is wanted
FIXES = ("Fix it.", "Please fix.", "Can you fix that?", "Find out why and fix it.", "Needs fixing.", "")
WISHES = ("", "", "Please.", "Thanks.")
OPENINGS = ("hey ", "", "", "so ", "hm ", "ok so ")
ENDINGS = (" pls", " thx", "", "", " can u look", "?")
PRONOUNS = ("it", "that thing", "this", "that one")
LONGEST: Mapping[Style, int] = {"terse": 1200, "ambiguous": 1200, "full": 24_000}  # characters: nobody types more
SHORT = 390  # characters: the median that the target's suite is known for; a terse prompt drops what goes beyond
_CODE = re.compile(r"`([^`\n]+)`")
_NAMED = re.compile(r"(\b(?:the|a|an) )?`([^`\n]+)`", re.IGNORECASE)  # a pronoun takes the article's place too
_TITLES = {
    "debugging": "Problem",
    "devops": "Problem",
    "features": "Feature",
    "refactors": "Refactoring",
    "tests": "Tests",
    "documentation": "Documentation",
    "review": "Review",
    "migrations": "Migration",
}


def written(category: str, facts: Facts, seed: str) -> dict[Style, str]:
    """All three; `seed` is the task's id, so that neighbours are not worded alike."""
    rng = random.Random(f"prompts {seed}")
    return {
        "terse": terse(category, facts, rng),
        "ambiguous": ambiguous(category, facts, rng),
        "full": full(category, facts),
    }


def terse(category: str, facts: Facts, rng: random.Random) -> str:
    """The headline as a sentence, what should come instead, and a wish, as long as there is room; names that tests need stand where
    a person would still type them."""
    wish = rng.choice(FIXES if category in BROKEN else WISHES)
    parts = [_sentence(facts.headline)]
    optional = []
    if facts.expected and category in BROKEN:
        optional.append(f"Should be {_bare(facts.expected)}.")
    optional += [_sentence(note) for note in facts.notes]
    needed = (
        [_sentence("Names: " + ", ".join(f"`{_bare(name)}`" for name in facts.interface))] if facts.interface else []
    )
    if sum(map(len, needed)) > LONGEST["terse"] - SHORT:
        needed = []  # a large feature's interface is for the full prompt
    room = SHORT - sum(map(len, [*parts, *needed, wish])) - len(needed) - 2
    for part in optional:
        if len(part) < room and rng.random() < 0.8:
            parts.append(part)
            room -= len(part) + 1
    return " ".join(part for part in [*parts, *needed, wish] if part)


def ambiguous(category: str, facts: Facts, rng: random.Random) -> str:
    """One name at most stays; where the headline has none, the place or nothing tells which part is meant."""
    said = _bare(facts.headline)
    names = list(dict.fromkeys(_CODE.findall(said)))
    kept = rng.choice(names) if names else ""
    spoken: set[str] = set()

    def replaced(match: re.Match[str]) -> str:
        article, name = match[1] or "", match[2]
        if name == kept and name not in spoken:
            spoken.add(name)
            return f"{article}{name}"
        return rng.choice(PRONOUNS)

    said = _NAMED.sub(replaced, said)
    # Typing errors come before anything is lowered: capitals and marks still tell names from prose.
    said = hasty(said, rng)
    said = said[:1].lower() + said[1:] if said[1:2].islower() or said[1:2] == " " else said
    tail = " fix" if category in BROKEN and rng.random() < 0.5 else ""
    opening, ending = rng.choice(OPENINGS), rng.choice(ENDINGS)
    return f"{opening}{said}{',' if tail else ''}{tail}{ending}"


def full(category: str, facts: Facts) -> str:
    """Everything that is known, under headings."""
    parts = [f"## {_TITLES.get(category, 'Request')}", _sentence(facts.headline)]
    if facts.place:
        parts.append(f"It concerns {_bare(facts.place)}.")
    if facts.steps:
        parts += ["## How to see it", "\n".join(f"{number}. {step}" for number, step in enumerate(facts.steps, 1))]
    for title, text in (("Expected", facts.expected), ("Actual", facts.actual)):
        if text:
            parts += [f"## {title}", text.strip()]
    if facts.notes:
        parts += ["## Also", "\n".join(f"- {_sentence(note)}" for note in facts.notes)]
    if facts.interface:
        parts += ["## Interface", "\n".join(f"- `{_bare(name)}`" for name in facts.interface)]
    return "\n\n".join(parts) + "\n"


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    text = text[:1].upper() + text[1:] if text[:1].islower() else text
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _bare(text: str) -> str:
    return (
        " ".join(text.split()).rstrip(".").strip("`")
        if text.count("`") == 2 and text.startswith("`")
        else " ".join(text.split()).rstrip(".")
    )
