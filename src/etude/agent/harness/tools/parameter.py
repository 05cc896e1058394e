"""What a tool takes: named, typed parameters, as data. JSON schemas and checks of arguments are both made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["string", "integer", "boolean", "array", "object"]


@dataclass(frozen=True)
class Parameter:
    """One argument. `item` types an array's items, `fields` an object's; `least` and `most` bound an integer."""

    name: str
    kind: Kind = "string"
    required: bool = True
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    item: Parameter | None = None
    fields: tuple[Parameter, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        row: dict[str, Any] = {"type": self.kind}
        if self.choices:
            row["enum"] = list(self.choices)
        for key, bound in (("minimum", self.least), ("maximum", self.most)):
            if bound is not None:
                row[key] = bound
        if self.item is not None:
            row["items"] = self.item.schema()
        if self.kind == "object":
            row |= object_schema(self.fields)
        return row


def object_schema(parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """The JSON schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": {parameter.name: parameter.schema() for parameter in parameters},
        "required": [parameter.name for parameter in parameters if parameter.required],
        "additionalProperties": False,
    }


def optional(name: str, kind: Kind = "string", **more: Any) -> Parameter:
    """A parameter that may be left out."""
    return Parameter(name, kind, required=False, **more)
