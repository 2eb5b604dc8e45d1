"""TorchScript in Go: what torch.jit.save writes is loaded, called and saved again, and every result is
what Python computes from the same file in this run, to the last bit. Damaged files are errors."""

import enum
import io
import json
import os
import random
import re
import subprocess
import warnings
import zipfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

FULL = os.environ.get("CONFORMANCE") == "full"
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning",
                                        "ignore::UserWarning")  # fmt: skip


@pytest.fixture(scope="module")
def program(library, tmp_path_factory):
    path = tmp_path_factory.mktemp("bin") / "jit"
    built = run_go("build", "-buildvcs=false", "-o", str(path), "./tests/jit")
    assert built.returncode == 0, built.stderr
    return path


class Cases:
    """Files with calls, which Go and Python run."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.cases: list[dict[str, Any]] = []
        self.wanted: list[Any] = []
        self.names: list[str] = []

    def add(self, name: str, scripted: Any, calls: list[Any], *, mode: bool | None = None,
            grad: bool = False, extra: dict[str, str] | None = None) -> None:  # fmt: skip
        """calls are (method, args, kwargs); scripted is a module of torch.jit, or a file of one."""
        at = len(self.cases)
        file = self.folder / f"{at}.pt"
        if isinstance(scripted, bytes):
            file.write_bytes(scripted)
        else:
            torch.jit.save(scripted, str(file), _extra_files=extra)
        python = torch.jit.load(str(file))
        listed, results = [], []
        for number, (method, args, kwargs) in enumerate(calls):
            given = self.folder / f"{at}-{number}.args"
            torch.save([list(args), dict(kwargs)], given)
            listed.append({"Method": method, "Args": str(given), "Train": mode, "Grad": grad})
            args, kwargs = torch.load(given, weights_only=False)  # as Go gets them
            if mode is not None:
                python.train(mode)
            torch.manual_seed(0)
            # Once Python has profiled, it computes gradients by formulas of its own.
            before = torch._C._jit_set_profiling_mode(not grad)
            try:
                result = getattr(python, method)(*args, **kwargs)
                results.append(gradients(python, result) if grad else plain(result))
            except Exception as err:
                results.append(err)
            finally:
                torch._C._jit_set_profiling_mode(before)
        self.wanted.append((results, python))
        self.names.append(name)
        self.cases.append({"File": str(file), "Out": str(self.folder / f"{at}.out"),
                           "Save": str(self.folder / f"{at}.saved"), "Bytes": at % 3 == 0,
                           "Calls": listed})  # fmt: skip

    def run(self) -> list[str]:
        """The difference."""
        listed = self.folder / "cases.json"
        listed.write_text(json.dumps(self.cases))
        done = subprocess.run([self.program, listed], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        problems = []
        for name, case, (results, python) in zip(self.names, self.cases, self.wanted, strict=True):
            got = torch.load(case["Out"], weights_only=False)
            if "error" in got:
                problems.append(f"{name}: {got['error']}")
                continue
            for number, (ours, theirs) in enumerate(zip(got["results"], results, strict=True)):
                if problem := differ(ours, theirs):
                    problems.append(f"{name}, call {number}: {problem}")
            state = {k: v.to_dense() if v.is_sparse else v for k, v in python.state_dict().items()}
            if problem := differ(dict(got["state"]), state, ordered=False):
                problems.append(f"{name}, state: {problem}")
            for what, theirs in {
                "parameters": [n for n, _ in python.named_parameters()],
                "buffers": [n for n, _ in python.named_buffers()],
                "modules": [n for n, _ in python.named_modules()],
            }.items():
                if list(got[what]) != theirs:
                    problems.append(f"{name}, {what}: {got[what]}, want {theirs}")
            if "training" in dir(python) and got["training"] != python.training:
                problems.append(f"{name}: training is {got['training']}")
            if problem := self._saved(case, python, got):
                problems.append(f"{name}, saved: {problem}")
        return problems

    def _saved(self, case: dict[str, Any], python: Any, got: Any) -> str:
        """Python reads what Go has saved."""
        files = dict.fromkeys(got["extra"], "")
        again = torch.jit.load(case["Save"], _extra_files=files)
        if {k: v if isinstance(v, str) else v.decode() for k, v in files.items()} != got["extra"]:
            return f"the extra files are {files}"
        if getattr(again, "code", "") != getattr(python, "code", ""):
            return f"the code is {again.code}"
        return differ(dict(again.state_dict()), dict(python.state_dict()))


@pytest.fixture
def cases(program, tmp_path):
    return Cases(program, tmp_path)


def plain(v: Any) -> Any:
    """The text of a result in tests/jit."""
    if isinstance(v, Tensor):
        v = v.to_dense() if v.is_sparse else v
        return v.detach()
    if isinstance(v, tuple) and hasattr(v, "_fields"):
        return ("named tuple", ..., list(v._fields), tuple(map(plain, v)))
    if isinstance(v, enum.Enum):
        return ("enum", ..., v.name, plain(v.value))
    if isinstance(v, list | tuple):
        return type(v)(map(plain, v))
    if isinstance(v, dict):
        return {plain(key): plain(value) for key, value in v.items()}
    if isinstance(v, torch.jit.ScriptModule):
        return ("module", ...)
    if isinstance(v, torch._C.ScriptObject | Counter):
        return ("object", ...)
    return v


def gradients(module: Any, result: Any) -> dict[str, Tensor]:
    total = torch.zeros(())

    def add(v: Any) -> None:
        nonlocal total
        if isinstance(v, Tensor):
            if v.requires_grad:
                total = total + torch.real(v.sum()).to(torch.float32)
        elif isinstance(v, list | tuple):
            for item in v:
                add(item)

    add(result)
    module.zero_grad()
    if total.requires_grad:
        total.backward()
    return {n: plain(p.grad) for n, p in module.named_parameters() if p.grad is not None}


def raw(t: Tensor) -> bytes:
    t = t.detach().resolve_conj().resolve_neg().contiguous()
    if t.is_quantized:
        return raw(t.int_repr())
    return t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def message(err: Exception) -> str:
    """The first line of what failed in a script, after the traceback and the code."""
    lines = str(err).split("<--- HERE\n")[-1].splitlines()
    found = re.compile(r"^(builtins\.)?(\w*Error): (AssertionError: )?(.*)")
    return next((m[4] for line in lines if (m := found.match(line))), lines[0])


def differ(got: Any, want: Any, *, ordered: bool = True) -> str:
    if want is ...:
        return "" if isinstance(got, str) and got.startswith("__torch__") else f"got {got!r}"
    if isinstance(want, Exception):
        if not (isinstance(got, dict) and set(got) == {"error"}):
            return f"no error, where Python has {want!r}: {got!r}"
        said = message(want)
        return "" if said in got["error"] else f"{got['error']!r}, want {said!r}"
    if isinstance(got, dict) and set(got) == {"error"} and not isinstance(want, dict):
        return got["error"]
    if isinstance(want, Tensor):
        if not isinstance(got, Tensor):
            return f"{got!r} is no tensor"
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            return f"{got.dtype} {got.shape}, want {want.dtype} {want.shape}"
        return "" if raw(got) == raw(want) else f"{got} is not {want}"
    if isinstance(want, dict):
        if list(got) != list(want) and (ordered or set(got) != set(want)):
            return f"{list(got)}, want {list(want)}"
        return next((p for k in want if (p := differ(got[k], want[k]))), "")
    if isinstance(want, list | tuple):
        if type(got) is not type(want) or len(got) != len(want):
            return f"{got!r}, want {want!r}"
        return next((p for a, b in zip(got, want, strict=True) if (p := differ(a, b))), "")
    if isinstance(want, torch.device):
        want = str(want)
        got = str(got)
    same = type(got) is type(want) and (got == want or (got != got and want != want))
    return "" if same else f"{got!r}, want {want!r}"


# Values of every kind ------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    first: Tensor
    second: int


Point = namedtuple("Point", ["x", "y"])


class Counter:
    def __init__(self, start: int) -> None:
        self.n = start

    def up(self, by: int = 1) -> int:
        self.n += by
        return self.n


class Values(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.words = ["a", "b"]
        self.table = {"x": [1, 2], "y": []}
        self.color = Color.BLUE
        self.none: Tensor | None = None
        self.counter = Counter(3)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale

    @torch.jit.export
    def numbers(self, a: int, b: float, c: complex, d: bool, e: str):
        return a + 1, b * 2, c * 1j, not d, e + "!"

    @torch.jit.export
    def defaults(self, a: int = 3, b: float | None = None, c: str = "no", d: bool = True):
        return a, b, c, d

    @torch.jit.export
    def lists(self, a: list[int], b: list[float], c: list[bool], d: list[str], e: list[Tensor],
              f: list[complex]):  # fmt: skip
        return a + a, b, c, d, e, f

    @torch.jit.export
    def deep(self, a: list[list[int]], b: dict[str, list[Tensor]],
             c: tuple[int, tuple[Tensor, str]]):  # fmt: skip
        return a, b, c

    @torch.jit.export
    def dicts(self, a: dict[str, int], b: dict[int, Tensor], c: dict[float, str],
              d: dict[bool, int | None]):  # fmt: skip
        a["more"] = 7
        return a, b, c, d

    @torch.jit.export
    def maybe(self, a: Tensor | None, b: list[int] | None = None) -> Tensor | None:
        if a is not None and b is not None:
            return a.reshape(b)
        return a

    @torch.jit.export
    def either(self, a: int | str | Tensor) -> int | str | Tensor:
        return a

    @torch.jit.export
    def nothing(self):
        self.steps += 1

    @torch.jit.export
    def device(self, d: torch.device):
        return d, torch.zeros(2, device=d).device

    @torch.jit.export
    def dtype(self, t: Tensor, d: torch.dtype) -> Tensor:
        return t.to(d)

    @torch.jit.export
    def pair(self, p: Pair) -> Pair:
        return Pair(p.first + p.second, p.second + 1)

    @torch.jit.export
    def enumerate_(self, name: str) -> Color:
        if name == "RED":
            return Color.RED
        return self.color

    @torch.jit.export
    def any_(self, n: int) -> list[Any]:
        out: list[Any] = [n, "s", 1.5, torch.ones(n), None, [n], ("t", n)]
        return out

    @torch.jit.export
    def count(self, by: int) -> Counter:
        self.counter.up(by)
        return self.counter

    @torch.jit.export
    def wait(self, x: Tensor) -> torch.jit.Future[Tensor]:
        return torch.jit.fork(torch.relu, x)

    @torch.jit.export
    def fails(self, kind: int, x: Tensor) -> Tensor:
        if kind == 0:
            raise ValueError("the value is wrong: " + str(kind))
        if kind == 1:
            raise IndexError("the index")
        if kind == 2:
            raise RuntimeError("a RuntimeError: with a colon\nand a second line")
        if kind == 3:
            assert x.numel() == 17, "not 17"
        if kind == 4:
            return x @ torch.ones(3, 9)
        if kind == 5:
            return x[torch.tensor([100])]
        if kind == 6:
            raise NotImplementedError("later")
        if kind == 7:
            return torch.ones(2).view(7)
        if kind == 8:
            return self.inner(x)
        return x

    def inner(self, x: Tensor) -> Tensor:
        return x + torch.ones(5, 7)


def values() -> Any:
    return torch.jit.script(Values())


T = torch.tensor
VALUE_CALLS: list[Any] = [
    ("forward", (T([1.0, 2.0]),), {}),
    ("forward", (), {"x": T([1.0, 2.0])}),
    ("numbers", (1, 2.5, 3 + 4j, True, "é\0x"), {}),
    ("numbers", (1, 2, 3, False, ""), {}),
    ("numbers", (-(2**63), float("-inf"), complex(0.0, -0.0), True, "x" * 5000), {}),
    ("numbers", (1,), {"e": "e", "b": 1.0, "c": 1j, "d": True}),
    ("defaults", (), {}),
    ("defaults", (4,), {"d": False}),
    ("lists", ([1, 2], [1.0, float("nan")], [True], ["a"], [T([1])], [1j]), {}),
    ("lists", ([], [], [], [], [], []), {}),
    ("deep", ([[1], [], [2, 3]], {"a": [T(1.0)], "b": []}, (1, (T([2]), "s"))), {}),
    ("dicts", ({"z": 1, "a": 2}, {3: T([1.0])}, {0.5: "half"}, {True: None, False: 1}), {}),
    ("maybe", (None,), {}),
    ("maybe", (torch.arange(6), [2, 3]), {}),
    ("either", (1,), {}),
    ("either", ("s",), {}),
    ("either", (T([1.0]),), {}),
    ("nothing", (), {}),
    ("device", (torch.device("cpu"),), {}),
    ("any_", (2,), {}),
    ("enumerate_", ("RED",), {}),
    ("enumerate_", ("BLUE",), {}),
    ("count", (5,), {}),
    *[("fails", (kind, torch.ones(2, 2)), {}) for kind in range(10)],
]  # fmt: skip


def test_values_of_every_kind_go_in_and_come_out(cases):
    cases.add("values", values(), VALUE_CALLS, extra={"labels.txt": "a\nb", "é": "\0"})
    cases.add("again", values(), VALUE_CALLS[::-1])
    cases.add("third", values(), VALUE_CALLS[:4])
    assert "\n".join(cases.run()) == ""


def test_dtypes_are_ints(cases):
    # Go has no dtype in torch.save's list that a script takes, so the number is given.
    cases.add("dtype", values(), [("dtype", (T([1.7]), n), {}) for n in (0, 3, 4, 6, 7, 15)])
    assert "\n".join(cases.run()) == ""


# Modules of torch.nn -----------------------------------------------------------------------------------


def copied(v: Any) -> Any:
    if isinstance(v, Tensor):
        return v.detach().clone()
    if isinstance(v, list | tuple) and not hasattr(v, "_fields"):
        return type(v)(map(copied, v))
    if isinstance(v, dict):
        return {k: copied(x) for k, x in v.items()}
    return v


def simple(v: Any) -> bool:
    """Whether torch.save writes it, and both sides read it."""
    if isinstance(v, list | tuple):
        return not hasattr(v, "_fields") and all(map(simple, v))
    return v is None or isinstance(v, Tensor | bool | int | float | str)


def nn_modules() -> list[Any]:
    from torch.testing._internal.common_modules import module_db

    return module_db


def made(info: Any, training: bool) -> list[tuple[str, Any, Any, Any]]:
    """Modules of a class in the database with what they are called with."""
    out = []
    torch.manual_seed(1)
    inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False,
                                     training=training)  # fmt: skip
    for at, given in enumerate(inputs):
        if given.forward_input is None:
            continue
        made = {k: v for k, v in given.constructor_input.kwargs.items() if k != "_random_samples"}
        args, kwargs = copied((given.forward_input.args, given.forward_input.kwargs))
        if not simple(args) or not all(map(simple, kwargs.values())):
            continue
        module = info.module_cls(*given.constructor_input.args, **made).train(training)
        out.append((f"{info.name} #{at}", module, args, kwargs))
    return out


def shard(listed: list[Any]) -> list[Any]:
    return listed if FULL else random.Random(3).sample(listed, min(len(listed), 2))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("how", ["script", "trace"])
def test_modules_of_torch_nn(cases, how, training):
    tried = 0
    for info in nn_modules():
        for name, module, args, kwargs in shard(made(info, training)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    if how == "script":
                        scripted = torch.jit.script(module)
                    elif kwargs:
                        continue
                    else:
                        torch.manual_seed(0)
                        scripted = torch.jit.trace(module, copied(args), check_trace=False)
                torch.jit.save(scripted, io.BytesIO())
                scripted.forward  # noqa: B018
            except Exception:
                continue  # neither is for every module
            calls = [("forward", args, kwargs)] * 3
            cases.add(f"{how} {name}", scripted, calls, mode=training, grad=training)
            tried += 1
    assert tried > (100 if how == "script" else 60), tried
    assert "\n".join(cases.run()) == ""


class Tied(nn.Module):
    """A module and a parameter that are in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = self.a
        self.c = nn.Linear(3, 3)
        self.c.weight = self.a.weight
        self.register_buffer("scale", torch.rand(3))
        self.list = nn.ModuleList([self.a, nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5))])

    def forward(self, x: Tensor) -> Tensor:
        for m in self.list:
            x = m(x)
        return self.b(x) + self.c(x) * self.scale


