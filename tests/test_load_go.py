"""load_go: the functions of a Go package called from Python, on the package in load_go/kinds."""

from __future__ import annotations

import array
import contextlib
import gc
import inspect
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import torch

import pytorch_bridge
from pytorch_bridge.native import toolchain

KINDS = toolchain.ROOT / "tests/load_go/kinds"


@pytest.fixture(scope="session")
def kinds(library):
    return pytorch_bridge.load_go(KINDS)


@pytest.fixture(autouse=True)
def no_handle_is_left(request, library):
    """Every test gives back all handles, also those that fail on purpose."""
    from pytorch_bridge.native import extension

    before = extension.live_handles()  # of other test files, which may free some meanwhile
    yield
    if "kinds" in request.fixturenames:
        request.getfixturevalue("kinds").collect()
    assert extension.live_handles() <= before


# Every type ---------------------------------------------------------------------------------------

INTEGERS = [f"{sign}nt{bits}" for sign in ("I", "Ui") for bits in ("8", "16", "32", "64", "")]


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(kinds, name):
    bits = int(name.partition("nt")[2] or 64)
    low, high = (-(1 << bits - 1), 1 << bits - 1) if name[0] == "I" else (0, 1 << bits)
    same = getattr(kinds, name)
    for value in (0, 1, low, high - 1):
        assert same(value) == value
    assert same(np.int64(7)) == 7
    for value in (low - 1, high, 1 << 200):
        with pytest.raises(
            OverflowError, match=rf"kinds.{name}\(\) argument 'v' is {value}, which"
        ):
            same(value)


@pytest.mark.parametrize("value", [0.0, -0.5, 1e30, math.inf, -math.inf, 7, np.float32(1.5)])
def test_floats(kinds, value):
    assert kinds.Float64(value) == value
    assert kinds.Float32(value) == torch.tensor(value, dtype=torch.float32).item()


def test_floats_keep_their_bits(kinds):
    assert math.isnan(kinds.Float64(math.nan))
    assert math.copysign(1, kinds.Float64(-0.0)) == -1
    assert kinds.Float64(0.1) == 0.1
    assert kinds.Float32(0.1) == float(np.float32(0.1))
    with pytest.raises(OverflowError, match="'v' is 1e\\+300, which Go's float32 cannot hold"):
        kinds.Float32(1e300)
    with pytest.raises(OverflowError):
        kinds.Float64(10**400)


def test_complex_numbers(kinds):
    assert kinds.Complex128(1 - 2j) == 1 - 2j
    assert kinds.Complex64(0.5j) == 0.5j
    assert kinds.Complex128(3) == 3
    with pytest.raises(OverflowError):
        kinds.Complex64(complex(0, 1e300))


def test_text_and_bytes(kinds):
    for text in ("", "a", "grüße 火 \0 \U0001f600", "x" * 100_000):
        assert kinds.String(text) == text
    # What is no UTF-8 in Go has the form in Python that file names have.
    assert (
        kinds.String(b"\xff\xfe".decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )
        == b"\xff\xfe"
    )
    with pytest.raises(ValueError, match="String\\(\\) argument 'v' is no text"):
        kinds.String("\ud800")
    data = bytes(range(256)) * 100
    for value in (data, bytearray(data), memoryview(data)):
        assert kinds.Bytes(value) == data
    assert kinds.Bytes(b"") == b""


def test_named_types(kinds):
    assert kinds.Named(36.5) == 36.5
    assert kinds.Duration(10**9) == 10**9
    assert kinds.Colours(["red", ""]) == ["red", ""]
    assert kinds.Celsiuses((1, 2.5)) == [1, 2.5]


def test_bools(kinds):
    assert kinds.Bool(True) is True
    assert kinds.Bool(False) is False
    assert kinds.Bools([True, False]) == [True, False]


@pytest.mark.parametrize("values", [[], [1, -2, 3], (4,), range(5), {5: "a"}.keys()])
def test_slices_of_numbers(kinds, values):
    assert kinds.Ints(values) == list(values)
    assert kinds.Int32s(values) == list(values)
    assert kinds.Float64s(values) == list(values)
    assert kinds.Complexes(values) == list(values)
    assert kinds.Ints(v for v in values) == list(values)


