"""The text of a commit, patch or changelog as a request: what it says of the change itself, without its handling.

Handling means the text that people and tools add for the record: trailers in the sense of git-interpret-trailers (`Key-Word: value` lines that are
the last paragraph, with folded lines), known trailers anywhere (squashed commits hold them in the middle), references to issues
("(#12)", "Closes GH-12"), links, cherry-pick lines and identifiers of other systems. The sentences around stay as they are.
"""

from __future__ import annotations

import re

_URL = r"(?<![\w'\"])(?:(?:https?|ftp|git|ssh)://|www\.)[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]}]"
# "PROJ-12" is a ticket, "UTF-8" is none.
_NO_PROJECT = "UTF|UCS|ASCII|LATIN|ISO|IEC|IEEE|RFC|PEP|CVE|CWE|SHA|MD|CRC|AES|RSA|BASE|HTTP|TLS|SSL|CP|WINDOWS|IPV|PY|PYTHON|ES|MP|KOI|BIG|GB|INT"
_KEYED = rf"(?-i:(?!(?:{_NO_PROJECT})-)[A-Z][A-Z0-9]+-\d+\b)"
_ISSUE = rf"(?:[\w.-]+/[\w.-]+)?[#!]\d+|(?:gh|bpo|lp|bz|bug)[-\s:]*#?\d+|(?:issue|pr|pull[ -]request|ticket)s?\s+#?\d+|{_KEYED}|{_URL}"
_TICKET = r"(?:(?:the\s+)?(?:issue|pr|pull(?:[ -]request)?|merge request|mr|ticket|bug|gh|lp|rhbz|bz)s?\s*:?\s*)?"
# One reference that needs no word before it, and one that only a word such as "closes" tells from a name ("UTF-8", "12").
_SURE = rf"(?:[\w.-]+/[\w.-]+)?(?<![\w&])#\d+\b|[\w.-]+/[\w.-]+[#!]\d+\b|\b(?:gh|bpo|lp)[-:]\s?#?\d+\b|{_URL}"
_VERBS = r"(?:close[sd]?|closing|fix(?:e[sd]|ing)?|resolve[sd]?|resolving|address(?:es|ed)?|implement(?:s|ed)?)"
_POINTERS = (
    r"(?:refs?|references?|see(?:[ -]also)?|related(?:[ -]to)?|re|cf\.?|part[ -]of|issues?|bugs?|tickets?|tracks?)"
)
_AND = r"\s?(?:,|;|&|/|\+|\band\b|\bor\b|\s)\s?"
_SEVERAL = rf"{_TICKET}(?:{_ISSUE})(?:{_AND}{_TICKET}(?:{_VERBS}\s*:?\s*)?(?:{_ISSUE}))*"
_SURELY_SEVERAL = rf"{_TICKET}(?:{_SURE})(?:{_AND}{_TICKET}(?:{_SURE}))*"
_BY = r"(?:as\s+)?(?:discussed|described|reported|suggested|mentioned|noted|seen|requested|proposed|explained)\s+(?:in|at|by|on|under)"
_BEFORE = r"(?:in|see|from|per|for|by|of|at|on|via|with|to|after|since|under|and)"

