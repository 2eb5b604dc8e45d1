"""Files of tensors go both ways between Go and Python: torch.save's format and safetensors."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import enum
import fractions
import functools
import io
import json
import math
import os
import pickle
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import typing
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
import torch.distributed as dist
import torch.distributed.tensor as tensor_parallel
import torch.testing._internal.distributed.fake_pg
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

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


# Values of every kind, in every protocol and both formats ------------------------------------------


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Config:
    lr: float
    layers: list


class Point(typing.NamedTuple):
    x: int
    y: int


class Slotted:
    __slots__ = ("a",)

    def __init__(self):
        self.a = 1


class Evil:
    def __reduce__(self):
        return os.system, ("touch " + str(TOUCHED),)


class OwnDict(dict):
    pass


class OwnList(list):
    pass


TOUCHED = Path(tempfile.gettempdir()) / f"gotorch-test-files-{os.getpid()}"

# Objects without a type in Go, and the class that Go gives for them. Python 3.12 has paths and enums under other names.
OPAQUE = [
    (lambda r: argparse.Namespace(lr=r.random(), name="x"), "argparse.Namespace"),
    (lambda r: Config(r.random(), [1]), f"{__name__}.Config"),
    (lambda r: Point(1, r.randrange(9)), f"{__name__}.Point"),
    (lambda r: Slotted(), f"{__name__}.Slotted"),
    (lambda r: datetime.datetime(2020, 1, 1 + r.randrange(9)), "datetime.datetime"),
    (lambda r: datetime.timedelta(r.randrange(9)), "datetime.timedelta"),
    (lambda r: fractions.Fraction(r.randrange(9), 7), "fractions.Fraction"),
    (lambda r: collections.deque([1, 2], 3), "collections.deque"),
    (lambda r: functools.partial(print, 1), "functools.partial"),
    (lambda r: slice(1, 2), "builtins.slice"),
    (lambda r: range(3), "builtins.range"),
    (lambda r: OwnDict(a=1), f"{__name__}.OwnDict"),
    (lambda r: OwnList([1, 2]), f"{__name__}.OwnList"),
    (lambda r: nn.ReLU, "torch.nn.modules.activation.ReLU"),
    (lambda r: nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
    (lambda r: np.datetime64("2020-01-01"), "numpy.datetime64"),
    (lambda r: np.array(["a", "bc"]), "numpy.ndarray"),
    (lambda r: np.array([None, {}], dtype=object), "numpy.ndarray"),
    (lambda r: np.zeros(2, dtype=[("a", "f4"), ("b", "i2")]), "numpy.ndarray"),
]
if sys.version_info < (3, 12):
    OPAQUE += [
        (lambda r: Colour.RED, f"{__name__}.Colour"),
        (lambda r: Path("/a") / str(r.randrange(9)), "pathlib.PosixPath"),
    ]

NUMPY = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
FLOATS = [0.0, -0.0, 1e-320, 1.5, -2e300, math.inf, -math.inf, math.nan]
LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]


class Values:
    """Random values. opaque is whether those are among them that Go has no type for."""

    def __init__(self, seed: int, *, opaque: bool, tensors: bool):
        self.r, self.opaque, self.tensors = random.Random(seed), opaque, tensors
        self.generator = torch.Generator().manual_seed(seed)
        self.pool: list[Tensor] = []  # whose memory others share

    def text(self) -> str:
        alphabet = "aZ0\n'\"\\\0éÿ中😀\ud800\udfff \x80"
        return "".join(self.r.choices(alphabet, k=self.r.choice([0, 1, 3, 12, 300])))

    def integer(self) -> int:
        n = self.r.choice([0, 1, 7, 8, 15, 16, 31, 32, 62, 63, 64, 100, 1500])
        return self.r.choice([1, -1]) * (self.r.getrandbits(n + 1) + self.r.choice([0, 1, -1]))

    def number(self):
        return self.r.choice(
            [
                self.integer, lambda: self.r.choice(FLOATS), lambda: self.r.gauss(0, 1e3),
                lambda: self.r.choice([True, False, None]),
                lambda: complex(self.r.choice(FLOATS), self.r.choice(FLOATS)),
            ]
        )()  # fmt: skip

    def bytes(self) -> bytes:
        return self.r.randbytes(self.r.choice([0, 1, 5, 300]))

    def key(self, depth: int = 0):
        kinds = [self.text, self.text, self.integer, lambda: self.r.gauss(0, 1), self.bytes]
        kinds += [lambda: self.r.choice([None, True, 1j, torch.float16, torch.device("cpu")])]
        if depth < 2:
            kinds += [lambda: tuple(self.key(depth + 1) for _ in range(self.r.randrange(4)))]
        return self.r.choice(kinds)()

    def scalar(self):
        kind = self.r.choice(NUMPY)
        with np.errstate(all="ignore"):
            value = np.frombuffer(self.r.randbytes(np.dtype(kind).itemsize), kind)[0]
        if kind == "?":
            value = np.bool_(self.r.random() < 0.5)
        return self.r.choice([value, value, np.str_("aé中"), np.bytes_(b"a\x80")])

    def array(self):
        kind = self.r.choice(NUMPY)
        shape = [self.r.randrange(4) for _ in range(self.r.randrange(4))]
        n = math.prod(shape)
        raw = self.r.randbytes(n * np.dtype(kind).itemsize)
        x = (
            np.frombuffer(bytes(b % 2 for b in raw) if kind == "?" else raw, kind)
            .reshape(shape)
            .copy()
        )
        how = self.r.randrange(4)
        if how == 1:
            x = np.asfortranarray(x)
        elif how == 2 and x.ndim:
            x = x[::-1]
        elif how == 3 and x.dtype.itemsize > 1:
            x = x.astype(x.dtype.newbyteorder(">"))
        return x

    def dense(self) -> Tensor:
        if self.pool and self.r.random() < 0.4:
            return self.view(self.r.choice(self.pool))
        dtype = self.r.choice(DTYPES)
        shape = [self.r.randrange(4) for _ in range(self.r.randrange(4))]
        n = math.prod(shape)
        raw = torch.randint(
            0, 256, [n * dtype.itemsize], dtype=torch.uint8, generator=self.generator
        )
        x = (raw % 2 if dtype is torch.bool else raw).view(dtype).reshape(shape)
        self.pool.append(x)
        return self.view(x)

    def view(self, x: Tensor) -> Tensor:
        x = x.detach()
        for _ in range(self.r.randrange(3)):
            how = self.r.randrange(6)
            if how == 0 and x.dim() > 1:
                x = x.transpose(0, 1)
            elif how == 1 and x.dim():
                x = x[self.r.randrange(2) :]
            elif how == 2 and x.dim() and x.shape[0]:
                x = x[0]
            elif how == 3:
                x = x.expand(2, *x.shape)
            elif how == 4 and x.is_complex():
                x = x.conj()
            elif how == 5 and x.dtype in (torch.float32, torch.complex64, torch.int64):
                x = torch._neg_view(x)
        if x.dtype in (torch.float32, torch.float64, torch.complex64) and self.r.random() < 0.2:
            x = x.detach().requires_grad_()
        if x.dtype.is_floating_point and not x.is_neg() and self.r.random() < 0.1:
            x = nn.Parameter(x, requires_grad=self.r.random() < 0.5)
        return x

    def sparse(self) -> Tensor:
        layout = self.r.choice(LAYOUTS)
        x = torch.randn(
            4, 6, generator=self.generator, dtype=self.r.choice([torch.float32, torch.float64])
        )
        x = x * (torch.rand(4, 6, generator=self.generator) < 0.4)
        if layout is torch.sparse_coo:
            indices = torch.randint(0, 4, [2, 5], generator=self.generator)
            made = torch.sparse_coo_tensor(
                indices, torch.ones(5, self.r.choice([1, 2]))[:, 0], [4, 4]
            )
            return self.r.choice([x.to_sparse(), made, x.to_sparse(1)])
        if layout in (torch.sparse_bsr, torch.sparse_bsc):
            return x.to_sparse(layout=layout, blocksize=(2, 3))
        return x.to_sparse(layout=layout)

    def quantised(self) -> Tensor:
        x = torch.randn(3, 4, generator=self.generator)
        dtype = self.r.choice([torch.qint8, torch.quint8, torch.qint32])
        if self.r.random() < 0.5:
            return torch.quantize_per_tensor(
                x, self.r.random() + 0.01, self.r.randrange(5), dtype
            ).t()
        axis = self.r.randrange(2)
        n = x.shape[axis]
        if self.r.random() < 0.3:
            scales, zeros = torch.rand(n) + 0.01, torch.rand(n)
            return torch.quantize_per_channel(x, scales, zeros, axis, torch.quint8)
        scales, zeros = torch.rand(n, dtype=torch.float64) + 0.01, torch.arange(n)
        return torch.quantize_per_channel(x, scales, zeros, axis, dtype)

    def tensor(self):
        kinds = [self.dense] * 6 + [self.sparse, self.quantised]
        kinds += [lambda: torch.empty_strided((2, 3), (1, 2), device="meta", dtype=torch.float16)]
        kinds += [lambda: torch.arange(self.r.randrange(4)).storage()]
        return self.r.choice(kinds)()

    def value(self, depth: int = 0):
        kinds = [self.number, self.text, self.bytes, lambda: bytearray(self.bytes())]
        kinds += [
            lambda: self.r.choice(
                [torch.bfloat16, torch.device("cuda", 2), torch.sparse_csr, torch.Size([2, 3])]
            )
        ]
        if self.tensors:
            kinds += [self.tensor] * 5
        if self.opaque:
            kinds += [self.scalar, self.array, lambda: frozenset([self.key()])]
            kinds += [lambda: self.r.choice(OPAQUE)[0](self.r)] * 4
        if depth < 4:
            n = self.r.randrange(5)
            some = lambda: [self.value(depth + 1) for _ in range(n)]  # noqa: E731
            pairs = lambda: [(self.key(), self.value(depth + 1)) for _ in range(n)]  # noqa: E731
            kinds += [
                some,
                lambda: tuple(some()),
                lambda: dict(pairs()),
                lambda: OrderedDict(pairs()),
            ]
            # Of larger sets Python chooses the order.
            kinds += [lambda: {self.key()}, lambda: [some()] * 2]
            if self.opaque:
                kinds += [
                    lambda: collections.defaultdict(list, pairs()),
                    lambda: collections.Counter("abca"),
                ]
            if depth == 0:
                kinds = kinds[-6:]
        return self.r.choice(kinds)()


class Described:
    """Descriptions of values, in the form that tests/files has."""

    def __init__(self):
        self.storages: list[int] = []

    def __call__(self, v):
        bits = lambda f: "nan" if math.isnan(f) else struct.pack(">d", f).hex()  # noqa: E731
        if isinstance(v, np.ndarray):
            if v.dtype.kind not in "biufc":
                return ["object", "numpy.ndarray"]
            if not v.size:  # whose strides NumPy keeps in no file
                dtype = torch.from_numpy(np.zeros(1, v.dtype.newbyteorder("="))).dtype
                return self.tensor(torch.zeros(v.shape, dtype=dtype))
            native = v.astype(v.dtype.newbyteorder("="), order="C")
            if v.flags.f_contiguous and not v.flags.c_contiguous:
                last_first = range(v.ndim - 1, -1, -1)
                x = torch.from_numpy(np.ascontiguousarray(native.transpose())).permute(*last_first)
                return self.tensor(x)
            return self.tensor(torch.from_numpy(native.copy()))
        if isinstance(v, np.datetime64):
            return ["object", "numpy.datetime64"]
        if isinstance(v, np.generic):
            return self(v.item())
        if isinstance(v, torch.UntypedStorage):
            return ["storage", v.nbytes()]
        if isinstance(v, torch.storage.TypedStorage):
            return self.tensor(torch.tensor([], dtype=v.dtype).set_(v))
        if isinstance(v, Tensor):
            return self.tensor(v)
        if v is None:
            return ["none"]
        if isinstance(v, (torch.dtype, torch.layout)):
            return ["torch", str(v)]
        if isinstance(v, torch.device):
            return ["device", str(v)]
        if type(v) in (dict, OrderedDict, collections.Counter, collections.defaultdict):
            return ["dict", *([self(key), self(value)] for key, value in v.items())]
        if type(v) in (list, set, frozenset):
            return ["list", *(self(item) for item in v)]
        if type(v) in (tuple, torch.Size):
            return ["tuple", *(self(item) for item in v)]
        if type(v) in (bytes, bytearray):
            return ["bytes", v.hex()]
        if type(v) is bool:
            return ["bool", v]
        if type(v) is int:
            return ["int", str(v)]
        if type(v) is float:
            return ["float", bits(v)]
        if type(v) is complex:
            return ["complex", bits(v.real), bits(v.imag)]
        if type(v) is str:
            return ["str", v.encode("utf-8", "surrogatepass").hex()]
        of = v if isinstance(v, type) else type(v)
        return ["object", f"{of.__module__}.{of.__qualname__}"]

    def tensor(self, t: Tensor):
        bits = lambda f: struct.pack(">d", f).hex()  # noqa: E731
        dtype = str(t.dtype).removeprefix("torch.")
        head = ["tensor", dtype, list(t.shape), str(t.layout), t.requires_grad]
        t = t.detach()
        if t.is_meta:
            return [*head, "meta", list(t.stride())]
        if t.layout is torch.sparse_coo:
            return [*head, t.is_coalesced(), self.tensor(t._indices()), self.tensor(t._values())]
        if t.layout in (torch.sparse_csr, torch.sparse_bsr):
            return [*head, *map(self.tensor, (t.crow_indices(), t.col_indices(), t.values()))]
        if t.layout in (torch.sparse_csc, torch.sparse_bsc):
            return [*head, *map(self.tensor, (t.ccol_indices(), t.row_indices(), t.values()))]
        head += [list(t.stride()), t.is_conj(), t.is_neg(), self.storage(t)]
        if t.is_quantized:
            if t.qscheme() is torch.per_tensor_affine:
                head += [bits(t.q_scale()), t.q_zero_point()]
            else:
                head += [
                    self.tensor(t.q_per_channel_scales()),
                    self.tensor(t.q_per_channel_zero_points()),
                ]
                head += [t.q_per_channel_axis()]
            t = t.int_repr()
        t = t.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        return [*head, t.reshape(-1).view(torch.uint8).numpy().tobytes().hex()]

    def storage(self, t: Tensor) -> int:
        if not t.untyped_storage().nbytes():
            return -1
        at = t.untyped_storage().data_ptr()
        if at not in self.storages:
            self.storages.append(at)
        return self.storages.index(at)


def through_describe(copy, source: Path, target: Path) -> dict[str, object]:
    """Go's description of each file, or the text of an error."""
    target.mkdir(exist_ok=True)
    copy("describe", source, target)
    said = {}
    for path in source.glob("*.pt"):
        text = target / (path.name + ".json")
        if text.exists():
            said[path.name] = json.loads(text.read_text())
        else:
            said[path.name] = (target / (path.name + ".err")).read_text()
    return said


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(4))
def test_random_values_of_every_protocol_and_format(copy, tmp_path, seed):
    """Go reads the same values as torch.load, and torch.load reads the same from Go's file."""
    source = tmp_path / "source"
    source.mkdir()
    for protocol in range(6):
        for zipped in (True, False):
            for n in range(12):
                path = source / f"{protocol}-{'zip' if zipped else 'legacy'}-{n}.pt"
                values = Values(1000 * seed + n, opaque=n % 3 == 0, tensors=protocol > 0)
                for _ in range(20):  # two dtypes of one storage, for one, torch.save refuses
                    try:
                        torch.save(
                            values.value(),
                            path,
                            pickle_protocol=protocol,
                            _use_new_zipfile_serialization=zipped,
                        )
                        Described()(torch.load(path, weights_only=False))
                    except Exception:
                        path.unlink(missing_ok=True)
                        continue
                    break
    names = sorted(path.name for path in source.glob("*.pt"))
    assert len(names) > 120, names
    said = through_describe(copy, source, tmp_path / "target")
    opaque = again = 0
    for name in names:
        want = plain(Described()(torch.load(source / name, weights_only=False)))
        assert not difference(want, said[name]), name
        if '"object"' in json.dumps(want):
            opaque += 1
        else:
            again += 1
            back = torch.load(tmp_path / "target" / name, weights_only=True)
            assert not difference(want, plain(Described()(back))), name
    assert opaque > 2
    assert again > 50