@pytest.mark.parametrize(
    "values",
    [
        array.array("d", [1, 2, 3]),
        np.array([1.0, 2, 3]),
        np.array([1, 2, 3], dtype=np.float32),
        np.array([1, 0, 2, 0, 3, 0])[::2],
        memoryview(np.array([1.0, 2, 3])),
    ],
)
def test_arrays_as_slices(kinds, values):
    assert kinds.Float64s(values) == [1, 2, 3]


def test_other_slices(kinds):
    assert kinds.Strings(["a", "", "ü"]) == ["a", "", "ü"]
    assert kinds.Nested([[1, 2], [], [3]]) == [[1, 2], [], [3]]
    assert kinds.Files([b"a", b""]) == [b"a", b""]
    assert kinds.Triple([1, 2, 3]) == [1, 2, 3]
    assert kinds.Triple(np.array([1.0, 2, 3])) == [1, 2, 3]
    for none in (kinds.Ints, kinds.Strings, kinds.Nested, kinds.Tensors):
        assert none(None) == []
    for wrong in ([1, 2], np.zeros(4), []):
        with pytest.raises(ValueError, match="must have 3 elements"):
            kinds.Triple(wrong)


def test_maps(kinds):
    assert kinds.Map({"b": 2, "a": 1}) == {"a": 1, "b": 2}
    assert list(kinds.Map({"b": 2, "a": 1})) == ["a", "b"]
    assert kinds.Map({}) == kinds.Map(None) == {}
    assert kinds.Named2({"red": ["a", "b"], "": []}) == {2: True}


def test_pointers(kinds):
    assert kinds.Maybe(None) is None
    assert kinds.Maybe(0) == 0
    assert kinds.Maybe(5) == 5


@pytest.mark.parametrize("value", [None, True, 0, -3, 1 << 63, (1 << 64) - 1, 0.5, 2.0, 1 + 2j])
def test_scalars_stay_what_they_are(kinds, value):
    back = kinds.Number(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "dtype", sorted((v for v in vars(torch).values() if isinstance(v, torch.dtype)), key=str)
)
def test_dtypes(kinds, dtype):
    assert kinds.DType(dtype) is dtype


def test_devices(kinds):
    assert kinds.DType(None) is None
    assert kinds.Device(None) is None
    for name in ("cpu", "cuda", "cuda:1", "meta"):
        assert kinds.Device(name) == torch.device(name)
        assert kinds.Device(torch.device(name)) == torch.device(name)


def test_several_results(kinds):
    x = torch.ones(2, 3, dtype=torch.float64)
    double, shape, text = kinds.Three(x)
    assert torch.equal(double, x * 2)
    assert (shape, text) == ([2, 3], "float64")
    assert kinds.Nothing() is None


def test_variadic_functions(kinds):
    assert kinds.Sum(1) == 1
    assert kinds.Sum(1, 2, 3.5) == 6.5
    assert kinds.CatAll(torch.ones(1), torch.zeros(2)).tolist() == [1, 0, 0]
    with pytest.raises(TypeError, match=r"kinds.Sum\(\) argument 'more'\[1\] must be a float"):
        kinds.Sum(1, 2, "x")


def test_options_are_keywords(kinds):
    x = torch.tensor([1.0, 2.0])
    assert kinds.Scale(x).tolist() == [1, 2]
    assert kinds.Scale(x, Factor=3).tolist() == [3, 6]
    assert kinds.Scale(x, Factor=3, Shift=0.5).tolist() == [3.5, 6.5]
    assert kinds.Scale(x=x, DType=torch.int64).dtype == torch.int64
    assert kinds.OptionsGiven() == 0
    assert kinds.OptionsGiven(Factor=0) == 1
    with pytest.raises(TypeError, match="unexpected keyword argument 'Hook'"):
        kinds.Scale(x, Hook=1)
    with pytest.raises(TypeError, match=r"kinds.Scale\(\) argument 'Factor' must be a float"):
        kinds.Scale(x, Factor="x")


# What Python sees of a function -------------------------------------------------------------------


def test_signatures(kinds):
    def written(name):
        return str(inspect.signature(getattr(kinds, name)))

    assert written("Three") == "(x: torch.Tensor) -> tuple[torch.Tensor, list[int], str]"
    assert written("Sum") == "(start: float, *more: float) -> float"
    assert written("Keywords") == "(lambda_: int, None_: int, arg2: int) -> int"
    assert written("Maybe") == "(v: int | None) -> int | None"
    assert written("Nothing") == "() -> None"
    assert written("Scale").startswith("(x: torch.Tensor, *, Factor: float = ..., Shift: ")
    assert kinds.Keywords(1, None_=2, arg2=3) == 120


