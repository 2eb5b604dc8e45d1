"""The cache of compiled graphs: what is found again, what is compiled again, and who may die."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from doubles import Binary, Double, add, compiled, double, graph

from pytorch_bridge.errors import CompileError
from pytorch_bridge.link import c_linker, cache
from pytorch_bridge.link.c_linker import CacheVersionWarning, CLinker
from pytorch_bridge.native.artifacts import dependencies
from pytorch_bridge.native.toolchain import ROOT


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("GOTORCH_CACHE", str(tmp_path))
    return tmp_path


def libraries(folder):
    return sorted(p.name for p in folder.glob("*/*.so"))


def sum_of_two(op=add, type_=double, names=("x", "y")):
    x, y = (type_(n) for n in names)
    return [x, y], [op(x, y)]


def python(code, *arguments, stdin=None, **env):
    """Starts a process in which the tests' modules can be imported."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdin=stdin,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


# A cache is tried without torch, which takes seconds to import: with the library, not a call.
LINK = """
import sys
from doubles import *
from pytorch_bridge.link import cache
x, y, z = double("x"), double("y"), double("z")
library = CLinker(graph([x, y, z], [mul(add(x, y), z)])).library()
assert "torch" not in sys.modules
print(library.path, cache.cache().compiled)
"""


def test_a_graph_is_compiled_once_and_names_do_not_matter(folder):
    assert compiled(*sum_of_two())(1.0, 2.0) == 3.0
    assert compiled(*sum_of_two())(2.0, 3.0) == 5.0
    assert compiled(*sum_of_two(names=("a", None)))(2.0, 3.0) == 5.0
    assert cache.cache().compiled == len(libraries(folder)) == 1
    (source,) = folder.glob("*/*.c")
    assert "V3 = V1 + V2;" in source.read_text()


def test_a15_a_new_version_compiles_again(folder):
    class Versioned(Binary):
        version = (1,)

        def c_code_cache_version(self):
            return self.version

    op = Versioned("versioned", "+")
    for version, count in [((1,), 1), ((2,), 2), ((1,), 2), (("a", 1), 3)]:
        op.version = version
        compiled(*sum_of_two(op))
        assert len(libraries(folder)) == count


def test_a15_no_version_compiles_once_per_process_and_warns_once(folder, monkeypatch):
    monkeypatch.setattr(c_linker, "_warned", set())

    class NoVersion(Binary):
        def c_code_cache_version(self):
            return ()

    first, second = NoVersion("first", "+"), NoVersion("second", "*")
    with pytest.warns(CacheVersionWarning, match=r"^first \(NoVersion\): no c_code_cache_version"):
        compiled(*sum_of_two(first))
    before = cache.own_cache().compiled
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(*sum_of_two(first))
        assert cache.own_cache().compiled == before
        compiled(*sum_of_two(second))
        assert cache.own_cache().compiled == before + 1
    assert libraries(folder) == []
    assert cache.own_cache().root.is_dir()


OWN = """
import sys
from pytorch_bridge.link import cache
print(cache.own_cache().root, flush=True)
sys.stdin.read()
"""


def test_the_own_cache_of_a_killed_process_goes_when_the_next_one_makes_its_own(tmp_path):
    def start():
        process = python(OWN, TMPDIR=str(tmp_path), stdin=subprocess.PIPE)
        return process, Path(process.stdout.readline().strip())

    killed, left = start()
    running, used = start()
    killed.kill()
    killed.communicate()
    for old in [left, used]:  # a new one may not be locked yet
        os.utime(old, (0, 0))
    young = tmp_path / "pytorch_bridge-young"
    young.mkdir()
    (tmp_path / "pytorch_bridge-link").symlink_to(tmp_path / "other")
    (tmp_path / "other").mkdir()
    last, own = start()
    assert sorted(tmp_path.iterdir()) == sorted(
        [used, young, tmp_path / "pytorch_bridge-link", tmp_path / "other", own]
    )
    for process in [running, last]:
        process.communicate()  # they end by themselves, and remove what is theirs
        assert process.returncode == 0
    assert not used.exists()
    assert not own.exists()


def test_the_own_cache_of_a_process_lives_as_long_as_what_it_forked(tmp_path):
    code = """
import os, signal, sys
from pytorch_bridge.link import cache
root = cache.own_cache().root
child = os.fork()
if child == 0:
    signal.pause()
print(root, child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    parent = python(code, TMPDIR=str(tmp_path))
    root, child = parent.stdout.readline().split()
    parent.wait()
    os.utime(root, (0, 0))
    cache._sweep(tmp_path)
    assert Path(root).is_dir()
    os.kill(int(child), signal.SIGKILL)
    parent.communicate()  # to the child's end
    cache._sweep(tmp_path)
    assert not Path(root).exists()


def test_an_own_cache_that_was_swept_all_the_same_is_made_again(tmp_path):
    """As that of a process which has closed all its files, as demons do, and its lock with them."""
    code = """