class Random(nn.Module):
    """Layers at random in a row."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        r = random.Random(seed)
        width, layers = 8, []
        for _ in range(r.randint(1, 6)):
            kind = r.choice(["linear", "norm", "act", "drop", "conv", "gru"])
            if kind == "linear":
                wide = r.choice([4, 8, 12])
                layers.append(nn.Linear(width, wide, bias=r.random() < 0.7))
                width = wide
            elif kind == "norm":
                layers.append(r.choice([nn.LayerNorm(width), nn.BatchNorm1d(width)]))
            elif kind == "act":
                layers.append(r.choice([nn.ReLU(), nn.GELU(), nn.Tanh(), nn.SiLU(inplace=True)]))
            elif kind == "drop":
                layers.append(nn.Dropout(0.3))
            elif kind == "conv":
                layers.append(nn.Sequential(nn.Unflatten(1, (1, width)),
                                            nn.Conv1d(1, 2, 3, padding=1), nn.MaxPool1d(2),
                                            nn.Flatten()))  # fmt: skip
            else:
                layers.append(nn.Sequential(nn.Linear(width, width), nn.Softmax(-1)))
        self.layers = nn.ModuleList(layers)
        self.gain = nn.Parameter(torch.rand(()), requires_grad=r.random() < 0.5)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x * self.gain


@pytest.mark.parametrize("training", [False, True])
def test_modules_at_random(cases, training):
    for seed in range(300 if FULL else 30):
        torch.manual_seed(seed)
        module = Random(seed).train(training) if seed else Tied().train(training)
        x = torch.randn(5, 8 if seed else 3)
        if seed % 3:
            scripted: Any = torch.jit.script(module)
        else:
            scripted = torch.jit.trace(module, x, check_trace=False)
        if seed % 5 == 4 and not training:
            scripted = torch.jit.freeze(scripted.eval())
        calls = [("forward", (torch.randn(n, x.shape[1]),), {}) for n in (5, 2, 7, 5)]
        cases.add(f"seed {seed}", scripted, calls, mode=training, grad=training)
    assert "\n".join(cases.run()) == ""


# Files that are damaged or hostile ----------------------------------------------------------------------


def rebuilt(data: bytes, changes: dict[str, Callable[[bytes], bytes]], method: int = 0) -> bytes:
    """The archive with other records, and right checksums."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w", method) as target:
        for name in source.namelist():
            record = name.split("/", 1)[1]
            content = source.read(name)
            target.writestr(name, changes.get(record, lambda b: b)(content))
    return out.getvalue()


