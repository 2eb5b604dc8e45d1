"""Files of tensors go both ways between Go and Python: torch.save's format and safetensors."""

from __future__ import annotations

import math
import subprocess
from collections import OrderedDict
from pathlib import Path

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pytorch_bridge.testing.gotests import run_go
from pytorch_bridge.toolchain import ROOT

DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128, torch.bool,
    torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz,
    torch.float8_e8m0fnu, torch.bits8, torch.bits16,
]  # fmt: skip


@pytest.fixture(scope="module")
def copy(library, tmp_path_factory):
    """Runs tests/files, a Go program that reads a file and writes what it holds to another."""
    program = tmp_path_factory.mktemp("bin") / "files"
    built = run_go("build", "-buildvcs=false", "-o", str(program), "./tests/files")
    assert built.returncode == 0, built.stderr

    def run(how: str, source: Path, target: Path, *, fails: bool = False) -> str:
        done = subprocess.run(
            [program, how, source, target], cwd=ROOT, capture_output=True, text=True
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stderr.strip()

    return run


def bits(dtype: torch.dtype) -> Tensor:
    raw = torch.arange(4 * dtype.itemsize, dtype=torch.uint8)
    return (raw % 2 if dtype is torch.bool else raw).view(dtype).reshape(2, 2)


def raw(t: Tensor) -> bytes:
    return bytes(t.detach().contiguous().reshape(-1).view(torch.uint8).tolist())


def assert_same(got, want):
    assert type(got) is type(want) or isinstance(want, (nn.Parameter, dict, set, torch.Size)), want
    if isinstance(want, Tensor):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert got.stride() == want.stride()
        assert got.requires_grad == want.requires_grad
        assert raw(got) == raw(want)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for key in want:
            assert_same(got[key], want[key])
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert_same(a, b)
    elif isinstance(want, float) and math.isnan(want):
        assert math.isnan(got)
    else:
        assert got == want


def through_go(copy, tmp_path: Path, value, how: str = "value"):
    source, target = tmp_path / "from.python.pt", tmp_path / "from_go.pt"
    torch.save(value, source)
    copy(how, source, target)
    return torch.load(target, weights_only=True)


@pytest.mark.smoke
def test_state_dict_of_a_module(copy, tmp_path):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(4, 3, bias=False))
    state = model.state_dict()
    for how in ("value", "tensors", "map"):
        loaded = through_go(copy, tmp_path, state, how)
        assert_same({name: loaded[name] for name in state}, dict(state))
        model.load_state_dict(loaded)


@pytest.mark.filterwarnings("ignore:.*support is experimental")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(copy, tmp_path, dtype):
    assert_same(
        through_go(copy, tmp_path, [bits(dtype), bits(dtype)[0, 0]]),
        [bits(dtype), bits(dtype)[0, 0]],
    )


def test_structure(copy, tmp_path):
    value = OrderedDict(
        ints=[0, 255, 256, 65536, -1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**64, -(3**90)],
        floats=[0.0, -0.0, 1e-300, math.inf, math.nan],
        text=["", "é😀\n\0", "x" * 300],
        none=None,
        flags=[True, False],
        complex=1 - 2j,
        bytes=b"\x00\x80\xff",
        empty=[[], (), {}],
        tuples=((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        nested={"a": {1: {"b": [torch.ones(2), {"c": ()}]}}},
        dtype=torch.bfloat16,
        devices=[torch.device("cpu"), torch.device("cuda", 3)],
        keys={1: "int", "one": "str", 1.5: "float", None: "none"},
    )
    assert_same(through_go(copy, tmp_path, value), value)
    assert through_go(copy, tmp_path, torch.Size([2, 3])) == (2, 3)
    assert sorted(through_go(copy, tmp_path, {3, 1})) == [1, 3]


@pytest.mark.filterwarnings("ignore:.*support is experimental")
def test_kinds_of_tensors(copy, tmp_path):
    x = torch.arange(24.0).reshape(2, 3, 4)
    values = [
        torch.tensor(1.5), torch.empty(0, 3), x.transpose(0, 2), x[:, 1:, ::2], x[1, 2, 3],
        torch.ones(1).expand(5), x.clone().requires_grad_(), nn.Parameter(torch.ones(2)),
        nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False),
        torch.zeros(2, 3).to(memory_format=torch.contiguous_format),
        torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last),
    ]  # fmt: skip
    for got, want in zip(through_go(copy, tmp_path, values), values, strict=True):
        assert_same(got, want.detach().requires_grad_(want.requires_grad))
    lazy = torch.tensor([1 + 2j, 3 - 4j])
    conj, neg = through_go(copy, tmp_path, [lazy.conj(), torch._neg_view(torch.ones(2))])
    assert torch.equal(conj, lazy.conj())
    assert torch.equal(neg, -torch.ones(2))
    # Of a dtype that files spell in another way.
    half = lazy.to(torch.complex32).conj()
    assert half.is_conj()
    assert torch.equal(through_go(copy, tmp_path, half).to(torch.complex64), lazy.conj())