import os, warnings
warnings.simplefilter("ignore")
from doubles import *
from pytorch_bridge.link import cache
root = cache.own_cache().root
os.closerange(3, 1024)
os.utime(root, (0, 0))
cache._sweep(root.parent)
assert not root.exists()
x = Double()("x")
assert os.path.exists(CLinker(graph([x], [x])).library().path)
assert cache.own_cache().root == root
"""
    done = python(code, TMPDIR=str(tmp_path))
    _, err = done.communicate()
    assert done.returncode == 0, err
    assert list(tmp_path.glob("pytorch_bridge-*")) == []


@pytest.fixture
def no_own_cache(tmp_path, monkeypatch):
    """As in a process that has none yet, with an empty folder for temporary files."""
    monkeypatch.setattr(cache, "_own", {})
    monkeypatch.setattr(cache.atexit, "register", lambda *_: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_threads_have_one_own_cache(no_own_cache, tmp_path, monkeypatch):
    made, all_made = cache._made, threading.Barrier(4)

    def together(parent):
        folder = made(parent)
        all_made.wait()
        return folder

    monkeypatch.setattr(cache, "_made", together)
    with ThreadPoolExecutor(4) as pool:
        caches = {id(c.result()) for c in [pool.submit(cache.own_cache) for _ in range(4)]}
    assert len(caches) == len(list(tmp_path.iterdir())) == 1


def test_an_own_cache_that_is_swept_before_it_is_locked_is_made_elsewhere(
    no_own_cache, tmp_path, monkeypatch
):
    make, made = tempfile.mkdtemp, []

    def swept(**arguments):
        folder = make(**arguments)
        made.append(folder)
        if len(made) == 1:
            os.rmdir(folder)
        elif len(made) == 2:  # somebody is about to
            monkeypatch.setattr(cache, "sweeper", os.open(folder, os.O_RDONLY), raising=False)
            fcntl.flock(cache.sweeper, fcntl.LOCK_EX)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", swept)
    assert str(cache.own_cache().root) == made[2]
    os.close(cache.sweeper)


def test_where_no_own_cache_can_be_is_a_compile_error(no_own_cache, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for place in ["gone", "file"]:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / place))
        with pytest.raises(CompileError, match=rf"{place}, cannot be written.*set TMPDIR"):
            cache.own_cache()
    odd = os.fsdecode(bytes(tmp_path) + b"/caf\xe9")
    os.mkdir(odd)
    monkeypatch.setattr(tempfile, "tempdir", odd)
    linker = CLinker(graph(*sum_of_two()))
    with pytest.raises(CompileError, match=r"caf\\xe9.*not UTF-8: set TMPDIR"):
        cache.own_cache().library("int x;", ["x"], linker.build())
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "gone")])
    cache._own.clear()
    with pytest.raises(CompileError, match=r"No usable temporary directory.*set TMPDIR"):
        cache.own_cache()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_does_not_look_into_others_caches(tmp_path):
    left = tmp_path / "pytorch_bridge-others"
    left.mkdir()
    os.chown(left, 12345, -1)
    os.utime(left, (0, 0))
    cache._sweep(tmp_path)
    assert left.is_dir()


def test_a15_the_version_of_a_node_counts_in_place_of_the_ops(folder):
    class ByNode(Binary):
        def c_code_cache_version(self):
            return ()

        def c_code_cache_version_apply(self, node):
            return (1,)

    compiled(*sum_of_two(ByNode("by_node", "+")))
    assert len(libraries(folder)) == 1


def test_a_type_without_a_version_is_named(folder, monkeypatch):
    monkeypatch.setattr(c_linker, "_warned", set())
    type_ = Double()
    with pytest.warns(CacheVersionWarning, match="Double: no c_code_cache_version"):
        compiled(*sum_of_two(Binary("add", "+", type_), type_))
    assert libraries(folder) == []


def test_the_cache_of_a_process_ends_with_it(folder):
    code = """
