"""What a failed run of tests asks for, in its own words: a distribution to install, by the module or fixture that is missing. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named ['\"]([\w.]+)['\"]")
_FIXTURE = re.compile(r"fixture '(\w+)' not found")
_JS_MODULE = re.compile(
    r"(?:Cannot find (?:module|package|dependency)|Failed to import module|Failed to resolve import|Module|Preset|Test environment"
    r"|Could not resolve|Can't resolve) ['\"]?([^'\"./\s][^'\"\s]*)['\"]?"
)
_JS_ASKS = re.compile(
    r"(?:Cannot find|Could not find|Failed to|not found|cannot be found|was not found|could not be found|Could not resolve|Can't resolve|MISSING)"
)
_JS_TYPES = re.compile(r"Cannot find type definition file for '([\w.-]+)'|npm i(?:nstall)? --save-dev @types/([\w.-]+)")
_NEWER_NODE = re.compile(
    r"\b(toArray|union|intersection|difference|isSubsetOf|withResolvers|fromAsync|globSync|glob|registerHooks|getCallSites?|RegExp\.escape|Error\.isError)"
    r" is not a function|requested module 'node:[\w/]+' does not provide|No such built-in module: node:|node: bad option: --"
    r"|Unknown file extension \"\.[cm]?ts\"|Cannot find module 'node:\w+'|No such built-in module"
)
_NPM_NAME = re.compile(r"(@[a-z0-9][\w.-]*/)?[a-z0-9][\w.-]*", re.IGNORECASE)
# Modules whose distribution has another name (from their own metadata).
DISTRIBUTIONS = {
    "yaml": "pyyaml", "attr": "attrs", "dateutil": "python-dateutil", "bs4": "beautifulsoup4", "PIL": "pillow",
    "sklearn": "scikit-learn", "cv2": "opencv-python-headless", "Crypto": "pycryptodome", "OpenSSL": "pyopenssl",
    "jwt": "pyjwt", "dotenv": "python-dotenv", "git": "gitpython", "pkg_resources": "setuptools<81", "mock": "mock",
    "serial": "pyserial", "usb": "pyusb", "zmq": "pyzmq", "lxml": "lxml", "docx": "python-docx", "magic": "python-magic",
    "pytest_httpserver": "pytest-httpserver", "flask_sqlalchemy": "flask-sqlalchemy", "google.protobuf": "protobuf",
}  # fmt: skip
FIXTURES = {
    "mocker": "pytest-mock", "benchmark": "pytest-benchmark", "httpx_mock": "pytest-httpx", "requests_mock": "requests-mock",
    "datadir": "pytest-datadir", "shared_datadir": "pytest-datadir", "subtests": "pytest-subtests", "freezer": "pytest-freezer",
    "httpserver": "pytest-httpserver", "aiohttp_client": "pytest-aiohttp", "event_loop": "pytest-asyncio", "snapshot": "syrupy",
    "data_regression": "pytest-regressions", "file_regression": "pytest-regressions", "faker": "faker", "mock": "pytest-mock",
    "httpbin": "pytest-httpbin", "qtbot": "pytest-qt", "pyfakefs": "pyfakefs", "fs": "pyfakefs", "responses": "responses",
}  # fmt: skip
_ASYNC = re.compile(r"async def functions are not natively supported|asyncio_mode|'asyncio' not found in `markers`")
_MARKS = {
    "timeout": "pytest-timeout",
    "flaky": "pytest-rerunfailures",
    "order": "pytest-order",
}
_MARK = re.compile(r"'(\w+)' not found in `markers`")
_NO_PACKAGES = frozenset(
    ("module", "the", "a", "in", "for", "did", "was", "is", "not", "it", "from", "import", "node_modules")
)
MOST = 8  # distributions a try; more is a suite for another machine


def python_wants(output: str, installed: Collection[str]) -> list[str]:
    """Distributions that are not installed yet, in the order in which they were missed. Modules of the project itself are the caller's."""
    found: dict[str, None] = {}
    for module in _MODULE.findall(output):
        top = module.split(".")[0]
        found[DISTRIBUTIONS.get(module) or DISTRIBUTIONS.get(top) or top.replace("_", "-")] = None
    for fixture in _FIXTURE.findall(output):
        if fixture in FIXTURES:
            found[FIXTURES[fixture]] = None
    if _ASYNC.search(output):
        found["pytest-asyncio"] = None
    for mark in _MARK.findall(output):
        if name := _MARKS.get(mark):
            found[name] = None
    return [name for name in found if name not in installed][:MOST]


def newer_node_wanted(output: str) -> bool:
    """Whether code asks for what only a newer node has: methods, modules, options, sources in TypeScript."""
    return _NEWER_NODE.search(output) is not None


def javascript_wants(output: str, installed: Collection[str]) -> list[str]:
    """Packages of the registry: `@scope/name` or `name` of what could not be found."""
    found: dict[str, None] = {}
    for one, other in _JS_TYPES.findall(output):
        found[f"@types/{one or other}"] = None
    for line in output.splitlines():
        if not _JS_ASKS.search(line):
            continue
        for module in _JS_MODULE.findall(line):
            if ":" in module:
                continue  # of a runtime itself: node:fs, bun:test
            parts = module.split("/")
            name = "/".join(parts[:2]) if module.startswith("@") else parts[0]
            if _NPM_NAME.fullmatch(name) and name.lower() not in _NO_PACKAGES:
                found[name] = None
    return [name for name in found if name not in installed][:MOST]