def saved(module: Any) -> bytes:
    out = io.BytesIO()
    torch.jit.save(module, out)
    return out.getvalue()


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("b", torch.ones(4))
        self.names = ["a", "b"]
        self.table = {"x": 1}

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.b[:2] + torch.tensor([1.0, 2.0])


@pytest.fixture(scope="module")
def loads(program, tmp_path_factory):
    """Go's error for each file: "" for one that it loads and runs."""

    def run(files: dict[str, bytes], deadline: float = 300) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("hostile")
        args = folder / "args"
        torch.save([[torch.ones(3)], {}], args)
        listed = []
        for at, data in enumerate(files.values()):
            (folder / f"{at}.pt").write_bytes(data)
            call = {"Method": "forward", "Args": str(args), "Train": None, "Grad": False}
            listed.append({"File": str(folder / f"{at}.pt"), "Out": str(folder / f"{at}.out"),
                           "Save": "", "Bytes": at % 2 == 0, "Calls": [call]})  # fmt: skip
        (folder / "cases.json").write_text(json.dumps(listed))
        done = subprocess.run([program, folder / "cases.json"], cwd=ROOT, capture_output=True,
                              text=True, timeout=deadline)  # fmt: skip
        done_of = sum((folder / f"{at}.out").exists() for at in range(len(files)))
        assert done.returncode == 0, f"{list(files)[done_of]}: {done.stderr[-3000:]}"
        results = {}
        for at, name in enumerate(files):
            out = torch.load(folder / f"{at}.out", weights_only=False)
            results[name] = out.get("error", "")
        return results

    return run