def test_shared_memory_stays_shared(copy, tmp_path):
    w = torch.arange(6.0).reshape(2, 3)
    for how in ("value", "map"):
        a, b, c = through_go(copy, tmp_path, [w, w.t(), w[1]], how)
        a.mul_(10)
        assert torch.equal(b, a.t())
        assert torch.equal(c, a[1])
    tied = nn.Linear(3, 3)
    state = {"a": tied.weight, "b": tied.weight}
    loaded = through_go(copy, tmp_path, state)
    assert loaded["a"].data_ptr() == loaded["b"].data_ptr()


def test_optimizer_state(copy, tmp_path):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    loaded = through_go(copy, tmp_path, state)
    assert_same(loaded, state)
    optimizer.load_state_dict(loaded)


def test_tensor_with_attributes(copy, tmp_path):
    t = torch.ones(2)
    t.note = "hello"
    assert_same(through_go(copy, tmp_path, t), torch.ones(2))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_protocols(copy, tmp_path, protocol):
    value = {"w": torch.ones(2), "l": [1, 2.5, "x", (None,), b"ab", {3}, 10**30], "s": "y" * 70000}
    source, target = tmp_path / "a.pt", tmp_path / "b.pt"
    torch.save(value, source, pickle_protocol=protocol)
    copy("value", source, target)
    value["l"][5] = [3]  # Go has no sets
    assert_same(torch.load(target, weights_only=True), value)


def test_memory_mapped_in_python(copy, tmp_path):
    source, target = tmp_path / "a.pt", tmp_path / "b.pt"
    torch.save({"w": torch.arange(1000.0), "b": torch.ones(3, dtype=torch.uint8)}, source)
    copy("value", source, target)
    loaded = torch.load(target, weights_only=True, mmap=True)
    assert torch.equal(loaded["w"], torch.arange(1000.0))
    assert loaded["w"].data_ptr() % 64 == 0


class Evil:
    def __reduce__(self):
        return print, ("code ran",)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Evil(), "asks for the Python object builtins.print, which is no data"),
        (nn.Linear(1, 1), "asks for the Python object torch.nn.modules.linear.Linear"),
        (torch.eye(2).to_sparse(), "a kind that cannot be loaded (_rebuild_sparse_tensor)"),
        ({(1, 2): 3}, "a dict has a key of type"),
    ],
    ids=["code", "module", "sparse", "key"],
)
def test_more_than_data_is_refused(copy, tmp_path, value, says):
    source = tmp_path / "a.pt"
    torch.save(value, source)
    assert says in copy("value", source, tmp_path / "b.pt", fails=True)
    assert not (tmp_path / "b.pt").exists()


def test_other_formats_are_told(copy, tmp_path):
    source, target = tmp_path / "a.pt", tmp_path / "b.pt"
    torch.save(torch.ones(2), source, _use_new_zipfile_serialization=False)
    assert "before version 1.6" in copy("value", source, target, fails=True)
    torch.jit.script(nn.ReLU()).save(source)
    assert "is a TorchScript program" in copy("value", source, target, fails=True)
    save_file({"x": torch.ones(2)}, source)
    assert "read it with LoadTensors" in copy("value", source, target, fails=True)


