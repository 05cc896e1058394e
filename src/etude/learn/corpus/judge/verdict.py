"""What is said about a file: kept, with its text and language, or refused for one of a fixed set of reasons that are counted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FileRefusal(StrEnum):
    """Why a file is not taken. The values are what the manifest and the report count."""

    TOO_LARGE = "too large"
    TOO_SMALL = "too small"
    NOT_TEXT_BY_NAME = "binary by name"
    UNKNOWN_LANGUAGE = "unknown language"
    VENDORED = "vendored"
    LOCKFILE = "lockfile"
    TRANSLATION = "translation"
    BUILT = "build output"
    METADATA = "package metadata"
    TEST_DATA = "test data"
    DATA = "data"
    BINARY = "binary"
    ENCODING = "unknown encoding"
    GENERATED = "generated"
    MINIFIED = "minified"
    ENCODED_DATA = "encoded data"
    FEW_WORDS = "few words"
    NOT_PYTHON = "not valid Python"


@dataclass(frozen=True)
class AcceptedFile:
    """`text` has "\\n" line ends and no byte order mark; `language` is a lower-case name."""

    text: str
    language: str


@dataclass(frozen=True)
class FileLimits:
    """Where the line is drawn. A number without a remark is of the order that the published pipelines use (The Stack v2, OpenCoder:
    longest line 1,000, mean line 100, alphanumeric share 0.25), looser where their line cut hand-written files of ours."""

    # Below it there is a licence line or an import, seldom a thought.
    min_bytes: int = 64
    # Of the sources above it in the standard library, site-packages and system headers of a machine, eight of nine were generated, bundled
    # or tables; the ninth was one test module of PyTorch.
    max_bytes: int = 1_000_000
    # Data that came with tests, and data at all (JSON, CSV, YAML, XML …): a short piece shows the format, the rest repeats it.
    max_test_data_bytes: int = 64_000
    max_data_bytes: int = 32_000
    # Code only; prose has a paragraph a line.
    max_line_chars: int = 1_000
    # Of the characters, in lines longer than that: one long table in a written module passes.
    max_long_line_share: float = 0.1
    max_mean_line_chars: int = 120
    # Code has about 0.25, minified code below 0.08, wrapped base64 0.014.
    min_space_share: float = 0.06
    min_alphanumeric_share: float = 0.25
    # Of the characters, inside long runs of base64, hexadecimal or numbers.
    max_encoded_share: float = 0.4
    # Control characters (escape sequences in a test's expected output); a NUL is one too many.
    max_control_share: float = 0.001
