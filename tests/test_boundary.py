"""The Python extension: tensors become handles and handles tensors, and nothing is copied or lost."""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest
import torch

from pytorch_bridge.native import toolchain
from pytorch_bridge.testing.gotests import ensure_library


@functools.cache
def boundary() -> types.ModuleType:
    """Imported when the first test runs, because that may compile it."""
    ensure_library()
    return importlib.import_module("pytorch_bridge.native.extension")


def to_handle(*args):
    return boundary().to_handle(*args)


def from_handle(*args):
    return boundary().from_handle(*args)


def borrow(*args):
    return boundary().borrow(*args)


def peek_handle(*args):
    return boundary().peek_handle(*args)


def free_handle(*args):
    return boundary().free_handle(*args)


def live_handles():
    return boundary().live_handles()


pytestmark = pytest.mark.smoke


@pytest.fixture(autouse=True)
def no_handle_is_left():
    before = live_handles()  # of other test files, which may free some meanwhile
    yield
    assert live_handles() <= before


def storage_use_count(t):
    return torch._C._storage_Use_Count(t.untyped_storage()._cdata)


def test_the_object_that_comes_back_is_the_one_that_went():
    t = torch.arange(6.0).reshape(2, 3)
    t.note = "mine"
    uses, storage_uses = t._use_count(), storage_use_count(t)
    h = to_handle(t)
    assert t._use_count() == uses + 1
    assert storage_use_count(t) == storage_uses
    assert peek_handle(h) is t
    assert from_handle(h) is t
    assert t._use_count() == uses


def test_no_copy_after_python_has_dropped_the_tensor():
    t = torch.arange(6.0).reshape(2, 3).t()
    address = t.data_ptr()
    h = to_handle(t)
    del t
    back = from_handle(h)
    assert back.data_ptr() == address
    assert back.stride() == (1, 3)
    assert back.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_the_object_survives_in_the_handle():
    t = torch.nn.Parameter(torch.ones(2))
    t.note = "mine"
    h = to_handle(t)
    del t
    gc.collect()
    back = from_handle(h)
    assert type(back) is torch.nn.Parameter
    assert back.note == "mine"
    assert back.requires_grad


def test_subclasses_and_the_graph_are_kept():
    class Mine(torch.Tensor):
        pass

    mine = torch.ones(2).as_subclass(Mine)
    assert type(from_handle(to_handle(mine))) is Mine
    leaf = torch.ones(3, requires_grad=True)
    made = leaf * 2
    h = to_handle(made)
    del made
    back = from_handle(h)
    assert back.grad_fn.name() == "MulBackward0"
    back.sum().backward()
    assert leaf.grad.tolist() == [2, 2, 2]


def test_none_is_zero():
    assert to_handle(None) == borrow(None) == 0
    assert from_handle(0) is None
    assert peek_handle(0) is None
    free_handle(0)


def test_a_borrowed_handle_owns_nothing():
    t = torch.ones(2)
    uses = t._use_count()
    h = borrow(t)
    assert t._use_count() == uses
    assert peek_handle(h) is t
    second = to_handle(t)
    assert second == h
    free_handle(second)


def test_c_can_use_and_free_a_handle(library):
    c = ctypes.CDLL(str(library.library))
    t = torch.tensor([-1.0, 2.0])
    out = ctypes.c_void_p()
    assert c.cgotorch_ReLU(ctypes.c_void_p(borrow(t)), ctypes.byref(out)) == 0
    assert from_handle(out.value).tolist() == [0, 2]
    h = to_handle(t)
    alive = torch._C._WeakTensorRef(t)
    del t
    c.cgotorch_FreeTensor(ctypes.c_void_p(h))  # without the GIL
    gc.collect()
    assert alive.expired()


def test_reference_counts_stay_flat():
    t = torch.ones(2, 2)
    uses, objects = t._use_count(), sys.getrefcount(t)
    for _ in range(100_000):
        h = to_handle(t)
        peek_handle(h)
        borrow(t)
        from_handle(h)
        free_handle(to_handle(t))
    assert t._use_count() == uses
    assert sys.getrefcount(t) == objects
    for wrong in (3, "x"):
        references = sys.getrefcount(wrong)
        for _ in range(1000):
            with pytest.raises(TypeError):
                to_handle(wrong)
        assert abs(sys.getrefcount(wrong) - references) < 100


def test_memory_is_returned():
    def rounds(n):
        for _ in range(n):
            from_handle(to_handle(torch.empty(1 << 20)))

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    rounds(20)
    before = resident()
    rounds(200)  # 800 MB
    assert resident() - before < 64 << 20


def test_threads():
    t = torch.ones(4)
    uses = t._use_count()
    wrong = []

    def work():
        for _ in range(20_000):
            if from_handle(to_handle(t)) is not t:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert t._use_count() == uses


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: to_handle(3), TypeError, "to_handle() needs a torch.Tensor or None, not int"),
        (lambda: to_handle([torch.ones(1)]), TypeError, "or None, not list"),
        (lambda: to_handle(torch.Tensor), TypeError, "not _TensorMeta"),
        (lambda: borrow("x"), TypeError, "borrow() needs a torch.Tensor or None, not str"),
        (lambda: from_handle("x"), TypeError, "from_handle() needs a handle, an int, not str"),
        (lambda: from_handle(None), TypeError, "an int, not NoneType"),
        (lambda: from_handle(1.0), TypeError, "an int, not float"),
        (lambda: from_handle(True), TypeError, "an int, not bool"),
        (lambda: from_handle(torch.ones(1)), TypeError, "an int, not Tensor"),
        (lambda: from_handle(3), ValueError, "from_handle(): 3 is no handle"),
        (lambda: from_handle(-8), ValueError, "-8 is no handle"),
        (lambda: peek_handle(1 << 64), ValueError, "18446744073709551616 is no handle"),
        (lambda: free_handle("x"), TypeError, "free_handle() needs a handle, an int, not str"),
        (lambda: to_handle(), TypeError, "to_handle"),
        (lambda: to_handle(torch.ones(1), 2), TypeError, "to_handle"),
    ],
)
def test_wrong_objects_are_typed_errors(call, error, said):
    with pytest.raises(error) as raised:
        call()
    assert said in str(raised.value)


def test_an_import_compiles_nothing_that_is_there():
    loaded = Path(sys.modules["pytorch_bridge.native.extension._compiled"].__file__)
    made = loaded.stat()
    assert boundary().compiling.ensure() == loaded
    assert loaded.stat().st_mtime_ns == made.st_mtime_ns


def test_without_the_library_the_import_says_what_to_type(tmp_path):
    env = {"GOTORCH_BUILD_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", "import pytorch_bridge.native.extension"],
        cwd=toolchain.ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-2:]
    assert last[0].startswith("ImportError: The extension of pytorch_bridge cannot be built:")
    assert last[1].endswith("type: make build")


def test_environments_that_share_a_checkout_have_an_extension_each(monkeypatch):
    compiling = boundary().compiling
    out, torch_here = toolchain.build_dir(), toolchain.find_torch()
    first = compiling.ensure()
    made = []

    def run(build):
        made.append(build.settings.library)
        build.settings.library.write_bytes(b"")

    monkeypatch.setattr(compiling.ExtensionBuild, "run", run)
    monkeypatch.setattr(sys, "prefix", "/another/environment")
    try:
        for _ in range(2):
            second = compiling.ensure()
        assert made == [second]
        assert second == compiling.library(out, torch_here) != first
    finally:
        for path in [second, second.with_suffix(".made-from.json")]:
            path.unlink(missing_ok=True)
    monkeypatch.undo()
    assert compiling.ensure() == first
