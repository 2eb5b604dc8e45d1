"""Graphs as C functions: what Go calls. Python is here only the caller."""

from __future__ import annotations

import ctypes
import re
import subprocess

import pytest
import torch
from doubles import compiled, double, graph, in_threads

from pytorch_bridge import ops
from pytorch_bridge.errors import BridgeTypeError, BridgeValueError, MissingMethodError
from pytorch_bridge.graph.basic import Apply, Constant
from pytorch_bridge.native import build
from pytorch_bridge.native.extension import borrow, from_handle, live_handles
from pytorch_bridge.ops.native import constant
from pytorch_bridge.ops.op import Op
from pytorch_bridge.packages.c_function import CFunction
from pytorch_bridge.schema.functions import load_reference
from pytorch_bridge.types import TensorType, schema_type
from pytorch_bridge.types.containers import BoolArray, ListArg, Optional
from pytorch_bridge.types.objects import Handle
from pytorch_bridge.types.tensor import TensorArg

STRICT = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-fPIC"]
LIB = build.toolchain.build_dir() / "lib"
HERE = [f"-I{build.SOURCES}", f"-L{LIB}", "-lcgotorch", f"-Wl,-rpath,{LIB}"]


@pytest.fixture(autouse=True)
def no_handle_is_left():
    before = live_handles()
    yield
    assert live_handles() == before


@pytest.fixture
def load(tmp_path):
    """Compiles a C function with all warnings as errors and makes it callable."""

    def loaded(function):
        source = tmp_path / f"{function.name}.c"
        source.write_text(function.source())
        library = source.with_suffix(".so")
        subprocess.run(
            ["cc", *STRICT, "-shared", str(source), "-o", str(library), *HERE], check=True
        )
        c = ctypes.CDLL(str(library))
        call = getattr(c, function.name)
        call.restype = ctypes.c_void_p
        return call

    return loaded


def message(pointer):
    """The text of an error, which is freed."""
    if pointer is None:
        return None
    text = ctypes.string_at(pointer).decode()
    ctypes.CDLL(str(LIB / "libcgotorch.so")).cgotorch_FreeString(ctypes.c_void_p(pointer))
    return text


def handle(t):
    return ctypes.c_void_p(borrow(t))


def tensor(*sizes, dtype="float32", name=None):
    return TensorType(dtype, sizes)(name)


def network():
    torch.manual_seed(0)
    w, b = torch.randn(4, 3), torch.randn(4)
    x = tensor(None, 3, name="x")
    out = ops.relu(ops.addmm(constant(b), x, ops.t(constant(w))))
    return CFunction(graph([x], [out]), "Forward"), w, b


def test_a_network_with_its_weights_as_constants(load):
    f, w, b = network()
    assert f.prototype() == "const char *Forward(const Tensor *constants, Tensor x, Tensor *out0)"
    assert [c.data.data_ptr() for c in f.constants] == [w.data_ptr(), b.data_ptr()]
    assert "Py" not in f.source()
    call = load(f)
    constants = (ctypes.c_void_p * 2)(borrow(w), borrow(b))
    for batch in (2, 0, 7):
        x, out = torch.randn(batch, 3), ctypes.c_void_p()
        assert call(constants, handle(x), ctypes.byref(out)) is None
        expected = torch.relu(torch.nn.functional.linear(x, w, b))
        assert torch.equal(from_handle(out.value), expected)


def test_errors_say_where_and_write_nothing(load):
    a, b = tensor(None, None, name="a"), tensor(None, None, name="b")
    f = CFunction(graph([a, b], [ops.relu(ops.mm(a, b))]), "Product")
    call = load(f)
    out = ctypes.c_void_p(1)
    square, wide = torch.ones(2, 2), torch.ones(3, 3)
    assert message(call(handle(square), handle(wide), ctypes.byref(out))) == (
        "RuntimeError: mm: mat1 and mat2 shapes cannot be multiplied (2x2 and 3x3) "
        "[node 0 of 2: t0 = mm(a, b)]"
    )
    assert message(call(handle(square), None, ctypes.byref(out))) == (
        "TypeError: expected a tensor, got none [input 1, b]"
    )
    assert message(call(handle(square.double()), handle(wide), ctypes.byref(out))) == (
        "TypeError: expected a tensor of dtype float32 of shape (?, ?) on cpu, "
        "got one of dtype float64 of shape (2, 2) on cpu [input 0, a]"
    )
    leaf = torch.ones(2, 2, requires_grad=True)
    assert "records no gradient" in message(call(handle(leaf), handle(square), ctypes.byref(out)))
    assert out.value == 1


