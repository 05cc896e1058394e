"""From apt's lists of sources to a package's files, with a mirror that is no network and a key made for the test."""

import gzip
import hashlib
import itertools
import lzma
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from archives import tar
from registry_server import Registry

from etude.core.sources import debian
from etude.core.sources.apt import AptSuite, suites
from etude.core.sources.debian import DebianSource
from etude.core.sources.folder import walk
from etude.core.sources.project import ProjectRefused, SourceOffline

MIRROR = "http://mirror.test/debian/"
CHANGELOG = b"""tool (1:1.0-2) unstable; urgency=medium

  * Fix.

 -- A Person <a@example.org>  Thu, 02 May 2024 10:00:00 +0200
"""
PACKAGING = {
    "debian/changelog": CHANGELOG,
    "debian/patches/fix.patch": b"--- a/x\n+++ b/x\n",
    "debian/rules": b"#!/usr/bin/make\n",
}


def sums(files):
    return "".join(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in files.items())


class Mirror:
    """A suite of source packages."""

    def __init__(self, suite="stable", ending=".xz"):
        self.suite, self.ending = suite, ending
        self.pages, self.stanzas = {}, []

    def add(self, name, version, form, archives, upload=True):
        dsc = f"Format: {form}\nSource: {name}\nVersion: {version}\nChecksums-Sha256:\n{sums(archives)}"
        dsc = f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n{dsc}\n-----BEGIN PGP SIGNATURE-----\n\nabc\n"
        files = {f"{name}_{version.partition(':')[2] or version}.dsc": dsc.encode(), **archives}
        directory = f"pool/main/{name[0]}/{name}"
        if upload:
            self.pages |= {f"{MIRROR}{directory}/{file}": data for file, data in files.items()}
        self.stanzas.append(
            f"Package: {name}\nVersion: {version}\nDirectory: {directory}\nChecksums-Sha256:\n{sums(files)}"
        )
        return self

    def release(self):
        compress = {".xz": lzma.compress, ".gz": gzip.compress}[self.ending]
        index = compress("\n".join(self.stanzas).encode())
        path = f"main/source/Sources{self.ending}"
        self.pages[f"{MIRROR}dists/{self.suite}/{path}"] = index
        return f"Suite: {self.suite}\nSHA256:\n{sums({path: index})}"

    def registry(self, release=None):
        page = (release or self.release()).encode()
        return Registry({**self.pages, f"{MIRROR}dists/{self.suite}/InRelease": page})


