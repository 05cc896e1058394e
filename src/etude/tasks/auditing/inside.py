"""Searches the whole file system that it finds itself in; run by `scan.py` inside a sandbox, standard library alone, any Python from 3.8.

Needles as JSON on stdin, findings as JSON on stdout. Of the host's shared system folders only what is named like the project is read
(its packages there); everything else, `/tmp` and the environment's folders among it, is read whole, archives included.
"""

import io
import json
import os
import sys
import tarfile
import zipfile

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


def main():
    asked = json.loads(sys.stdin.buffer.read())
    search = Search(asked)
    for path in everything(asked["project"], asked["skip"]):
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


class Search:
    def __init__(self, asked):
        self.least = asked["least"]
        self.first = {}  # a window's first line -> (part, window)
        for part, windows in enumerate(asked["windows"]):
            for window in windows:
                lines = window.split("\n")
                self.first.setdefault(lines[0], []).append((part, lines))
        self.names = [n.encode() for n in asked["names"]]
        self.stems, self.project = set(asked["stems"]), asked["project"].lower().replace("-", "_")
        self.found, self.files, self.bytes, self.unread = [], 0, 0, []

    def file(self, path):
        if os.path.islink(path) or not os.path.isfile(path):
            return
        try:
            with open(path, "rb") as file:
                data = file.read(MOST_BYTES + 1)
        except OSError as error:
            self.unread.append(f"{path}: {error.strerror}")
            return
        if len(data) > MOST_BYTES:
            self.unread.append(f"{path}: over {MOST_BYTES} bytes")
        self.look(path, data, 0)

    def look(self, path, data, depth):
        self.files += 1
        self.bytes += len(data)
        if depth < 2 and data[:4] == b"PK\x03\x04":
            self.zipped(path, data, depth)
        elif depth < 2 and (data[:2] == b"\x1f\x8b" or path.endswith((".tar", ".tar.xz", ".tar.bz2"))):
            self.tarred(path, data, depth)
        self.lines(path, data)
        self.compiled(path, data)

    def zipped(self, path, data, depth):
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for info in archive.infolist():
                    if info.file_size <= MOST_BYTES:
                        self.look(path + "!" + info.filename, archive.read(info), depth + 1)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, OSError, EOFError) as error:
            self.unread.append(f"{path}: {error}")

    def tarred(self, path, data, depth):
        try:
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                for member in archive:
                    inner = archive.extractfile(member) if member.isfile() and member.size <= MOST_BYTES else None
                    if inner is not None:
                        self.look(path + "!" + member.name, inner.read(), depth + 1)
        except (tarfile.TarError, OSError, EOFError) as error:
            self.unread.append(f"{path}: {error}")

    def lines(self, path, data):
        if b"\0" in data[:4096]:
            return
        lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
        lines = [line for line in lines if line]
        held = [{} for _ in self.least]
        for at, line in enumerate(lines):
            for part, window in self.first.get(line, ()):
                if lines[at : at + len(window)] == window:
                    held[part][" / ".join(window)] = None
                    if len(held[part]) >= self.least[part]:
                        self.found.append({"path": path, "what": "lines", "text": list(held[part])[0][:200]})
                        return

    def compiled(self, path, data):
        name = path.rpartition("/")[2]
        if not self.names or not (b"\0" in data[:4096] or name.endswith(COMPILED)):
            return
        stem = name.split(".")[0]
        alike = stem in self.stems and stem not in ANYBODY_S
        if not alike and (not self.project or self.project not in path.lower().replace("-", "_")):
            return
        held = [n for n in self.names if n in data]
        if len(held) * 2 > len(self.names):
            text = ", ".join(n.decode() for n in held[:5])
            self.found.append({"path": path, "what": "names", "text": text})


if __name__ == "__main__":
    main()
