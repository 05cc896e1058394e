"""What a client may ask of the index service, checked at the door."""

from __future__ import annotations

import base64
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from etude.agent.code_index.errors import IndexRefused


class Params(BaseModel):
    """Unknown names and other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EmptyParams(Params):
    """No parameters."""


class OpenParams(Params):
    """One of the served folders, or a base by its digest."""

    root: str | None = None
    base: str | None = None


class SearchParams(Params):
    query: str
    limit: int = 10
    under: str | None = None
    language: str | None = None


class FilesParams(Params):
    """`files`: path -> text, null for deleted; `base64`: path -> bytes that are no UTF-8."""

    files: dict[str, str | None] = {}
    base64: dict[str, str] = {}

    def contents(self) -> dict[str, str | bytes | None]:
        """path -> what the file holds. Raises IndexRefused for what is no base64."""
        found: dict[str, str | bytes | None] = dict(self.files)
        for path, text in self.base64.items():
            try:
                found[path] = base64.b64decode(text, validate=True)
            except ValueError as error:  # binascii.Error is one; letters beyond ASCII raise the plain one
                raise IndexRefused(f"{path}: no base64 ({error})") from error
        return found


class PutParams(FilesParams):
    """Into the session's overlay."""


class BuildParams(FilesParams):
    """Into a base of that content, if there is none yet."""


class IndexRequest(Params):
    id: int | str | None = None
    method: str
    params: dict[str, Any] = Field(default_factory=dict)


METHODS: dict[str, type[Params]] = {
    "open": OpenParams,
    "build": BuildParams,
    "search": SearchParams,
    "put": PutParams,
    "update": EmptyParams,
    "stats": EmptyParams,
}


def read_request(line: bytes) -> IndexRequest:
    """Raises IndexRefused for anything that is no request."""
    try:
        return IndexRequest.model_validate_json(line)
    except ValidationError as error:
        raise IndexRefused(_told(error)) from error


def read_params(request: IndexRequest) -> Params:
    """The parameters as the method's type. Raises IndexRefused."""
    if request.method not in METHODS:
        raise IndexRefused(f"method {request.method!r} is unknown; known are {', '.join(METHODS)}")
    try:
        return METHODS[request.method].model_validate(request.params)
    except ValidationError as error:
        raise IndexRefused(f"{request.method}: {_told(error)}") from error


def _told(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the request'}: {first['msg']}"