def apt(folder, options="[trusted=yes]", suite="stable"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text(f"deb {options} {MIRROR} {suite} main\n")
    return folder


def source(mirror, tmp_path, packages=("tool",), **options):
    return DebianSource(
        "debian", packages, mirror.registry().fetcher(tmp_path / "cache"), apt=apt(tmp_path / "apt"), **options
    )


def opened(source, ref):
    with source.open(ref) as project:
        found = {path.relative_to(project.root).as_posix(): path.read_bytes() for path in walk(project.root)}
    return found, project


def only(source):
    (ref,) = source.refs()
    return opened(source, ref)


def quilt(version="1:1.0-2"):
    return Mirror().add(
        "tool",
        version,
        "3.0 (quilt)",
        {
            "tool_1.0.orig.tar.gz": tar({"tool-1.0/a.c": b"int a;\n", "tool-1.0/debian/theirs": b"upstream's own"}),
            "tool_1.0.orig-extra.tar.xz": tar({"x-9/b.c": b"int b;\n"}, "xz"),
            "tool_1.0-2.debian.tar.xz": tar(PACKAGING, "xz"),
            "tool_1.0.orig.tar.gz.asc": b"signature",
        },
    )


def test_a_quilt_source_is_upstream_with_the_packaging_in_it_and_patches_unapplied(tmp_path):
    found, project = only(source(quilt(), tmp_path))
    assert found == {"a.c": b"int a;\n", "extra/b.c": b"int b;\n", **PACKAGING}
    assert (project.ref.id, project.ref.released) == ("debian/tool@1:1.0-2", "2024-05-02T10:00:00+02:00")
    assert project.origin.startswith("sha256:")
    assert not project.root.exists()


def test_a_native_source_is_one_archive(tmp_path):
    archive = tar({"tool-2/a.c": b"int a;\n", "tool-2/debian/changelog": b"no trailer"})
    for form in ("3.0 (native)", "1.0"):
        found, project = only(source(Mirror().add("tool", "2", form, {"tool_2.tar.gz": archive}), tmp_path / form))
        assert found == {"a.c": b"int a;\n", "debian/changelog": b"no trailer"}
        assert project.ref.released == ""


DIFF = b"""Only in upstream: a line that is none of the diff's
--- tool-1.0.orig/a.c
+++ tool-1.0/a.c
@@ -1,3 +1,2 @@
 int a;
--- looks like a header
-++ so does this
+int c;
--- tool-1.0.orig/debian/changelog
+++ tool-1.0/debian/changelog
@@ -0,0 +1,2 @@
+tool (1.0-1) stable; urgency=low
+ -- A <a@example.org>  Thu, 02 May 2024 10:00:00 +0000
--- tool-1.0.orig/debian/last
+++ tool-1.0/debian/last
@@ -0,0 +1 @@
+no newline
\\ No newline at end of file
"""


def old_format(diff, tmp_path):
    upstream = tar({"tool-1.0.orig/a.c": b"int a;\n-- looks like a header\n++ so does this\n"})
    archives = {"tool_1.0.orig.tar.gz": upstream, "tool_1.0-1.diff.gz": gzip.compress(diff)}
    return source(Mirror(ending=".gz").add("tool", "1.0-1", "1.0", archives), tmp_path)


def test_the_diff_of_an_old_source_is_its_packaging_and_its_changes_a_patch(tmp_path):
    found, project = only(old_format(DIFF, tmp_path))
    assert found["a.c"].startswith(b"int a;\n--")
    assert found["debian/changelog"].startswith(b"tool (1.0-1)")
    assert found["debian/last"] == b"no newline"
    patch = found["debian/patches/debian-changes"].decode()
    assert patch == "--- a/a.c\n+++ b/a.c\n" + DIFF.decode().partition("+++ tool-1.0/a.c\n")[2].partition("--- tool")[0]
    assert project.ref.released == "2024-05-02T10:00:00+00:00"


def test_a_diff_that_climbs_out_or_ends_early_is_refused(tmp_path):
    with pytest.raises(ProjectRefused, match="leads out of the folder"):
        only(old_format(DIFF.replace(b"tool-1.0/debian/last", b"tool-1.0/../../last"), tmp_path / "1"))
    with pytest.raises(ProjectRefused, match="ends inside a hunk"):
        only(old_format(DIFF.replace(b"@@ -0,0 +1 @@", b"@@ -0,0 +1,9 @@"), tmp_path / "2"))
    with pytest.raises(ProjectRefused, match="hunk header"):
        only(old_format(DIFF.replace(b"@@ -0,0 +1 @@", b"@@ -0,y +1 @@"), tmp_path / "3"))


def test_the_newest_version_of_all_suites_and_components_is_taken(tmp_path):
    archive = {"tool_1.tar.gz": tar({"t/a": b"x"})}
    mirror = Mirror()
    for version in ("9", "1:1.0~rc1-1", "1:1.0-1", "1:1.0-1~deb12u1"):
        mirror.add("tool", version, "3.0 (native)", archive)
    assert [ref.version for ref in source(mirror, tmp_path).refs()] == ["1:1.0-1"]


def test_packages_may_be_patterns_and_one_that_matches_nothing_is_refused(tmp_path):
    mirror = Mirror()
    for name in ("golang-b", "golang-a", "tool"):
        mirror.add(name, "1", "3.0 (native)", {f"{name}_1.tar.gz": tar({"t/a": name.encode()})})
    opened_source = source(mirror, tmp_path, ["golang-*", "nothing"])
    refs = list(opened_source.refs())
    assert [ref.name for ref in refs] == ["golang-a", "golang-b", "nothing"]
    assert opened(opened_source, refs[1])[0] == {"a": b"golang-b"}
    with pytest.raises(ProjectRefused, match="no source package matches 'nothing'"), opened_source.open(refs[2]):
        pass


def test_a_rerun_needs_no_network(tmp_path):
    first = only(source(quilt(), tmp_path))[0]
    again = DebianSource("debian", ["tool"], Registry({}).fetcher(tmp_path / "cache"), apt=apt(tmp_path / "apt"))
    assert only(again)[0] == first


def test_an_archive_or_index_that_is_not_what_is_listed_is_not_taken(tmp_path):
    mirror = quilt()
    mirror.pages[f"{MIRROR}pool/main/t/tool/tool_1.0.orig.tar.gz"] = tar({"evil": b"x"})
    with pytest.raises(ProjectRefused, match="not what the index says"):
        only(source(mirror, tmp_path / "1"))
    mirror = quilt()
    release = mirror.release()
    mirror.add("tool", "2:evil", "3.0 (native)", {}).release()  # the index changes, what was said of it doesn't
    fetcher = mirror.registry(release).fetcher(tmp_path / "2")
    with pytest.raises(SourceOffline, match="not what the index says"):
        list(DebianSource("debian", ["tool"], fetcher, apt=apt(tmp_path / "apt")).refs())


@pytest.mark.parametrize(
    ("form", "archives", "reason"),
    [
        ("3.0 (git)", {"tool_1.git": b"x"}, "source format '3.0 .git.' is none of"),
        ("3.0 (quilt)", {"../../etc/passwd": b"x"}, "names a file '../../etc/passwd'"),
        ("3.0 (quilt)", {"tool_1.debian.tar.xz": tar(PACKAGING, "xz")}, "0 main archives"),
        ("3.0 (quilt)", {"readme.txt": b"x"}, "names no archive"),
        (
            "3.0 (quilt)",
            {"tool_1.orig.tar.gz": tar({"t/a": b"x"}), "tool_1-1.debian.tar.gz": tar({"other/a": b"x"})},
            "no folder debian",
        ),
    ],
)
def test_a_source_control_file_that_makes_no_project_is_refused(tmp_path, form, archives, reason):
    with pytest.raises(ProjectRefused, match=reason):
        only(source(Mirror().add("tool", "1-1", form, archives), tmp_path))


def test_a_suite_without_sources_is_passed_over_and_none_at_all_is_offline(tmp_path):
    folder = apt(tmp_path / "apt")
    (folder / "sources.list").write_text(
        f"deb [trusted=yes] http://absent.test/debian binaries main\ndeb [trusted=yes] {MIRROR} stable main\n"
    )
    fetcher = quilt().registry().fetcher(tmp_path / "cache")
    assert [ref.name for ref in DebianSource("debian", ["tool"], fetcher, apt=folder).refs()] == ["tool"]
    (folder / "sources.list").write_text("")
    with pytest.raises(SourceOffline, match="list a Debian mirror there"):
        list(DebianSource("debian", ["tool"], fetcher, apt=folder).refs())


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """(a function that signs in clear, the public key in armour, the same in binary)"""
    if not shutil.which("gpg"):
        pytest.skip("gpg is not installed, so nothing can be signed here")
    home = Path("/tmp") / f"gpg-{os.getpid()}"  # a socket's path must be short
    home.mkdir(mode=0o700)

    def gpg(*arguments, text=b""):
        command = [
            "gpg",
            "--homedir",
            str(home),
            "--batch",
            "--quiet",
            "--pinentry-mode",
            "loopback",
            "--passphrase",
            "",
            *arguments,
        ]
        return subprocess.run(command, input=text, capture_output=True, check=True).stdout

    gpg("--quick-generate-key", "mirror@example.org", "ed25519", "sign", "never")
    yield (lambda text: gpg("--clear-sign", text=text.encode()).decode()), gpg("--armor", "--export"), gpg("--export")
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], capture_output=True)
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.parametrize("armour", [True, False])
def test_a_suite_signed_by_its_key_is_read(tmp_path, key, armour):
    sign, armoured, binary = key
    ring = tmp_path / ("mirror.asc" if armour else "mirror.gpg")
    ring.write_bytes(armoured if armour else binary)
    mirror = quilt()
    fetcher = mirror.registry(sign(mirror.release())).fetcher(tmp_path / "cache")
    named = DebianSource("debian", ["tool"], fetcher, apt=apt(tmp_path / "apt", f"[arch=amd64 signed-by={ring}]"))
    assert [ref.version for ref in named.refs()] == ["1:1.0-2"]
    (tmp_path / "apt" / "trusted.gpg.d").mkdir()
    shutil.copy(ring, tmp_path / "apt" / "trusted.gpg.d")
    general = DebianSource("debian", ["tool"], fetcher, apt=apt(tmp_path / "apt", ""))
    assert [ref.version for ref in general.refs()] == ["1:1.0-2"]


