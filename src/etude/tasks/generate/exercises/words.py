"""The closed vocabulary of the exercises: a small model meets every word often, and a tokenizer holds each in one entry.

Single words without underscores, so that a name is one token however the tokenizer splits words. No Python keyword, builtin,
standard module or word of another list appears.
"""

from __future__ import annotations

FUNCTIONS = tuple(
    """tally fold pick merge sift blend trim scan pack rank mark weigh gather carve shape glean draft probe clip route
    stack shift grade sweep track align bundle chart drain fetch graft level patch reach score thin unite wrap
    bake comb dial hone""".split()
)

MODULES = tuple("core shop store bank farm port mill park yard dock barn lane".split())

# One list of variable names per slot of a template.
VARIABLES: dict[str, tuple[str, ...]] = {
    "xs": ("items", "rows", "values", "nums", "parts"),
    "ys": ("others", "seconds", "costs"),
    "x": ("x", "item", "v", "e"),
    "y": ("y", "w", "other"),
    "acc": ("total", "acc", "result", "out"),
    "res": ("found", "made", "kept"),
    "i": ("i", "at", "pos"),
    "t": ("text", "line", "s"),
    "c": ("c", "ch"),
    "n": ("n", "num", "size"),
    "m": ("m", "most", "top"),
    "d": ("table", "book", "prices"),
    "key": ("key", "name"),
}

COMPARISONS = {">": "over", "<": "under", ">=": "at least", "<=": "at most", "==": "equal to", "!=": "other than"}

# What the request, the tools and the final messages say apart from names: pretraining text holds them too, so that the
# tokenizer has each in one entry.
SHORT_WORDS = tuple("ok pass fail fixed left done add fix and write comment test tests rename to append extend".split())