import warnings
warnings.simplefilter("ignore")
from doubles import *
from pytorch_bridge.link import cache
x = Double()("x")
print(CLinker(graph([x], [x])).library().path)
"""
    done = python(code, GOTORCH_CACHE=str(folder))
    out, err = done.communicate()
    assert done.returncode == 0, err
    assert out.strip().endswith(".so")
    assert not Path(out.strip()).exists()


def test_a_changed_header_compiles_again(folder, tmp_path):
    include = tmp_path / "include"
    include.mkdir()
    header = include / "factor.h"

    class Scaled(Binary):
        def c_headers(self):
            return ['"factor.h"']

        def c_header_dirs(self):
            return [str(include)]

        def c_code(self, node, name, inputs, outputs, sub):
            return f"{outputs[0]} = FACTOR * {inputs[0]};"

    op = Scaled("scaled", "+")
    for text, expected, count in [
        ("#define FACTOR 2", 4.0, 1),
        ("#define FACTOR 30", 60.0, 2),
        ("#define FACTOR 2", 4.0, 2),
    ]:
        header.write_text(text)
        cache._caches.pop(folder, None)  # as another process has it
        assert compiled(*sum_of_two(op))(2.0, 1.0) == expected
        assert len(libraries(folder)) == count


def test_dependencies_in_folders_of_any_name(tmp_path):
    odd = tmp_path / "o'b \"#1 $2\\ \\\\ é:"
    odd.mkdir()
    (odd / "a.h").write_text("")
    (odd / "a.c").write_text('#include "a.h"\n')
    made = tmp_path / "a.d"
    subprocess.run(["cc", "-MM", "-MF", made, "-MT", "it", odd / "a.c"], check=True)
    assert dependencies(made) == [str(odd / "a.c"), str(odd / "a.h")]


def test_a_cache_in_a_folder_of_any_name(tmp_path, monkeypatch):
    monkeypatch.setenv("GOTORCH_CACHE", str(tmp_path / "o'brien \" #1"))
    assert compiled(*sum_of_two())(1.0, 2.0) == 3.0
    monkeypatch.setenv("GOTORCH_CACHE", os.fsdecode(bytes(tmp_path) + b"/caf\xe9"))
    with pytest.raises(CompileError, match=r"caf\\xe9', which is not UTF-8.*GOTORCH_CACHE"):
        compiled(*sum_of_two())


def test_names_in_comments_that_the_locale_has_not(folder):
    code = LINK.replace('double("x")', 'double("\\u65e5\\ud800")')
    done = python(
        code, GOTORCH_CACHE=str(folder), LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
    )
    out, err = done.communicate()
    assert done.returncode == 0, err
    assert out.split()[1] == "1"


def test_arguments_compiler_and_constants_in_the_code_are_in_the_key(folder):
    linker = CLinker(graph(*sum_of_two()))

    def identity(linker):
        return tuple(linker.build().identity())

    plain = identity(linker)

    class Tuned(Binary):
        def c_compile_args(self):
            return ["-march=native"]

    tuned = identity(CLinker(graph(*sum_of_two(Tuned("tuned", "+")))))
    assert plain != tuned
    assert any("flags" in word or "Features" in word for word in tuned)  # of this processor


def test_a_broken_or_incomplete_entry_is_made_again(folder):
    compiled(*sum_of_two())
    (record,) = folder.glob("*/*.json")
    whole = record.read_text()
    (library,) = folder.glob("*/*.so")
    for damage in [
        lambda: record.write_text(whole[:20]),
        lambda: record.write_text("[]"),
        lambda: record.unlink(),
        lambda: library.unlink(),
        lambda: os.truncate(library, 1000),  # a loader that maps it dies of SIGBUS
        lambda: os.truncate(library, 0),
        lambda: library.write_bytes(bytes([b ^ 0x55 for b in library.read_bytes()])),
        lambda: library.write_bytes(flipped(library)),
        lambda: library.chmod(0o777),
        lambda: record.chmod(0o666),
    ]:
        damage()
        for other_process in (False, True):
            if other_process:
                cache._caches.pop(folder, None)
            assert compiled(*sum_of_two())(1.0, 2.0) == 3.0
            assert stat.S_IMODE(library.stat().st_mode) == 0o755
        assert record.read_text() == whole
        assert not stat.S_IMODE(record.stat().st_mode) & 0o022


def flipped(library):
    """A library with one bit changed."""
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    return bytes(data)


@pytest.mark.parametrize("where", ["", "*"])
def test_a_folder_that_others_can_write_in_is_refused(folder, where):
    compiled(*sum_of_two())
    (path,) = folder.glob(where) if where else [folder]
    path.chmod(0o777)
    with pytest.raises(CompileError, match=r"other users.*drwxrwxrwx.*chmod go-w .*GOTORCH_CACHE"):
        compiled(*sum_of_two())
    path.chmod(0o755)
    assert compiled(*sum_of_two())(1.0, 2.0) == 3.0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_another_user_is_refused(folder):
    os.chown(folder, 12345, -1)
    with pytest.raises(CompileError, match=r"another user.*number 12345.*Set GOTORCH_CACHE"):
        compiled(*sum_of_two())


def test_a_compiler_that_is_no_command(folder, monkeypatch):
    monkeypatch.setenv("CC", "cc 'x")
    with pytest.raises(CompileError, match='"cc \'x" is no command: No closing quotation'):
        compiled(*sum_of_two())


def test_what_is_made_is_ours_alone_whatever_the_umask(folder):
    before = os.umask(0)
    try:
        monkey = folder / "new"
        cache.Cache(monkey).library("int x;", ["x"], CLinker(graph(*sum_of_two())).build())
    finally:
        os.umask(before)
    for path in [monkey, *monkey.rglob("*")]:
        if path.suffix != ".lock":
            assert not path.stat().st_mode & 0o022, path


def test_a_full_disk_is_a_compile_error_and_leaves_nothing(folder):
    """A limit on the size of files stands for the disk: a write fails in the middle."""
    code = """
