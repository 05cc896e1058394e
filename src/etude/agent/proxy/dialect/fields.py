"""Which fields of a request are honoured, which change nothing, and which are refused.

A field that would change what is sampled, and that no policy here can honour, is refused by name: an agent that silently got
something else would be recorded as if it had not. An unknown field is refused as well; an operator who knows
better lets it through by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from etude.agent.chat.renderer import Effort
from etude.agent.proxy.ask import ProxyRequestError

Wire = TypeVar("Wire", bound=BaseModel)


@dataclass(frozen=True)
class Fields:
    """One format's. `neutral` are refused unless their value asks for what is done anyway."""

    honoured: frozenset[str]
    ignored: frozenset[str]
    neutral: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)


def one_of(*values: Any) -> Callable[[Any], bool]:
    """The value is one of these."""
    return lambda value: value in values


def empty(value: Any) -> bool:
    """Nothing is asked for."""
    return not value


def check(body: Mapping[str, Any], fields: Fields, allowed: Collection[str]) -> tuple[str, ...]:
    """The names of the fields that are present and ignored. Raises Refused for the first that can't be honoured."""
    ignored: list[str] = []
    for name, value in body.items():
        if name in fields.honoured or value is None:
            continue
        if name in fields.ignored or name in allowed:
            ignored.append(name)
        elif not (name in fields.neutral and fields.neutral[name](value)):
            raise ProxyRequestError(
                f"{name} = {str(value)[:80]!r} can't be honoured here: leave it out, or let it through without effect with "
                f"etude capture --allow {name}"
            )
    return tuple(ignored)


def validate(model: type[Wire], body: Mapping[str, Any]) -> Wire:
    """The body as its wire type. Raises Refused, naming the place, for what is none."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise ProxyRequestError(f"{'.'.join(map(str, first['loc'])) or 'the body'}: {first['msg']}") from error


# Names that makers have for efforts beyond ours, as the nearest of ours.
_NEAREST: Mapping[str, Effort] = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}


def effort_of(value: Any, name: str) -> tuple[Effort | None, tuple[str, ...]]:
    """The effort asked for, and what of the wish was not honoured: ours are low, medium and high. Raises Refused for a word that no
    maker has."""
    if value is None or value in get_args(Effort):
        return value, ()
    if isinstance(value, str) and value in _NEAREST:
        return _NEAREST[value], (f"{name}={value}",)
    raise ProxyRequestError(f"{name} = {value!r} is none of {', '.join([*get_args(Effort), *_NEAREST])}")


def one_call_of(parallel: Any, name: str) -> bool:
    """Whether an answer may hold at most one call, by a format's field for parallel calls. Raises Refused for what is no boolean."""
    if parallel is None or isinstance(parallel, bool):
        return parallel is False
    raise ProxyRequestError(f"{name} = {str(parallel)[:80]!r} must be true or false")


def declares(choice: Any, tools: Collection[Any], name: str) -> bool:
    """Whether the model is offered the tools: with a choice of "none" it is not, and so can't call one. Raises Refused for a
    choice that forces a call, which can't be promised of a model."""
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if not tools or kind in (None, "auto"):
        return True
    if kind == "none":
        return False
    raise ProxyRequestError(f"{name} = {choice!r} would force a call, which can't be promised; use auto or none")
