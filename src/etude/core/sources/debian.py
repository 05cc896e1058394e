"""Debian source packages from the mirrors that apt is configured with: upstream's files, and the packaging in `debian/`.

The chain of trust is apt's: a signed InRelease file names the checksum of a suite's source index, the index that of each .dsc, the
.dsc those of its archives. Patches stay unapplied in `debian/patches`: they are data of their own.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import lzma
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote, urljoin

from etude.core.sources.apt import APT, AptSuite, stanzas, suites
from etude.core.sources.archive import check, refused_ref
from etude.core.sources.checksum import Checksum, of_address
from etude.core.sources.download import Missing
from etude.core.sources.dsc import assemble, checksums, read_dsc
from etude.core.sources.fetch import Fetcher
from etude.core.sources.project import ProjectRefused, Ref, SourceOffline, SourceProject
from etude.core.sources.unpack import UnpackLimits, work_folder

# A clear-signed text, checked with gpgv against the keys that apt trusts: mirrors speak plain http, so nothing else
# says that an index is the distribution's.


VERIFY_S = 60  # milliseconds; more only on a machine under load
BEGIN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"


def trusted_keys(apt: Path) -> list[Path]:
    """The key files that may sign for a source which names none (apt-key(8))."""
    folder = apt / "trusted.gpg.d"
    parts = sorted(folder.iterdir()) if folder.is_dir() else []
    return [key for key in [apt / "trusted.gpg", *parts] if key.suffix in (".gpg", ".asc") and key.is_file()]


def signed_text(message: bytes, keys: Iterable[Path]) -> str:
    """What is signed, without the signature; raises ValueError unless one of the keys made a good signature and none a bad one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rings: list[str] = []
        for number, key in enumerate(keys):
            ring = folder / f"{number}.gpg"
            ring.write_bytes(_binary(key))
            rings += ["--keyring", str(ring)]
        (folder / "message").write_bytes(message)
        command = ["gpgv", *rings, "--status-fd", "1", "--output", str(folder / "text"), str(folder / "message")]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=VERIFY_S,
                env={"PATH": os.environ.get("PATH", os.defpath), "GNUPGHOME": name},
            )
        except FileNotFoundError:
            raise SourceOffline("gpgv is not installed, so no index of a mirror can be checked; install gpgv") from None
        # The exit status is also a failure if one of several signatures is by a key that isn't here.
        statuses = {line.split(" ")[1] for line in done.stdout.decode(errors="replace").splitlines() if " " in line}
        if "GOODSIG" not in statuses or "BADSIG" in statuses:
            raise ValueError(
                f"its signature is not by a key that apt trusts ({', '.join(sorted(statuses)) or 'unsigned'})"
            )
        return (folder / "text").read_text(errors="replace")


def _binary(key: Path) -> bytes:
    """A key file as gpgv reads it: without the armour (RFC 9580 6.2)."""
    data = key.read_bytes()
    if BEGIN not in data:
        return data
    lines = data.partition(BEGIN)[2].partition(b"-----END")[0].splitlines()
    body = lines[lines.index(b"") + 1 :] if b"" in lines[1:] else lines
    try:
        # The last line, "=" and four characters, is a checksum that is not needed.
        return base64.b64decode(b"".join(line for line in body if not line.startswith(b"=")))
    except binascii.Error:
        raise SourceOffline(f"{key} is not a key file; correct apt's sources") from None


# The order of Debian versions (deb-version(7)): epoch, upstream version, revision; "~" sorts before everything, even
# the end.


PART = re.compile(r"(\D*)(\d*)")

Key = tuple[int, list[tuple[list[int], int]], list[tuple[list[int], int]]]


def key(version: str) -> Key:
    """A sort key. Versions that compare as equal ("1.0", "1.00") have equal keys."""
    epoch, colon, rest = version.partition(":")
    if not (colon and epoch.isdigit()):
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return int(epoch), _parts(upstream if dash else rest), _parts(revision if dash else "0")


def _parts(text: str) -> list[tuple[list[int], int]]:
    """Text and number in turn. Each text ends in a 0, which sorts between "~" and the letters."""
    pairs = [(letters, digits) for letters, digits in PART.findall(text) if letters or digits]
    # The end follows the last part: an empty text and a 0, above "~" and below all else.
    return [([*map(_order, letters), 0], int(digits or 0)) for letters, digits in pairs] + [([0], 0)]


def _order(character: str) -> int:
    if character == "~":
        return -1
    # Letters before all else that isn't a digit.
    return ord(character) if character.isalpha() else ord(character) + 0x110000


OPENERS = {".xz": lzma.open, ".gz": gzip.open}  # in the order they are preferred: xz is two thirds of gz
# Of debian/changelog: the first entry's last line is within it, but for generated entries.
CHANGELOG_CHARS = 64 * 1024


