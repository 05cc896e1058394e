"""From a package's name to its files, for the Python index and the npm registry, with an index that is no network."""

import base64
import hashlib
import json
import subprocess

import httpx
import pytest
from archives import tar, zipped
from registry_server import Registry

from etude.core.sources import registry as package_registry
from etude.core.sources.folder import walk
from etude.core.sources.npm import NpmSource
from etude.core.sources.project import ProjectRefused, SourceOffline
from etude.core.sources.release import semver_release, tag_release
from etude.core.sources.sdist import SdistSource

INDEX = "http://index.test/simple/"
NPM = "http://npm.test/"


def sdist_file(name, data, day, **more):
    hashes = {"sha256": hashlib.sha256(data).hexdigest()}
    return {"filename": name, "url": f"../files/{name}", "hashes": hashes, "upload-time": f"{day}T00:00:00Z", **more}


def index_with(files, name="my-tool"):
    """A registry of one package; `files` are (filename, content, day, more)."""
    listed = [sdist_file(file, data, day, **more) for file, data, day, more in files]
    pages = {f"http://index.test/simple/files/{file}": data for file, data, _, _ in files}
    return Registry(
        {f"{INDEX}{name}/": json.dumps({"meta": {"api-version": "1.1"}, "files": listed}).encode(), **pages}
    )


def python_source(registry, cache, packages=("My_Tool",), **options):
    return SdistSource("python", packages, registry.fetcher(cache), index=INDEX, **options)


def contents(source, ref):
    with source.open(ref) as project:
        return {path.relative_to(project.root).as_posix(): path.read_bytes() for path in walk(project.root)}


FILES = [
    ("my_tool-1.0.tar.gz", tar({"my_tool-1.0/a.py": b"1.0"}), "2024-01-01", {}),
    ("my_tool-1.9.zip", zipped({"my_tool-1.9/a.py": b"1.9"}), "2024-02-01", {}),
    ("my_tool-1.10.tar.gz", tar({"my_tool-1.10/a.py": b"1.10"}), "2024-03-01", {}),
    ("my_tool-1.10-py3-none-any.whl", zipped({"a.py": b"wheel"}), "2024-03-01", {}),
    ("my_tool-1.11.tar.gz", tar({"x/a.py": b"yanked"}), "2024-03-02", {"yanked": "broken"}),
    ("my_tool-2.0rc1.tar.gz", tar({"x/a.py": b"early"}), "2024-04-01", {}),
    ("my_tool-1.12-cp311-cp311-linux_x86_64.whl", zipped({"c.py": b"c"}), "2024-05-01", {}),
    ("my_tool-1.12-py3-none-any.whl", zipped({"a.py": b"wheel", "my_tool-1.12.dist-info/M": b"m"}), "2024-05-01", {}),
    ("other-9.0.tar.gz", tar({"x/a.py": b"other"}), "2024-05-01", {}),
    ("my_tool-1.0.win32.exe", b"MZ", "2024-05-01", {}),
]


def test_releases_of_a_python_package_come_newest_first(tmp_path):
    source = python_source(index_with(FILES), tmp_path, releases=9)
    refs = list(source.refs())
    assert [(ref.version, ref.released[:10]) for ref in refs] == [
        ("1.12", "2024-05-01"), ("1.10", "2024-03-01"), ("1.9", "2024-02-01"), ("1.0", "2024-01-01"),
    ]  # fmt: skip
    assert {(ref.id, ref.project) for ref in refs[:1]} == {("python/My_Tool@1.12", "my-tool")}
    assert contents(source, refs[0]) == {"a.py": b"wheel", "my_tool-1.12.dist-info/M": b"m"}
    assert [contents(source, ref)["a.py"] for ref in refs[1:]] == [b"1.10", b"1.9", b"1.0"]
    assert [ref.version for ref in python_source(index_with(FILES), tmp_path).refs()] == ["1.12"]


def test_before_is_the_day_of_upload(tmp_path):
    source = python_source(index_with(FILES), tmp_path, releases=9, before="2024-03-01")
    assert [ref.version for ref in source.refs()] == ["1.9", "1.0"]
    (nothing,) = python_source(index_with(FILES), tmp_path, before="2020-01-01").refs()
    with pytest.raises(ProjectRefused, match="no release of My_Tool before 2020-01-01"), source.open(nothing):
        pass


def test_the_origin_is_the_archives_checksum(tmp_path):
    source = python_source(index_with(FILES[:1]), tmp_path)
    (ref,) = source.refs()
    with source.open(ref) as project:
        assert project.origin == "sha256:" + hashlib.sha256(FILES[0][1]).hexdigest()
        assert project.ref == ref
    assert not project.root.exists()


