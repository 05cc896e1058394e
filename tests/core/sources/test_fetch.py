"""A fetched file matches its checksum, survives a bad network, and is fetched once."""

import base64
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from registry_server import Registry, streamed

from etude.core.sources.checksum import Checksum, of_address, of_integrity, strongest
from etude.core.sources.download import Downloader, Missing
from etude.core.sources.fetch import Fetcher
from etude.core.sources.project import ProjectRefused, SourceOffline

DATA = bytes(range(256)) * 2000
A = "http://registry.test/a.tar.gz"


def with_sum(address=A, data=DATA, algorithm="sha256"):
    return Checksum(algorithm, hashlib.new(algorithm, data).hexdigest()).on(address)


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file() and "locks" not in path.parts]


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "sha1"])
def test_an_artefact_is_fetched_once_and_then_needs_no_network(tmp_path, algorithm):
    registry = Registry({A: [DATA, httpx.ConnectError("no network")]})
    fetcher = registry.fetcher(tmp_path)
    for _ in range(2):
        assert fetcher.artefact(with_sum(algorithm=algorithm)).read_bytes() == DATA
    assert registry.asked[A] == 1
    assert len(files(tmp_path)) == 1


def test_what_is_not_what_the_index_says_is_refused_and_not_kept(tmp_path):
    fetcher = Registry({A: DATA[:-1] + b"!"}).fetcher(tmp_path)
    with pytest.raises(ProjectRefused, match="a.tar.gz is not what the index says: its checksum is not sha256:"):
        fetcher.artefact(with_sum())
    assert files(tmp_path) == []


def test_a_file_damaged_in_the_cache_is_fetched_again(tmp_path):
    registry = Registry({A: DATA})
    kept = registry.fetcher(tmp_path).artefact(with_sum())
    kept.write_bytes(b"rotten")
    assert registry.fetcher(tmp_path).artefact(with_sum()).read_bytes() == DATA
    assert registry.asked[A] == 2


def test_an_address_without_a_checksum_is_refused_unasked(tmp_path):
    registry = Registry({A: DATA})
    for address in (A, A + "#md5=" + "0" * 32, A + "#sha256=abc"):
        with pytest.raises(ProjectRefused, match="no usable checksum"):
            registry.fetcher(tmp_path).artefact(address)
    assert not registry.asked


def test_passing_trouble_is_waited_out(tmp_path):
    busy = httpx.Response(429, headers={"Retry-After": "7"})
    registry = Registry({A: [httpx.ReadTimeout("slow"), busy, 503, DATA]})
    assert registry.fetcher(tmp_path).artefact(with_sum()).read_bytes() == DATA
    assert registry.waits == [2.0, 7.0, 8.0]


def test_no_wait_is_longer_than_the_longest(tmp_path):
    registry = Registry({A: [httpx.Response(503, headers={"Retry-After": "86400"}), DATA]})
    registry.fetcher(tmp_path).artefact(with_sum())
    assert registry.waits == [30.0]


def test_trouble_that_stays_is_offline_and_says_what_was_tried(tmp_path):
    registry = Registry({A: httpx.ConnectError("name not known")})
    with pytest.raises(SourceOffline, match="a.tar.gz can't be reached, tried 4 times; ConnectError: name not known"):
        registry.fetcher(tmp_path).artefact(with_sum())
    assert registry.asked[A] == 4


def test_a_closed_door_is_offline_at_once_and_a_missing_file_is_refused(tmp_path):
    registry = Registry({A: 403})
    with pytest.raises(SourceOffline, match="403 Forbidden: it wants credentials, or a proxy forbids it"):
        registry.fetcher(tmp_path).artefact(with_sum())
    with pytest.raises(ProjectRefused, match="gone.tar.gz answers 404"):
        registry.fetcher(tmp_path).artefact(with_sum("http://registry.test/gone.tar.gz"))
    with pytest.raises(Missing, match="answers 404"):
        registry.fetcher(tmp_path).page("http://registry.test/gone/", "text/plain", bytes)
    assert set(registry.asked.values()) == {1}


def test_only_http_is_asked(tmp_path):
    (tmp_path / "secret").write_bytes(DATA)
    with pytest.raises(SourceOffline, match="can't be fetched"):
        Fetcher(tmp_path / "cache").artefact(with_sum(f"file://{tmp_path}/secret"))


@pytest.mark.parametrize("stated", [True, False])
def test_a_file_above_the_limit_is_refused_whether_or_not_it_says_so(tmp_path, stated):
    fetcher = Registry({A: streamed(DATA, stated)}).fetcher(tmp_path, max_bytes=300_000)
    with pytest.raises(ProjectRefused, match="larger than 300,000 bytes"):
        fetcher.artefact(with_sum())


def test_a_login_in_an_address_is_in_no_message(tmp_path):
    registry = Registry({})
    with pytest.raises(Missing) as missing:
        registry.fetcher(tmp_path).page("http://me:secret@registry.test/x/", "text/plain", bytes)
    assert "secret" not in str(missing.value)
    assert registry.requests[0].headers["authorization"].startswith("Basic ")