def test_comments(kinds):
    assert kinds.Scale.__doc__.startswith("Scale returns x · Factor + Shift.\n")
    assert "Factor: float64  what to multiply with; 0 means 1\n" in kinds.Scale.__doc__
    assert "Hook: is a function" in kinds.Scale.__doc__
    assert "load_go/kinds/kinds.go:" in kinds.Scale.__doc__
    assert kinds.__doc__.startswith("Package kinds has a function for everything")
    assert kinds.Scale.__name__ == "Scale"
    assert kinds.Scale.__module__ == kinds.__name__ == "kinds"


def test_constants(kinds):
    assert (kinds.Limit, kinds.Name, kinds.Ratio, kinds.On) == (1 << 40, "kinds", 0.5, True)


LEFT_OUT = {
    "Generic": "it is generic; wrap it for the types you need",
    "Channel": "parameter c is a channel, chan int",
    "Callback": "parameter f is a function, func(int) int",
    "Hidden": "parameter h has the type hidden, which is not exported",
    "Struct": "parameter p is a struct, Pair: only a last parameter ...Options may be",
    "Interface": "parameter v is an interface, fmt.Stringer",
    "Address": "parameter p is a bare address, uintptr",
    "ErrorFirst": "result 0 is an error: only a last result may be",
    "ResultFunc": "result 0 is a function, func()",
    "Pointers": "parameter p is a pointer to something other than a number",
    "FloatKeys": "parameter m is a map whose keys are neither strings nor integers",
    "HiddenOptions": "its options have the type hidden, which is not exported",
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_cannot_be_called_says_why(kinds, name):
    assert not hasattr(kinds, name)
    with pytest.raises(AttributeError, match=f"Python cannot call func {name}\\b") as raised:
        getattr(kinds, name)
    assert LEFT_OUT[name] in str(raised.value)
    assert LEFT_OUT[name] in repr(kinds)
    assert LEFT_OUT[name] in kinds.__doc__


def test_every_exported_function_is_there_or_left_out(kinds):
    source = (KINDS / "kinds.go").read_text().splitlines()
    declared = {line[5:].split("(")[0].split("[")[0] for line in source if line.startswith("func ")}
    exported = {name for name in declared if name and name[0].isupper()}
    described = {f["name"] for f in kinds._description["functions"]}
    assert described | set(LEFT_OUT) == exported
    assert described <= set(dir(kinds))


def test_other_names_are_not_there(kinds):
    with pytest.raises(AttributeError, match="kinds has no exported function 'unexported'"):
        kinds.unexported  # noqa: B018


# Wrong arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("Int", "1", "must be an int (Go's int), not str"),
        ("Int", 1.0, "must be an int (Go's int), not float"),
        ("Int", True, "must be an int (Go's int), not bool"),
        ("Int", None, "must be an int (Go's int), not None"),
        ("Int", torch.tensor(1), "must be an int (Go's int), not Tensor"),
        ("Float64", "1", "must be a float (Go's float64), not str"),
        ("Float64", b"1", "must be a float (Go's float64), not bytes"),
        ("Float64", True, "must be a float (Go's float64), not bool"),
        ("Float64", 1j, "must be a float (Go's float64), not complex"),
        ("Float64", torch.tensor(1.0), "must be a float (Go's float64), not Tensor"),
        ("Complex128", "1", "must be a complex (Go's complex128), not str"),
        ("Bool", 1, "must be a bool (Go's bool), not int"),
        ("String", b"a", "must be a str (Go's string), not bytes"),
        ("Bytes", "a", "must be bytes (Go's []byte), not str"),
        ("Named", "a", "must be a float (Go's Celsius), not str"),
        ("Ints", 1, "must be a list of ints (Go's []int), not int"),
        ("Ints", "12", "must be a list of ints (Go's []int), not str"),
        ("Ints", [1, "2"], "[1] must be an int (Go's int), not str"),
        ("Strings", "ab", "must be a list of strs (Go's []string), not str"),
        ("Strings", {"a": 1}, "must be a list of strs (Go's []string), not dict"),
        ("Nested", [[1], [2, None]], "[1][1] must be an int (Go's int16), not None"),
        ("Map", [1], "must be a dict of strs and ints (Go's map[string]int), not list"),
        ("Map", {1: 1}, "[1] must be a str (Go's string), not int"),
        ("Map", {"a": "b"}, "['a'] must be an int (Go's int), not str"),
        ("Maybe", "a", "must be an int or None (Go's *int), not str"),
        ("Number", "a", "must be a bool, an int, a float, a complex or None"),
        ("DType", "float32", "must be a torch.dtype or None (Go's gotorch.DType), not str"),
        ("Device", 1, "must be a torch.device, its name or None"),
        ("Tensor", 1, "must be a torch.Tensor or None (Go's gotorch.Tensor), not int"),
        ("Tensor", np.ones(1), "must be a torch.Tensor or None (Go's gotorch.Tensor), not ndarray"),
        ("Tensors", torch.ones(2), "must be a list of torch.Tensors or None"),
        ("Tensors", [torch.ones(2), 1], "[1] must be a torch.Tensor or None"),
        ("Dict", {"a": 1}, "['a'] must be a torch.Tensor or None"),
    ],
)
def test_wrong_types_are_named(kinds, name, value, said):
    with pytest.raises(TypeError) as raised:
        getattr(kinds, name)(value)
    assert str(raised.value).startswith(f"kinds.{name}() argument 'v'")
    assert said in str(raised.value)


