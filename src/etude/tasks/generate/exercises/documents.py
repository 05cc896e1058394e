"""Copy-rich text of the exercises for base pretraining: what is shown is soon repeated, so that copying exists before SFT.

Made from the training side of the split only. Nothing here shows a tool call: the agent's format is learnt in SFT.
"""

from __future__ import annotations

import itertools
from typing import Callable, Iterator

from etude.tasks.generate.exercises.drawing import Drawing
from etude.tasks.generate.exercises.repository import CHECK_PATH, ExerciseFunction
from etude.tasks.generate.exercises.words import FUNCTIONS, MODULES, SHORT_WORDS, VARIABLES
from etude.tasks.generate.settings import ExerciseSettings


def documents(settings: ExerciseSettings, seed: int) -> Iterator[str]:
    """Endless; the n-th document depends on (settings, seed, n) alone. Take as many as the corpus wants."""
    for number in itertools.count():
        drawing = Drawing(f"document {seed} {number}", "train", settings)
        yield drawing.rng.choice(KINDS)(drawing)


def _repository(drawing: Drawing) -> ExerciseFunction:
    """A two-module repository with one bug; returns the function that has it."""
    first, second = drawing.modules[:2]
    target = drawing.target(first)
    drawing.company(first)
    drawing.bystander(second)
    drawing.shuffle()
    drawing.break_it(target)
    return target


def _correction(drawing: Drawing) -> str:
    """A file, then the line that is wrong, then the line that is right."""
    target = _repository(drawing)
    assert target.mutation is not None
    edit = drawing.repository.edit(target, target.mutation.line)
    text = drawing.repository.module_text(target.module, fixed=False)
    return f"fix {target.name}\n{target.path}\n{text}{edit['old']}\n{edit['new']}\n"


def _quotation(drawing: Drawing) -> str:
    """A file, then some of its lines again."""
    target = _repository(drawing)
    text = drawing.repository.module_text(target.module, fixed=True)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    quoted = [line for line in drawing.rng.choices(lines, k=4) for _ in range(2)]
    return f"{target.path}\n{text}" + "\n".join(quoted) + "\n"


def _pair(drawing: Drawing) -> str:
    """A function with its bug, then without."""
    target = _repository(drawing)
    return f"{target.text(fixed=False)}\n{target.text(fixed=True)}"


def _listing(drawing: Drawing) -> str:
    """Every definition with its place, then the files."""
    target = _repository(drawing)
    functions = drawing.repository.functions
    files = drawing.repository.files(fixed=True)
    places: list[str] = []
    for function in functions:
        head = function.line(0, fixed=True)
        number = files[function.path].splitlines().index(head) + 1
        places.append(f"def {function.name}\n{function.path}:{number} {head}")
    shown = "".join(f"{path}\n{text}" for path, text in files.items() if path != CHECK_PATH)
    return "\n".join([f"fix {target.name}", *places, shown])


def _checks(drawing: Drawing) -> str:
    """A function and what it returns for some inputs."""
    target = _repository(drawing)
    return target.text(fixed=True) + "".join(target.check_line(index) for index in drawing.rng.sample(range(10), 3))


def _refrain(drawing: Drawing) -> str:
    """A random line of words, repeated: copying with nothing else to hold on to."""
    pool = [*FUNCTIONS, *MODULES, *SHORT_WORDS, *itertools.chain(*VARIABLES.values()), *"0123456789"]
    words = [drawing.rng.choice(SHORT_WORDS), *drawing.rng.choices(pool, k=drawing.rng.randint(6, 20))]
    line = " ".join(words)
    return f"{line}\n{line}\n{line}\n"


# Corrections and quotations carry the skill that SFT needs most, so they come twice.
KINDS: tuple[Callable[[Drawing], str], ...] = (
    _correction,
    _correction,
    _quotation,
    _quotation,
    _pair,
    _listing,
    _checks,
    _refrain,
)
