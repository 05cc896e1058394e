"""A bug changes what the function does on shown and on hidden inputs, and never loops."""

from __future__ import annotations

import ast
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.tasks.generate.exercises.catalogue import BY_NAME, HELD_OUT, TRAINING, VALIDATION
from etude.tasks.generate.exercises.instance import instance
from etude.tasks.generate.exercises.memory_sandbox import run_script
from etude.tasks.generate.exercises.mutation import mutations
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.exercises.template import body_hash
from etude.tasks.generate.exercises.trial import Guard, Runaway, compile_source, outcomes

LOOPS = ["for x in xs:\n        xs.append(x)", "for x in xs:\n        xs.extend(xs)", "while True:\n        pass"]


def _run(text: str, name: str, args: list[object]) -> object:
    """Plainly, without the factory's own guard, under a limit of steps."""
    space: dict[str, object] = {}
    exec(compile_source(text, "<plain>"), space)
    try:
        with Guard("<plain>", 5000):
            return space[name](*args)  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001 - however it ends is its behaviour
        return type(error)


def test_there_are_at_least_24_training_templates_with_a_spec_each() -> None:
    assert len(TRAINING) >= 24
    assert len(HELD_OUT) >= 8
    assert len(VALIDATION) >= 4
    specs = [template.spec for template in BY_NAME.values()]
    assert len(set(specs)) == len(specs)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(BY_NAME)), st.integers(0, 10_000))
def test_a_drawn_bug_is_one_changed_line_that_two_inputs_reveal(name: str, seed: int) -> None:
    rng = random.Random(seed)
    chosen = instance(name, rng.choice([*BY_NAME[name].params(), *BY_NAME[name].fresh_params()]))
    bug = chosen.draw_bug(rng)
    broken = chosen.apply_mutation(bug)
    assert [i for i, (a, b) in enumerate(zip(chosen.lines, broken, strict=True)) if a != b] == [bug.line]
    revealing = chosen.revealing_inputs(bug)
    assert len(revealing) >= 2
    good, bad = chosen.canonical, chosen.source(broken)
    for number in range(len(chosen.inputs)):
        args = chosen.inputs[number]
        ends = [_run(text, "f", [list(a) if isinstance(a, list) else a for a in args]) for text in (good, bad)]
        differs = repr(ends[0]) != repr(ends[1])
        assert differs == (number in revealing), (good, bad, args)


@pytest.mark.parametrize("body", LOOPS)
def test_the_guard_stops_loops_and_growth(body: str) -> None:
    assert outcomes(f"def f(xs):\n    {body}\n", "f", [[[1, 2]]]) == ["! Runaway"]


def test_the_guard_restores_the_trace_function_and_passes_through_try() -> None:
    before = sys.gettrace()
    source = (
        "def f(xs):\n    while True:\n        try:\n            xs = xs\n        except Exception:\n            pass\n"
    )
    with pytest.raises(Runaway):
        space: dict[str, object] = {}
        exec(compile_source(source), space)
        with Guard("<exercise>"):
            space["f"]([])  # type: ignore[operator]
    assert sys.gettrace() is before


def test_mutations_reach_every_family() -> None:
    kinds = {m.kind for template in TRAINING for m in mutations(template.instantiate(next(template.params()))[1])}
    expected = {
        "comparison",
        "operator",
        "constant",
        "name",
        "return",
        "method",
        "member",
        "boolean",
        "letter",
        "negation",
    }
    assert kinds == expected


def test_visible_tests_show_the_bug_and_no_hidden_call(source: ExerciseSource) -> None:
    for task_id in source.ids("train", level="one-bug")[:100]:
        task = source.task(task_id)
        target = task.metadata["targets"][0]
        assert run_script(task.files, "check.py").out.decode() == f"fail {target}\n"
        shown = [
            [ast.literal_eval(arg) for arg in node.args[2:]]
            for node in ast.walk(ast.parse(task.files["check.py"]))
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.args[0]).endswith(f" {target}'")
        ]
        assert len(shown) == 2
        hidden = [call["args"] for call in task.hidden["calls"] if call["function"] == target]
        assert len(hidden) == 8
        assert not any(args in shown for args in hidden)


def test_a_body_hash_ignores_names_and_keeps_constants() -> None:
    one = "def f(xs):\n    # note\n    t = 0\n    for x in xs:\n        t += x\n    return t\n"
    two = "def g(rows):\n    acc = 0\n    for row in rows:\n        acc += row\n    return acc\n"
    assert body_hash(one) == body_hash(two)
    assert body_hash(one) != body_hash(two.replace("= 0", "= 1"))
    assert body_hash(one) != body_hash(two.replace("acc += row", "acc += acc"))
