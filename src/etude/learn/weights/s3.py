"""A store's objects in a bucket of an S3-compatible server (`s3://bucket/prefix`), through boto3 (`pip install etude[s3]`).

    ETUDE_S3_ENDPOINT       the server, if it is not Amazon's: https://host:port (path-style addresses are then used)
    AWS_ACCESS_KEY_ID ...   credentials, region, proxies: all that boto3 reads

A store of another server than the environment's says so itself, as a region's does: `s3://bucket/prefix?endpoint=https://host:port`,
and `profile=NAME` in addition for credentials of another name in boto3's files.

An upload carries its MD5, so a server keeps it whole or refuses it. Errors 5xx, throttling and timeouts are tried again with
growing pauses, by botocore; what stays is a BadStore that says what to look at.

The index is replaced on condition (If-Match, If-None-Match). Some servers take such a request and ignore the condition; a
probe at the first replacement finds out, and `conditional` then is False: the index is read before it is written, which leaves
a gap of one request, in which two writers may both believe they own the store. There one writer at a time is up to you.
"""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlsplit

from etude.learn.weights.errors import BadStore, MissingShard, StoreTakenOver

ENDPOINT = "ETUDE_S3_ENDPOINT"
# Seven tries with pauses that double from about a second to twenty: a server that restarts is back by then.
ATTEMPTS = 7
# botocore tries requests again, but not the reading of an answer's body.
BODY_TRIES = 3
CONNECT_S, READ_S = 10, 60
# One worker a connection, of publisher and receivers in one process.
CONNECTIONS = 32
PROBE = "probe"
# What servers answer to a condition that failed, and to one that they do not know.
FAILED, UNKNOWN = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}, {"NotImplemented", "501"}
MISSING = {"NoSuchKey", "404", "NotFound"}
SAME = {"304", "NotModified"}


class _Same(Exception):
    """The object has the tag that the reader knows."""


