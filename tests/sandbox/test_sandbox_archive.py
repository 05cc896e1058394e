"""Archives are looked through whole before any of them is sent: whatever is let through leads nowhere else."""

from __future__ import annotations

import io
import tarfile

from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.errors import UserError
from etude.sandbox.wire import archive as archives

names = st.lists(st.sampled_from(["a", "b", "..", ".", ""]), min_size=1, max_size=5).map("/".join)
kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])


@given(st.lists(st.tuples(names, kinds, names), max_size=5))
def test_whatever_is_let_through_stays_below_its_folder(members: list[tuple[str, bytes, str]]) -> None:
    """Test 45 of the handbook."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for name, kind, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            tar.addfile(info)
    try:
        parts = archives.parts(held.getvalue(), 1000)
    except UserError:
        return
    places: dict[str, str] = {}
    for head, _ in parts:
        for name, kind, _, _, _, target in head["entries"]:
            assert name and not set(name.split("/")) & {"", ".", ".."}
            assert name not in places
            above = name.split("/")[:-1]
            assert all(places.get("/".join(above[:depth]), "dir") == "dir" for depth in range(1, len(above) + 1))
            places[name] = kind
            if kind == "link":
                assert not target.startswith("/") and target.split("/").count("..") <= len(above)


@given(st.binary(max_size=3000))
def test_random_bytes_are_an_archive_or_a_user_error(data: bytes) -> None:
    try:
        archives.parts(data, 1000)
    except UserError:
        return
