"""Searches the whole file system that it finds itself in; run by `scan.py` inside a sandbox, standard library alone, any Python from 3.8.

Needles as JSON on stdin, findings as JSON on stdout. Of the host's shared system folders only what is named like the project is read
(its packages there); everything else, `/tmp` and the environment's folders among it, is read whole, archives included.

What can't be searched is listed in `unread`, with the reason. `tarfile` takes a damaged header for the end of an archive and says nothing:
here the damage is listed and the members behind it are searched.
"""

import importlib
import io
import json
import os
import struct
import sys
import tarfile
import zipfile
from functools import partial

try:
    from zlib import error as ZlibError
except ImportError:  # a Python without zlib
    ZlibError = OSError
try:
    from lzma import LZMAError
except ImportError:  # a Python without lzma
    LZMAError = OSError

SKIPPED = ("/proc", "/sys", "/dev", "/run")
SHARED = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/var/lib/dpkg", "/opt")
PACKAGES = (
    "/usr/lib/python3/dist-packages",
    "/usr/local/lib",
    "/usr/share/nodejs",
    "/usr/lib/node_modules",
    "/usr/lib/nodejs",
    "/usr/share/java",
)
# What many a package calls a file, so that the name tells nothing of whose it is.
ANYBODY_S = ("index", "main", "__init__", "util", "utils", "types", "core", "base", "cli")
COMPILED = (".pyc", ".pyo", ".class", ".so", ".map", ".node", ".pyd", ".json", ".db", ".sqlite")
MOST_BYTES = 16 << 20
MOST_UNPACKED_BYTES = 64 << 20  # of one compressed archive: a bomb of 16 MB would be searched for hours
MOST_UNPACKED_IN_ALL = 4 << 30  # of all members of archives
CHUNK_BYTES = 1 << 16
MOST_UNREAD = 1000  # files listed by name; a longer list ends with a line that says so
MOST_DEPTH = 2  # of archives within archives
READERS = {"gz": "gzip", "bz2": "bz2", "xz": "lzma"}  # modules that a Python may lack
COMPRESSED = {b"\x1f\x8b": "gz", b"BZh": "bz2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zst"}
TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257
# What `tarfile` raises about headers and keeps to itself: the block of zeros that ends an archive, the end of the file, anything else.
END_MARK, END_OF_FILE, BAD_HEADER = (getattr(tarfile, n + "Error") for n in ("EOFHeader", "EmptyHeader", "Header"))
# What the standard library raises about damaged archives. NotImplementedError is a RuntimeError, UnicodeDecodeError a ValueError.
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    ZlibError,
    LZMAError,
    struct.error,
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    LookupError,
    ArithmeticError,
    MemoryError,
)


def main():
    request = json.loads(sys.stdin.buffer.read())
    search = WindowSearch(request)
    for path in everything(request["project"], request["skip"]):
        search.file(path)
    json.dump(
        {"found": search.found, "files": search.files, "bytes": search.bytes, "unread": search.unread}, sys.stdout
    )


def everything(project, skip):
    alike = {project.lower(), project.lower().replace("-", "_"), project.lower().replace("_", "-")} - {""}
    for top in sorted(os.listdir("/")):
        if "/" + top not in SKIPPED + SHARED:
            yield from below("/" + top, skip)
    for folder in PACKAGES:
        for root, folders, files in os.walk(folder):
            folders[:] = [n for n in folders if not os.path.islink(os.path.join(root, n))]
            for name in list(folders):
                if name.lower() in alike or name.lower().split("-")[0].split(".")[0] in alike:
                    folders.remove(name)
                    yield from below(os.path.join(root, name), skip)
            yield from (os.path.join(root, n) for n in files if n.lower().split("-")[0].split(".")[0] in alike)
            if root.count("/") - folder.count("/") >= 3:
                folders[:] = []


def below(top, skip):
    if os.path.isfile(top):
        yield top
    for root, folders, files in os.walk(top):
        folders[:] = [n for n in folders if os.path.join(root, n) not in skip]
        for name in files:
            yield os.path.join(root, name)


def is_tar(path, data):
    return path.endswith(".tar") or data.startswith(TAR_MAGIC, TAR_MAGIC_AT)


def compression_of(data):
    return next((name for magic, name in COMPRESSED.items() if data.startswith(magic)), "")


def unpack_data(data, compression):
    """The content, and why it is not all of it: what comes before damage, and no more than the bound."""
    if compression not in READERS:
        return b"", [f"{compression} is not read here"]
    content = bytearray()
    try:
        with importlib.import_module(READERS[compression]).open(io.BytesIO(data), "rb") as file:
            while len(content) <= MOST_UNPACKED_BYTES:
                chunk = file.read(CHUNK_BYTES)
                if not chunk:
                    return bytes(content), []
                content += chunk
    except (ImportError, *DAMAGE) as error:
        return bytes(content), [str(error)]
    return bytes(content), [f"over {MOST_UNPACKED_BYTES} bytes unpacked, only the first are searched"]


def zip_count(data):
    """How many members the end of a zip archive names, 0xFFFF for more; `zipfile` skips those behind a damaged entry of the directory."""
    return struct.unpack_from("<H", data, data.rindex(b"PK\x05\x06") + 10)[0]


def read_member(archive, member):
    return archive.extractfile(member).read()