def test_a_wrong_argument_costs_no_reference(kinds):
    x = torch.ones(3)
    uses = x._use_count()
    for wrong in (lambda: kinds.MM(x, 1), lambda: kinds.Scale(x, Factor="x")):
        with pytest.raises(TypeError):
            wrong()
        assert x._use_count() == uses
    with pytest.raises(TypeError):
        kinds.Tensors([x, x, None, "x"])
    assert x._use_count() == uses


def test_the_number_of_arguments_is_checked_as_in_python(kinds):
    for wrong, said in [
        (lambda: kinds.MM(torch.ones(1)), r"MM\(\) missing 1 required positional argument: 'b'"),
        (lambda: kinds.Int(1, 2), r"Int\(\) takes 1 positional argument but 2 were given"),
        (lambda: kinds.Int(v=1, w=2), "unexpected keyword argument 'w'"),
    ]:
        with pytest.raises(TypeError, match=said):
            wrong()


# Errors -------------------------------------------------------------------------------------------


def test_a_go_error_is_an_exception(kinds, tmp_path):
    (tmp_path / "file").write_text("abc")
    assert kinds.Open(str(tmp_path / "file")) == 3
    with pytest.raises(
        pytorch_bridge.GoError, match=r"cannot open: stat .*/gone: no such file"
    ) as raised:
        kinds.Open(str(tmp_path / "gone"))
    assert isinstance(raised.value, RuntimeError)
    assert raised.value.go_type == "*fmt.wrapError"
    assert kinds.Check(True) is None
    with pytest.raises(pytorch_bridge.GoError) as raised:
        kinds.Check(False)
    assert str(raised.value) == "permission denied"


def test_pytorchs_error_in_a_go_error_is_its_cause(kinds):
    assert kinds.TryMM(torch.eye(2), torch.eye(2)).tolist() == [[1, 0], [0, 1]]
    with pytest.raises(pytorch_bridge.GoError) as raised:
        kinds.TryMM(torch.ones(2, 3), torch.ones(2, 3))
    cause = raised.value.__cause__
    assert type(cause) is RuntimeError
    assert str(cause).endswith("mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)")