def difference(want, got) -> str:
    """The first difference of two descriptions."""
    if want == got:
        return ""
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        at = next(i for i in range(len(want)) if want[i] != got[i])
        if isinstance(want[at], list):
            return f"[{at}]{difference(want[at], got[at])}"
    return f": {str(want)[:300]}, got {str(got)[:300]}"


def plain(described):
    """A description as JSON has it, with lists for tuples."""
    return json.loads(json.dumps(described))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("made", [pytest.param(make, id=name) for make, name in OPAQUE])
@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_checkpoint_with_python_objects(copy, tmp_path, made, protocol):
    (source := tmp_path / "source").mkdir()
    value = {"w": torch.ones(2), "config": made(random.Random(0)), ("a", 1): 2}
    torch.save(value, source / "a.pt", pickle_protocol=protocol)
    said = through_describe(copy, source, tmp_path / "target")["a.pt"]
    assert said == plain(Described()(value))
    if isinstance(value["config"], nn.Module):
        assert "torch.save(model.state_dict(), path)" in copy(
            "tensors", source / "a.pt", tmp_path / "b.pt", fails=True
        )
    else:
        copy("tensors", source / "a.pt", tmp_path / "b.pt")
        assert_same(torch.load(tmp_path / "b.pt"), {"w": torch.ones(2)})