class S3Bucket:
    """One prefix of one bucket."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self.conditional: bool | None = None  # whether the server heeds conditions; None: not known yet
        self._client = client
        self._errors, self._torn = _errors()
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    @classmethod
    def at(cls, url: str, *, attempts: int = ATTEMPTS, read_s: float = READ_S) -> S3Bucket:
        """The prefix that the URL names; `read_s`: how long an answer may be silent. Raises ValueError for other URLs, BadStore without
        boto3."""
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if parts.scheme != "s3" or not parts.netloc or not query.keys() <= {"endpoint", "profile"}:
            raise ValueError(
                f"{url} is no s3://bucket/prefix, nor one with ?endpoint=https://host:port or ?profile=NAME"
            )
        endpoint = query.get("endpoint") or os.environ.get(ENDPOINT)
        client = _client(endpoint, query.get("profile"), attempts, read_s)
        return cls(client, parts.netloc, parts.path.strip("/"))

    def get(self, key: str) -> tuple[bytes, str]:
        return self._read(key)

    def news(self, key: str, tag: str | None) -> tuple[bytes, str] | None:
        try:
            found = self._read(key, **({} if tag is None else {"IfNoneMatch": tag}))
        except _Same:
            return None
        return None if found[1] == tag else found  # a server that heeds no conditions sends it all the same

    def part(self, key: str, first: int, stop: int) -> bytes:
        return self._read(key, Range=f"bytes={first}-{stop - 1}")[0]

    def _read(self, key: str, **which: str) -> tuple[bytes, str]:
        for tries_left in reversed(range(BODY_TRIES)):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key, **which)
                return answer["Body"].read(), answer["ETag"]
            except self._errors as error:
                if _code(error) in SAME:
                    raise _Same from error
                if _code(error) in MISSING:
                    raise MissingShard(f"{key} is not in {self.url}; read the index again or use an anchor") from error
                if not tries_left or not isinstance(error, self._torn):
                    self._refuse(error, f"read {key}")
        raise AssertionError("unreachable")

    def put(self, key: str, data: bytes) -> None:
        try:
            self._put(key, data)
        except self._errors as error:
            self._refuse(error, f"write {key}")

    def replace(self, key: str, data: bytes, tag: str | None) -> str:
        if self.conditional is None:
            self.conditional = self._heeds_conditions()
        try:
            if self.conditional:
                return self._put(key, data, **({"IfMatch": tag} if tag is not None else {"IfNoneMatch": "*"}))
            if self._tag(key) != tag:
                raise StoreTakenOver(f"{key} of {self.url} was written by another publisher since this one read it")
            return self._put(key, data)
        except StoreTakenOver:
            raise
        except self._errors as error:
            if _code(error) in FAILED or (tag is not None and _code(error) in MISSING):
                raise StoreTakenOver(
                    f"{key} of {self.url} was written by another publisher since this one read it"
                ) from error
            self._refuse(error, f"replace {key}")

    def folders(self) -> list[str]:
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix, Delimiter="/"
            )
            found = [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", [])]
        except self._errors as error:
            self._refuse(error, "list the folders")
        return [prefix.removeprefix(self._prefix).rstrip("/") for prefix in found]

    def remove(self, folder: str) -> None:
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{self._prefix}{folder}/"
            )
            for key in [item["Key"] for page in pages for item in page.get("Contents", [])]:
                self._client.delete_object(Bucket=self._bucket, Key=key)
        except self._errors as error:
            self._refuse(error, f"remove {folder}")

    def _tag(self, key: str) -> str | None:
        try:
            return self.get(key)[1]
        except MissingShard:
            return None

    def _put(self, key: str, data: bytes, **conditions: str) -> str:
        md5 = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        answer = self._client.put_object(
            Bucket=self._bucket, Key=self._prefix + key, Body=data, ContentMD5=md5, **conditions
        )
        return answer["ETag"]

    def _heeds_conditions(self) -> bool:
        """Puts an object where one is, on the condition that none is."""
        try:
            self._put(PROBE, b"there")
            self._put(PROBE, b"there", IfNoneMatch="*")
        except self._errors as error:
            if _code(error) in FAILED:
                return True
            if _code(error) not in UNKNOWN:
                self._refuse(error, "ask whether conditions are heeded")
        return False

    def _refuse(self, error: Exception, what: str) -> NoReturn:
        raise BadStore(f"{self.url}: could not {what}: {_advice(error, self._bucket)}") from error


def _client(endpoint: str | None, profile: str | None, attempts: int, read_s: float) -> Any:
    try:
        from boto3.session import Session
        from botocore.config import Config
        from botocore.exceptions import ProfileNotFound
    except ImportError as error:
        raise BadStore("a store in a bucket needs boto3: pip install 'etude[s3]'") from error
    config = Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=CONNECT_S,
        read_timeout=read_s,
        max_pool_connections=CONNECTIONS,
        # Streamed checksums are Amazon's own; MD5 is understood everywhere, and readers check sha256.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"} if endpoint else {},
    )
    # Servers that are not Amazon's have no regions, but signatures want a name.
    region = "us-east-1" if endpoint and not os.environ.get("AWS_DEFAULT_REGION") else None
    # A session of our own: the shared one keeps the first credentials it saw, and is not for several threads.
    try:
        return Session(profile_name=profile).client("s3", endpoint_url=endpoint, config=config, region_name=region)
    except ProfileNotFound as error:
        raise BadStore(f"{error}: name one of boto3's files, or leave ?profile= out") from error


def _errors() -> tuple[Any, Any]:
    """What boto3 raises, and of that what a body raises that ends too early."""
    from botocore import exceptions

    torn = (exceptions.IncompleteReadError, exceptions.ResponseStreamingError, exceptions.ReadTimeoutError)
    return (exceptions.BotoCoreError, exceptions.ClientError), torn


def _code(error: Exception) -> str:
    return str((getattr(error, "response", None) or {}).get("Error", {}).get("Code", ""))


def _advice(error: Exception, bucket: str) -> str:
    code, kind = _code(error), type(error).__name__
    if kind in ("NoCredentialsError", "PartialCredentialsError"):
        return "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile that boto3 reads"
    if code in ("InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "403", "ExpiredToken"):
        return f"the server refuses the credentials ({code}): check AWS_ACCESS_KEY_ID, its secret and its rights on {bucket}"
    if code == "NoSuchBucket":
        return f"there is no bucket {bucket}: create it, or check the URL and {ENDPOINT}"
    if kind in ("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError"):
        return f"the server does not answer ({error}): check {ENDPOINT} and the network"
    return f"{kind}: {error}"