def test_a_panic_of_an_op_is_what_pytorch_raises(kinds):
    bad = torch.ones(2, 3)
    with pytest.raises(RuntimeError) as ours:
        kinds.MM(bad, bad)
    with pytest.raises(RuntimeError) as theirs:
        torch.mm(bad, bad)
    assert str(ours.value) == str(theirs.value).splitlines()[0]
    with pytest.raises(IndexError):
        kinds.Row(bad, 7)
    with pytest.raises(TypeError, match="'self' is the zero Tensor, where a tensor is required"):
        kinds.MM(None, bad)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("RuntimeError", RuntimeError),
        ("IndexError", IndexError),
        ("ValueError", ValueError),
        ("TypeError", TypeError),
        ("AttributeError", AttributeError),
        ("KeyError", KeyError),
        ("NotImplementedError", NotImplementedError),
        ("LinAlgError", torch.linalg.LinAlgError),
        ("OutOfMemoryError", torch.OutOfMemoryError),
        ("AcceleratorError", torch.AcceleratorError),
        ("MemoryError", MemoryError),
        ("BufferError", BufferError),
        ("OSError", OSError),
        ("SyntaxError", SyntaxError),
    ],
)
def test_kinds_of_errors(kinds, kind, error):
    with pytest.raises(error) as raised:
        kinds.PanicKind(kind, "what is wrong")
    assert type(raised.value) is error
    assert "what is wrong" in str(raised.value)


def test_an_unknown_kind_of_error(kinds):
    for kind in ("StrangeError", "print", "SystemExit", ""):
        with pytest.raises(RuntimeError, match="what is wrong") as raised:
            kinds.PanicKind(kind, "what is wrong")
        assert type(raised.value) is RuntimeError


def test_a_wrapped_error_keeps_its_kind(kinds):
    with pytest.raises(IndexError) as raised:
        kinds.Wrapped()
    assert str(raised.value) == "inside"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("string", "broken"),
        ("int", "7"),
        ("error", "an error"),
        ("nil", "panic called with nil argument"),
        ("index", "index out of range [5] with length 0"),
        ("pointer", "invalid memory address or nil pointer dereference"),
        ("map", "assignment to entry in nil map"),
        ("divide", "integer divide by zero"),
        ("evil", "panic with a kinds.evil"),
        ("exit", "the function ended its goroutine"),
        ("exit in a hook", "the function ended its goroutine"),
    ],
)
def test_other_panics_are_runtime_errors(kinds, how, said):
    with pytest.raises(RuntimeError) as raised:
        kinds.Panic(how)
    assert said in str(raised.value)
    kinds.Panic("not at all")


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="exceptions have no notes before Python 3.11"
)
def test_the_stack_says_where_go_panicked(kinds):
    with pytest.raises(RuntimeError) as raised:
        kinds.Panic("string")
    note = raised.value.__notes__[0]
    assert note.startswith("Go panicked in kinds.Panic():\n")
    line = next(line for line in note.splitlines() if "kinds.go:" in line)
    number = int(line.split("kinds.go:")[1].split()[0])
    assert 'panic("broken")' in (KINDS / "kinds.go").read_text().splitlines()[number - 1]
    assert "pyload." not in note


def test_a_closed_tensor_in_the_result(kinds):
    x = torch.ones(2)
    uses = x._use_count()
    for wrong in (kinds.Closed, kinds.HalfClosed):
        with pytest.raises(ValueError, match="a tensor in the result was closed"):
            wrong(x)
    kinds.CloseIt(x)
    assert x.tolist() == [1, 1]  # it is Python's still
    kinds.collect()
    assert x._use_count() == uses


# Tensors ------------------------------------------------------------------------------------------


def test_tensors_are_not_copied(kinds):
    x = torch.zeros(3)
    assert kinds.Tensor(x) is x
    assert kinds.Add1(x) is x
    assert x.tolist() == [1, 1, 1]
    row = kinds.Row(torch.arange(6.0).reshape(2, 3), 1)
    assert row.tolist() == [3, 4, 5]
    big = torch.zeros(2, 3)
    assert kinds.Row(big, 1).data_ptr() == big.data_ptr() + 12
    assert kinds.Tensor(None) is None
    assert [t if t is None else t.item() for t in kinds.Tensors([torch.tensor(1), None])] == [
        1,
        None,
    ]
    state = torch.nn.Linear(2, 1).state_dict()
    back = kinds.Dict(state)
    assert {name: back[name] is state[name] for name in state} == {"weight": True, "bias": True}


def test_subclasses_come_back(kinds):
    parameter = torch.nn.Parameter(torch.ones(2))
    assert kinds.Tensor(parameter) is parameter


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(2, 3).t(),
        torch.zeros(0, 4),
        torch.tensor(5),
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, 2).to_sparse(),
        torch.ones(2, device="meta"),
    ],
    ids=["strided", "empty", "scalar", "bfloat16", "sparse", "meta"],
)
def test_any_tensor(kinds, x):
    assert kinds.Tensor(x) is x
    y = kinds.Scale(x)
    assert (y.shape, y.layout, y.device) == (x.shape, x.layout, x.device)