def test_bare_storages(copy, tmp_path):
    (source := tmp_path / "source").mkdir()
    x, y = torch.arange(3.0), torch.tensor([1, 2, 3], dtype=torch.uint16)
    torch.save([x, x.storage(), x[1:].storage()], source / "a.pt")
    torch.save([y, y.untyped_storage(), y.untyped_storage()], source / "b.pt")
    said = through_describe(copy, source, tmp_path / "target")
    assert said["a.pt"][2:] == [said["a.pt"][1]] * 2 == [plain(Described()(x))] * 2
    assert said["b.pt"][2:] == [["storage", 6]] * 2
    back = torch.load(tmp_path / "target" / "b.pt", weights_only=True)
    assert back[1].data_ptr() == back[2].data_ptr() == back[0].data_ptr()
    assert back[1].nbytes() == 6


def test_nothing_is_run(copy, tmp_path):
    (source := tmp_path / "source").mkdir()
    for protocol in range(6):
        for zipped in (True, False):
            path = source / f"{protocol}-{zipped}.pt"
            torch.save(
                {"evil": Evil()},
                path,
                pickle_protocol=protocol,
                _use_new_zipfile_serialization=zipped,
            )
    for said in through_describe(copy, source, tmp_path / "target").values():
        assert said == [
            "dict",
            [["str", b"evil".hex()], ["object", f"{os.system.__module__}.system"]],
        ]
    assert not TOUCHED.exists()


