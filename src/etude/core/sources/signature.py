"""A clear-signed text, checked with gpgv against the keys that apt trusts: mirrors speak plain http, so nothing else says that an
index is the distribution's."""

from __future__ import annotations

import base64
import binascii
import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from etude.core.sources.project import SourceOffline

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
