"""A button that shows a random document of the corpus, with its provenance.

Without the page's script (mailed, printed, switched off) every document is there to unfold.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any


def documents(samples: Sequence[dict[str, Any]]) -> str:
    """Documents as `corpus/samples.json` has them; none: an empty string."""
    if not samples:
        return ""
    shown = "".join(_document(sample, unfolded=place == 0) for place, sample in enumerate(samples))
    return (
        '<h3 class="apart">A document of the corpus</h3>'
        f'<p><button type="button" id="another" hidden>Another at random</button></p><div id="documents">{shown}</div>'
    )


def _document(sample: dict[str, Any], *, unfolded: bool) -> str:
    name = " / ".join(str(sample[key]) for key in ("source", "project", "version", "path") if sample.get(key))
    facts = ", ".join(str(sample[key]) for key in ("form", "language", "licence") if sample.get(key))
    return (
        f'<details class="rollout document"{" open" if unfolded else ""}><summary>{escape(name)} '
        f'<span class="muted">({escape(facts)})</span></summary><pre class="tokens">{escape(sample["text"])}</pre></details>'
    )