def recording(damage):
    """A header class that appends to `damage` what is wrong with an archive where `tarfile` says nothing and stops."""

    class Header(tarfile.TarInfo):
        ended = False  # the block of zeros that ends an archive was read

        @classmethod
        def fromtarfile(cls, archive):
            try:
                return super().fromtarfile(archive)
            except END_MARK:
                cls.ended = True
                raise
            except END_OF_FILE:
                if not cls.ended:
                    damage.append(f"cut at byte {archive.offset}, before the block of zeros that ends an archive")
                raise
            except BAD_HEADER as error:
                damage.append(f"{error} at byte {archive.offset}" + ", behind the mark of its end" * cls.ended)
                raise

    return Header


class WindowSearch:
    def __init__(self, request):
        self.least = request["least"]
        self.first = {}  # a window's first line -> (part, window)
        for part, windows in enumerate(request["windows"]):
            for window in windows:
                lines = window.split("\n")
                self.first.setdefault(lines[0], []).append((part, lines))
        self.names = [n.encode() for n in request["names"]]
        self.stems, self.project = set(request["stems"]), request["project"].lower().replace("-", "_")
        self.found, self.files, self.bytes, self.unread, self.unpacked = [], 0, 0, [], 0

    def file(self, path):
        if os.path.islink(path) or not os.path.isfile(path):
            return
        try:
            with open(path, "rb") as file:
                data = file.read(MOST_BYTES + 1)
        except OSError as error:
            self.not_searched(path, error.strerror)
            return
        if len(data) > MOST_BYTES:
            self.not_searched(path, f"over {MOST_BYTES} bytes, only the first are searched")
        self.look(path, data, 0)

    def not_searched(self, path, why):
        if len(self.unread) < MOST_UNREAD:
            self.unread.append(f"{path}: {why}")
        elif len(self.unread) == MOST_UNREAD:
            self.unread.append(f"more files than {MOST_UNREAD} were not searched whole; the others are not listed")

    def look(self, path, data, depth):
        self.files += 1
        self.bytes += len(data)
        search = self.searcher(path, data)
        if search is not None and depth >= MOST_DEPTH:
            self.not_searched(path, f"an archive within {MOST_DEPTH} others")
        elif search is not None:
            search(path, data, depth)
        self.lines(path, data)
        self.compiled(path, data)

    def searcher(self, path, data):
        if data.startswith(b"PK\x03\x04"):
            return self.zipped
        return self.tarred if is_tar(path, data) or compression_of(data) else None

    def zipped(self, path, data, depth):
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = archive.infolist()
                if zip_count(data) not in (len(members), 0xFFFF):
                    self.not_searched(
                        path, f"a damaged zip archive: {len(members)} members read, {zip_count(data)} named"
                    )
                for info in members:
                    self.member(f"{path}!{info.filename}", info.file_size, partial(archive.read, info), depth)
        except DAMAGE as error:
            self.not_searched(path, f"a damaged zip archive: {error}")

    def tarred(self, path, data, depth):
        compression, members = compression_of(data), 0
        data, damage = unpack_data(data, compression) if compression else (data, [])
        header = recording(damage)
        try:
            # `ignore_zeros` goes past damage and past the mark of the end, to the end of the file.
            with tarfile.open(None, "r:", io.BytesIO(data), tarinfo=header, ignore_zeros=True) as archive:
                for member in archive:
                    members += 1
                    if member.isfile():
                        self.member(f"{path}!{member.name}", member.size, partial(read_member, archive, member), depth)
        except DAMAGE as error:
            damage.append(str(error))
        if damage:
            kind = "compressed, and no whole tar archive" if compression and not members else "a damaged tar archive"
            self.not_searched(path, f"{kind}: {damage[0]}")

    def member(self, path, size, content, depth):
        if size > MOST_BYTES:
            self.not_searched(path, f"over {MOST_BYTES} bytes")
            return
        self.unpacked += size
        if self.unpacked > MOST_UNPACKED_IN_ALL:
            self.not_searched(path, f"behind the first {MOST_UNPACKED_IN_ALL} bytes of archives")
            return
        try:
            data = content()
        except DAMAGE as error:
            self.not_searched(path, f"a damaged member: {error}")
            return
        self.look(path, data, depth + 1)

    def lines(self, path, data):
        if b"\0" in data[:4096]:
            return
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
        lines = [line for line in lines if line]
        matched = [{} for _ in self.least]
        for at, line in enumerate(lines):
            for part, window in self.first.get(line, ()):
                if lines[at : at + len(window)] == window:
                    matched[part][" / ".join(window)] = None
                    if len(matched[part]) >= self.least[part]:
                        self.found.append({"path": path, "what": "lines", "text": list(matched[part])[0][:200]})
                        return

    def compiled(self, path, data):
        name = path.rpartition("/")[2]
        if not self.names or not (b"\0" in data[:4096] or name.endswith(COMPILED)):
            return
        stem = name.split(".")[0]
        alike = stem in self.stems and stem not in ANYBODY_S
        if not alike and (not self.project or self.project not in path.lower().replace("-", "_")):
            return
        matched = [n for n in self.names if n in data]
        if len(matched) * 2 > len(self.names):
            text = ", ".join(n.decode() for n in matched[:5])
            self.found.append({"path": path, "what": "names", "text": text})


if __name__ == "__main__":
    main()