def test_numbers_and_lists_in_and_out(load):
    x = tensor(2, 3, name="x")
    k, r, flag = schema_type("int")("k"), schema_type("float")("r"), schema_type("bool")("flag")
    sizes = schema_type("int[]")("sizes")
    out = ops.add(ops.mul(ops.t(x), k), r)
    f = CFunction(graph([x, k, r, flag, sizes], [out, k, r, flag, sizes]), "Numbers")
    assert f.prototype() == (
        "const char *Numbers(Tensor x, int64_t k, double r, bool flag, const int64_t *sizes, "
        "int64_t sizes_len, Tensor *out0, int64_t *out1, double *out2, bool *out3, "
        "int64_t **out4, int64_t *out4_len)"
    )
    call = load(f)
    value = torch.arange(6.0).reshape(2, 3)
    result, k2, r2, flag2 = ctypes.c_void_p(), ctypes.c_int64(), ctypes.c_double(), ctypes.c_bool()
    list2, len2 = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_int64()
    error = call(
        *(handle(value), ctypes.c_int64(10), ctypes.c_double(0.5), ctypes.c_bool(True)),
        *((ctypes.c_int64 * 2)(3, 2), ctypes.c_int64(2)),
        *map(ctypes.byref, (result, k2, r2, flag2, list2, len2)),
    )
    assert message(error) is None
    assert torch.equal(from_handle(result.value), value.t() * 10 + 0.5)
    assert (k2.value, r2.value, flag2.value, list2[: len2.value]) == (10, 0.5, True, [3, 2])
    ctypes.CDLL(str(LIB / "libcgotorch.so")).cgotorch_FreeArray(list2)


def test_an_output_that_is_an_input_or_another_output(load):
    x = tensor(2, name="x")
    y = ops.neg(x)
    call = load(CFunction(graph([x], [x, y, y]), "Several"))
    value = torch.ones(2)
    outs = [ctypes.c_void_p() for _ in range(3)]
    assert call(handle(value), *map(ctypes.byref, outs)) is None
    a, b, c = (from_handle(o.value) for o in outs)
    assert a is value
    assert b is c
    assert b.tolist() == [-1, -1]


def test_names_that_c_or_the_library_has():
    x, y, z = tensor(2, name="int"), tensor(2, name="MM"), tensor(2, name="layer.0-weight")
    total = ops.add(ops.add(x, y), z)
    total.name = "layer.0-weight"
    f = CFunction(graph([x, y, z], [total]), "Names")
    assert f.prototype() == (
        "const char *Names(Tensor in_int, Tensor in_MM, Tensor layer_0_weight, "
        "Tensor *layer_0_weight_)"
    )
    with pytest.raises(BridgeValueError, match="'no name' is no name for a C function"):
        CFunction(graph([x], [x]), "no name")


def test_names_that_meet_those_of_the_body(load):
    lists = [schema_type("Tensor[]")(n) for n in ("i", "x")]
    names = ["int64_t", "malloc", "memcpy", "cgotorch_error_at", "x_len", "i_len", "class", "out0"]
    xs = [tensor(2, name=n) for n in names]
    total = ops.add(ops.cat(lists[0]), ops.cat(lists[1]))
    for x in xs:
        total = ops.add(total, x)
    f = CFunction(graph([*lists, *xs], [total, *lists]), "Names")
    assert "Tensor x_len_, " in f.prototype()
    load(f)


