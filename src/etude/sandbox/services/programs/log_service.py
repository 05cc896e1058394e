"""A log service that can be asked: `python log_service.py PORT FOLDER`.

POST /ingest takes lines of JSON objects; what is no object becomes one with `message`, and without `time` it gets the present one (seconds
since 1970). GET /query?text=&since=&until=&limit=&FIELD=VALUE answers with matching records, newest last; GET /fields counts the values
of each field. All of it lies in one file, appended to.
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

MAX_BATCH_BYTES = 8 << 20
_RESERVED = ("text", "since", "until", "limit")


class LogStore:
    """All records in memory and, each a line, in a file that a later start reads again."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        self._path = os.path.join(folder, "log.jsonl")
        self._lock = threading.Lock()
        self._records: list[dict[str, Any]] = []
        if os.path.exists(self._path):
            with open(self._path, "rb+") as file:
                lines = file.read().split(b"\n")
                self._records = [json.loads(line) for line in lines[:-1]]
                file.truncate(file.tell() - len(lines[-1]))  # half a line: a kill in the middle of a write

    def add(self, data: bytes) -> int:
        fresh = [_record(line) for line in data.decode(errors="replace").splitlines() if line.strip()]
        with self._lock, open(self._path, "a") as file:
            file.write("".join(json.dumps(record) + "\n" for record in fresh))
            self._records += fresh
        return len(fresh)

    def query(self, words: dict[str, str]) -> list[dict[str, Any]]:
        since, until = float(words.get("since", "-inf")), float(words.get("until", "inf"))
        fields = {name: value for name, value in words.items() if name not in _RESERVED}
        with self._lock:
            records = list(self._records)
        found = [
            record
            for record in records
            if since <= record["time"] <= until
            and words.get("text", "") in json.dumps(record, ensure_ascii=False)
            and all(str(record.get(name)) == value for name, value in fields.items())
        ]
        return found[-int(words.get("limit", 1000)) :]

    def fields(self) -> dict[str, dict[str, int]]:
        counts: dict[str, dict[str, int]] = {}
        with self._lock:
            for record in self._records:
                for name, value in record.items():
                    if name not in ("time", "message"):
                        values = counts.setdefault(name, {})
                        values[str(value)] = values.get(str(value), 0) + 1
        return counts


def _record(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = line
    record = found if isinstance(found, dict) else {"message": found}
    at = record.get("time")
    return {**record, "time": float(at) if isinstance(at, int | float) else time.time()}


class LogHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log: LogStore

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if urlsplit(self.path).path != "/ingest":
            return self._answer(404, {"error": "post to /ingest"})
        if length > MAX_BATCH_BYTES:
            return self._answer(413, {"error": f"{length} bytes are over {MAX_BATCH_BYTES}; send less at once"})
        self._answer(200, {"taken": self.log.add(self.rfile.read(length))})

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/-/health":
            return self._answer(200, {"ok": True})
        if parts.path == "/fields":
            return self._answer(200, self.log.fields())
        if parts.path != "/query":
            return self._answer(404, {"error": "ask /query or /fields"})
        try:
            self._answer(200, {"records": self.log.query(dict(parse_qsl(parts.query)))})
        except ValueError as error:
            self._answer(400, {"error": f"{error}: since, until and limit are numbers"})

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: a service's output is for what goes wrong."""


if __name__ == "__main__":
    LogHandler.log = LogStore(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), LogHandler).serve_forever()