def damaged(data: bytes) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            return z.testzip() is not None
    except Exception:
        return True


def number(n: int) -> bytes:
    return b"J" + n.to_bytes(4, "little", signed=True)


def chain(n: int) -> str:
    """Classes of which each is an attribute of the one before."""
    name = f"__torch__.{__name__}.A"
    return "".join(
        f"class A{i}:\n  a : {name + str(i + 1) if i + 1 < n else 'Tensor'}\n" for i in range(n)
    )


def test_hostile_files_are_errors(loads):
    small = saved(torch.jit.script(Small()))
    with zipfile.ZipFile(io.BytesIO(small)) as z:
        where = next(n for n in z.namelist() if b"class Small" in z.read(n) and n.endswith(".py"))
        record = where.split("/", 1)[1]
        code = z.read(where).decode()
        pickled = z.read(where.split("/")[0] + "/data.pkl")
    assert loads({"whole": small}) == {"whole": ""}

    def data(old: bytes, new: bytes) -> bytes:
        assert old in pickled, old
        return rebuilt(small, {"data.pkl": lambda b: b.replace(old, new, 1)})

    def source(old: str, new: str) -> bytes:
        assert old in code, (old, code)
        return rebuilt(small, {record: lambda b: code.replace(old, new, 1).encode()})

    last = "return " + code.rsplit("return ", 1)[1].split("\n")[0]
    value = last.removeprefix("return ")
    four = b"(K\x04t(K\x01t"
    cases = {
        "more elements than bytes": data(b"K\x04tQ", number(2**30) + b"tQ"),
        "negative elements": data(b"K\x04tQ", number(-1) + b"tQ"),
        "a size beyond": data(four, b"(" + number(2**30) + b"t(K\x01t"),
        "a stride beyond": data(four, b"(K\x04t(" + number(2**30) + b"t"),
        "a negative size": data(four, b"(" + number(-4) + b"t(K\x01t"),
        "a negative stride": data(four, b"(K\x04t(" + number(-1) + b"t"),
        "an offset beyond": data(b"QK\x00(K\x04t" if b"QK\x00(K\x04t" in pickled else b"K\x00(K\x04t",
                                 (b"Q" if b"QK\x00(K\x04t" in pickled else b"") + b"K\x01(K\x04t"),
        "another storage": data(b"X\x01\x00\x00\x000", b"X\x01\x00\x00\x009"),
        "a wider dtype": data(b"FloatStorage", b"DoubleStorage"),
        "an unknown dtype": data(b"FloatStorage", b"FleatStorage"),
        "a foreign function": data(b"torch._utils\n_rebuild_tensor_v2", b"os\nsystem"),
        "a far memo": data(b"q\x01", b"r\xff\xff\xff\x7f"),
        "an unknown memo": data(b"h\x02", b"h\xee"),
        "a deep value": data(b"\x88X", b"\x88" + b"\x85" * 100_000 + b"X"),
        "a deep list": data(b"](", b"]" + b"(" * 0 + b"(" + b"](" * 50_000),
        "a deep type": data(b"X\x09\x00\x00\x00List[str]",
                            b"X" + (600_003).to_bytes(4, "little") + b"List[" * 100_000 + b"str"
                            + b"]" * 100_000),
        "a list in itself": data(b"](", b"]q\xf0h\xf0a("),
        "another class's value": data(b"\x88X", b"K\x05X"),
        "no end": rebuilt(small, {"data.pkl": lambda b: b[:-1]}),
        "nothing": rebuilt(small, {"data.pkl": lambda b: b""}),
        "another protocol": rebuilt(small, {"data.pkl": lambda b: b"\x80\x04" + b[2:]}),
        "a wrong version": rebuilt(small, {"version": lambda b: b"nine\n"}),
        "a far version": rebuilt(small, {"version": lambda b: b"999999\n"}),
        "a wrong byte order": rebuilt(small, {"byteorder": lambda b: b"middle"}),
        "another byte order": rebuilt(small, {"byteorder": lambda b: b"big"}),
        "brackets": source(last, "return " + "(" * 100_000 + value + ")" * 100_000),
        "signs": source(last, "return " + "-" * 100_000 + value),
        "sums": source(last, "return " + f"{value}+" * 100_000 + value),
        "calls": source(last, "return " + value + ".relu()" * 100_000),
        "nots": source(last, "return " + "not " * 100_000 + value),
        "comments": source(last, "#\n" * 1_000_000 + "    " + last),
        "empty lines": source(last, "\n" * 1_000_000 + "    " + last),
        "blocks": source(last, "".join("  " * n + "  if True:\n  " for n in range(1, 5000))
                         + "  " * 5001 + "pass\n    " + last),
        "classes": source("class Small", chain(5000) + "class Small"),
        "indented classes": rebuilt(
            small, {record: lambda b: ("\n" + chain(5000) + code).replace("\n", "\n \t").encode()}
        ),
        "spaced classes": source(
            "class Small", chain(5000).replace("class A", "class \tA") + "class Small"
        ),
        "classes after backslashes": source(
            "class Small", chain(5000).replace("class A", "class \\\n A") + "class Small"
        ),
        "an endless string": source(last, 'return "' + "x" * 1000),
        "no code": source(last, "\0\xff("),
        "an unknown operator": source(last, "return ops.no.such(" + value + ")"),
        "an unknown class": source("class ", "class Ä"),
    }  # fmt: skip
    # Whatever comes of it.
    loads({"a circle": source("class Small", chain(3).replace("Tensor", f"__torch__.{__name__}.A0")
                              + "class Small")})  # fmt: skip
    results = loads(cases)
    assert [name for name, said in results.items() if not said] == []
    for name, said in results.items():
        assert "INTERNAL" not in said, (name, said)
        assert "Error: " in said, (name, said)
    for name in ["more elements than bytes", "a size beyond", "a deep value", "brackets"]:
        assert "ValueError" in results[name], results[name]
    assert "no::such" in results["an unknown operator"]