def test_a_page_stays_as_it_was_first_seen(tmp_path):
    registry = Registry({A: [b"old", b"new"]})
    assert [registry.fetcher(tmp_path).page(A, "text/plain", bytes) for _ in range(2)] == [b"old", b"old"]
    assert registry.fetcher(tmp_path).page(A, "application/json", bytes) == b"new"


def test_a_page_that_makes_no_sense_is_not_kept(tmp_path):
    registry = Registry({A: [b"<html>please log in", b"17"]})
    with pytest.raises(SourceOffline, match="does not answer as expected: invalid literal"):
        registry.fetcher(tmp_path).page(A, "text/plain", int)
    assert registry.fetcher(tmp_path).page(A, "text/plain", int) == 17


class Cutting(BaseHTTPRequestHandler):
    """Sends a third of what is asked for and hangs up, but for the last time; notes where it was asked to begin."""

    starts: list[int] = []
    cuts = 2
    ranges = True

    def do_GET(self):
        start = int(self.headers.get("Range", "bytes=0-")[6:-1]) if self.ranges else 0
        Cutting.starts.append(start)
        if start > len(DATA):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(DATA) - 1}/{len(DATA)}")
        self.send_header("Content-Length", str(len(DATA) - start))
        self.end_headers()
        if len(Cutting.starts) <= self.cuts:
            self.wfile.write(DATA[start : start + len(DATA) // 3])
            self.close_connection = True
        else:
            self.wfile.write(DATA[start:])

    def log_message(self, format, *args):
        pass


@pytest.fixture
def cutting(monkeypatch):
    monkeypatch.setattr(Cutting, "starts", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cutting)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/a"
    server.shutdown()
    server.server_close()


def test_a_broken_download_goes_on_where_it_ended(tmp_path, cutting):
    fetcher = Fetcher(tmp_path, Downloader(sleep=lambda wait_s: None))
    assert fetcher.artefact(with_sum(cutting)).read_bytes() == DATA
    third = len(DATA) // 3
    assert Cutting.starts == [0, third, 2 * third]
    fetcher.close()


def test_a_server_without_ranges_is_asked_from_the_start(tmp_path, cutting, monkeypatch):
    monkeypatch.setattr(Cutting, "ranges", False)
    fetcher = Fetcher(tmp_path, Downloader(sleep=lambda wait_s: None))
    assert fetcher.artefact(with_sum(cutting)).read_bytes() == DATA
    assert Cutting.starts == [0, 0, 0]
    fetcher.close()


def test_a_download_broken_by_a_kill_goes_on_and_bad_leftovers_are_thrown_away(tmp_path, cutting, monkeypatch):
    monkeypatch.setattr(Cutting, "cuts", 0)
    address = with_sum(cutting)
    digest = hashlib.sha256(DATA).hexdigest()
    part = tmp_path / "artefacts" / digest[:2] / f"sha256-{digest}.part"
    part.parent.mkdir(parents=True)
    fetcher = Fetcher(tmp_path, Downloader(sleep=lambda wait_s: None))
    for held, starts in ((DATA[:1000], [1000]), (b"?" * 1000, [1000, 0]), (DATA + b"?", [len(DATA) + 1, 0])):
        Cutting.starts.clear()
        part.write_bytes(held)
        file = fetcher.artefact(address)
        assert file.read_bytes() == DATA
        assert Cutting.starts == starts
        file.unlink()
    fetcher.close()


def test_two_processes_or_threads_fetch_an_artefact_once(tmp_path):
    registry = Registry({A: DATA})
    fetchers = [registry.fetcher(tmp_path) for _ in range(4)]
    threads = [threading.Thread(target=fetcher.artefact, args=(with_sum(),)) for fetcher in fetchers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.asked[A] == 1


def test_the_strongest_checksum_is_taken_and_weak_ones_are_none():
    sums = {name: hashlib.new(name, b"x").hexdigest() for name in ("md5", "sha1", "sha256", "sha512")}
    assert strongest(sums) == Checksum("sha512", sums["sha512"])
    assert strongest({"md5": sums["md5"], "sha256": "short", "sha1": sums["sha1"].upper()}) == Checksum(
        "sha1", sums["sha1"]
    )
    assert strongest({"md5": sums["md5"]}) is None
    assert of_address(Checksum("sha1", sums["sha1"]).on("http://x/y?z#old")) == (
        "http://x/y?z",
        Checksum("sha1", sums["sha1"]),
    )


def test_an_integrity_string_with_other_letters_is_none():
    assert of_integrity("sha512-\xe9\xe9\xe9\xe9") is None


def test_an_integrity_string_is_read_as_the_specification_says():
    text = [f"{name}-{base64.b64encode(hashlib.new(name, b'x').digest()).decode()}" for name in ("sha1", "sha512")]
    assert of_integrity(" ".join(text) + "?option") == Checksum("sha512", hashlib.sha512(b"x").hexdigest())
    assert of_integrity("sha512-!!! " + text[0]) == Checksum("sha1", hashlib.sha1(b"x").hexdigest())
    assert of_integrity("") is None
