"""An S3-like object store in a folder: `python object_store.py PORT FOLDER`.

PUT and DELETE of /bucket and /bucket/key, GET and HEAD of an object, GET / for the buckets as XML, and
GET /bucket?list-type=2&prefix=&delimiter=&max-keys=&start-after=&continuation-token=. Entity tags are MD5s as in S3. Signatures are not
looked at: the only client is the sandbox itself. Objects are files named by the hex of their key, so no key is a path.
"""

import hashlib
import os
import shutil
import sys
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

MAX_OBJECT_BYTES = 64 << 20
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


class BucketFolders:
    """Buckets as folders below `folder`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def bucket(self, name: str) -> str:
        return os.path.join(self.folder, name.encode().hex())

    def object(self, bucket: str, key: str) -> str:
        # A file name holds 255 bytes; a key of S3 1,024: long ones go into folders of 200 digits each.
        digits = key.encode().hex()
        parts = [digits[at : at + 200] for at in range(0, len(digits), 200)]
        return os.path.join(self.bucket(bucket), *(part + "+" for part in parts[:-1]), parts[-1])

    def buckets(self) -> list[str]:
        return sorted(bytes.fromhex(name).decode() for name in os.listdir(self.folder))

    def keys(self, bucket: str) -> list[str]:
        top, found = self.bucket(bucket), []
        for folder, _, names in os.walk(top):
            above = os.path.relpath(folder, top).replace("+", "").replace("/", "").replace(".", "")
            found += [bytes.fromhex(above + name).decode() for name in names if not name.endswith(".part")]
        return sorted(found)


class ObjectHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: BucketFolders

    def do_PUT(self) -> None:
        bucket, key, _ = self._target()
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_OBJECT_BYTES:
            return self._fail(400, "EntityTooLarge", f"{length} bytes are over {MAX_OBJECT_BYTES}")
        data = self.rfile.read(length)
        if not bucket:
            return self._fail(400, "InvalidBucketName", "name a bucket")
        if not key:
            os.makedirs(self.store.bucket(bucket), exist_ok=True)
            return self._answer(200)
        if not os.path.isdir(self.store.bucket(bucket)):
            return self._fail(404, "NoSuchBucket", bucket)
        path = self.store.object(bucket, key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".part", "wb") as file:
            file.write(data)
        os.replace(path + ".part", path)
        self._answer(200, headers={"ETag": _tag(data)})

    def do_GET(self) -> None:
        bucket, key, query = self._target()
        if (bucket, key) == ("-", "health"):
            return self._answer(200, b"ok")
        if not bucket:
            names = "".join(f"<Bucket><Name>{escape(name)}</Name></Bucket>" for name in self.store.buckets())
            return self._xml(f"<ListAllMyBucketsResult><Buckets>{names}</Buckets></ListAllMyBucketsResult>")
        if not os.path.isdir(self.store.bucket(bucket)):
            return self._fail(404, "NoSuchBucket", bucket)
        if not key:
            return self._list(bucket, query)
        try:
            with open(self.store.object(bucket, key), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return self._fail(404, "NoSuchKey", key)
        self._answer(200, data, {"ETag": _tag(data), "Content-Type": "application/octet-stream"})

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        bucket, key, _ = self._target()
        if not os.path.isdir(self.store.bucket(bucket)):
            return self._fail(404, "NoSuchBucket", bucket)
        if key:
            path = self.store.object(bucket, key)
            if os.path.exists(path):
                os.unlink(path)
        elif self.store.keys(bucket):
            return self._fail(409, "BucketNotEmpty", bucket)
        else:
            shutil.rmtree(self.store.bucket(bucket))
        self._answer(204)

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        word = lambda name: query.get(name, [""])[0]
        most = int(word("max-keys") or 1000)
        after = word("continuation-token") or word("start-after")
        keys = [key for key in self.store.keys(bucket) if key.startswith(word("prefix")) and key > after]
        rows, prefixes, last = [], [], ""
        delimiter, start = word("delimiter"), len(word("prefix"))
        for key in keys:
            cut = key.find(delimiter, start) if delimiter else -1
            above = key[: cut + len(delimiter)] if cut >= 0 else ""
            if above and prefixes and prefixes[-1] == above:
                last = key
                continue
            if len(rows) + len(prefixes) == most:
                break
            last = key
            prefixes += [above] if above else []
            rows += [] if above else [key]
        truncated = bool(keys) and last != keys[-1]
        body = "".join(self._row(bucket, key) for key in rows)
        body += "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in prefixes)
        more = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if truncated else ""
        self._xml(
            f'<ListBucketResult xmlns="{_NAMESPACE}"><Name>{escape(bucket)}</Name><KeyCount>{len(rows) + len(prefixes)}</KeyCount>'
            f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{body}{more}</ListBucketResult>"
        )

    def _row(self, bucket: str, key: str) -> str:
        status = os.stat(self.store.object(bucket, key))
        changed = datetime.fromtimestamp(status.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return f"<Contents><Key>{escape(key)}</Key><LastModified>{changed}</LastModified><Size>{status.st_size}</Size></Contents>"

    def _target(self) -> tuple[str, str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        return bucket, key, parse_qs(parts.query)

    def _xml(self, text: str) -> None:
        self._answer(200, f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode(), {"Content-Type": "application/xml"})

    def _fail(self, status: int, code: str, message: str) -> None:
        text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>'
        self._answer(status, text.encode(), {"Content-Type": "application/xml"})

    def _answer(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: a service's output is for what goes wrong."""


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


if __name__ == "__main__":
    ObjectHandler.store = BucketFolders(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), ObjectHandler).serve_forever()
