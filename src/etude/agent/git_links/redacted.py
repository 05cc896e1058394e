"""A session without secrets and personal data, to be forwarded: every text of it redacted, its tokens left out,
and so are the fields that only a provider understands: what they hold can't be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from etude.core.redact.redaction import redact
from etude.core.trace.entry import Entry
from etude.core.trace.session import Session


def redact_session(session: Session) -> Session:
    """A copy. Placeholders are numbered text by text: the same number in two texts need not mean the same value."""
    header = session.header
    clean_fields = {
        name: _clean(getattr(header, name)) for name in ("task_id", "harness_facts", "settings", "facts", "recipe")
    }
    entries = [Entry(e.id, e.parent, e.type, e.at_s, _clean(_open(e.data))) for e in session.entries]
    return Session(replace(header, **clean_fields), entries)


def _open(data: dict[str, Any]) -> dict[str, Any]:
    """An entry's data without opaque fields of messages and calls."""
    message = data.get("message")
    if isinstance(message, dict):
        data = {**data, "message": _open(message)}
    calls = data.get("calls")
    if isinstance(calls, list):
        data = {**data, "calls": [{key: value for key, value in call.items() if key != "opaque"} for call in calls]}
    return {key: value for key, value in data.items() if key != "opaque"}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)[0]
    if isinstance(value, dict):
        return {redact(key)[0] if isinstance(key, str) else key: _clean(inner) for key, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, list) else value
