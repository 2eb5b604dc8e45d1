"""Values of registered types as parameters of a C function, which is how Go passes them."""

from __future__ import annotations

import ctypes
import subprocess

import pytest

from pytorch_bridge.errors import MissingMethodError
from pytorch_bridge.extending import (
    jit,
    lower_constant,
    make_attribute_wrapper,
    models,
    register_model,
    types,
)
from pytorch_bridge.extending.graph_ops import graph_type
from pytorch_bridge.extending.proxies import Proxy
from pytorch_bridge.extending.tracing import Trace
from pytorch_bridge.graph.basic import Constant
from pytorch_bridge.graph.function_graph import FunctionGraph
from pytorch_bridge.native import toolchain
from pytorch_bridge.packages.c_function import CFunction
from pytorch_bridge.packages.go_package.crossing import go_struct


class RangeType(types.Type):
    """All numbers from lo to hi."""

    def __init__(self):
        super().__init__("Range")


class CurveType(types.Type):
    def __init__(self):
        super().__init__("Curve")


@pytest.fixture
def registered():
    @register_model(RangeType)
    class RangeModel(models.StructModel):
        def __init__(self, dmm, fe_type):
            members = [("lo", types.float64), ("hi", types.float64), ("n_steps", types.int16)]
            models.StructModel.__init__(self, dmm, fe_type, members)

    @register_model(CurveType)
    class CurveModel(models.StructModel):
        def __init__(self, dmm, fe_type):
            members = [("domain", RangeType()), ("values", types.Array("float32", (None,)))]
            models.StructModel.__init__(self, dmm, fe_type, members)

    for name in ("lo", "hi", "n_steps"):
        make_attribute_wrapper(RangeType, name, name)
    for name in ("domain", "values"):
        make_attribute_wrapper(CurveType, name, name)


def traced(f, *arguments):
    """The graph of f for arguments of these types."""
    trace, inputs = Trace(), []
    for name, t in arguments:
        inputs.append(graph_type(t).make_variable(name))
    proxies = [Proxy(trace, v, t) for v, (_, t) in zip(inputs, arguments, strict=True)]
    result = trace.run(f, proxies)
    outputs = [p._pb_variable for p in (result if isinstance(result, tuple) else (result,))]
    return FunctionGraph(inputs, outputs)


def loaded(function, folder):
    """The C function, callable."""
    source = folder / "graph.c"
    source.write_text(function.source())
    root = toolchain.ROOT
    library = source.with_suffix(".so")
    subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Werror", "-Wno-unused", "-shared", "-fPIC",
         f"-I{root}/cgotorch", str(source), "-o", str(library), f"-L{root}/build/lib",
         f"-Wl,-rpath,{root}/build/lib", "-lcgotorch"],
        check=True,
    )  # fmt: skip
    found = getattr(ctypes.CDLL(str(library)), function.name)
    found.restype = ctypes.c_char_p
    return found


def test_a_struct_is_passed_member_by_member(registered, tmp_path):
    function = CFunction(traced(lambda r: (r.hi - r.lo, r), ("r", RangeType())), "Width")
    assert function.prototype() == (
        "const char *Width(double r_lo, double r_hi, int64_t r_n_steps, double *out0, "
        "double *out1_lo, double *out1_hi, int64_t *out1_n_steps)"
    )
    width = loaded(function, tmp_path)
    out, lo, hi, n = ctypes.c_double(), ctypes.c_double(), ctypes.c_double(), ctypes.c_int64()
    given = (ctypes.c_double(1.5), ctypes.c_double(4.0))
    results = (ctypes.byref(out), ctypes.byref(lo), ctypes.byref(hi), ctypes.byref(n))
    assert width(*given, ctypes.c_int64(7), *results) is None
    assert (out.value, lo.value, hi.value, n.value) == (2.5, 1.5, 4.0, 7)
    error = width(*given, ctypes.c_int64(40000), *results).decode()
    assert error.startswith("OverflowError: 40000 does not fit int16")
    assert "input 0, r" in error


def test_a_struct_that_is_known(registered, tmp_path):
    @lower_constant(RangeType)
    def constant(context, builder, ty, value):
        c = context.get_value_type(ty)
        return builder.expression(f"({c}){{{value[0]}, {value[1]}, {value[2]}}}", c)

    known = Constant(RangeType(), (1.5, 4.0, 7))
    function = loaded(CFunction(FunctionGraph([], [known]), "Known"), tmp_path)
    lo, hi, n = ctypes.c_double(), ctypes.c_double(), ctypes.c_int64()
    assert function(*map(ctypes.byref, (lo, hi, n))) is None
    assert (lo.value, hi.value, n.value) == (1.5, 4.0, 7)


def test_structs_in_structs_and_tensors(registered):
    def scaled(c):
        return c.values * c.domain.lo

    function = CFunction(traced(scaled, ("c", CurveType())), "Scaled")
    assert function.prototype() == (
        "const char *Scaled(double c_domain_lo, double c_domain_hi, int64_t c_domain_n_steps, "
        "Tensor c_values, Tensor *out0)"
    )
    assert "RetainTensor(c_values)" in function.source()
    assert "Python" not in function.source()


def test_go_has_a_documented_struct(registered):
    name, text = go_struct(RangeType())
    assert name == "Range"
    assert text == (
        "// Range is Range of the graph: All numbers from lo to hi.\n"
        "type Range struct {\n"
        "\tLo float64 // float64\n"
        "\tHi float64 // float64\n"
        "\tNSteps int64 // int16\n"
        "}"
    )
    _, text = go_struct(CurveType())
    assert (
        "\tDomain Range // Range\n\tValues gotorch.Tensor // TensorType(float32, (None,))" in text
    )
    assert go_struct(types.float64) is None


def test_what_only_python_has_is_named(registered):
    class SecretType(types.Type):
        pass

    @register_model(SecretType)
    class SecretModel(models.StructModel):
        def __init__(self, dmm, fe_type):
            models.StructModel.__init__(self, dmm, fe_type, [("key", types.Opaque("key"))])

    with pytest.raises(MissingMethodError, match=r"member key of type key cannot be a parameter"):
        SecretType("s").c_parameters("s")


def test_what_is_made_of_a_struct_shares_its_memory(registered):
    """Rewrites that write into memory must know that a member is the struct's own."""
    (node,) = traced(lambda c: c.values, ("c", CurveType())).toposort()
    assert node.op.view_map == {0: [0]}
    (node,) = traced(lambda r: r.lo, ("r", RangeType())).toposort()
    assert node.op.view_map == {}
    f = jit(lambda x: x)
    assert f(3) == 3