def test_checksums(copy, tmp_path):
    source, target = tmp_path / "a.pt", tmp_path / "b.pt"
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(torch.ones(200), source)
    finally:
        torch.serialization.set_crc32_options(True)
    said = copy("value", source, target, fails=True)
    assert "checksum is wrong" in said
    copy("unchecked", source, target)
    assert_same(torch.load(target, weights_only=True), torch.ones(200))


# Safetensors ------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_safetensors_from_python(copy, tmp_path):
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    tensors = {str(d): bits(d) for d in DTYPES if d in STORED}
    tensors |= {"scalar": torch.tensor(2.5), "empty": torch.empty(0, 3), 'é"\\\n': torch.ones(1)}
    save_file(tensors, source, {"format": "pt", "é": "ü\n"})
    for how in ("safetensors", "safetensors-map"):
        copy(how, source, target)
        with safetensors.safe_open(target, "pt") as f:
            assert f.metadata() == {"format": "pt", "é": "ü\n"}
            assert_same(
                {k: f.get_tensor(k) for k in sorted(f.keys())}, dict(sorted(tensors.items()))
            )


STORED = set(DTYPES) - {torch.complex32, torch.complex128, torch.bits8, torch.bits16}


@pytest.mark.filterwarnings("ignore:.*support is experimental")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_of_safetensors(copy, tmp_path, dtype):
    source, target = tmp_path / "a.pt", tmp_path / "b.safetensors"
    torch.save({"x": bits(dtype)}, source)
    if dtype in STORED:
        copy("tensors", source, target)
        with safetensors.safe_open(target, "pt") as f:
            assert_same(f.get_tensor("x"), bits(dtype))
    else:
        with pytest.raises((KeyError, safetensors.SafetensorError)):
            save_file({"x": bits(dtype)}, target)
        assert "which a safetensors file cannot hold" in copy("tensors", source, target, fails=True)


def test_packed_float4(copy, tmp_path):
    source, target = tmp_path / "a.pt", tmp_path / "b.safetensors"
    x = torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(torch.float4_e2m1fn_x2)
    torch.save({"x": x}, source)
    copy("tensors", source, target)
    with safetensors.safe_open(target, "pt") as f:
        assert f.get_slice("x").get_shape() == [2, 6]
        got = f.get_tensor("x")
    assert got.dtype == x.dtype
    assert raw(got) == raw(x)
    copy("safetensors", target, tmp_path / "c.safetensors")
    assert target.read_bytes() == (tmp_path / "c.safetensors").read_bytes()


def test_both_write_the_same_file(copy, tmp_path):
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    tensors = {"b": torch.ones(3), "a": torch.ones(2, dtype=torch.float64), "c": torch.ones(1)}
    save_file(tensors, source, {"k": "v"})
    copy("safetensors", source, target)
    assert source.read_bytes() == target.read_bytes()


def test_go_and_python_refuse_the_same_files(copy, tmp_path):
    whole = tmp_path / "a.safetensors"
    save_file({"x": torch.ones(2), "y": torch.zeros(3)}, whole)
    data = whole.read_bytes()
    for cut in range(0, len(data), 7):
        broken = tmp_path / "broken.safetensors"
        broken.write_bytes(data[:cut])
        with pytest.raises(safetensors.SafetensorError):
            load_file(broken)
        said = copy("safetensors", broken, tmp_path / "c.safetensors", fails=True)
        assert said.startswith("LoadSafetensors: ValueError: "), said


def test_headers_from_anywhere(library, tmp_path):
    program, folder = tmp_path / "safetensors_test", ROOT / "cgotorch"
    sources = [folder / "test/safetensors_test.cc", folder / "safetensors.cc"]
    flags = ["-std=c++20", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    command = [*library.compiler.command, *flags, *map(str, sources), "-o", str(program)]
    subprocess.run(command, check=True)
    done = subprocess.run([program, "200000"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