def test_a_rerun_needs_no_network(tmp_path):
    first = python_source(index_with(FILES), tmp_path, releases=9)
    found = [contents(first, ref) for ref in first.refs()]
    again = python_source(Registry({}), tmp_path, releases=9)
    assert [contents(again, ref) for ref in again.refs()] == found


def test_a_package_that_the_index_does_not_have_is_refused_and_the_others_go_on(tmp_path):
    source = python_source(index_with(FILES), tmp_path, ["nowhere", "my.tool"])
    missing, there = source.refs()
    assert there.version == "1.12"
    with pytest.raises(ProjectRefused, match="simple/nowhere/ answers 404"), source.open(missing):
        pass


def test_a_file_without_a_checksum_is_refused(tmp_path):
    source = python_source(index_with([(*FILES[0][:3], {"hashes": {}})]), tmp_path)
    (ref,) = source.refs()
    with pytest.raises(ProjectRefused, match="no usable checksum"), source.open(ref):
        pass


def test_an_archive_that_is_refused_leaves_no_folder(tmp_path):
    source = python_source(index_with([("my_tool-1.0.tar.gz", tar({"../a": b"x"}), "2024-01-01", {})]), tmp_path)
    (ref,) = source.refs()
    with pytest.raises(ProjectRefused, match="leads out of the folder"), source.open(ref):
        pass
    assert list((tmp_path / "unpacked").iterdir()) == []


@pytest.mark.parametrize(
    "page", [b"<!DOCTYPE html><a href=x>", b"[]", b'{"files": [1]}', b'{"files": [{"filename": "a"}]}']
)
def test_an_index_that_does_not_speak_json_is_offline_with_the_remedy(tmp_path, page):
    source = python_source(Registry({f"{INDEX}my-tool/": page}), tmp_path)
    with pytest.raises(SourceOffline, match="set PIP_INDEX_URL"):
        list(source.refs())


def test_an_unreachable_index_is_offline(tmp_path):
    source = python_source(Registry({f"{INDEX}my-tool/": httpx.ConnectError("no route")}), tmp_path)
    with pytest.raises(SourceOffline, match="tried 4 times"):
        list(source.refs())


def test_a_login_in_the_index_address_is_in_no_ref(tmp_path):
    registry = index_with(FILES)
    source = SdistSource("python", ["my-tool"], registry.fetcher(tmp_path), index="http://me:secret@index.test/simple/")
    (ref,) = source.refs()
    assert "secret" not in ref.location
    assert registry.requests[0].headers["authorization"].startswith("Basic ")