# Trailers wherever they are: words that begin no sentence.
_KNOWN = re.compile(
    r"(?i)^\W{0,3}(?:[\w-]+[ -]by|cc|bcc|change-id|reviewed-on|reviewed-at|pr-url|pull-request|git-svn-id|svn-revision|"
    r"differential(?: |-)revision|(?:[\w-]+-)?session(?:-id|-url)?|[\w-]+-(?:id|url|link|revision|bug|issue)|upstream-commit|cq-depend|"
    r"skip-checks?|on-behalf-of|generated-with|release-note|archived-at)\s*:\s*(?=\S)"
)
_HANDLING = re.compile(
    r"(?i)^\W{0,3}(?:cherry[ -]picked|picked) (?:from|of|by)\b|^see merge request\b"
    r"|^(?:this )?(?:back-?port(?:ed)?|upstream commit)(?: of| from)? [0-9a-f]{7,40}\W*$"
    r"|^\W*(?:generated|created|written|made|assisted|co-?authored) (?:with|by|using)\b[^.]*(?:\]\(|https?:|\[)"
    r"|^#?\s*conflicts?:$|^git-svn-id\b|^\[(?:skip[ -]ci|ci[ -]skip)\]$|^fixes:\s*[0-9a-f]{7,40}\b"
    rf"|^\[[^\]]+\]:\s*<?{_URL}"
)
_TRAILER = re.compile(r"^[A-Za-z0-9][A-Za-z0-9-]*[ \t]*:[ \t]*\S?")
_GIT_MADE = re.compile(r"(?i)^(?:signed-off-by|co-authored-by|change-id):|^\(cherry picked from commit ")
# Words that open a sentence of prose, and how long a value is that is one.
_PROSE_KEYS = re.compile(
    r"(?i)^(?:notes?|nb|ps|example|examples|before|after|expected|actual|warning|why|what|how|reason|because|result|todo|usage|steps|"
    r"summary|problem|solution|background|context|previously|now|instead|also|or|e|i)[ \t]*:"
)
_SENTENCE = 5
MOST_REFERENCE_CHARS = 500
_ONLY_REFERENCES = re.compile(
    rf"(?i)^\W*(?:(?:(?:{_VERBS}|{_POINTERS}|links?|urls?|thread|discussion)\b\s*:?\s*)?{_SEVERAL}|"
    rf"(?:{_VERBS}|{_POINTERS}|pr)\s*:\s*#?\d+(?:[\s,]+#?\d+)*)\W*$"
)
_MAY_REFER = re.compile(r"\d|://|www\.|\[")
_PREFIX = re.compile(rf"(?i)^\s*(?:\[(?:patch[^\]]*|{_ISSUE})\]|(?:{_SURE})\s*:|\((?:{_SURE})\))\s*:?\s*")
_MARKDOWN_LINK = re.compile(r"!?\[([^\]\n]*)\]\(\s*<?(?:https?|ftp)://[^)\s]*>?(?:\s+\"[^\"]*\")?\s*\)")
_RST_LINK = re.compile(r"`([^`<\n]*?)\s*<(?:https?|ftp)://[^>`\n]*>`_+")
_DETAILS = (
    r"(?:for\s+)?(?:more\s+|further\s+)?(?:info(?:rmation)?|details?|context|discussion|background|docs?|documentation)"
)
LONGEST_LINE, MOST_BLANKS = 2_000, 40  # characters
_BLANKS = re.compile(rf"[^\S\n]{{{MOST_BLANKS},}}")
_INLINE = (
    (_MARKDOWN_LINK, r"\1"),
    (re.compile(rf"(?i),?\s*\b(?:{_DETAILS}\W{{1,3}})?(?:see(?: also)?|refer to|cf\.?)\s*:?\s*{_SEVERAL}\s+{_DETAILS}(?!\w)"), ""),
    (re.compile(rf"(?i),?\s*\b{_DETAILS}(?:\s+(?:here|at|in))?\W{{1,3}}(?:see\s+)?{_URL}"), ""),
    (re.compile(rf"<{_URL}>"), ""),
    (re.compile(rf"(?i)[(\[]\s*(?:(?:{_VERBS}|{_POINTERS}|{_BY}|{_BEFORE})\b\s?:?\s?){{0,3}}{_SEVERAL}\s*[)\]]"), ""),
    (re.compile(rf"(?i)[,;:–—-]?\s*\b(?:and\s+)?(?:this\s+)?(?:{_VERBS}|{_POINTERS})\b\s*:?\s*{_SEVERAL}(?!\w)"), ""),
    (re.compile(rf"(?i),?\s*\b{_BY}\s+{_SEVERAL}(?!\w)"), ""),
    (re.compile(rf"(?i)(?:\s?\b{_BEFORE}\b){{0,3}}\s?(?<![\w/]){_SURELY_SEVERAL}(?!\w)"), ""),
)  # fmt: skip
_TIDY = (
    (re.compile(r"(?<![\w)\]])[(\[]\s*(?:and|or|see|cf|,|;|:|\s)*[)\]]"), ""),
    (re.compile(r"(?<=\S)[ \t]+([.,;:!?)](?:\s|$))"), r"\1"),
    (re.compile(r"(?<=\S)[,;:–—-]+\s*([.!?])(?=\s|$)"), r"\1"),
    (re.compile(r"(?<!\.)([.!?])\s*\.(?=\s|$)"), r"\1"),
    (re.compile(r"(?<=\S)[ \t]{2,}"), " "),
    (re.compile(r"[\s,;:–—-]+$"), ""),
    (re.compile(r"^[\s,;:.–—]+(?=\S)"), ""),
)


