"""The language of a file, by its name or its `#!` line: our names where `identify` has none or several, else its first specific tag."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO

from identify.extensions import EXTENSIONS, NAMES
from identify.identify import parse_shebang
from identify.interpreters import INTERPRETERS

# `identify` leaves these open, splits them finer than a mix needs, or does not know them.
BY_EXTENSION = {
    "h": "c", "hh": "c++", "hpp": "c++", "hxx": "c++", "inl": "c++", "tcc": "c++", "ipp": "c++", "tpp": "c++", "ino": "c++", "mm": "objective-c++",
    "pyi": "python", "gyp": "python", "gypi": "python", "tac": "python", "wsgi": "python", "pxd": "cython", "pyx": "cython", "pxi": "cython",
    "jsx": "javascript", "ts": "typescript", "mts": "typescript", "cts": "typescript", "tsx": "typescript",
    "bash": "shell", "bats": "shell", "csh": "shell", "zsh": "shell", "ksh": "shell", "fish": "shell",
    "f": "fortran", "for": "fortran", "f77": "fortran", "f95": "fortran", "asm": "assembly", "s": "assembly",
    "cfg": "ini", "conf": "ini", "cnf": "ini", "txt": "text", "xsl": "xml", "xslt": "xml",
    "clj": "clojure", "cljs": "clojure", "cljc": "clojure", "edn": "clojure", "csx": "c#", "fsx": "f#", "coffee": "coffeescript",
    "el": "emacs-lisp", "lisp": "lisp", "cl": "opencl", "rkt": "racket", "tcl": "tcl", "awk": "awk", "y": "yacc", "yy": "yacc", "l": "lex",
    "g4": "antlr", "texi": "texinfo", "pod": "perl", "t": "perl", "adb": "ada", "ads": "ada", "d": "d", "hx": "haxe", "mjs": "javascript",
    "cjs": "javascript", "sv": "verilog", "svh": "verilog", "vb": "visual-basic", "ac": "m4", "am": "makefile",
    "tmpl": "template", "jinja": "jinja", "jinja2": "jinja", "j2": "jinja", "toml": "toml", "xhtml": "html", "htm": "html", "markdown": "markdown",
    "patch": "diff", "wat": "webassembly", "ll": "llvm-ir", "td": "tablegen", "glsl": "glsl", "frag": "glsl", "vert": "glsl", "rst": "rst",
    "1": "roff", "2": "roff", "3": "roff", "5": "roff", "7": "roff", "8": "roff", "man": "roff", "org": "org",
}  # fmt: skip
BY_NAME = {
    "readme": "text", "changes": "text", "changelog": "text", "news": "text", "history": "text", "todo": "text", "install": "text",
    "copying": "text", "license": "text", "licence": "text", "authors": "text", "thanks": "text", "control": "debian", "rules": "makefile",
    "setup.cfg": "ini", "configure.ac": "m4", "cmakelists.txt": "cmake", "requirements.txt": "text", "rakefile": "ruby", "gemfile": "ruby",
}  # fmt: skip
# Tags that say nothing about the language, or only where there is nothing better (a pom is xml, too).
GENERAL = frozenset(("text", "header", "image", "msbuild", "zip"))
BROAD = ("shell", "xml", "json", "yaml", "ini", "toml", "ruby", "python", "javascript", "plain-text")
# An SVG is a drawing, keys and certificates are data.
NO_LANGUAGE = frozenset(("svg", "pem", "map", "wkt", "def", "dbc", "icalendar", "dotenv"))
RENAMED = {"plain-text": "text"}
_NAMES = {name.lower(): tags for name, tags in NAMES.items()}


def _of_tags(tags: set[str]) -> str | None:
    if "binary" in tags:
        return None
    specific = sorted(tags - GENERAL)
    if not specific:
        return "text"
    if NO_LANGUAGE.intersection(specific):
        return ""
    broad = next((tag for tag in BROAD if tag in specific), specific[0])
    return RENAMED.get(broad, broad)


@lru_cache(maxsize=4096)
def of_name(name: str) -> str | None:
    """The language that a file name tells; "" if it tells none, None if it tells a binary format. `name` is lower case."""
    stem, _, extension = name.rpartition(".")
    if name in BY_NAME:
        return BY_NAME[name]
    if extension == "in" and "." in stem:  # config.h.in is C
        return of_name(stem)
    if stem and extension in BY_EXTENSION:
        return BY_EXTENSION[extension]
    tags = _NAMES.get(name) or (EXTENSIONS.get(extension) if stem else None)
    return _of_tags(tags) if tags else ""


def of_shebang(data: bytes) -> str:
    """The language that a `#!` line tells, or ""."""
    if not data.startswith(b"#!"):
        return ""
    try:
        command = parse_shebang(BytesIO(data[:256]))
    except (ValueError, UnicodeDecodeError):
        return ""
    interpreter = command[0].rpartition("/")[2] if command else ""
    while interpreter and interpreter not in INTERPRETERS:
        interpreter = interpreter.rpartition(".")[0]  # python3.11 -> python3
    return (_of_tags(INTERPRETERS[interpreter]) or "") if interpreter else ""