def test_what_c_cannot_have_is_refused():
    x = tensor(2, name="x")

    class InPython(Op):
        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, output_storage):
            output_storage[0][0] = inputs[0]

    with pytest.raises(MissingMethodError, match=r"node 0, t0 = InPython\(x\).* is demanded"):
        CFunction(graph([x], [InPython()(x)]), "F").source()
    d = double("d")
    with pytest.raises(MissingMethodError, match="VersionedDouble lacks c_take"):
        CFunction(graph([d], [d]), "F").source()

    class Loads(InPython):
        def c_code(self, node, name, inputs, outputs, sub):
            return f"{outputs[0]} = RetainTensor({inputs[0]});"

        def c_init_code(self):
            return "counter = 1;"

    with pytest.raises(BridgeTypeError, match="c_init_code needs a module of Python"):
        CFunction(graph([x], [Loads()(x)]), "F").source()


def test_several_threads_at_once(load):
    f, w, b = network()
    call = load(f)
    constants = (ctypes.c_void_p * 2)(borrow(w), borrow(b))
    wrong = []

    def work(k):
        x = torch.full((2, 3), float(k))
        expected = torch.relu(torch.nn.functional.linear(x, w, b))
        for _ in range(200):
            out = ctypes.c_void_p()
            error = call(constants, handle(x), ctypes.byref(out))
            if error is not None or not torch.equal(from_handle(out.value), expected):
                wrong.append(k)

    in_threads(work)
    assert not wrong


MAIN = """
#include <cgotorch.h>
#include <stdio.h>

{prototype};

static int check(const char *err, const char *expected) {{
  const int same = expected ? err != NULL && strstr(err, expected) != NULL : err == NULL;
  if (!same) fprintf(stderr, "got %s, expected %s\\n", err ? err : "no error", expected);
  FreeString(err);
  return !same;
}}

int main(void) {{
  const int64_t shape[] = {{2, 3}}, sizes[] = {{3, 2}};
  const float numbers[] = {{1, 2, 3, 4, 5, 6}};
  int bad = 0;
  Tensor x = NULL, out = NULL, scalar = NULL;
  int64_t *list = NULL, n = 0;
  bad |= check(TensorFromData(numbers, sizeof numbers, shape, 2, 6, &x), NULL);
  bad |= check(TensorFromData(numbers, 4, NULL, 0, 6, &scalar), NULL);
  for (int i = 0; i < 100; i++) {{
    bad |= check(Reshaped(x, 2, sizes, 2, &out, &list, &n), NULL);
    bad |= n != 2 || list[0] != 3;
    FreeTensor(out);
    FreeArray(list);
    bad |= check(Reshaped(x, 4, sizes, 2, &out, &list, &n), "is invalid for input of size 6");
    bad |= check(Reshaped(scalar, 2, sizes, 2, &out, &list, &n), "got one of dtype float32 of shape ()");
  }}
  FreeTensor(x);
  FreeTensor(scalar);
  int64_t made = 0, freed = 0;
  cgotorch_handles(&made, &freed);
  printf("%d %lld\\n", bad, (long long)(made - freed));
  return bad;
}}
"""