def test_the_graph_goes_through(kinds):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = kinds.Scale(x * 3, Factor=2)
    assert y.grad_fn.name() == "MulBackward1"
    y.sum().backward()
    assert x.grad.tolist() == [6, 6]
    x.grad = None
    kinds.Scoped(x).backward()
    assert x.grad.tolist() == [2, 2]
    with torch.no_grad():
        assert not kinds.Scale(x, Factor=2).requires_grad


def test_a_go_hook_runs_in_pythons_backward(kinds):
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    kinds.Hooked(x).sum().backward()
    assert x.grad.tolist() == [4, 12]


def test_pythons_modes_hold_on_the_thread_that_calls(kinds):
    assert kinds.GradEnabled() == (True, True)
    with torch.no_grad():
        assert kinds.GradEnabled() == (False, True)
    with torch.inference_mode():
        assert kinds.Scale(torch.ones(1)).is_inference()


def test_memory_of_go(kinds):
    x = kinds.FromGo(1000)
    for _ in range(20):
        kinds.FromGo(100_000)
    kinds.collect()
    assert x.tolist() == list(range(1000))


# Memory -------------------------------------------------------------------------------------------


def test_references_come_back_by_themselves(kinds):
    x = torch.ones(2, 2)
    uses = x._use_count()
    kinds.Scale(x)
    deadline = time.monotonic() + 300
    while x._use_count() > uses and time.monotonic() < deadline:
        time.sleep(0.01)  # nobody calls Go meanwhile
    assert x._use_count() == uses


def test_ten_thousand_calls_keep_nothing(kinds):
    x = torch.ones(2, 2)
    kinds.collect()
    uses, objects = x._use_count(), sys.getrefcount(x)
    for _ in range(10_000):
        kinds.Three(kinds.Tensor(x))
    kinds.collect()
    gc.collect()
    assert (x._use_count(), sys.getrefcount(x)) == (uses, objects)


def test_go_may_keep_a_tensor(kinds):
    x = torch.ones(2)
    alive = torch._C._WeakTensorRef(x)
    x.note = "mine"
    kinds.Keep(x)
    del x
    kinds.collect()
    gc.collect()
    (back,) = kinds.Kept()
    assert back.note == "mine"
    kinds.Forget()
    del back
    kinds.collect()
    gc.collect()
    assert alive.expired()


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_tensors_that_go_drops_stay_few(kinds):
    """Nothing but the collector frees them, and PyTorch's own allocator counts nothing."""
    kinds.Churn(100)
    peak, before, done = 0, resident(), threading.Event()

    def watch():
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    kinds.Churn(2_000)  # 2 GB
    done.set()
    watcher.join()
    assert peak - before < 400 << 20


def test_results_that_python_drops_stay_few(kinds):
    x = torch.zeros(1 << 20)
    before = resident()
    peak = 0
    for _ in range(500):  # 2 GB
        kinds.Scale(x)
        peak = max(peak, resident())
    assert peak - before < 400 << 20


def test_python_keeps_its_own_allocator(kinds):
    """In a Go program gotorch installs its own; a tensor made here must be malloc's."""
    kinds.Churn(10)
    assert kinds.NativeBytes() == 0


# Threads ------------------------------------------------------------------------------------------