class Unusual(nn.Module):
    """Tensors whose other tensors operators read without a look at them."""

    any: Any

    def __init__(self) -> None:
        super().__init__()
        warnings.simplefilter("ignore")
        dense = torch.diag(torch.arange(1.0, 7.0))
        every = [torch.arange(7), torch.arange(6), torch.arange(1.0, 7.0)]
        self.register_buffer("csr", torch.sparse_csr_tensor(*every, (6, 6)))
        self.register_buffer("coo", dense.to_sparse())
        self.register_buffer(
            "q",
            torch.quantize_per_channel(torch.ones(5, 3), torch.ones(5).double(),
                                       torch.zeros(5, dtype=torch.long), 0, torch.qint8),
        )  # fmt: skip
        self.any = [torch.diag(torch.arange(1.0, 8.0)).to_sparse()]

    def forward(self, x: Tensor) -> Tensor:
        found = self.any
        assert isinstance(found, list[Tensor])
        first = found[0]
        y = torch.mm(self.csr, torch.ones(6, 2)).sum()
        z = self.coo.to_dense().sum() + first.to_dense().sum()
        return x + y + z + self.q.dequantize().sum()


def test_tensors_that_are_not_what_they_say_are_errors(loads):
    """Indices beyond a sparse tensor's size, and fewer scales than channels."""
    model = saved(torch.jit.script(Unusual()))
    with zipfile.ZipFile(io.BytesIO(model)) as z:
        folder = z.namelist()[0].split("/")[0]
        storages = {n.split("/", 1)[1]: z.read(n) for n in z.namelist() if "/data/" in n}
        pickled = z.read(folder + "/data.pkl")
    assert loads({"whole": model, "again": model}) == {"whole": "", "again": ""}
    cases = {}
    for record, data in storages.items():
        if len(data) % 8:
            continue
        numbers = torch.frombuffer(bytearray(data), dtype=torch.long)
        if not 0 <= int(numbers.min()) <= int(numbers.max()) <= 7:
            continue  # no indices, but numbers
        if not numbers.any():  # zero points
            continue
        for at in range(len(numbers)):
            for value in (-1, 2**40, -(2**40), 9):
                changed = numbers.clone()
                changed[at] = value
                content = changed.numpy().tobytes()
                cases[f"{record}[{at}] = {value}"] = rebuilt(
                    model, {record: lambda _, b=content: b}
                )
    assert len(cases) > 100
    channels = {
        "fewer scales": (b"K\x00(K\x05t(K\x01t", b"K\x00(K\x02t(K\x01t"),
        "no scales": (b"K\x00(K\x05t(K\x01t", b"K\x00(K\x00t(K\x01t"),
        "expanded scales": (b"K\x00(K\x05t(K\x01t", b"K\x00(" + number(2**30) + b"t(K\x00t"),
    }
    for name, (old, new) in channels.items():
        assert pickled.count(old) == 2, pickled
        cases[name] = rebuilt(model, {"data.pkl": lambda b, old=old, new=new: b.replace(old, new)})
    results = loads(cases)
    assert [name for name, said in results.items() if "is damaged" not in said] == []


