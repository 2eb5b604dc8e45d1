"""Files and folders that are complete or not there, whatever ends the process that writes them."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pytorch_bridge as pb
from pytorch_bridge.link.cache import Cache
from pytorch_bridge.native import atomic_files
from pytorch_bridge.packages.go_package import folder

# Forks a writer again and again and kills it at a random moment. What is there is always of one
# version, and the next writer leaves nothing but that.
KILLING = """
import os, random, signal, sys, time
from pathlib import Path
sys.path[:0] = [{tests!r}]
from test_replacing import CASES

write, check = CASES[{case!r}]
place = Path({place!r})
write(place, 0)
random.seed(1)
between = 0
for round in range(50 * {rounds}):
    # Where the machine is busy, a writer may get no time before it is killed.
    if round >= {rounds} and between:
        break
    child = os.fork()
    if child == 0:
        version = 1000 * round
        while True:
            version += 1
            write(place, version)
    time.sleep(random.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    left = [n for _, folders, files in os.walk(place) for n in folders + files if ".part" in n]
    between += bool(left)
    check(place)
    if round % 5 == 0:
        write(place, -1)
        left = [n for _, folders, files in os.walk(place) for n in folders + files if ".part" in n]
        assert not left, left
assert between > 0, "no writer was killed in the middle"
print("killed in the middle", between)
"""


def write_file(place, version):
    with atomic_files.file(place / "data") as part:
        part.write_text(f"{version}\n" * 20_000)


def check_file(place):
    assert len(set((place / "data").read_text().splitlines())) == 1
    assert len((place / "data").read_text().splitlines()) == 20_000


def _files(version):
    head = f"{folder.GENERATED}{version}\n".encode()
    return {f"f{i}.go": head for i in range(8)} | {"testdata/g.go": head}


def write_folder(place, version):
    target = place / "net"
    new = not target.exists()
    folder.write(target, _files(version))
    if new:
        (target / "mine").write_text("the user's")


def check_folder(place):
    target = place / "net"
    found = {str(p.relative_to(target)): p.read_bytes() for p in target.rglob("*") if p.is_file()}
    assert found.pop("mine") == b"the user's"
    assert found.keys() == _files(0).keys()
    assert len(set(found.values())) == 1


def write_folder_in_two_steps(place, version):
    """As on a file system that cannot exchange two folders."""
    atomic_files._exchange = lambda a, b: False
    write_folder(place, version)


def check_folder_in_two_steps(place):
    # The old one may have been moved away; the next writer puts it back first.
    if (place / "net").exists():
        check_folder(place)
    write_folder(place, -2)
    check_folder(place)


class Copying:
    """A compiler whose library is the source."""

    source_suffix, library_suffix = ".c", ".so"

    def run(self, source, library, depends):
        library.write_bytes(source.read_bytes())
        depends.write_text("library:\n")


def _in_cache(place, key):
    return Cache(place).library(f"{key}\n" * 20_000, [str(key)], Copying())


def write_cache(place, version):
    for key in range(3) if version < 0 else [version % 3]:
        _in_cache(place, key)
    if version >= 0:  # so that there is something to do
        for record in place.glob("*/*.json"):
            record.unlink(missing_ok=True)


def check_cache(place):
    for key in range(3):
        assert _in_cache(place, key).read_text() == f"{key}\n" * 20_000


CASES = {
    "file": (write_file, check_file),
    "folder": (write_folder, check_folder),
    "folder in two steps": (write_folder_in_two_steps, check_folder_in_two_steps),
    "cache": (write_cache, check_cache),
}


@pytest.mark.parametrize("case", CASES)
def test_killed_at_any_moment(case, tmp_path):
    program = KILLING.format(
        tests=os.path.dirname(__file__), case=case, place=str(tmp_path), rounds=40
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("killed in the middle")


def test_what_lives_is_left_alone(tmp_path):
    with atomic_files.file(tmp_path / "a") as outer:
        with atomic_files.file(tmp_path / "a") as inner:
            inner.write_text("inner")
        assert outer.exists()
        outer.write_text("outer")
    assert (tmp_path / "a").read_text() == "outer"
    with atomic_files.folder_beside(tmp_path / "d", pytest.fail) as outer:
        with atomic_files.folder_beside(tmp_path / "d", pytest.fail) as inner:
            assert outer != inner
        assert outer.exists()
        assert not inner.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_what_may_be_another_machines_stays_for_a_day(tmp_path):
    mark = "ffffffff-0123456789abcdef.part"
    part, aside = tmp_path / f"gotorch-{mark}", tmp_path / f".net.{mark}"
    mine, others = tmp_path / f"my-gotorch-{mark}", tmp_path / f".other.{mark}"
    for path in (part, mine):
        path.write_text("half")
    for path in (aside, others):
        path.mkdir()

    def write():
        write_file(tmp_path, 0)
        folder.write(tmp_path / "net", {})
        return {p for p in (part, aside, mine, others) if p.exists()}

    assert write() == {part, aside, mine, others}
    for path in (part, aside, mine, others):
        os.utime(path, (0, time.time() - 25 * 60 * 60))
    assert write() == {mine, others}


def test_links_are_followed_and_permissions_stay(tmp_path):
    target, link = tmp_path / "folder/target", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("old")
    target.chmod(0o440)
    link.symlink_to("folder/target")
    with atomic_files.file(link) as part:
        assert part.parent == target.parent
        assert stat.S_IMODE(part.stat().st_mode) == 0o640  # from the start
        part.write_text("new")
    assert os.readlink(link) == "folder/target"
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("new", 0o440)
    with atomic_files.file(link, 0o604) as part:
        part.write_text("newer")
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("newer", 0o604)
    link.unlink()
    link.symlink_to("folder/none")
    with atomic_files.file(link) as part:
        part.write_text("made")
    assert (target.parent / "none").read_text() == link.read_text() == "made"
    assert sorted(os.listdir(target.parent)) == ["none", "target"]


def test_what_is_no_file_is_written_to_or_refused(tmp_path):
    refused = pytest.raises(IsADirectoryError, match=re.escape(str(tmp_path)))
    with refused, atomic_files.file(tmp_path):
        pytest.fail("it is a folder")
    with atomic_files.file(Path(os.devnull)) as part:
        part.write_text("gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with atomic_files.file(pipe) as part:
            part.write_text("through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert os.listdir(tmp_path) == ["pipe"]


def test_failing_leaves_the_old_file(tmp_path):
    write_file(tmp_path, 1)

    def interrupted():
        with atomic_files.file(tmp_path / "data") as part:
            part.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    check_file(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["data"]
    with pytest.raises(FileNotFoundError), atomic_files.file(tmp_path / "no/such/folder"):
        pytest.fail("there is no such folder")
    (tmp_path / "data").unlink()
    umask = os.umask(0o027)
    try:
        write_file(tmp_path, 2)
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) & 0o027 == 0


def test_killed_while_the_old_folder_is_away(tmp_path):
    write_folder(tmp_path, 1)
    program = f"""
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{os.path.dirname(__file__)!r}]
import test_replacing