@pytest.mark.parametrize("attack", ["unsigned", "changed", "no key", "text around it"])
def test_a_suite_that_is_not_signed_by_a_trusted_key_is_not_read(tmp_path, key, attack):
    sign, _, binary = key
    folder = apt(tmp_path / "apt", "")
    (folder / "trusted.gpg.d").mkdir()
    (folder / "trusted.gpg.d" / "mirror.gpg").write_bytes(b"" if attack == "no key" else binary)
    mirror = quilt()
    good = mirror.release()
    evil = Mirror().add("tool", "9:evil", "3.0 (native)", {}).release()
    signed = sign(good)
    release = {
        "unsigned": evil, "changed": signed.replace("Suite: stable", "Suite: evil"), "no key": signed,
        "text around it": evil + "\n" + signed,
    }[attack]  # fmt: skip
    fetcher = mirror.registry(release).fetcher(tmp_path / "cache")
    try:
        refs = list(DebianSource("debian", ["tool"], fetcher, apt=folder).refs())
    except SourceOffline as offline:
        assert "signature is not by a key that apt trusts" in str(offline)
    else:  # text outside the signature is not read
        assert attack == "text around it"
        assert [ref.version for ref in refs] == ["1:1.0-2"]


def test_without_gpgv_no_unsigned_suite_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    fetcher = quilt().registry().fetcher(tmp_path / "cache")
    with pytest.raises(SourceOffline, match="install gpgv"):
        list(DebianSource("debian", ["tool"], fetcher, apt=apt(tmp_path / "apt", "")).refs())