class Packed(nn.Module):
    """A tensor of several elements in a byte."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.q = torch.quantize_per_channel(
            torch.ones(4, 8), torch.ones(4), torch.zeros(4), 0, dtype
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.q.dequantize().sum()


def test_other_files_are_named(loads, tmp_path):
    tensors = io.BytesIO()
    torch.save({"a": torch.ones(2)}, tensors)
    exported = io.BytesIO()
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.ones(1, 2),)), exported)
    small = torch.jit.script(Small())
    packed = bytearray(rebuilt(saved(small), {}))
    for at in range(len(packed)):
        if packed[at : at + 4] == b"PK\1\2":
            packed[at + 8] |= 1  # encrypted
    unread = {
        "meta": saved(torch.jit.script(Small().to("meta"))),
        "one on meta": saved(torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2, device="meta")))),
        "quint4x2": saved(torch.jit.script(Packed(torch.quint4x2))),
        "quint2x4": saved(torch.jit.script(Packed(torch.quint2x4))),
        "bzip2": rebuilt(saved(small), {}, zipfile.ZIP_BZIP2),
        "encrypted": bytes(packed),
    }  # fmt: skip
    results = loads({
        "torch.save": tensors.getvalue(), "torch.export": exported.getvalue(),
        "empty": b"", "text": b"hello " * 100, "zip": rebuilt(tensors.getvalue(), {})[:-30],
        "deflated": rebuilt(saved(small), {}, zipfile.ZIP_DEFLATED), **unread,
    })  # fmt: skip
    assert results["deflated"] == ""
    words = ["device meta", "device meta", "quint4x2", "quint2x4", "method 12", "encrypted"]
    for name, word in zip(unread, words, strict=True):
        assert "NotImplementedError" in results[name], results[name]
        assert word in results[name], results[name]
        assert "damaged" not in results[name], results[name]
    assert "gotorch.Load" in results["torch.save"]
    assert "export" in results["torch.export"]
    for name in ["empty", "text", "zip"]:
        assert "ValueError" in results[name], results[name]
        assert "TorchScript" in results[name], results[name]


def test_files_that_are_cut_off_or_changed(loads):
    """With wrong checksums: every such file is an error."""
    small = saved(torch.jit.script(Small()))
    r = random.Random(5)
    files = {}
    for at in range(400 if FULL else 60):
        files[f"cut {at}"] = small[: r.randrange(len(small))]
    assert [n for n, said in loads(files).items() if "ValueError" not in said] == []
    with zipfile.ZipFile(io.BytesIO(small)) as z:
        spans = []
        for info in z.infolist():
            length = int.from_bytes(
                small[info.header_offset + 26 : info.header_offset + 28], "little"
            )
            extra = int.from_bytes(
                small[info.header_offset + 28 : info.header_offset + 30], "little"
            )
            begin = info.header_offset + 30 + length + extra
            spans.append((begin, begin + info.compress_size))
    files = {}
    for at in range(1000 if FULL else 100):
        begin, end = r.choice([s for s in spans if s[0] < s[1]])
        changed = bytearray(small)
        changed[r.randrange(begin, end)] ^= 1 << r.randrange(8)
        if damaged(bytes(changed)):  # not a bit after the last one of what is packed
            files[f"flip {at}"] = bytes(changed)
    assert len(files) > 50
    assert [n for n, said in loads(files).items() if not said] == []
    files = {}
    for at in range(1000 if FULL else 100):
        changed = bytearray(small)
        changed[r.randrange(len(changed))] = r.randrange(256)
        files[f"anywhere {at}"] = bytes(changed)
    loads(files)  # no crash


def test_files_that_are_changed_with_right_checksums(loads):
    """Nothing in a file ends the process, whatever a file says. It may load, and compute something else."""
    sources = [saved(torch.jit.script(Small())), saved(torch.jit.trace(Small(), torch.ones(3)))]
    r = random.Random(int(os.environ.get("SEED", "11")))
    files = {}
    for at in range(20_000 if FULL else 400):
        with zipfile.ZipFile(io.BytesIO(r.choice(sources))) as z:
            records = [n.split("/", 1)[1] for n in z.namelist()]
            source = z.fp.getvalue()  # type: ignore[union-attr]
        chosen = r.choice([n for n in records if n.endswith((".pkl", ".py"))] * 3 + records)
        files[f"{at} {chosen}"] = rebuilt(source, {chosen: lambda b: mutated(b, r)})
    loads(files, deadline=3000)


def mutated(data: bytes, r: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(r.randint(1, 3)):
        if not changed:
            break
        place = r.randrange(len(changed))
        kind = r.random()
        if kind < 0.4:
            changed[place] = r.randrange(256)
        elif kind < 0.6:
            del changed[place : place + r.randint(1, 8)]
        elif kind < 0.8:
            other = r.randrange(len(changed))
            changed[place:place] = changed[other : other + r.randint(1, 30)]
        else:
            changed[place] ^= 1 << r.randrange(8)
    return bytes(changed)
