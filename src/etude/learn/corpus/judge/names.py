"""Refusal by name and size alone, before a file is opened: a 10 GB file costs one `stat`."""

from __future__ import annotations

import re

from etude.learn.corpus.judge import language
from etude.learn.corpus.judge.verdict import FileLimits, FileRefusal

# Other people's code inside this project: it is learnt from where it is at home.
VENDORED = frozenset((
    "_vendor", "_vendored", "_vendored_packages", "vendor", "vendored", "vendors", "third_party", "third-party", "thirdparty", "3rdparty",
    "node_modules", "bower_components", "extern", "external", "externals", "bundled", "_bundled", "jspm_packages", "site-packages",
))  # fmt: skip
# Tools' folders and what an install leaves behind.
METADATA = frozenset((
    ".git", ".hg", ".svn", "__pycache__", ".tox", ".nox", ".venv", "venv", ".eggs", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".pc", ".yarn",
    ".idea", "__snapshots__", "autom4te.cache",
))  # fmt: skip
METADATA_ENDS = (".egg-info", ".dist-info", ".egg", ".data")
METADATA_FILES = frozenset(("pkg-info", "record", "sources.txt", ".ds_store", "pax_global_header"))
# What npm packages ship instead of sources; in other languages these are names of ordinary packages.
BUILT_FOLDERS = frozenset(
    ("dist", "build", "umd", "esm", "cjs", "bundles", "_build", "_static", "fesm2015", "fesm2020", "fesm2022")
)
BUILT_LANGUAGES = frozenset(("javascript", "css", "html", "typescript"))
BUILT_NAME = re.compile(
    r"(?:[.-]min\.(?:js|css|mjs|cjs)|\.(?:bundle|umd|iife|esm|prod|production|development|chunk|packed)(?:\.min)?\.(?:js|mjs|cjs|css)"
    r"|\.map|\.d\.ts\.map|-bundle\.js|\.tsbuildinfo|\.snap)$"
)
LOCKFILES = frozenset((
    "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "poetry.lock", "uv.lock", "pdm.lock", "pipfile.lock", "cargo.lock",
    "gemfile.lock", "composer.lock", "go.sum", "flake.lock", "bun.lock", "packages.lock.json", "podfile.lock", "mix.lock", "deno.lock",
    "pixi.lock", "conda-lock.yml", "pubspec.lock", "gradle.lockfile", ".terraform.lock.hcl",
))  # fmt: skip
TRANSLATIONS = (".po", ".pot", ".mo", ".gmo", ".xlf", ".xliff", ".ts.xml", ".qm")
# Known by these ends to `identify` neither as text nor as binary: packed, compiled, drawn, recorded, dumped.
BINARY = frozenset((
    "7z", "a", "aar", "apk", "avi", "bin", "blend", "cab", "class", "cur", "dat", "db", "deb", "dmg", "doc", "docx", "dylib", "egg", "exe", "fbx",
    "feather", "flac", "gpg", "gz", "h5", "hdf5", "icc", "img", "iso", "joblib", "la", "lib", "lz4", "mat", "mkv", "mov", "mp3", "mp4", "msi", "nc",
    "node", "npy", "npz", "o", "obj", "odp", "ods", "odt", "ogg", "onnx", "parquet", "pb", "pcap", "pck", "pickle", "pkl", "ppt", "pptx", "psd",
    "pt", "pth", "pyc", "pyd", "pyo", "rar", "rpm", "safetensors", "sig", "sqlite", "sqlite3", "stl", "tbz", "tga", "tflite", "wasm", "webm", "whl",
    "wma", "xcf", "xls", "xlsx", "xpm", "xz", "zst", "zstd", "ipynb",
))  # fmt: skip
TEST_FOLDERS = frozenset((
    "test", "tests", "testing", "testdata", "test_data", "test-data", "fixtures", "fixture", "golden", "goldens", "cassettes", "snapshots", "samples",
    "expected", "baseline", "corpus", "testsuite", "test_files", "examples", "data",
))  # fmt: skip
# Formats of data: large ones are records of one shape.
DATA_LANGUAGES = frozenset(("json", "csv", "tsv", "xml", "yaml", "json5", "jsonld", "textproto", "plist", "bib"))
# Next to tests these are data as well.
TEST_DATA_LANGUAGES = DATA_LANGUAGES | {"text", "html", "diff", "sql", "ini", "toml", "markdown", "rst"}


def judge_name(path: str, size: int, limits: FileLimits = FileLimits()) -> FileRefusal | None:
    """Why a file of this name and size need not be read, or None. `path` is inside the project, with "/"."""
    *folders, name = path.lower().split("/")
    for folder in folders:
        if folder in VENDORED:
            return FileRefusal.VENDORED
        if folder in METADATA or folder.endswith(METADATA_ENDS):
            return FileRefusal.METADATA
    if name in LOCKFILES or name.endswith(".lock"):
        return FileRefusal.LOCKFILE
    if name.endswith(TRANSLATIONS):
        return FileRefusal.TRANSLATION
    if BUILT_NAME.search(name):
        return FileRefusal.BUILT
    if name in METADATA_FILES or name.endswith(METADATA_ENDS):
        return FileRefusal.METADATA
    if size > limits.max_bytes:
        return FileRefusal.TOO_LARGE
    if size < limits.min_bytes:
        return FileRefusal.TOO_SMALL
    return _judge_kind(folders, name, size, limits)


def _judge_kind(folders: list[str], name: str, size: int, limits: FileLimits) -> FileRefusal | None:
    """What the language that the name tells says."""
    tongue = language.of_name(name)
    if tongue is None or name.rpartition(".")[2] in BINARY:
        return FileRefusal.NOT_TEXT_BY_NAME
    if not tongue and "." in name.lstrip("."):  # without an extension a `#!` line may still tell
        return FileRefusal.UNKNOWN_LANGUAGE
    if tongue in BUILT_LANGUAGES and not BUILT_FOLDERS.isdisjoint(folders):
        return FileRefusal.BUILT
    if tongue in TEST_DATA_LANGUAGES and size > limits.max_test_data_bytes and not TEST_FOLDERS.isdisjoint(folders):
        return FileRefusal.TEST_DATA
    if tongue in DATA_LANGUAGES and size > limits.max_data_bytes:
        return FileRefusal.DATA
    return None
