"""The three prompts of a task, written by rules from its facts: as a person types it, as a person types it badly, and in full.

terse        one or two sentences written from the outcome; what the evaluation suite of the target is made of (median 390 characters)
ambiguous    the same with names in words, values left out, without capitals, with typing errors; it says what and where, nothing in it is wrong
full         symptom, steps, expected and actual, demands, and the interface where hidden tests need names

Pure in (category, facts, seed).
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Literal, get_args

from etude.tasks.generate.prompts.content import mark_code, name_of, places, says, spoken_words
from etude.tasks.generate.prompts.facts import Facts

# Errors as fingers make them: a neighbouring key, two letters swapped, one left out, one struck twice, a space too
# late.
#
# Only plain words of prose are touched, of four letters at least, never names of code, numbers, quoted texts or words
# with a capital inside: what is said stays true, it is only badly typed.


# Left and right neighbours, and those above and below, on the QWERTY layout.
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
# Of words that may be hit: people in a hurry mistype about one word in ten (Dhakal et al., 136 million keystrokes, CHI 2018: 1.2 % of
# keystrokes left uncorrected on average, with words of five letters and hasty typists at the upper end).
RATE = 0.1
_PLAIN = re.compile(r"[A-Za-z][a-z]{3,}")
_SPAN = re.compile(r"`[^`]*`")
_KEPT = re.compile(r"\"[^\"]*\"|'[^'\s]*'|\S*[\d_./\\(){}\[\]<>=:;@#$%^&*+|~-]\S*")


def neighbours(letter: str) -> str:
    """Keys next to this one; a key of the next row lies half a key further right."""
    for row, keys in enumerate(ROWS):
        if (place := keys.find(letter)) >= 0:
            adjacent = [keys[place - 1 : place], keys[place + 1 : place + 2]] if place else [keys[1:2]]
            above = [ROWS[row - 1][place : place + 2]] if row else []
            below = [ROWS[row + 1][max(0, place - 1) : place + 1]] if row < 2 else []
            return "".join([*adjacent, *above, *below])
    return ""


def mistype(word: str, rng: random.Random) -> str:
    """The word with one error; its first letter stays, as in nearly all real ones."""
    place = rng.randrange(1, len(word) - 1)
    letter, after = word[place], word[place + 1]
    kind = rng.choice(("neighbour", "swap", "drop", "double", "swap"))
    if kind == "swap" and letter != after:
        return word[:place] + after + letter + word[place + 2 :]
    if kind == "drop":
        return word[:place] + word[place + 1 :]
    if kind == "double":
        return word[:place] + letter + word[place:]
    return word[:place] + rng.choice(neighbours(letter) or letter) + word[place + 1 :]


def hasty(text: str, rng: random.Random, rate: float = RATE) -> str:
    """The text with errors in about `rate` of its plain words, one at least where there is any to hit."""
    kept = [match.span() for pattern in (_SPAN, _KEPT) for match in pattern.finditer(text)]
    free = [
        match.span()
        for match in _PLAIN.finditer(text)
        if not any(low < match.end() and match.start() < high for low, high in kept) and _whole(text, match)
    ]
    if not free:
        return text
    hit = [span for span in free if rng.random() < rate] or [rng.choice(free)]
    for low, high in reversed(hit):
        text = text[:low] + mistype(text[low:high], rng) + text[high:]
    return text


def _whole(text: str, match: re.Match[str]) -> bool:
    """Whether the match is a whole word, not a part of one with capitals inside."""
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    return not (before.isalnum() or after.isalnum())


Style = Literal["terse", "ambiguous", "full"]
STYLES: tuple[Style, ...] = get_args(Style)
Prompts = Mapping[Style, str]

BROKEN = ("debugging", "devops")  # categories whose headline says what is wrong; the others' says what is wanted
FIXES = ("Fix it.", "Please fix.", "Can you fix that?", "Find out why and fix it.", "Needs fixing.", "")
WISHES = ("", "", "Please.", "Thanks.")
OPENINGS = ("hey ", "", "", "so ", "hm ", "ok so ")
ENDINGS = (" pls", " thx", "", "", " can u look", "?")
PRONOUNS = ("it", "that one")  # for a name that was said before
SOME_VALUE, WRONG_VALUE, SOME_MESSAGE = "some value", "a wrong value", "some message"
LONGEST: Mapping[Style, int] = {"terse": 1200, "ambiguous": 1200, "full": 24_000}  # characters: no one types more
SHORT = 390  # characters: the median that the target's suite is known for; a terse prompt drops what goes beyond
ROOM = 200  # characters of an ambiguous prompt that are left for its place and its ends
_NAMED = re.compile(r"(\b(?:the|a|an) )?`([^`\n]+)`", re.IGNORECASE)  # a pronoun takes the article's place too
_MESSAGE = re.compile(r'"[^"`\n]* [^"`\n]*"')
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


def template_prompts(category: str, facts: Facts, seed: str) -> dict[Style, str]:
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
    """What and where, without precision: names in words, no values and no wording of messages, the place behind where the headline does
    not have it. Names that an interface needs and the headline leaves out follow in brackets."""
    wish = vague(facts.headline, rng, broken=category in BROKEN)
    also: list[str] = []
    for name in filter(None, (spoken_words(name_of(line)) for line in facts.interface)):
        if not says(f"{wish} {' '.join(also)}", name) and len(wish) + sum(map(len, also)) < LONGEST["ambiguous"] - ROOM:
            also.append(name)
    if also:
        wish += f" ({', '.join(f'`{name}`' for name in also)})"
    if (where := places(facts)) and not any(says(wish, place) for place in where):
        wish += f", in {', '.join(f'`{place}`' for place in where)}"
    # Words of names stay in backticks until here: typing errors leave them alone, and so the prompt keeps what it is about.
    wish = hasty(wish, rng).replace("`", "")
    wish = wish[:1].lower() + wish[1:] if wish[1:2].islower() or wish[1:2] == " " else wish
    tail = " fix" if category in BROKEN and rng.random() < 0.5 else ""
    opening, ending = rng.choice(OPENINGS), rng.choice(ENDINGS)
    return f"{opening}{wish}{',' if tail else ''}{tail}{ending}"


def vague(text: str, rng: random.Random, *, broken: bool) -> str:
    """The text with names in words (in backticks still), pronouns where they come again, and neither values nor messages."""
    spoken_of: set[str] = set()

    def replaced(match: re.Match[str]) -> str:
        article, phrase = match[1] or "", spoken_words(match[2])
        if not phrase:
            return SOME_VALUE
        if phrase in spoken_of:
            return rng.choice(PRONOUNS)
        spoken_of.add(phrase)
        return f"{article}`{phrase}`"

    parts = re.split(r"(`[^`\n]*`)", mark_code(" ".join(text.split()).rstrip(".")))
    text = "".join(part if part.startswith("`") else _MESSAGE.sub(SOME_MESSAGE, part) for part in parts)
    text = _NAMED.sub(replaced, text)
    return re.sub(rf"\b(gives|returns) {SOME_VALUE}$", rf"\1 {WRONG_VALUE}", text) if broken else text


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