@pytest.mark.parametrize(
    ("save", "says"),
    [
        (lambda path: torch.save(nn.Linear(1, 1), path), "torch.save(model.state_dict(), path)"),
        (lambda path: torch.jit.script(nn.ReLU()).save(path), "gotorch/jit"),
        (lambda path: save_file({"x": torch.ones(2)}, path), "read it with LoadTensors"),
        (lambda path: torch.export.save(torch.export.export(nn.ReLU(), (torch.ones(2),)), path), "pytorch_bridge.export_go or export_model"),
        (lambda path: path.write_bytes(pickle.dumps({"x": 1})), "none of torch.save's: in Python load it with pickle"),
        (lambda path: old_tar(path), "the tar format that torch.save had in PyTorch 0.1"),
        (lambda path: np.save(path.open("wb"), np.ones(3)), "gotorch/data/npy"),
    ],
    ids=["module", "script", "safetensors", "pt2", "pickle", "tar", "npy"],
)  # fmt: skip
def test_other_formats_are_told(copy, tmp_path, save, says):
    source = tmp_path / "a.pt"
    save(source)
    if not source.exists():
        source = source.with_suffix(".pt2")
    assert says in copy("value", source, tmp_path / "b.pt", fails=True)
    assert not (tmp_path / "b.pt").exists()