def test_the_python_index_is_the_one_pip_is_configured_with(tmp_path, monkeypatch):
    configuration = tmp_path / "pip.conf"
    configuration.write_text("[global]\nindex-url = http://mirror.test/team/pypi\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    source = SdistSource("python", [], Registry({}).fetcher(tmp_path))
    assert source.configured_index() == "http://mirror.test/team/pypi/"
    monkeypatch.setenv("PIP_INDEX_URL", "http://other.test/simple/")
    assert source.configured_index() == "http://other.test/simple/"


def document(versions, **times):
    """A package's document; `versions` maps a version to (tarball's content, fields)."""
    listed = {}
    for version, (data, fields) in versions.items():
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        dist = {"tarball": f"{NPM}@scope/tool/-/tool-{version}.tgz", "integrity": integrity}
        listed[version] = {"dist": dist, **fields}
    return json.dumps({"versions": listed, "time": {"created": "2000-01-01", **times}}).encode()


def npm_registry(versions, **times):
    pages = {f"{NPM}@scope/tool/-/tool-{version}.tgz": data for version, (data, _) in versions.items()}
    return Registry({f"{NPM}@scope%2Ftool": document(versions, **times), **pages})


VERSIONS = {
    "1.9.0": (tar({"package/index.js": b"1.9.0"}), {}),
    "1.10.0": (tar({"package/index.js": b"1.10.0"}), {}),
    "1.11.0": (tar({"package/index.js": b"bad"}), {"deprecated": "use 1.10"}),
    "2.0.0-beta.1": (tar({"package/index.js": b"early"}), {}),
}
TIMES = {"1.9.0": "2024-01-01T10:00:00.000Z", "1.10.0": "2024-02-01T10:00:00.000Z"}


def npm_source(registry, cache, **options):
    return NpmSource("npm", ["@scope/tool"], registry.fetcher(cache), index=NPM, **options)


def test_releases_of_an_npm_package_come_newest_first(tmp_path):
    source = npm_source(npm_registry(VERSIONS, **TIMES), tmp_path, releases=5)
    refs = list(source.refs())
    assert [(ref.id, ref.project, ref.released[:10]) for ref in refs] == [
        ("npm/@scope/tool@1.10.0", "tool", "2024-02-01"),
        ("npm/@scope/tool@1.9.0", "tool", "2024-01-01"),
    ]
    assert [contents(source, ref) for ref in refs] == [{"index.js": b"1.10.0"}, {"index.js": b"1.9.0"}]
    early = npm_source(npm_registry(VERSIONS, **TIMES), tmp_path, before="2024-02-01")
    assert [ref.version for ref in early.refs()] == ["1.9.0"]


def test_a_tarball_that_is_not_what_its_integrity_says_is_refused(tmp_path):
    registry = npm_registry(VERSIONS, **TIMES)
    registry.pages[f"{NPM}@scope/tool/-/tool-1.10.0.tgz"] = tar({"package/index.js": b"evil"})
    source = npm_source(registry, tmp_path)
    (ref,) = source.refs()
    with pytest.raises(ProjectRefused, match="not what the index says: its checksum is not sha512:"), source.open(ref):
        pass


def test_an_old_package_has_only_a_sha1(tmp_path):
    data = tar({"package/index.js": b"old"})
    dist = {"tarball": f"{NPM}old.tgz", "shasum": hashlib.sha1(data).hexdigest()}
    page = json.dumps({"versions": {"0.1.0": {"dist": dist}}}).encode()
    source = npm_source(Registry({f"{NPM}@scope%2Ftool": page, f"{NPM}old.tgz": data}), tmp_path)
    (ref,) = source.refs()
    assert contents(source, ref) == {"index.js": b"old"}


def test_a_registry_that_is_none_is_offline_with_the_remedy(tmp_path):
    source = npm_source(Registry({f"{NPM}@scope%2Ftool": b"<html>"}), tmp_path)
    with pytest.raises(SourceOffline, match="correct npm's registry setting"):
        list(source.refs())


def test_a_package_manager_that_gives_no_answer_is_an_index_out_of_reach_and_no_crash(monkeypatch):
    monkeypatch.setattr(package_registry, "ASK_S", 0.2)
    with pytest.raises(SourceOffline, match="has not returned its index within 0.2 s; try again"):
        package_registry.run_package_manager(["sleep", "30"])


def test_the_npm_registry_is_asked_of_npm_or_read_where_npm_reads_it(tmp_path, monkeypatch):
    source = NpmSource("npm", [], Registry({}).fetcher(tmp_path))
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("NPM_CONFIG_REGISTRY", "npm_config_registry"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SourceOffline, match="install npm, or set NPM_CONFIG_REGISTRY"):
        source.configured_index()
    (tmp_path / ".npmrc").write_text("@scope:registry=http://scope.test\nregistry = http://file.test/npm\n")
    assert source.configured_index() == "http://file.test/npm/"
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://variable.test/")
    assert source.configured_index() == "http://variable.test/"
    npm = programs / "npm"
    npm.write_text('#!/bin/sh\n[ "$PWD $*" = "/ config get registry" ] && echo http://npm-says.test/\n')
    npm.chmod(0o755)
    assert source.configured_index() == "http://npm-says.test/"
    npm.write_text("#!/bin/sh\necho undefined\n")
    with pytest.raises(SourceOffline):
        source.configured_index()


@pytest.mark.parametrize(
    ("tag", "release"),
    [
        ("v1.2.3", ("", (1, 2, 3))),
        ("1.2", ("", (1, 2))),
        ("v255", ("", (255,))),
        ("rel_1_4_0", ("rel_", (1, 4, 0))),
        ("@scope/pkg@2.0.1", ("@scope/pkg@", (2, 0, 1))),
        ("py3-lib-v1.0", ("py3-lib-", (1, 0))),
        ("1.2.3-rc.1.2", None),
        ("v1.2.3rc1", None),
        ("1.0.0-beta-2.0", None),
        ("nightly-2024.01.01", None),
        ("build-20240101", None),
        ("latest", None),
    ],
)
def test_which_tags_are_releases(tag, release):
    assert tag_release(tag) == release


def test_which_npm_versions_are_releases():
    found = [semver_release(text) for text in ("1.2.3", "1.2.3+build.5", "1.2.3-rc.1", "1.2", "01x.2.3")]
    assert found == [(1, 2, 3), (1, 2, 3), None, None, None]


def test_no_pip_is_offline_with_the_remedy(tmp_path, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "Traceback\nModuleNotFoundError: No module named 'pip'\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(SourceOffline, match="No module named 'pip'.*install pip"):
        list(SdistSource("python", ["x"], Registry({}).fetcher(tmp_path)).refs())