def request_of(message: str) -> str:
    """What a message says of the change itself; empty where it says nothing else."""
    message = "\n".join(map(_bounded, message.replace("\r\n", "\n").split("\n")))
    title, _, body = message.strip().partition("\n")
    handled = _HANDLING.match(title) or _only_refers(title) or _GIT_MADE.match(title)
    title = "" if handled else without_references(title)
    behind = re.match(r"\n*", body)
    apart = bool(behind and behind[0]) or not body
    paragraphs = re.split(r"\n[ \t]*\n+", body.strip("\n"))
    kept: list[str] = []
    for number, paragraph in enumerate(paragraphs):
        lines = paragraph.split("\n")
        if (number or apart) and all(map(_is_trailers, paragraphs[number:])):
            lines = _sentences(lines)
        lines = _unhandled(lines)
        if any(re.search(r"\w", line) for line in lines):  # a rule of dashes between trailers says nothing
            kept.append("\n".join(lines))
    joint = "\n\n" if apart else "\n"
    return (title + joint + "\n\n".join(kept)).strip()


def without_references(line: str) -> str:
    """A line of prose without references to issues, and without links; code in backticks stays as it is."""
    line = _bounded(line)
    if not _MAY_REFER.search(line):
        return line
    whole = line
    line = _PREFIX.sub("", _MARKDOWN_LINK.sub(r"\1", _RST_LINK.sub(r"\1", line)))
    parts = re.split(r"(`[^`\n]*`)", line)
    cleaned = "".join(part if part.startswith("`") else _replaced(part) for part in parts)
    return whole if cleaned == whole else _tidied(cleaned)


def _bounded(line: str) -> str:
    """The line without what no person writes: the patterns look at each blank of a row several times, and at each character of a line."""
    return _BLANKS.sub(lambda found: found[0][:MOST_BLANKS], line)[:LONGEST_LINE]


def _only_refers(line: str) -> bool:
    """Whether a line says nothing but what it refers to. The pattern's time grows faster than the line, and a long line says more."""
    return len(line) <= MOST_REFERENCE_CHARS and bool(_ONLY_REFERENCES.match(line))


def _replaced(text: str) -> str:
    for pattern, instead in _INLINE:
        text = pattern.sub(instead, text)
    return text


def _tidied(text: str) -> str:
    indent = text[: len(text) - len(text.lstrip())]
    bullet = re.match(r"[-*+•]\s+", text.lstrip())
    head = indent + (bullet[0] if bullet else "")
    rest = text[len(head) :]
    for pattern, instead in _TIDY:
        rest = pattern.sub(instead, rest)
    return head + rest if re.search(r"\w", rest) else ""


def _is_trailers(paragraph: str) -> bool:
    """As git-interpret-trailers has it: all lines are trailers or folded, or one line in four is and git itself made one of them."""
    heads = [line for line in paragraph.split("\n") if line.strip() and not line[:1].isspace()]
    if not heads or paragraph[:1].isspace():
        return False
    good = sum(map(_is_trailer, heads))
    return good == len(heads) or (any(map(_GIT_MADE.match, heads)) and 4 * good >= len(heads))


def _is_trailer(line: str) -> bool:
    if _GIT_MADE.match(line) or _KNOWN.match(line) or _HANDLING.match(line) or _only_refers(line):
        return True
    key, _, value = line.partition(":")
    is_prose = _PROSE_KEYS.match(line) or ("-" not in key and len(value.split()) >= _SENTENCE and "@" not in value)
    return bool(_TRAILER.match(line)) and not is_prose


def _sentences(lines: list[str]) -> list[str]:
    """Of a block of trailers, what is none: git takes such lines for part of the block, a reader does not."""
    kept: list[str] = []
    folded = False
    for line in lines:
        folded = (folded and line[:1].isspace()) or _is_trailer(line)
        if not folded:
            kept.append(line)
    return kept


def _unhandled(lines: list[str]) -> list[str]:
    """The lines that are left, each without references; a known trailer goes with the lines that are folded under it."""
    kept: list[str] = []
    folded = False
    for line in lines:
        if folded and line[:1].isspace() and line.strip():
            continue
        folded = bool(_KNOWN.match(line) or _HANDLING.match(line.strip()))
        if folded or _only_refers(line.strip()):
            continue
        remaining = without_references(line)
        if remaining.strip() or not line.strip():
            kept.append(remaining)
    return kept
