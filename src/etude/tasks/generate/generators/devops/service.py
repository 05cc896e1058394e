"""A small service for a Python project that says whether its package can be used; started by a script, set up by a file."""

from __future__ import annotations

from etude.tasks.generate.generators.devops.recipe import Breakage, DevopsProject, DevopsRecipe

APP, START, SETTINGS = "service/app.py", "service/run.sh", "service/settings.ini"
PORT, HEALTH = 8099, "/healthz"
CODE = '''\
"""Says whether the package can be used: GET on the health path."""

import configparser
import importlib
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

config = configparser.ConfigParser()
config.read(sys.argv[1])
settings = config["service"]


def health():
    try:
        importlib.import_module(settings["module"])
    except Exception as error:
        return 503, {"status": "broken", "error": str(error)}
    try:
        build = importlib.import_module(settings["package"] + "._stamp").STAMP
    except ImportError:
        build = "unknown"
    return 200, {"status": "ok", "build": build}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != settings["health"]:
            self.send_error(404)
            return
        status, body = health()
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


HTTPServer((settings["host"], settings.getint("port")), Handler).serve_forever()
'''


def service(subject: DevopsProject) -> DevopsRecipe:
    start = f"""\
#!/bin/sh
# Starts the health service of {subject.package}.
set -eu
cd "$(dirname "$0")/.."
export PYTHONPATH="{subject.root}${{PYTHONPATH:+:$PYTHONPATH}}"
exec python3 {APP} {SETTINGS}
"""
    settings = f"""\
[service]
host = 127.0.0.1
port = {PORT}
health = {HEALTH}
package = {subject.package}
module = {subject.place.name}
"""
    serve = {"serve": f"sh {START}", "port": PORT, "path": HEALTH}
    stamped = subject.stamp_files()
    broken = {"files": {subject.place.path: "raise ImportError('half a deployment')\n"}}
    return DevopsRecipe(
        level="service",
        what="the health service in `service/`",
        files={APP: CODE, START: start, SETTINGS: settings},
        breakages=_breakages(subject),
        scenarios=(
            subject.good("it answers with the build", serve, **stamped),
            subject.good("it is well where there is no stamp", serve, says='"status": "ok"'),
            subject.bad("it is not well where the module can't be imported", serve, **broken),
            subject.good("it is started from elsewhere", serve | {"serve": f"cd /tmp && sh $OLDPWD/{START}"}, **stamped),
        ),
        promise=(
            f"`sh {START}`, from any folder, serves on 127.0.0.1, port {PORT}",
            f'GET `{HEALTH}` answers 200 with the JSON `{{"status": "ok", "build": …}}`',
            f"`build` is `STAMP` of `{subject.package}._stamp`, or `unknown` where there is none",
            f"Where `{subject.place.name}` can't be imported it answers 503",
        ),
        demand=f"`sh {START}` must serve `{HEALTH}` on port {PORT} of 127.0.0.1: "
        f"200 with the build if `{subject.place.name}` can be imported, 503 if not.",
    )  # fmt: skip


def _breakages(subject: DevopsProject) -> tuple[Breakage, ...]:
    length = 'self.send_header("Content-Length", str(len(data)))'
    return (
        Breakage("port", APP, 'settings.getint("port")', 'settings["port"]', "the service does not come up"),
        Breakage("path", SETTINGS, f"health = {HEALTH}", "health = /health", f"`{HEALTH}` answers 404"),
        Breakage("length", APP, length, 'self.send_header("Content-Length", str(len(body)))', "the answer is cut off"),
        Breakage("module", SETTINGS, f"module = {subject.place.name}", f"module = {subject.place.name}_", f"`{HEALTH}` answers 503"),
        Breakage("place", START, 'cd "$(dirname "$0")/.."', 'cd "$(dirname "$0")"', "the service does not come up"),
        Breakage("section", SETTINGS, "[service]", "[server]", "the service does not come up"),
        Breakage("status", APP, "return 503, ", "return 200, ", "a broken deployment looks healthy"),
        Breakage("number", SETTINGS, f"port = {PORT}", "port = 8090", "nothing listens where the monitor asks"),
        Breakage("stamp", APP, '+ "._stamp"', '+ ".stamp"', "the build is always `unknown`"),
        Breakage("folder", START, f'PYTHONPATH="{subject.root}$', 'PYTHONPATH="lib$', "the package can't be imported"),
    )  # fmt: skip
