"""What is included, where it goes, and the forms that a bundle is written in."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from linking import run

from pytorch_bridge.errors import BundleError
from pytorch_bridge.packages.bundle import archive, contents, origin
from pytorch_bridge.packages.bundle.contents import Contents, File
from pytorch_bridge.packages.bundle.origin import Origin


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/a").mkdir(parents=True)
    (tmp_path / "models/a/w.safetensors").write_text("w")
    (tmp_path / "models/run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "models/run.sh").chmod(0o700)
    (tmp_path / "a=b").write_text("equal")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "path", "dest"),
    [
        ("models", "models", "models"),
        ("models/", "models", "models"),
        ("models/a/w.safetensors", "models/a/w.safetensors", "w.safetensors"),
        ("models=data/m", "models", "data/m"),
        ("models=data/", "models", "data/models"),
        ("models=./x//y/.", "models", "x/y"),
        ("a=b", "a=b", "a=b"),
        ("a=b=c", "a=b", "c"),
    ],
)
def test_a_file_goes_where_it_is_said(here, text, path, dest):
    assert contents.included(text) == (Path(path), dest)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "nothing, which is to be included, does not exist"),
        ("nothing=x", "nothing, which is to be included, does not exist"),
        ("models=", "names no place after the ="),
        ("models=..", "would be put at .., which is not within the bundle"),
        ("models=a/../../b", "which is not within the bundle"),
        ("models=/etc", "would be put at /etc"),
        ("models=/", "would be put at /"),
        ("models=.", "which is not within the bundle"),
        ("", "the bundle itself|does not exist|not within the bundle"),
    ],
)
def test_a_place_outside_is_refused(here, text, said):
    with pytest.raises(BundleError, match=said):
        gathered(here, text)


def test_a_link_that_leads_nowhere_is_refused(here):
    (here / "gone").symlink_to("nothing")
    with pytest.raises(BundleError, match="is a link that leads nowhere"):
        contents.included("gone")
    (here / "models/gone").symlink_to("nothing")
    with pytest.raises(BundleError, match="models/gone, which is to be included, cannot be read"):
        contents.include(Contents(), here / "models", "models", here / "out")


def gathered(here: Path, *texts: str) -> dict[str, File]:
    parts = Contents()
    for text in texts:
        contents.include(parts, *contents.included(text), here / "dist/app")
    return parts.files


def test_links_are_followed_so_that_a_bundle_has_none(here):
    """As those of a cache of Hugging Face, whose files are links to blobs beside their folder."""
    blob = here / "blobs/1f"
    blob.parent.mkdir()
    blob.write_text("blob")
    (here / "models/linked.bin").symlink_to("../blobs/1f")
    (here / "models/folder").symlink_to("../blobs")
    found = gathered(here, "models")
    assert found["models/linked.bin"].source == blob
    assert found["models/folder/1f"].source == blob
    assert found["models/run.sh"].executable
    assert not found["models/a/w.safetensors"].executable


@pytest.mark.parametrize("link", ["models/a/up", "models/self"])
def test_links_round_in_circles_are_refused(here, link):
    (here / link).symlink_to(here / "models")
    with pytest.raises(BundleError, match="is a link to a folder that it is in"):
        gathered(here, "models")


def test_what_is_no_file_is_refused(here):
    os.mkfifo(here / "models/pipe")
    with pytest.raises(BundleError, match="models/pipe is neither a file nor a folder"):
        gathered(here, "models")


def test_the_bundle_is_not_put_into_itself(here):
    for text in (".", str(here), "models"):
        out = here / "models/dist" if text == "models" else here / "dist/app"
        with pytest.raises(BundleError, match="has the bundle itself in it"):
            contents.include(Contents(), Path(text), "x", out)


@pytest.mark.parametrize(
    "dest",
    ["lib", "lib/x", "licenses", "bundle.json", "SHA256SUMS", "sbom.spdx.json", "build-version"],
)
def test_names_of_the_bundle_s_own_are_refused(here, dest):
    with pytest.raises(BundleError, match="is bundle's own; say --include models=OTHER"):
        gathered(here, f"models={dest}")


@pytest.mark.parametrize(
    "texts",
    [
        ("models/run.sh=x", "a=b=x"),
        ("a=b=x", "models=x"),
        ("models=x", "a=b=x"),
        ("a=b=x", "models/run.sh=x/y"),
        ("models/run.sh=x/y", "a=b=x"),
    ],
)
def test_two_things_of_one_name_are_refused(here, texts):
    with pytest.raises(BundleError, match=r"would be"):
        gathered(here, *texts)


def test_the_same_twice_is_once(here):
    assert gathered(here, "models", "models") == gathered(here, "models")


def test_a_name_that_is_no_text_is_refused(here):
    (here / os.fsdecode(b"models/\xff")).write_text("x")
    with pytest.raises(BundleError, match="no name in UTF-8"):
        gathered(here, "models")


NAMES = [
    "plain",
    "with space",
    "über/naïve ☃",
    "back\\slash",
    "new\nline",
    "x" * 120 + "/" + "y" * 120,
    "-dash",
    "*glob",
]


def written(folder: Path, umask: int, epoch: int) -> Path:
    parts = Contents()
    for i, name in enumerate(NAMES):
        parts.add(name, File(name.encode() * 100, executable=i % 2 == 0))
    parts.folders.add("empty")
    folder.mkdir()
    old = os.umask(umask)
    try:
        parts.write(folder)
    finally:
        os.umask(old)
    contents.set_dates(folder, epoch)
    return folder


def test_sums_are_those_that_sha256sum_checks(tmp_path):
    folder = written(tmp_path / "b", 0o22, 0)
    (folder / "SHA256SUMS").write_text(contents.sums_text(contents.sums(folder)))
    assert run("sha256sum", "--strict", "-c", "SHA256SUMS", cwd=folder).count(": OK") == len(NAMES)
    assert contents.listed((folder / "SHA256SUMS").read_text()) >= set(NAMES)
    (folder / "plain").write_text("other")
    assert (
        subprocess.run(
            ["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, check=False
        ).returncode
        == 1
    )


@pytest.mark.parametrize("end", [".tar", ".tar.gz", ".tgz"])
def test_a_tar_is_the_same_whoever_writes_it_and_what_is_in_it_too(tmp_path, end, monkeypatch):
    digests = set()
    for i, umask in enumerate((0o22, 0o77)):
        (tmp_path / str(i)).mkdir()
        folder = written(tmp_path / str(i) / "app", umask, 5)
        archive.write(folder, tmp_path / f"{i}{end}", 5)
        digests.add(hashlib.sha256((tmp_path / f"{i}{end}").read_bytes()).hexdigest())
    assert len(digests) == 1
    # By another tar than Python's, with what it restores.
    out = tmp_path / "out"
    out.mkdir()
    run("tar", "-xf", tmp_path / f"0{end}", "-C", out)
    assert contents.sums(out / "app") == contents.sums(tmp_path / "0/app")
    assert (out / "app/empty").is_dir()
    for _, path in contents.walk(out):
        assert path.stat().st_mtime == 5
        assert (
            path.stat().st_mode & 0o777
            == (tmp_path / "0/app" / path.relative_to(out / "app")).stat().st_mode & 0o777
        )
    with tarfile.open(tmp_path / f"0{end}") as tar:
        assert {(m.uid, m.gid, m.uname, m.gname) for m in tar} == {(0, 0, "", "")}


def test_a_tar_needs_a_name_that_says_what_it_is(tmp_path):
    with pytest.raises(BundleError, match=r"does not end in \.tar, \.tar\.gz or \.tgz"):
        archive.check(tmp_path / "app.zip")
    (tmp_path / "x.tar").mkdir()
    with pytest.raises(BundleError, match="is a folder"):
        archive.check(tmp_path / "x.tar")


@pytest.mark.parametrize(("text", "value"), [("", 0), ("0", 0), ("1700000000", 1700000000)])
def test_dates_are_those_of_source_date_epoch(monkeypatch, text, value):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    assert contents.epoch() == value


@pytest.mark.parametrize("text", ["yesterday", "-1", "1.5", "99999999999999"])
def test_another_date_is_refused(monkeypatch, text):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    with pytest.raises(BundleError, match="is no number of seconds since 1970"):
        contents.epoch()


@pytest.mark.parametrize(
    ("kind", "name", "version", "purl"),
    [
        ("pypi", "Nvidia_CUDA.x", "13.0", "pkg:pypi/nvidia-cuda.x@13.0"),
        ("golang", "example.org/Some/~m", "v1.0.0+incompatible", "pkg:golang/example.org/Some/~m@v1.0.0%2Bincompatible"),
        ("golang", "example.org/shop", "", "pkg:golang/example.org/shop"),
        ("deb", "libstdc++6", "1:2~3+4", "pkg:deb/debian/libstdc%2B%2B6@1:2~3%2B4"),
        ("rpm", "libstdc++", "1-2", "pkg:rpm/debian/libstdc%2B%2B@1-2"),
        ("file", "libown.so", "", ""),
    ],
)  # fmt: skip
def test_urls_of_packages_are_as_scanners_write_them(monkeypatch, kind, name, version, purl):
    """As packageurl-python writes them."""
    monkeypatch.setattr(origin, "_os_release", lambda: {"ID": "debian"})
    assert Origin(kind, name, version).purl == purl
