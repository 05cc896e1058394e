"""The function templates of each split. Those of validation and of the held-out split never occur in training.

Each is a few short lines whose spec comment says everything a repair needs; none has a `while`, so that few mutants loop.
A block's first line is `name | spec | kinds of the arguments | values of the parameters`, then, for some of the training
templates, `| further values`, which only held-out functions have.
"""

from __future__ import annotations

from etude.tasks.generate.exercises import heldout_functions, training_functions
from etude.tasks.generate.exercises.template import ExerciseTemplate
from etude.tasks.task import Split

# The functions of the validation tasks alone, in the form that `catalogue` reads. Settings are chosen on these.


TEXT = """
first-if | first item $cmp $k or $j | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 j=0,1
def $f($xs):
    for $x in $xs:
        if $x $op $k:
            return $x
    return $j

without-letter | text with $a left out | text | a=a,b,c,d,e
def $f($t):
    $acc = ""
    for $c in $t:
        if $c != "$a":
            $acc += $c
    return $acc

clamp | number but at least $j and at most $k | number | j=1,2,3,4 k=6,7,8,9
def $f($n):
    if $n < $j:
        return $j
    if $n > $k:
        return $k
    return $n

stride-sum | sum of each $k item from $j | ints | j=0,1,2,3 k=2,3,4
def $f($xs):
    $acc = 0
    for $i in range($j, len($xs), $k):
        $acc += $xs[$i]
    return $acc

scale-if | list of items $cmp $k times $j | ints | op=>,<,>=,<= k=2,3,4,5,6,7,8,9 j=1,2,3,4
def $f($xs):
    $acc = []
    for $x in $xs:
        if $x $op $k:
            $acc.append($x * $j)
    return $acc

pair-pick | list of first of pair if $cmp second else $k | ints ints | op=>,<,>=,<= k=1,2,3,4
def $f($xs, $ys):
    $acc = []
    for $x, $y in zip($xs, $ys):
        if $x $op $y:
            $acc.append($x)
        else:
            $acc.append($k)
    return $acc
"""


def _values(space: str) -> dict[str, tuple[str, ...]]:
    """`op=>,< k=2,3` as a mapping; the values themselves may hold `=`."""
    return {slot: tuple(listed.split(",")) for slot, _, listed in (item.partition("=") for item in space.split())}


def _parse(text: str, split: Split) -> tuple[ExerciseTemplate, ...]:
    templates = []
    for block in text.strip().split("\n\n"):
        head, _, source = block.partition("\n")
        name, spec, takes, space, *fresh = (part.strip() for part in head.split("|"))
        further = _values(fresh[0]) if fresh else {}
        templates.append(ExerciseTemplate(name, spec, source, tuple(takes.split()), _values(space), split, further))
    return tuple(templates)


TRAINING = _parse(training_functions.TEXT, "train")
VALIDATION = _parse(TEXT, "validation")
HELD_OUT = _parse(heldout_functions.TEXT, "heldout")
BY_NAME = {template.name: template for template in (*TRAINING, *VALIDATION, *HELD_OUT)}