rename = Path.rename
def dying(path, to):
    if path.name == "new":
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(path, to)

Path.rename = dying
test_replacing.write_folder_in_two_steps(Path({str(tmp_path)!r}), 2)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "net").exists()
    folder.write(tmp_path / "net", _files(3))
    check_folder(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["net"]


def test_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    place = tmp_path / "a/b/net"
    synced = []

    def fsync(fd):
        synced.append((os.readlink(f"/proc/self/fd/{fd}"), place.exists() and os.listdir(place)))

    monkeypatch.setattr(os, "fsync", fsync)
    folder.write(place, _files(0))
    (place / "deep/er").mkdir(parents=True)
    first = [p for p, there in synced if not there]
    assert {os.path.relpath(p, first[-1]) for p in first} == {*_files(0), "testdata", "."}
    # What names it, up to what was there already.
    assert [p for p, there in synced if there] == [
        str(place.parent),
        f"{tmp_path}/a",
        f"{tmp_path}",
    ]

    # The user's folders are made anew around files that are linked.
    synced.clear()
    folder.write(place, {"f0.go": _files(0)["f0.go"]})
    names = [p.partition(".part/")[2] for p, _ in synced if ".part/" in p]
    assert names.index("new/f0.go") < names.index("new")
    assert names.index("new/deep/er") < names.index("new/deep") < names.index("new")


def test_where_a_file_system_is_mounted(tmp_path, monkeypatch):
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path)
    with pytest.raises(folder.ExportError, match=r"is mounted at .* give a folder in it"):
        folder.write(tmp_path, _files(0))
    folder.write(tmp_path / "1", _files(0))
    assert [p.name for p in tmp_path.iterdir()] == ["1"]


def test_where_the_current_folder_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    folder.write(tmp_path / "net", _files(0))
    assert (tmp_path / "net/f0.go").exists()
    for export in (pb.export_model, pb.export_go):
        with pytest.raises(pb.ExportError, match="give an absolute path"):
            export(([], []), "net")


def test_links_in_a_circle_are_no_folder(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(folder.ExportError, match=r"export_go: .* cannot be written"):
        folder.write(tmp_path / "a/net", _files(0))
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
