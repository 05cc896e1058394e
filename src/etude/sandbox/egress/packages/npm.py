"""The door at /npm: npm's registry, cut to the named packages and to versions published in time.

A package's document keeps only those versions; its tags point to what is left, `latest` to the newest release of it. Tarballs are fetched by
their version's entry, so a link to a newer one does not help.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import re
from typing import Any
from urllib.parse import quote

from etude.sandbox.egress.errors import RequestRefused
from etude.sandbox.egress.packages.cache import ALGORITHMS, Digest, FileCache, best
from etude.sandbox.egress.packages.pip import MetadataCache
from etude.sandbox.egress.packages.rule import PackageFilter, npm_name
from etude.sandbox.egress.packages.upstream import IndexUpstream, join_link
from etude.sandbox.egress.service import ServiceRequest, ServiceResponse

_PRERELEASE = re.compile(r"^[0-9]+\.[0-9]+\.[0-9]+-")
Document = dict[str, Any]


class NpmIndex:
    """What all npm doors of a process share."""

    def __init__(self, upstream: IndexUpstream, cache: FileCache) -> None:
        self.upstream, self.cache = upstream, cache
        self._documents: MetadataCache[Document] = MetadataCache(32)  # some have tens of megabytes

    async def document(self, name: str) -> Document:
        """Raises Refused: 404 where there is none."""
        return await self._documents.get(name, functools.partial(self._read, name))

    async def _read(self, name: str) -> Document:
        # The short form has no times; the long one is the default.
        found = await self.upstream.page(self.upstream.urls[0] + quote(name, safe="@"), "application/json")
        if found is None:
            raise RequestRefused(404, f"the registry has no package {name}")
        try:
            document = await asyncio.to_thread(json.loads, found.body)
            return {
                "name": name,
                "versions": dict(document["versions"]),
                "time": dict(document["time"]),
                "dist-tags": dict(document["dist-tags"]),
            }
        except (ValueError, KeyError, TypeError) as error:
            raise RequestRefused(502, f"the registry's document of {name} can't be read: {error!r}") from None


class NpmService:
    """`base`: the URL of this door as the inside sees it, with a slash at its end; npm wants whole ones."""

    name = "npm"

    def __init__(self, index: NpmIndex, rule: PackageFilter, base: str) -> None:
        self._index, self._rule, self._base = index, rule, base

    def __eq__(self, other: object) -> bool:
        """Whether they serve the same: downloads by the one may then go on under the other."""
        return isinstance(other, NpmService) and (self._index, self._rule) == (other._index, other._rule)

    def __hash__(self) -> int:
        return hash(self._rule)

    async def serve(self, ask: ServiceRequest) -> ServiceResponse:
        name, separator, file = ask.path.partition("/-/")
        name = self._rule.require(name.rstrip("/"), npm_name)
        document = in_time(await self._index.document(name), self._rule)
        if separator:
            return self._tarball(name, document, file)
        body = await asyncio.to_thread(self._rewritten, document)
        return ServiceResponse(headers=(("Content-Type", "application/json"),), body=body)

    def _rewritten(self, document: Document) -> bytes:
        name = document["name"]
        versions = {
            version: {**entry, "dist": {**entry["dist"], "tarball": f"{self._base}{name}/-/{_file(name, version)}"}}
            for version, entry in document["versions"].items()
        }
        return json.dumps({**document, "versions": versions}).encode()

    def _tarball(self, name: str, document: Document, file: str) -> ServiceResponse:
        entry = next((entry for version, entry in document["versions"].items() if _file(name, version) == file), None)
        if entry is None:
            raise RequestRefused(403, f"{name} has no {file} that was published in time")
        digest = _digest(entry["dist"])
        if digest is None:
            raise RequestRefused(403, f"the registry gives no digest for {file}")
        url = join_link(self._index.upstream.urls[0], str(entry["dist"]["tarball"]))
        stream = self._index.cache.pieces(digest, self._index.upstream.pieces(url))
        return ServiceResponse(
            headers=(("Content-Type", "application/octet-stream"),), stream=stream, size=self._index.cache.size(digest)
        )


def in_time(document: Document, rule: PackageFilter) -> Document:
    """The document as it was at the rule's date; where it had been nothing, Refused(404)."""
    times = document["time"]
    versions = {
        version: entry
        for version, entry in document["versions"].items()
        if rule.in_time(times.get(version)) and "tarball" in entry.get("dist", {})
    }
    if not versions:
        raise RequestRefused(404, f"{document['name']} had no version yet")
    tags = {tag: version for tag, version in document["dist-tags"].items() if version in versions}
    if "latest" not in tags:
        releases = [version for version in versions if not _PRERELEASE.match(version)] or list(versions)
        tags["latest"] = max(releases, key=lambda version: times.get(version, ""))
    return {
        "name": document["name"],
        "dist-tags": tags,
        "versions": versions,
        "time": {version: times[version] for version in versions if version in times},
    }


def _file(name: str, version: str) -> str:
    return f"{name.rpartition('/')[2]}-{version}.tgz"


def _digest(dist: dict[str, Any]) -> Digest | None:
    """The strongest of `integrity` (base64, several words) and `shasum`."""
    hashes = {"sha1": str(dist["shasum"])} if dist.get("shasum") else {}
    for word in str(dist.get("integrity", "")).split():
        algorithm, _, text = word.partition("-")
        if algorithm in ALGORITHMS:
            try:
                hashes[algorithm] = base64.b64decode(text.partition("?")[0], validate=True).hex()
            except ValueError:
                continue  # a word that is no digest: another may be one
    return best(hashes)