def test_calls_run_without_the_lock(kinds):
    threads = [threading.Thread(target=kinds.Together, args=(9,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert kinds.Together(9) == 9  # at the same time, which takes Python beside them
    for thread in threads:
        thread.join()


def test_many_threads(kinds):
    wrong = []

    def work(i):
        x = torch.full((10,), float(i))
        for _ in range(300):
            double, _, text = kinds.Three(x)
            if double[3] != 2 * i or text != "float32":
                wrong.append(i)
            with contextlib.suppress(RuntimeError):
                kinds.Panic("string")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_goroutines(kinds):
    x = torch.tensor([2.0, 4.0], requires_grad=True)
    y = kinds.Goroutines(x, 16)
    assert y.tolist() == [32, 128]
    y.sum().backward()
    assert x.grad.tolist() == [32, 64]


@pytest.mark.parametrize(
    "work",
    [
        "m[0].CloseLater([torch.nn.Parameter(torch.ones(1)) for _ in range(50_000)])",
        "m[0].ComputeForever()",
    ],
    ids=["freeing", "computing"],
)
def test_goroutines_that_still_run_at_the_end(work):
    """They use tensors whose Python objects, and libtorch itself, are being taken apart."""
    code = f"{work}\nimport time\ntime.sleep(0.05)\nprint('done')\n"
    assert load_in_another_process(KINDS, code=code) == ["done"]


def test_pythons_dispatch_reaches_what_go_calls(kinds):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Record():
        assert kinds.Scoped(torch.ones(3)).item() == 9
    assert [name for name in seen if "is_pinned" not in name][:4] == [
        "aten.ones.default",
        "aten.mul.Scalar",
        "aten.add.Scalar",
        "aten.sum.default",
    ]


# Building -----------------------------------------------------------------------------------------


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(textwrap.dedent(text).lstrip())
    return folder


def load_in_another_process(*folders, code, **env):
    """What `code` prints in a new process, where m is the list of the loaded packages."""
    source = f"import torch, pytorch_bridge\nm = [pytorch_bridge.load_go(f) for f in {[str(f) for f in folders]!r}]\n"
    done = subprocess.run(
        [sys.executable, "-c", source + textwrap.dedent(code)],
        cwd=toolchain.ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


def test_a_plain_folder(tmp_path):
    folder = write(
        tmp_path / "my ops",
        ops_go="""
            package ops

            import "gotorch.dev/gotorch"

            func Double(x gotorch.Tensor) gotorch.Tensor { return x.MulScalar(2) }
            """,
    )
    ops = pytorch_bridge.load_go(folder)
    assert ops.Double(torch.ones(2)).tolist() == [2, 2]
    assert pytorch_bridge.load_go(str(folder)) is ops
    assert [file.name for file in folder.iterdir()] == ["ops.go"]  # nothing was written there
    ops.collect()

    # An edit is seen; what was loaded before stays what it is.
    (folder / "ops.go").write_text((folder / "ops.go").read_text().replace("(2)", "(3)"))
    edited = pytorch_bridge.load_go(folder)
    assert edited is not ops
    assert edited.Double(torch.ones(2)).tolist() == [3, 3]
    assert ops.Double(torch.ones(2)).tolist() == [2, 2]
    edited.collect()
    ops.collect()


def test_a_module_of_its_own_and_one_beside_it(tmp_path):
    helper = write(
        tmp_path / "helper",
        go_mod="module example.org/helper\n\ngo 1.26.0\n",
        helper_go="package helper\n\nfunc Answer() int { return 42 }\n",
    )
    folder = write(
        tmp_path / "user",
        go_mod="""
            module example.org/user

            go 1.26.0

            require example.org/helper v0.0.0

            replace example.org/helper => ../helper
            """,
    )
    package = write(
        folder / "calc",
        calc_go="""
            // Package calc computes.
            package calc

            import "example.org/helper"

            func Answer() int { return helper.Answer() }
            """,
    )
    assert load_in_another_process(package, code="print(m[0].Answer())") == ["42"]
    # A change in what it imports is seen too.
    (helper / "helper.go").write_text("package helper\n\nfunc Answer() int { return 43 }\n")
    assert load_in_another_process(package, code="print(m[0].Answer())") == ["43"]
    assert "Package calc computes." in pytorch_bridge.load_go(package).__doc__


BROKEN = {
    "types": ('package bad\n\nfunc F() int {\n\treturn "x"\n}\n', "bad.go:4:9: cannot use"),
    "syntax": ("package bad\n\nfunc F( {\n", "bad.go:3:9: syntax error"),
    "import": ('package bad\n\nimport "example.org/gone"\n\nvar _ = gone.X\n', "example.org/gone"),
    "main": ("package main\n\nfunc main() {}\n", "package main: nothing can import it"),
    "unused": ('package bad\n\nimport "fmt"\n', 'bad.go:3:8: "fmt" imported and not used'),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_does_not_compile_says_why(tmp_path, kind):
    text, said = BROKEN[kind]
    folder = write(tmp_path / "bad", bad_go=text)
    with pytest.raises(pytorch_bridge.GoBuildError) as raised:
        pytorch_bridge.load_go(folder)
    assert said in str(raised.value)
    if "bad.go" in said:
        assert f"{folder}/{said}" in str(raised.value)


def test_an_internal_package_says_why(tmp_path):
    folder = write(
        tmp_path / "user/internal/deep",
        deep_go="package deep\n\nfunc F() {}\n",
    )
    write(tmp_path / "user", go_mod="module example.org/user\n\ngo 1.26.0\n")
    with pytest.raises(pytorch_bridge.GoBuildError, match="can only be imported from beside"):
        pytorch_bridge.load_go(folder)


def test_no_package_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        pytorch_bridge.load_go(tmp_path / "gone")
    with pytest.raises(NotADirectoryError):
        pytorch_bridge.load_go(KINDS / "kinds.go")
    with pytest.raises(pytorch_bridge.GoBuildError, match="There are no Go files in"):
        pytorch_bridge.load_go(tmp_path)


def test_two_packages_in_one_process(kinds, tmp_path):
    """Each has a Go runtime of its own, and both use the one libtorch."""
    folder = write(
        tmp_path / "second",
        second_go="""
            package second

            import "gotorch.dev/gotorch"

            func FromGo(n int) gotorch.Tensor { return gotorch.FromBlob(make([]float32, n)) }

            func Hooked(x gotorch.Tensor) gotorch.Tensor {
                y := x.MulScalar(1)
                y.RegisterHook(func(grad gotorch.Tensor) gotorch.Tensor { return grad.MulScalar(10) })
                return y
            }

            func Fault(p *int) int { return *p }
            """,
    )
    second = pytorch_bridge.load_go(folder)
    x = torch.tensor([1.0], requires_grad=True)
    second.Hooked(kinds.Hooked(x)).backward()
    assert x.grad.item() == 40
    for _ in range(50):
        for module in (kinds, second):
            module.FromGo(1000)
            with pytest.raises(RuntimeError, match="nil pointer"):
                module.Fault(None) if module is second else module.Panic("pointer")
    mine, yours = kinds.FromGo(3), second.FromGo(3)
    for _ in range(3):
        kinds.collect()
        second.collect()
    assert (mine.tolist(), yours.tolist()) == ([0, 1, 2], [0, 0, 0])

    # The collector of the first can still interrupt its goroutines.
    spinning = threading.Thread(target=kinds.Spin)
    spinning.start()
    while not kinds.Spinning():
        time.sleep(0.001)
    kinds.collect()
    assert kinds.Spinning()  # it was not waited for
    kinds.StopSpinning()
    spinning.join()


def test_a_workspace(tmp_path):
    write(tmp_path, go_work="go 1.26.0\n\nuse ./helper\nuse ./user\n")
    write(
        tmp_path / "helper",
        go_mod="module example.org/helper\n\ngo 1.26.0\n",
        helper_go="package helper\n\nfunc Answer() int { return 42 }\n",
    )
    folder = write(
        tmp_path / "user",
        go_mod="module example.org/user\n\ngo 1.26.0\n",
        user_go="""
            package user

            import "example.org/helper"

            func Answer() int { return helper.Answer() }
            """,
    )
    assert pytorch_bridge.load_go(folder).Answer() == 42


def test_python_keeps_its_signals(kinds):
    code = f"""
import signal, pytorch_bridge
pytorch_bridge.load_go({str(KINDS)!r}).Int(1)
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=toolchain.ROOT,
        capture_output=True,
        text=True,
        # Where the tests run in the background, SIGINT is ignored, and Python leaves it so.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert done.stdout == "interrupted\n", done.stderr


def test_processes_wait_for_each_other(tmp_path):
    folder = write(tmp_path / "shared", f_go="package shared\n\nfunc F() int { return 5 }\n")
    code = f"import pytorch_bridge; print(pytorch_bridge.load_go({str(folder)!r}).F())"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=toolchain.ROOT, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    assert [p.communicate()[0] for p in processes] == [b"5\n"] * 3


def test_after_a_fork(kinds):
    child = os.fork()
    if child == 0:
        try:
            kinds.Int(1)
        except RuntimeError as err:
            os._exit(0 if "Go does not survive a fork" in str(err) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kinds.Int(1) == 1


def test_import_is_light():
    code = "import sys, pytorch_bridge; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=toolchain.ROOT).returncode == 0