def test_a_generated_function_under_the_address_sanitizer(tmp_path):
    """Success, failure in the middle, and failure at an input: nothing is left or read twice."""
    x = tensor(2, 3, name="x")
    n, sizes = schema_type("int")("n"), schema_type("int[]")("sizes")
    first = ops.split(ops.cat([x, x], 0), 2, 0)[1]
    f = CFunction(graph([x, n, sizes], [ops.neg(ops.reshape(first, (-1, n))), sizes]), "Reshaped")
    (tmp_path / "graph.c").write_text(f.source())
    (tmp_path / "main.c").write_text("#include <string.h>\n" + MAIN.format(prototype=f.prototype()))
    program = tmp_path / "program"
    flags = [*STRICT, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    files = [str(tmp_path / "graph.c"), str(tmp_path / "main.c")]
    subprocess.run(["cc", *flags, *files, "-o", str(program), *HERE], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "0 0\n"


# Every type of PyTorch's schemas

VALUES = {
    "int64_t": [5, -(2**63)],
    "double": [0.5, float("-inf")],
    "bool": [True, False],
    "const char *": ['"größe"?', ""],
    "Tensor": [torch.ones(2), torch.zeros(())],
    "Scalar": [True, -2, 2**63, 0.5, 1 - 2j],
    "Device": [torch.device("cpu"), torch.device("cuda:1")],
    "Stream": [torch.Stream(stream_id=3, device_index=0, device_type=1)],
    "ScalarType": [torch.uint8, torch.bfloat16],
    "Layout": [torch.strided, torch.sparse_csr],
    "MemoryFormat": [torch.contiguous_format, torch.channels_last],
}


def schema_types():
    """The types of all arguments and results, those once that are one in C."""
    found = {}
    for f in load_reference():
        for t in (schema_type(str(x.type)) for x in [*f.arguments, *f.returns]):
            if isinstance(t.required, Handle):
                continue  # Generator and Storage: graphs have none
            plain = t if isinstance(t, BoolArray) else re.sub(r"\[\d\]", "[]", t.schema)
            found.setdefault(re.sub("^Sym(Int|Bool)", lambda m: m[1].lower(), str(plain)), t)
    return [pytest.param(t, id=name) for name, t in sorted(found.items())]


def values_of(t):
    if isinstance(t, Optional):
        return [None, *values_of(t.elem)]
    if isinstance(t, BoolArray):
        return [[i % 2 == 0 for i in range(t.size)]]
    return [[], values_of(t.elem)] if isinstance(t, ListArg) else VALUES[t.c]


class Called(Op):
    """Calls a C function that has been loaded, as C programs do."""

    def __init__(self, function, address):
        self.function, self.address = function, address
        tensors = [c.data for c in function.constants]
        self.constants = (ctypes.c_void_p * len(tensors))(*map(borrow, tensors))

    def make_node(self, *inputs):
        return Apply(self, list(inputs), [v.type() for v in self.function.outputs])

    def c_code(self, node, name, inputs, outputs, sub):
        given = [f"(const Tensor *){ctypes.addressof(self.constants)}"] if self.constants else []
        rooms, after = [], []
        for v, c in zip(node.inputs, inputs, strict=True):
            given += [c, f"{c}_len"] if isinstance(v.type.required, ListArg) else [c]
        for i, (v, c) in enumerate(zip(node.outputs, outputs, strict=True)):
            if isinstance(v.type.required, ListArg):
                given += [f"&{c}", f"&{c}_len"]
            elif isinstance(v.type, BoolArray):
                given.append(c)
            elif isinstance(v.type, Optional) and not v.type.elem.nullable:
                rooms.append(f"bool given_{i} = true;")
                given += [f"&{c}_value", f"&given_{i}"]
                after.append(f"{c} = given_{i} ? &{c}_value : NULL;")
            else:
                given.append(f"&{c}")
        kind = self.function.prototype().replace(f"{self.function.name}(", "(*called)(")
        called = f"{kind} = ({kind.replace('called', '')}){self.address};"
        call = f"if ((pb_error = called({', '.join(given)}))) {sub['fail']}"
        return "\n".join(["{", called, *rooms, call, *after, "}"])


def same(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a is b
    return type(a) is type(b) and a == b


@pytest.mark.filterwarnings("ignore::pytorch_bridge.link.c_linker.CacheVersionWarning")
@pytest.mark.parametrize("t", schema_types())
def test_a_value_of_each_type_in_and_out_and_as_a_constant(load, t):
    values = values_of(t)
    x = t("x")
    # A list of tensors that are known has no form in C.
    lists = isinstance(t, ListArg) and isinstance(t.elem.required, TensorArg)
    known = [] if lists else [Constant(t, v) for v in values]
    f = CFunction(graph([x], [x, *known]), "Carried")
    address = ctypes.cast(load(f), ctypes.c_void_p).value
    call = compiled([x], Called(f, address).make_node(x).outputs)
    for value in values:
        out = call(value)
        given, constants = (out[0], out[1:]) if known else (out, [])
        assert same(given, value), (given, value)
        assert same(list(constants), [v for v in values if known]), constants
