"""`debian/copyright` in its machine-readable form (Debian's copyright-format 1.0, born as DEP-5): which licence each file has.

Paragraphs of files are tried from the last: the last one that matches counts. In a pattern `*` is any run of characters, "/" included,
`?` is one, and a backslash takes the meaning from the next."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from etude.core.licence.expression import join_expressions, spdx
from etude.core.licence.matching import analyse_text
from etude.core.licence.names import of_name
from etude.core.licence.notices import granted_licences

FORMAT = re.compile(
    r"^Format(?:-Specification)?:\s*\S*(?:copyright-format|dep-?5|wiki\.debian\.org/Proposals/CopyrightFormat)",
    re.IGNORECASE | re.MULTILINE,
)
FIELD = re.compile(r"^([A-Za-z][A-Za-z0-9-]*):[ \t]*(.*)$")
# Short names that the format defines otherwise than SPDX.
DEFINED = {
    "expat": "MIT",
    "artistic": "Artistic-1.0-Perl",
    "perl": "Artistic-1.0-Perl OR GPL-1.0-or-later",
    "gfdl": "GFDL-1.1-or-later",
}
JOINING = re.compile(r"\s(?:or|and)\s", re.IGNORECASE)
# A text under a name of its own has one because it differs: only a match this close is taken for the licence that it resembles.
STRANGE_DICE = 0.93
# GNU FDL without invariant sections, which SPDX spells out.
NO_INVARIANTS = re.compile(r"GFDL-NIV-(\d\.\d)(\+?)", re.IGNORECASE)
# A stanza under this name holds some text of a family: what the text says comes first.
OPEN_NAMES = re.compile(r"mit|bsd|x11|custom|other|permissive|public|apache$|zpl$|isc|hpnd|unlimited", re.IGNORECASE)
EXCEPTIONS = {
    "openssl": "openvpn-openssl-exception", "font": "Font-exception-2.0", "autoconf": "Autoconf-exception-generic", "libtool": "Libtool-exception",
    "bison": "Bison-exception-2.2", "classpath": "Classpath-exception-2.0", "gcc": "GCC-exception-3.1", "llvm": "LLVM-exception",
    "linux-syscall-note": "Linux-syscall-note", "binary library-like packages": "PCRE2-exception",
    "autoconf-data": "Autoconf-exception-generic",
}  # fmt: skip


@dataclass
class Dep5:
    """`plain` are patterns without a wildcard, with the place of their last paragraph; `patterns` the others in the order they stand."""

    licences: list[str] = field(default_factory=list)
    plain: dict[str, int] = field(default_factory=dict)
    patterns: list[tuple[re.Pattern[str], int]] = field(default_factory=list)

    def of(self, path: str) -> str | None:
        """The file's expression, "" if its licence has no identifier, None if no paragraph names the file."""
        last = self.plain.get(path, -1)
        for pattern, place in reversed(self.patterns):
            if place <= last:
                break
            if pattern.fullmatch(path):
                return self.licences[place]
        return self.licences[last] if last >= 0 else None


def parse_dep5(text: str) -> Dep5 | None:
    """None if the file is written for people only."""
    if not FORMAT.search(text[:4_000]):
        return None
    stanzas = [
        stanza for stanza in (_fields(block) for block in re.split(r"\n[ \t]*\n", text.replace("\r\n", "\n"))) if stanza
    ]
    texts: dict[str, str] = {}
    for stanza in stanzas:
        name, _, body = stanza.get("license", "").partition("\n")
        if body.strip():
            texts.setdefault(name.strip().lower(), body)
    found = Dep5()
    for stanza in stanzas:
        if "files" not in stanza:
            continue
        name, _, body = stanza.get("license", "").partition("\n")
        place = len(found.licences)
        found.licences.append(_licence(name, body, texts))
        for pattern in stanza["files"].split():
            if re.search(r"[*?\\]", pattern):
                found.patterns.append((_glob(pattern), place))
            else:
                found.plain[pattern.removeprefix("./")] = place
    return found if found.licences else None


def _fields(block: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in block.split("\n"):
        if line[:1] in (" ", "\t"):
            if name:
                content = line.strip()
                fields[name] += "\n" + ("" if content == "." else content)
        elif match := FIELD.match(line):
            name = match[1].lower()
            fields[name] = match[2].strip()
    return fields


def _glob(pattern: str) -> re.Pattern[str]:
    """What comes before the last star matches as early as it can and gives nothing back, so the time is no power of the number of stars."""
    pieces = re.findall(r"\\.|.", pattern.removeprefix("./"), re.DOTALL)
    parts = [""]
    for piece in pieces:
        if piece == "*":
            parts.append("")
        else:
            parts[-1] += "." if piece == "?" else re.escape(piece[-1])
    first, *rest = parts
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1])
    return re.compile(first + middle + (f".*{rest[-1]}" if rest else ""), re.DOTALL)


def _licence(name: str, body: str, texts: dict[str, str]) -> str:
    """The expression of a `License:` field. "and" binds closer than "or", unless a comma precedes it."""
    name = name.strip()
    if body.strip() and not JOINING.search(name):
        return _single(name, body)
    if (
        name.lower() in texts and name.lower() not in DEFINED
    ):  # "GPL-2+ or Artistic" may be the name of a stanza, and then it tells more
        whole = _single(name, texts[name.lower()])
        if whole and not JOINING.search(name):
            return whole
    return _combined(name, texts) or _single(name, body)


def _combined(name: str, texts: dict[str, str]) -> str:
    for pattern, is_choice in ((r",\s*and\s+", False), (r",?\s+or\s+|\s*\|\s*", True), (r",?\s+and\s+|,\s*", False)):
        parts = [part for part in re.split(pattern, name, flags=re.IGNORECASE) if part.strip()]
        if len(parts) > 1:
            sides = [
                _combined(part, texts) or f"LicenseRef-{re.sub(r'[^A-Za-z0-9.]+', '-', part).strip('-')}"
                for part in parts
            ]
            return (
                join_expressions(sides, choice=is_choice)
                if any(not side.startswith("LicenseRef-") for side in sides)
                else ""
            )
    return _single(name, texts.get(name.strip().lower(), ""))


def _single(name: str, text: str) -> str:
    name = name.strip()
    licence, _, exception = re.sub(r"[_ ]with[_ ]", " with ", name, flags=re.IGNORECASE).partition(" with ")
    if exception:
        base = _single(licence, "")
        known = re.sub(r"[- _]*(?:special )?exceptions?$", "", exception.strip(), flags=re.IGNORECASE).lower()
        return (spdx(f"{base} WITH {EXCEPTIONS.get(known, exception.strip())}") or base) if base else ""
    if manual := NO_INVARIANTS.fullmatch(name):
        return f"GFDL-{manual[1]}-no-invariants-{'or-later' if manual[2] else 'only'}"
    defined = DEFINED.get(name.lower()) or of_name(name.replace("_", " "))
    if not text.strip() or (defined and not OPEN_NAMES.match(name)):
        return defined
    reading = analyse_text(text)
    if reading.restricted or (
        not defined and not OPEN_NAMES.match(name) and any(match.dice < STRANGE_DICE for match in reading.matches)
    ):
        return ""
    return join_expressions(reading.licences) or defined or join_expressions(granted_licences(reading.rest))
