"""What of `typing` PEP 585 deprecated, and whether a module still uses it. Put into hidden tests unchanged, so it needs nothing but `ast`."""

from __future__ import annotations

import ast

# Of typing, and where it lives since Python 3.9.
MOVED = {
    **{name: ("", name.lower()) for name in ("List", "Dict", "Tuple", "Set", "FrozenSet", "Type")},
    "DefaultDict": ("collections", "defaultdict"),
    "Deque": ("collections", "deque"),
    **{name: ("collections", name) for name in ("OrderedDict", "Counter", "ChainMap")},
    **{name: ("re", name) for name in ("Pattern", "Match")},
    "ContextManager": ("contextlib", "AbstractContextManager"),
    "AsyncContextManager": ("contextlib", "AbstractAsyncContextManager"),
    "AbstractSet": ("collections.abc", "Set"),
    **{
        name: ("collections.abc", name)
        for name in (
            *("Callable", "Iterable", "Iterator", "Generator", "Reversible", "Container", "Collection", "Hashable", "Sized"),
            *("Mapping", "MutableMapping", "Sequence", "MutableSequence", "MutableSet", "MappingView", "KeysView"),
            *("ItemsView", "ValuesView", "Awaitable", "Coroutine", "AsyncIterable", "AsyncIterator", "AsyncGenerator"),
        )
    },
}  # fmt: skip


# Calls that take types as strings, and where.
TAKING = {"cast": slice(1), "ForwardRef": slice(1), "NewType": slice(1, 2), "TypeVar": slice(1, None)}


def expressions(tree):
    """Every node, those in quoted annotations too; a string elsewhere is no type, whatever it looks like."""
    yield from ast.walk(tree)
    for text in quoted(tree):
        try:
            inner = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError):
            continue
        if isinstance(inner.body, (ast.Subscript, ast.Attribute, ast.BinOp)):
            yield from ast.walk(inner)


def quoted(tree):
    """Strings in the places of types."""
    found = set()
    for node in ast.walk(tree):
        places = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Subscript):
            places.append(node.slice)
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            places += node.args[TAKING[called]] if called in TAKING else []
            places += [word.value for word in node.keywords if called == "TypeVar"]
        for place in places:
            inner = ast.walk(place) if isinstance(place, ast.AST) else ()
            found |= {one.value for one in inner if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return sorted(found)


def stale(tree):
    """Deprecated names of `typing` that a module uses, as it spells them."""
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "typing"
    }
    bound = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found = []
    for node in expressions(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "typing":
            found += [alias.name for alias in node.names if alias.name in MOVED]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            found += [f"{node.value.id}.{node.attr}"] if node.attr in MOVED else []
    for node in expressions(tree):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and bound.get(node.value.id) == "typing"
        ):
            found += [node.value.id] if node.value.id in MOVED else []
    return sorted(set(found))


def annotated(tree):
    """How many places of a module say a type: to drop them is no migration."""
    places = [node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)]
    places += [node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.annotation]
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return len(places) + sum(node.returns is not None for node in functions)