def old_tar(path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            member = tarfile.TarInfo(name)
            member.size = 5
            tar.addfile(member, io.BytesIO(b"12345"))


def test_dtensors(copy, tmp_path):
    (source := tmp_path / "source").mkdir()
    store = torch.testing._internal.distributed.fake_pg.FakeStore()
    dist.init_process_group("fake", store=store, rank=0, world_size=2)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
        whole = torch.arange(8.0).reshape(4, 2)
        places = {"shard": tensor_parallel.Shard(0), "replicate": tensor_parallel.Replicate()}
        for name, place in places.items():
            x = tensor_parallel.distribute_tensor(whole, mesh, [place])
            for protocol in (2, 5):
                torch.save(
                    {"w": x, "b": torch.ones(1)},
                    source / f"{name}-{protocol}.pt",
                    pickle_protocol=protocol,
                )
        partial = tensor_parallel.DTensor.from_local(whole, mesh, [tensor_parallel.Partial()])
        torch.save({"w": partial, "b": torch.ones(1)}, source / "partial-2.pt")
    finally:
        dist.destroy_process_group()
    said = through_describe(copy, source, tmp_path / "target")
    for name, value in said.items():
        what = (
            plain(Described()(whole))
            if "replicate" in name
            else ["object", "torch.distributed.tensor.DTensor"]
        )
        assert value[1][1] == what, name
    assert "tensor.full_tensor()" in copy(
        "tensors", source / "shard-2.pt", tmp_path / "b.pt", fails=True
    )


def big_endian(data: bytes) -> bytes:
    """A file of torch.save as a machine of the other byte order would have written it."""
    value = torch.load(io.BytesIO(data), weights_only=True)
    width = {}
    for t in value.values():
        width[t.untyped_storage().data_ptr()] = t.dtype.itemsize // (2 if t.is_complex() else 1)
    order = iter(dict.fromkeys(t.untyped_storage().data_ptr() for t in value.values()))
    made, new = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(new, "w") as z:
        for name in made.namelist():
            record = made.read(name)
            if name.endswith("/byteorder"):
                record = b"big"
            elif "/data/" in name:
                n = width[next(order)]
                record = b"".join(record[i : i + n][::-1] for i in range(0, len(record), n))
            z.writestr(name, record)
    return new.getvalue()


@pytest.mark.filterwarnings("ignore")
def test_files_of_machines_of_the_other_byte_order(copy, tmp_path):
    (source := tmp_path / "source").mkdir()
    dtypes = [d for d in DTYPES if not str(d).startswith("torch.bits")]
    value = {str(d): bits(d).t() for d in dtypes}
    value["shared"] = value["torch.float32"].t()[1]
    file = io.BytesIO()
    torch.save(value, file)
    (source / "a.pt").write_bytes(big_endian(file.getvalue()))
    assert through_describe(copy, source, tmp_path / "target")["a.pt"] == plain(Described()(value))
    # PyTorch does not swap the bytes of those that have no class of storages.
    swapped = torch.load(source / "a.pt", weights_only=True)
    for name, t in value.items():
        if t.dtype not in torch.storage._new_dtypes():
            assert raw(swapped[name]) == raw(t), name


def mutated(r: random.Random, data: bytes) -> bytes:
    """A file of torch.save with something changed that a reader has to notice, or may ignore."""
    made, new = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    names = made.namelist()
    victim = r.choice([name for name in names if "serialization_id" not in name])
    how = r.randrange(10)
    with zipfile.ZipFile(new, "w") as z:
        for name in names:
            record = made.read(name)
            if name == victim or how in (4, 5, 6):
                if how == 0:
                    continue
                if how == 1:
                    name = r.choice(["other/x", "x", "archive/archive/x", name.upper(), name + "2"])
                if how == 2:
                    record += bytes(r.randrange(1, 9))
                if how == 3:
                    record = record[: r.randrange(len(record) + 1)]
                if name.endswith("data.pkl") and how == 4:
                    device = r.choice([b"xyz", b"CPU", b"cpu:0", b"", b"gpu"])
                    record = record.replace(
                        b"\x03\0\0\0cpu", bytes([len(device)]) + b"\0\0\0" + device
                    )
                if name.endswith("data.pkl") and how == 5:
                    record = record.replace(
                        b"FloatStorage", r.choice([b"DoubleStorage", b"CharStorage", b"NoStorage"])
                    )
                if name.endswith("data.pkl") and how == 6:
                    at = r.randrange(len(record))
                    record = record[:at] + r.randbytes(1) + record[at + 1 :]
                if how == 7:
                    record = r.randbytes(len(record))
            z.writestr(name, record)
        if how == 8:
            z.writestr(r.choice(["other/data.pkl", "x", "archive/more", "archive/"]), b"")
    return new.getvalue() if how != 9 else new.getvalue()[: r.randrange(len(data))]


@pytest.mark.filterwarnings("ignore")
def test_what_torch_load_refuses_is_refused(copy, tmp_path):
    (source := tmp_path / "source").mkdir()
    r, file = random.Random(0), io.BytesIO()
    torch.save(
        {"a": torch.ones(2), "b": torch.arange(6.0).reshape(2, 3).t(), "c": torch.zeros(0)}, file
    )
    for n in range(400):
        (source / f"{n}.pt").write_bytes(mutated(r, file.getvalue()))
    said = through_describe(copy, source, tmp_path / "target")
    refused = 0
    for name, value in said.items():
        try:
            want = plain(Described()(torch.load(source / name, weights_only=True)))
        except Exception as e:
            refused += 1
            text = str(e)
            if (
                "Unsupported global" in text
                or "unrecognized function" in text
                or "Unsupported operand" in text
            ):
                continue  # where Go has an object, or knows more of pickle
            assert isinstance(value, str), (name, text)
        else:
            assert isinstance(value, str) or value == want, name
    assert refused > 100


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