class DebianSource:
    """The newest version in apt's suites of each source package whose name matches one of `packages`: names, or patterns like
    "golang-*" or "*" (all 35,000)."""

    def __init__(
        self,
        name: str,
        packages: Sequence[str],
        fetcher: Fetcher,
        *,
        limits: UnpackLimits = UnpackLimits(),
        apt: Path = APT,
    ) -> None:
        self.name, self.packages, self.fetcher, self.limits, self.apt = name, packages, fetcher, limits, apt
        self._patterns = [pattern for pattern in packages if set("*?[") & set(pattern)]
        self._names = frozenset(packages) - frozenset(self._patterns)  # of many, so that each of 35,000 is one look-up

    def refs(self) -> Iterator[Ref]:
        """By name. Raises SourceOffline. A name or pattern that nothing matches is a ref that `open` refuses."""
        newest: dict[str, Ref] = {}
        indexed = [suite for suite in suites(self.apt) if self._read_into(newest, suite)]
        if not indexed:
            raise SourceOffline(
                f"no suite in {self.apt} has an index of sources; list a Debian mirror there (sources.list(5))"
            )
        yield from (newest[name] for name in sorted(newest))
        for pattern in self.packages:
            if pattern not in newest and not any(fnmatchcase(name, pattern) for name in newest):
                yield refused_ref(self.name, "debian", pattern, f"no source package matches {pattern!r}")

    @contextmanager
    def open(self, ref: Ref) -> Iterator[SourceProject]:
        """`ref.released` is then known from the changelog. Raises SourceOffline or ProjectRefused."""
        check(ref)
        dsc = read_dsc(self.fetcher.artefact(ref.location))
        url, checksum = of_address(ref.location)

        def fetch(name: str, of: Checksum) -> Path:
            return self.fetcher.artefact(of.on(urljoin(url, quote(name))))

        with work_folder(self.fetcher.scratch) as folder:
            root, skipped = assemble(dsc, fetch, folder, self.limits)
            dated = replace(ref, released=_released(root / "debian" / "changelog"))
            yield SourceProject(dated, root, str(checksum), dict(skipped))

    def _read_into(self, newest: dict[str, Ref], suite: AptSuite) -> bool:
        """Whether the suite has sources at all: many have only binaries."""
        try:
            listed = self.fetcher.page(suite.release, "*/*", lambda page: self._listed(page, suite))
        except Missing:
            return False
        except ProjectRefused as error:
            raise SourceOffline(str(error)) from None
        found = False
        for component in suite.components:
            for ending, opener in OPENERS.items():
                path = f"{component}/source/Sources{ending}"
                if path in listed:
                    found = True
                    with opener(
                        self._index(suite, path, listed[path]), "rt", encoding="utf-8", errors="replace"
                    ) as lines:
                        self._take(newest, suite, stanzas(lines))
                    break
        return found

    def _listed(self, page: bytes, suite: AptSuite) -> dict[str, Checksum]:
        """Checksum by path of what the Release file lists. Raises ValueError."""
        text = (
            page.decode(errors="replace") if suite.trusted else signed_text(page, suite.keys or trusted_keys(self.apt))
        )
        listed = next((fields["sha256"] for fields in stanzas(text.splitlines()) if "sha256" in fields), None)
        if listed is None:
            raise ValueError(
                "it is no Release file with SHA-256 checksums; correct or disable this suite in apt's sources"
            )
        return checksums(listed)

    def _index(self, suite: AptSuite, path: str, checksum: Checksum) -> Path:
        """The index file; by its hash first, where a mirror keeps it for some days after the Release file has moved on."""
        base = f"{suite.uri}dists/{suite.name}/"
        by_hash = f"{path.rpartition('/')[0]}/by-hash/SHA256/{checksum.hex}"
        refusals: list[str] = []
        for address in (by_hash, path):  # older mirrors have it by name only
            try:
                return self.fetcher.artefact(checksum.on(base + address))
            except ProjectRefused as refusal:
                refusals.append(str(refusal))
        advice = f"if the index page is old, remove {self.fetcher.cache / 'index'}"
        raise SourceOffline(f"{'; '.join(refusals)}; {advice}")

    def _take(self, newest: dict[str, Ref], suite: AptSuite, sources: Iterator[dict[str, str]]) -> None:
        for fields in sources:
            name, version = fields.get("package", ""), fields.get("version", "")
            if name not in self._names and not any(fnmatchcase(name, pattern) for pattern in self._patterns):
                continue
            old = newest.get(name)
            if old and key(old.version) >= key(version):
                continue
            folder = urljoin(suite.uri, quote(fields.get("directory", "")) + "/")
            files = checksums(fields.get("checksums-sha256", ""))
            dsc = next((file for file in files if file.endswith(".dsc")), "")
            # Without a checksum the address alone is kept, and `open` refuses it.
            location = files[dsc].on(urljoin(folder, quote(dsc))) if dsc else folder
            newest[name] = Ref(self.name, "debian", name, version, "", location)


def _released(changelog: Path) -> str:
    """ISO time of the newest entry's trailer (" -- Name <address>  date"); "" if there is none that can be read."""
    if not changelog.is_file():
        return ""
    with changelog.open(encoding="utf-8", errors="replace") as file:
        lines = file.read(CHANGELOG_CHARS).splitlines()
    trailer = next((line for line in lines if line.startswith(" -- ")), "")
    try:
        return parsedate_to_datetime(trailer.rpartition(">")[2].strip()).isoformat()
    except ValueError:
        return ""