def test_apts_lists_are_read_in_both_forms(tmp_path):
    (tmp_path / "sources.list").write_text(
        "# deb http://commented.test x main\n"
        "deb-src [ signed-by=/a.gpg,/b.gpg trusted=no ] http://one.test/debian stable main contrib # why\n"
        "deb cdrom:[disc]/ stable main\n"
        "deb http://flat.test/ ./\n"
    )
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "x.list.disabled").write_text("deb http://disabled.test x main\n")
    (tmp_path / "sources.list.d" / "debian.sources").write_text(
        "Types: deb\nURIs: http://two.test/debian\n# a comment\nSuites: stable stable-updates\n"
        "Components: main\nSigned-By: /c.gpg\n\n"
        "Types: deb\nEnabled: no\nURIs: http://off.test\nSuites: x\nComponents: main\n\n"
        "Types: deb deb-src\nURIs: https://three.test/x/\nSuites: s\nComponents: main\nTrusted: yes\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"
    )
    assert suites(tmp_path) == [
        AptSuite("http://one.test/debian/", "stable", ("main", "contrib"), (Path("/a.gpg"), Path("/b.gpg"))),
        AptSuite("http://two.test/debian/", "stable", ("main",), (Path("/c.gpg"),)),
        AptSuite("http://two.test/debian/", "stable-updates", ("main",), (Path("/c.gpg"),)),
        AptSuite("https://three.test/x/", "s", ("main",), (), True),
    ]


# Each before the next; deb-version(7) and what dpkg --compare-versions says.
ASCENDING = [
    "0~", "0", "0-0+", "1.0~~", "1.0~~a", "1.0~", "1.0-0~1", "1.0", "1.0-1~deb12u1", "1.0-1", "1.0-1+b1", "1.0-1.1", "1.0-9", "1.0-10", "1.0a-1",
    "1.0+dfsg-1", "1.0.1-1", "1.2~rc1-1", "1.2-1", "1.10-1", "20240101", "1:0.1", "2:0~",
]  # fmt: skip


def test_versions_are_ordered_as_dpkg_orders_them():
    for one, other in itertools.pairwise(ASCENDING):
        assert debian.key(one) < debian.key(other), (one, other)
    for one, other in (("1.0", "1.00"), ("0:1.0", "1.0"), ("1.0-0", "1.0"), ("1.a0", "1.a")):
        assert debian.key(one) == debian.key(other)
