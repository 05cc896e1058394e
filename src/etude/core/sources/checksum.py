"""A checksum as registries write them, carried in the fragment of an address (`…/a-1.0.tar.gz#sha256=…`), so that a Ref names
exactly one content."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urldefrag

# Strongest first. SHA-1 is all that npm packages from before 2017 have; md5 is not accepted from anybody.
ALGORITHMS = ("sha512", "sha256", "sha1")


@dataclass(frozen=True)
class Checksum:
    """`hex` is the digest in lower-case hexadecimal."""

    algorithm: str
    hex: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex}"

    def matches(self, file: Path) -> bool:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, self.algorithm).hexdigest() == self.hex

    def on(self, address: str) -> str:
        """The address with the checksum as its fragment."""
        return f"{urldefrag(address).url}#{self.algorithm}={self.hex}"


def of_address(address: str) -> tuple[str, Checksum | None]:
    """The address without its fragment, and the checksum in that."""
    url, fragment = urldefrag(address)
    algorithm, _, digest = fragment.partition("=")
    return url, strongest({algorithm: digest})


def strongest(digests: dict[str, str]) -> Checksum | None:
    """The best usable of some hexadecimal digests by algorithm; None if there is none."""
    for algorithm in ALGORITHMS:
        digest = digests.get(algorithm, "").lower()
        if len(digest) == hashlib.new(algorithm).digest_size * 2 and set(digest) <= set("0123456789abcdef"):
            return Checksum(algorithm, digest)
    return None


def of_integrity(integrity: str) -> Checksum | None:
    """The best usable of a Subresource Integrity string (W3C SRI 3.5: "sha512-<base64> sha1-<base64>?options")."""
    digests: dict[str, str] = {}
    for token in integrity.split():
        algorithm, _, value = token.partition("?")[0].partition("-")
        try:
            digests.setdefault(algorithm, base64.b64decode(value, validate=True).hex())
        except ValueError:
            continue  # another token may be whole; none at all is the caller's refusal
    return strongest(digests)