import resource
from doubles import *
x, y, z = double("x"), double("y"), double("z")
linker = CLinker(graph([x, y, z], [mul(add(x, y), z)]))
for size in (0, 1000, 6000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        linker.library()
    except Exception as err:
        print(type(err).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(linker.library().path)
"""
    done = python(code, GOTORCH_CACHE=str(folder))
    out, err = done.communicate()
    assert done.returncode == 0, err
    assert out.split()[:3] == ["CompileError"] * 3
    assert len(libraries(folder)) == 1
    assert not list(folder.glob("*/*part-*"))


def test_a_cache_that_cannot_be_written_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GOTORCH_CACHE", str(tmp_path / "file/cache"))
    with pytest.raises(CompileError, match=r"cannot be written.*set GOTORCH_CACHE"):
        compiled(*sum_of_two())


def test_the_key_does_not_depend_on_the_hash_seed(folder):
    found = []
    for seed in ("0", "1", "12345", "random"):
        done = python(LINK, GOTORCH_CACHE=str(folder), PYTHONHASHSEED=seed)
        out, err = done.communicate()
        assert done.returncode == 0, err
        found.append(out.split())
    assert {path for path, _ in found} == {found[0][0]}
    assert [int(compiled) for _, compiled in found] == [1, 0, 0, 0]


def test_thirty_processes_on_an_empty_cache(folder):
    processes = [python(LINK, GOTORCH_CACHE=str(folder)) for _ in range(30)]
    outputs = [p.communicate() for p in processes]
    assert [p.returncode for p in processes] == [0] * 30, [err for _, err in outputs]
    assert len({out.split()[0] for out, _ in outputs}) == 1
    assert sum(int(out.split()[1]) for out, _ in outputs) == 1
    assert len(libraries(folder)) == 1
    assert not list(folder.glob("*/*.part-*"))


SLOW_COMPILER = """#!/bin/sh
case "$*" in *--version*) exec cc --version;; esac
cc "$@" || exit
mkdir "{folder}/slept" 2>/dev/null && sleep 60
exit 0
"""


def test_kill_in_the_middle_of_a_compile_harms_nobody(folder):
    """The compiler has written the library when its process is killed; another one waits."""
    compiler = folder / "slowcc"
    compiler.write_text(SLOW_COMPILER.format(folder=folder))
    compiler.chmod(0o755)
    victim = python(LINK, GOTORCH_CACHE=str(folder), CC=str(compiler))
    deadline = time.monotonic() + 600
    while not (folder / "slept").exists():
        assert victim.poll() is None, victim.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    waiting = python(LINK, GOTORCH_CACHE=str(folder), CC=str(compiler))
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(1)
    os.killpg(victim.pid, signal.SIGKILL)
    victim.communicate()
    out, err = waiting.communicate(timeout=600)
    assert waiting.returncode == 0, err
    path, compiled_now = out.split()
    assert compiled_now == "1"
    assert [Path(path).name] == libraries(folder)
    assert not list(folder.glob("*/*.part-*"))


def test_a_lock_ends_with_its_block_also_where_a_process_was_forked(folder):
    """A thread compiles while another forks a worker, which asks for the same graph."""
    code = """
import fcntl, os, sys
from pathlib import Path
from pytorch_bridge.native.artifacts import locked
end, mine = os.pipe()
path = Path(sys.argv[1]) / "it.lock"
with locked(path):
    child = os.fork()
    if child == 0:
        os.close(mine)
        os._exit(len(os.read(end, 1)))  # when its parent is gone
with path.open() as file:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""
    done = python(code, str(folder))
    _, err = done.communicate()
    assert done.returncode == 0, err


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "null", "[]", '{"library": 1}', "\xff"])
def test_a_record_that_is_none_is_as_good_as_gone(tmp_path, text):
    record = tmp_path / "key.json"
    record.write_bytes(text.encode("latin-1"))
    assert cache._read(record) is None
