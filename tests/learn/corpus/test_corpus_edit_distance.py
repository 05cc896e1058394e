"""The bit-vector distance is Levenshtein's."""

from hypothesis import given
from hypothesis import strategies as st

from etude.learn.corpus.state_tracking import edit_distance

few = st.text("abä\n", max_size=30)


def by_table(first: str, second: str) -> int:
    """Wagner and Fischer 1974, a row at a time."""
    above = list(range(len(second) + 1))
    for i, x in enumerate(first, 1):
        row = [i]
        for j, y in enumerate(second, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (x != y)))
        above = row
    return above[-1]


@given(few, few)
def test_it_equals_the_table(first, second):
    assert edit_distance(first, second) == by_table(first, second)


@given(st.text("ab", max_size=200), st.text("ab", max_size=200))
def test_it_is_the_same_from_both_sides_and_within_its_bounds(first, second):
    found = edit_distance(first, second)
    assert found == edit_distance(second, first)
    assert abs(len(first) - len(second)) <= found <= max(len(first), len(second))


def test_known_distances():
    assert (
        edit_distance("kitten", "sitting") == 3 and edit_distance("", "abc") == 3 and edit_distance("abc", "abc") == 0
    )
