"""The C linker: what it asks of types and ops, in which order, and what happens on a failure."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
import subprocess
import sys
import threading
import time
import warnings

import pytest
from doubles import (
    Binary,
    Double,
    PythonBinary,
    VersionedDouble,
    add,
    compiled,
    double,
    graph,
    in_threads,
    logged,
    logged_add,
    logged_mul,
    logs,
    mul,
    python_add,
    python_sub,
)

import pytorch_bridge as pb
from pytorch_bridge.errors import (
    BridgeTypeError,
    BridgeValueError,
    CompileError,
    ContractError,
    MissingMethodError,
)
from pytorch_bridge.graph.basic import Apply, Constant
from pytorch_bridge.link.c_linker import CacheVersionWarning, CLinker
from pytorch_bridge.link.dual import DualLinker
from pytorch_bridge.link.opwise import OpWiseLinker
from pytorch_bridge.ops.op import Op
from pytorch_bridge.types.base import CType, Generic, Type


def xyz(type_=double):
    return type_("x"), type_("y"), type_("z")


def seed_graph(type_=double, plus=add, times=mul):
    x, y, z = xyz(type_)
    return [x, y, z], [times(plus(x, y), z)]


# What a type may declare ------------------------------------------------------------------------


class Declares(VersionedDouble):
    def __init__(self, text):
        self.text = text

    def c_declare(self, name, sub):
        return f"double {name};\n" + self.text % {"name": name}

    __eq__ = Type.__eq__
    __hash__ = Type.__hash__


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("PyObject *py_%(name)s;", "py_V1"),
        ("PyObject *storage_%(name)s;", "storage_V1"),
        ("int counter;", "counter"),
        ("int a_%(name)s, b;", "b"),
        ("double (*apply)(double);", "apply"),
        ("struct { int n; } pair;", "pair"),
        ("int %(name)s0;", "V10"),
        ('char text[] = "int %(name)s;";', "text"),
        ("#define LOCAL(name) int name\nLOCAL(other);", "other"),
    ],
)
def test_a1_declarations_that_are_refused(text, identifier):
    x = Declares(text)("x")
    with pytest.raises(BridgeTypeError, match=rf"Declares\.c_declare declares '?{identifier}\b"):
        CLinker(graph([x], [x])).source()


@pytest.mark.parametrize(
    "text",
    [
        "typedef double number; number %(name)s_copy;",
        "struct pair { int a, b; }; struct pair %(name)s_pair, *p_%(name)s = NULL;",
        "double (*%(name)s_function)(double, int), %(name)s_list[3] = {1, 2, 3};",
        '/* int other; */ const char *%(name)s_text = "int a, b;"; // int c;',
        "enum mode { ON, OFF } %(name)s_mode;",
        "int %(name)s_n = (1, 2), %(name)s_m = 3;",
        "#define unused other\nint %(name)s_k;",
        "#ifndef LOCAL\n#define LOCAL(name) int name\n#endif\nLOCAL(%(name)s_local);",
    ],
)
def test_a1_declarations_that_are_allowed(text):
    type_ = Declares(text)
    x, y = type_("x"), type_("y")
    f = compiled([x, y], [Binary("add", "+", type_)(x, y)])
    assert f(1.0, 2.0) == 3.0


# Order of events --------------------------------------------------------------------------------


def test_a2_each_variable_is_extracted_or_initialised_once():
    f = compiled(*seed_graph(logged, logged_add, logged_mul))
    done, _ = logs(f, 1.0, 2.0, 3.0)
    assert ", ".join(done) == (
        "extract V1, extract V2, extract V3, init V4, init V5, add, mul, cleanup mul, cleanup add, "
        "sync V5, cleanup V5, cleanup V4, cleanup V3, cleanup V2, cleanup V1"
    )


def test_the_example_of_the_documentation():
    f = compiled(*seed_graph())
    assert f(1.0, 2.0, 3.0) == 9.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheVersionWarning)
        type_ = Double()
        f = compiled(*seed_graph(type_, Binary("add", "+", type_), Binary("mul", "*", type_)))
    assert f(1.0, 2.0, 3.0) == 9.0


def test_the_first_form_of_the_example_with_a_function_set_on_the_instance():
    class FirstDouble(Generic):
        def c_declare(self, name, sub, check_input=True):
            return f"double {name};"

        def c_init(self, name, sub):
            return f"{name} = 0.0;"

        def c_extract(self, name, sub, check_input=True, **kwargs):
            return Double.c_extract(self, name, sub)

    first = FirstDouble()

    def c_sync(name, sub):
        return Double.c_sync(first, name, sub)

    def c_cleanup(name, sub):
        return ""

    first.c_sync = c_sync
    first.c_cleanup = c_cleanup
    f = compiled(*seed_graph(first, Binary("add", "+", first), Binary("mul", "*", first)))
    assert f(1.0, 2.0, 3.0) == 9.0


def test_a3_a_value_of_the_wrong_type_is_an_error_that_names_the_input():
    f = compiled(*seed_graph())
    with pytest.raises(TypeError, match="expected a float") as raised:
        f(1.0, "2", 3.0)
    assert "In input 1, y, of type double" in str(raised.value)
    assert raised.value.graph_place.phase == "extract"
    for values in [(1.0, 2.0), (1.0, 2.0, 3.0, 4.0)]:
        with pytest.raises(TypeError, match=f"has 3 inputs, the call gives {len(values)}"):
            f(*values)
    with pytest.raises(TypeError, match="by position"):
        f(1.0, 2.0, z=3.0)


class Checked(VersionedDouble):
    def c_declare(self, name, sub, check_input=True):
        return f"double {name}; /* declared {'with' if check_input else 'without'} checks */"

    def c_extract(self, name, sub, check_input=True, **kwargs):
        if check_input:
            return super().c_extract(name, sub)
        return f"{name} = PyFloat_AS_DOUBLE(py_{name});"


@pytest.mark.parametrize(("checks", "there"), [((False, False), 0), ((False, True), 1)])
def test_a4_an_input_is_checked_if_one_of_its_ops_asks_for_it(checks, there):
    type_ = Checked()
    x = type_("x")
    ops = [Binary("add", "+", type_), Binary("mul", "*", type_)]
    for op, check in zip(ops, checks, strict=True):
        op.check_input = check
    source = CLinker(graph([x], [ops[1](ops[0](x, x), x)])).source()
    assert source.count("PyFloat_Check(") == there
    assert ("double V1; /* declared with checks" in source) == bool(there)


def test_a4_what_only_passes_through_is_checked():
    x, y = double("x"), double("y")
    f = compiled([x, y], [x])
    assert f(1.0, 2.0) == 1.0
    for values in [("a", 2.0), (1.0, "b")]:
        with pytest.raises(TypeError, match="expected a float"):
            f(*values)


def test_a5_only_outputs_are_synced_and_nothing_after_a_failure():
    f = compiled(*seed_graph(logged, logged_add, logged_mul))
    assert [e for e in logs(f, 1.0, 2.0, 3.0)[0] if "sync" in e] == ["sync V5"]
    for values in [(1.0, -1.0, 3.0), (-1.0, -2.0, 3.0), (1.0, -4.0, 3.0), (1.0, 2.0, -1.0)]:
        done, error = logs(f, *values)
        assert error is not None
        assert not any("sync" in e for e in done)


def test_a5_reference_counts_stay_flat():
    x, y, z = xyz()
    f = compiled([x, y, z], [mul(add(x, y), z), python_sub(x, y), x])
    values = (1.5, 2.5, 3.5)
    wrong = object()
    call, bad = f.__call__, (1.5, wrong, 3.5)
    f(*values)
    gc.collect()
    before = [sys.getrefcount(v) for v in (*values, None, wrong)]
    blocks = sys.getallocatedblocks()
    for _ in range(100_000):
        call(*values)
    for _ in range(1000):
        with contextlib.suppress(TypeError):
            call(*bad)
    gc.collect()
    after = [sys.getrefcount(v) for v in (*values, None, wrong)]
    assert all(abs(a - b) < 1000 for a, b in zip(after, before, strict=True))
    assert sys.getallocatedblocks() - blocks < 500


# Failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1.0, -1.0, 3.0), "extract V1, extract V2, cleanup V2, cleanup V1"),
        (
            (1.0, -4.0, 3.0),
            "extract V1, extract V2, extract V3, init V4, init V5, add, cleanup add, "
            "cleanup V5, cleanup V4, cleanup V3, cleanup V2, cleanup V1",
        ),
        (
            (1.0, 2.0, -1.0),
            "extract V1, extract V2, extract V3, cleanup V3, cleanup V2, cleanup V1",
        ),
        (
            (1.0, -3.0, 1.0),
            "extract V1, extract V2, extract V3, init V4, init V5, add, mul, cleanup mul, "
            "cleanup add, sync V5, cleanup V5, cleanup V4, cleanup V3, cleanup V2, cleanup V1",
        ),
        (
            (0.5, 0.5, -3.0),
            "extract V1, extract V2, extract V3, init V4, init V5, add, mul, cleanup mul, "
            "cleanup add, cleanup V5, cleanup V4, cleanup V3, cleanup V2, cleanup V1",
        ),
    ],
)
def test_a6_what_fails_is_cleaned_first_and_what_came_later_not_at_all(values, expected):
    done, error = logs(compiled(*seed_graph(logged, logged_add, logged_mul)), *values)
    assert isinstance(error, ValueError)
    assert ", ".join(done) == expected


def test_a6_an_output_that_was_synced_before_another_failed_is_freed():
    x, y = logged("x"), logged("y")
    f = compiled([x, y], [logged_add(x, y), logged_mul(x, y)])
    done, error = logs(f, -2.0, 0.0)  # the product is synced first, then the sum, -2
    assert done[-6:] == [
        "sync V4",
        "cleanup V4",
        "sync V3",
        "cleanup V3",
        "cleanup V2",
        "cleanup V1",
    ]
    assert str(error).startswith("-2\nIn output t0")


class Loop(Op):
    """Runs the code of another op `times` times in a C loop, with fail code of its own."""

    def __init__(self, op, times, own_fail):
        self.op, self.times, self.own_fail = op, times, own_fail

    def make_node(self, x, y):
        return Apply(self, [x, y], [x.type()])

    def c_code(self, node, name, inputs, outputs, sub):
        inner = dict(sub)
        if self.own_fail:
            inner["fail"] = "{ stopped = 1; break; }"
        code = self.op.c_code(node, name, inputs, outputs, inner)
        return f"""
        int stopped = 0;
        for (int i = 0; i < {self.times}; i++) {{
          {code}
          {inputs[0]} = {outputs[0]};
        }}
        if (stopped) {{ {sub["fail"]} }}
        """

    def c_code_cache_version(self):
        return (1,)


class Limited(Binary):
    """An addition that fails above 10."""

    def c_code(self, node, name, inputs, outputs, sub):
        code = super().c_code(node, name, inputs, outputs, sub)
        return f"""{code}
        if ({outputs[0]} > 10) {{
          PyErr_SetString(PyExc_OverflowError, "above 10");
          {sub["fail"]}
        }}"""


@pytest.mark.parametrize("own_fail", [False, True])
def test_a7_fail_works_in_a_loop_and_outside_of_one(own_fail):
    limited = Limited("limited", "+")
    x, y = double("x"), double("y")
    straight = compiled([x, y], [limited(x, y)])
    loop = compiled([x, y], [Loop(limited, 5, own_fail)(x, y)])
    assert straight(1.0, 2.0) == 3.0
    assert loop(0.0, 2.0) == 10.0
    for f, values in [(straight, (9.0, 2.0)), (loop, (1.0, 2.0))]:
        with pytest.raises(OverflowError, match="above 10"):
            f(*values)


class Mute(Binary):
    def c_code(self, node, name, inputs, outputs, sub):
        return sub["fail"]


def test_a7_a_failure_without_an_exception_says_so():
    x, y, z = xyz()
    f = compiled([x, y, z], [mul(Mute("mute", "+")(x, y), z)])
    with pytest.raises(RuntimeError) as raised:
        f(1.0, 2.0, 3.0)
    assert str(raised.value) == (
        "the C code of this node failed without setting an exception\n"
        "In node 0 of 2, mute\n"
        "  input x: double\n"
        "  input y: double\n"
        "->   0  t0 = mute(x, y)\n"
        "     1  t1 = mul(t0, z)"
    )


def test_errors_of_ops_say_where_in_the_graph():
    limited = Limited("limited", "+")
    x, y, z = xyz()
    first = mul(x, y)
    first.name = "first"
    middle = limited(first, z)
    out = add(middle, x)
    f = compiled([x, y, z], [add(out, out)])
    with pytest.raises(OverflowError) as raised:
        f(3.0, 3.0, 3.0)
    assert str(raised.value) == (
        "above 10\n"
        "In node 1 of 4, limited\n"
        "  input first: double\n"
        "  input z: double\n"
        "     0  first = mul(x, y)\n"
        "->   1  t0 = limited(first, z)\n"
        "     2  t1 = add(t0, x)"
    )
    assert raised.value.graph_place.node is middle.owner


# One function -----------------------------------------------------------------------------------


def test_a8_a_graph_is_one_function_and_no_names_clash():
    x, y, z = xyz()
    x.name = y.name = z.name = "int"  # not even those of C
    v = x
    for _ in range(20):
        v = add(mul(v, y), z)
    linker = CLinker(graph([x, y, z], [v]))
    source = linker.source()
    assert re.findall(r"^\w[\w *]*\bpb_graph\w*\(", source, re.M) == [
        "int pb_graph_load(",
        "int pb_graph(",
    ]
    names = re.findall(r"^  double (\w+);", source, re.M)
    assert len(names) == len(set(names)) == 43
    assert linker.make_thunk().call(1.0, 1.0, 2.0) == 41.0


def test_a8_constants_without_a_literal_are_extracted_and_others_written():
    class Literal(VersionedDouble):
        def c_literal(self, value):
            return repr(value) if value == 2.0 else None

    type_ = Literal()
    plus = Binary("add", "+", type_)
    x = type_("x")
    two, three = Constant(type_, 2.0), Constant(type_, 3.0)
    linker = CLinker(graph([x], [plus(plus(x, two), three), two]))
    assert "(2.0)" not in linker.source()  # an output needs a variable
    assert linker.make_thunk().call(1.0) == [6.0, 2.0]
    linker = CLinker(graph([x], [plus(plus(x, two), three)]))
    assert "= V1 + (2.0);" in linker.source()
    assert linker.make_thunk().call(1.0) == 6.0


def test_a_graph_may_have_no_outputs_or_one_output_twice():
    x, y = double("x"), double("y")
    assert compiled([x], [])(1.0) == []
    total = add(x, y)
    assert compiled([x, y], [total, x, total])(1.0, 2.0) == [3.0, 1.0, 3.0]
    assert compiled([x, y], [total] * 20)(1.0, 2.0) == [3.0] * 20
    with pytest.raises(BridgeValueError, match="twice"):
        CLinker(graph([x, x], [x]))
    with pytest.raises(BridgeValueError, match="y is neither an input of the graph nor computed"):
        CLinker(graph([x], [total])).source()


def test_a_graph_of_ten_thousand_nodes():
    x, y = double("x"), double("y")
    v = x
    for _ in range(10_000):
        v = add(v, y)
    linker = CLinker(graph([x, y], [v]))
    assert linker.source().count(" + ") == 10_000


@pytest.mark.parametrize("linker", [CLinker, OpWiseLinker, DualLinker])
def test_a9_all_linkers_give_the_same_values(linker):
    x, y, z = xyz()
    a = add(x, y)
    b = python_sub(mul(a, z), Constant(double, 1.0))
    f = compiled([x, y, z], [b, mul(a, a)], linker)
    assert f(1.0, 2.0, 3.0) == [8.0, 9.0]


@pytest.mark.parametrize("linker", [OpWiseLinker, DualLinker])
def test_a9_the_errors_of_all_linkers_say_where(linker):
    x, y, z = xyz()
    f = compiled([x, y, z], [Mute("mute", "+")(mul(x, y), z)], linker)
    with pytest.raises(RuntimeError, match="failed without setting") as raised:
        f(1.0, 2.0, 3.0)
    assert "In node 1 of 2, mute" in str(raised.value)
    assert str(raised.value).count("In node") == 1


def test_a9_the_dual_linker_raises_where_c_and_perform_differ():
    class Wrong(Binary):
        def perform(self, node, inputs, output_storage):
            output_storage[0][0] = inputs[0] + inputs[1] + (inputs[0] > 5)

    x, y = double("x"), double("y")
    f = compiled([x, y], [Wrong("wrong", "+")(x, y)], DualLinker)
    assert f(1.0, 2.0) == 3.0
    with pytest.raises(ContractError, match=r"wrong: .* perform gives 9\.0, C gives 8\.0"):
        f(6.0, 2.0)


# What is compiled with what ---------------------------------------------------------------------


class Asking(VersionedDouble):
    """A type with companions, given as keyword arguments."""

    def __init__(self, **companions):
        for name, value in companions.items():
            setattr(self, name, value if callable(value) else lambda value=value: value)

    __eq__ = Type.__eq__
    __hash__ = Type.__hash__


class AskingBinary(Binary):
    __props__ = None

    def __init__(self, sign="+", type=double, **companions):
        super().__init__("asking", sign, type)
        for name, value in companions.items():
            setattr(self, name, value if callable(value) else lambda value=value: value)


def both_forms(value):
    def without():
        return value

    def with_compiler(c_compiler):
        assert str(c_compiler)
        return value

    def positional(compiler, /):
        assert str(compiler)
        return value

    def with_default(c_compiler=None):
        assert str(c_compiler)
        return value

    return [without, with_compiler, positional, with_default]


@pytest.mark.parametrize("form", range(4))
def test_a10_headers_and_libraries_with_and_without_the_compiler(tmp_path, form):
    (tmp_path / "twice.h").write_text("double twice(double x);\n#include <math.h>\n")
    source = tmp_path / "twice.c"
    source.write_text("double twice(double x) { return 2 * x; }\n")
    subprocess.run(
        ["cc", "-shared", "-fPIC", str(source), "-o", str(tmp_path / "libtwice.so")], check=True
    )
    type_ = Asking(
        c_headers=both_forms(['"twice.h"', "<math.h>", "math.h"])[form],
        c_header_dirs=both_forms([str(tmp_path)])[form],
        c_libraries=both_forms(["twice", "m"])[form],
        c_lib_dirs=both_forms([str(tmp_path)])[form],
        c_compile_args=both_forms(["-DHALF=0.5"])[form],
    )

    class Twice(Binary):
        def c_code(self, node, name, inputs, outputs, sub):
            return f"{outputs[0]} = twice(floor({inputs[0]})) + HALF * {inputs[1]};"

    x, y = type_("x"), type_("y")
    linker = CLinker(graph([x, y], [Twice("twice", "+", type_)(x, y)]))
    assert linker.headers() == ['"twice.h"', "<math.h>"]
    assert linker.make_thunk().call(1.5, 3.0) == 3.5


def test_a11_arguments_can_be_excluded():
    type_ = Asking(c_compile_args=["-O3", "-DONE"])
    x = type_("x")
    plain = AskingBinary("+", type_)
    assert "-O3" in CLinker(graph([x], [plain(x, x)])).compile_args()
    for form in both_forms(["-O3", "-O2"]):
        without = AskingBinary("+", type_, c_no_compile_args=form)
        arguments = CLinker(graph([x], [plain(without(x, x), x)])).compile_args()
        assert not {"-O3", "-O2"} & set(arguments)
        assert "-DONE" in arguments


def test_a12_a_type_chooses_the_compiler_and_two_may_not_choose_differently():
    x = Asking(c_compiler="g++")("x")
    y = Asking(c_compiler="g++")("y")
    linker = CLinker(graph([x, y], [x, y]))
    assert str(linker.compiler()) == "g++"
    assert linker.make_thunk().call(1.0, 2.0) == [1.0, 2.0]

    class Other(Asking):
        pass

    z = Other(c_compiler="clang")("z")
    with pytest.raises(BridgeValueError, match=r"Asking needs .*'g\+\+', and Other needs 'clang'"):
        CLinker(graph([x, y, z], [x, y, z])).make_thunk()


def test_cplusplus_in_the_code_of_types_and_ops():
    class Vector(VersionedDouble):
        """A double in a std::vector, with declarations that a goto may not pass."""

        def c_compiler(self):
            return "g++"

        def c_headers(self):
            return ["<vector>", "<stdexcept>"]

        def c_declare(self, name, sub, check_input=True):
            return f"std::vector<double> {name}(1);"

        def c_init(self, name, sub):
            return f"const double start = 0; {name}[0] = start;"

        def c_extract(self, name, sub, **kwargs):
            return f"""
            if (!PyFloat_Check(py_{name})) {{
              PyErr_SetString(PyExc_TypeError, "expected a float");
              {sub["fail"]}
            }}
            const double value = PyFloat_AsDouble(py_{name});
            {name}.assign(1, value);
            """

        def c_sync(self, name, sub):
            return f"""
            auto *object = PyFloat_FromDouble({name}[0]);
            if (!object) {sub["fail"]}
            Py_XDECREF(py_{name});
            py_{name} = object;
            """

    class At(Op):
        def make_node(self, x, y):
            return Apply(self, [x, y], [x.type()])

        def c_code(self, node, name, inputs, outputs, sub):
            x, y = inputs
            return f"""
            const auto sum = {x}.at(0) + {y}.at(0);
            if (sum < 0) {{
              PyErr_SetString(PyExc_ValueError, "below zero");
              {sub["fail"]}
            }}
            const auto result = std::vector<double>{{sum}};
            {outputs[0]} = result;
            """

        def c_code_cache_version(self):
            return (1,)

    vector = Vector()
    x, y, z = xyz(vector)
    at = At()
    f = compiled([x, y, z], [at(at(x, y), z)])
    assert f(1.0, 2.0, 3.0) == 6.0
    with pytest.raises(ValueError, match="below zero"):
        f(1.0, -2.0, 3.0)
    with pytest.raises(TypeError, match="expected a float"):
        f(1.0, 2.0, 3)


def test_a13_init_code_runs_once_per_module():
    class Counting(VersionedDouble):
        def c_support_code(self):
            return "static int loads;"

        def c_init_code(self):
            return "loads++;"

    class Loads(Binary):
        def c_code(self, node, name, inputs, outputs, sub):
            return f"{outputs[0]} = loads;"

    x = Counting()("x")
    op = Loads("loads", "+", x.type)
    for _ in range(3):
        assert compiled([x], [op(x, x)])(1.0) == 1.0


def test_a13_init_code_may_fail():
    x = Asking(c_init_code='PyErr_SetString(PyExc_KeyError, "no such thing");')("x")
    with pytest.raises(KeyError, match="no such thing"):
        compiled([x], [x])


def test_a14_support_code_is_defined_once():
    shared = "static double one(void) { return 1; }"
    types = [
        Asking(c_support_code=shared),
        Asking(c_support_code=[f"\n{shared}\n", "static double two(void) { return 2; }"]),
    ]
    op = AskingBinary("+", types[0], c_support_code=[shared])
    op.c_support_code_apply = lambda node, name: f"static int {name}_own;"
    op.c_code = lambda node, name, i, o, sub: f"{name}_own++; {o[0]} = {i[0]} + one() + two();"
    x, y = types[0]("x"), types[1]("y")
    linker = CLinker(graph([x, y], [op(op(x, x), x), y]))
    assert linker.source().count("one(void)") == 1
    assert linker.make_thunk().call(1.0, 2.0) == [7.0, 2.0]


def test_a16_element_types():
    from pytorch_bridge.types import TensorType

    assert CType().c_element_type() == ""
    assert TensorType("int32", (None,)).c_element_type() == "int32_t"


def test_code_that_does_not_compile_is_shown_with_the_compilers_message():
    op = AskingBinary()
    op.c_code = lambda node, name, i, o, sub: "this is no C;"
    x = double("x")
    with pytest.raises(CompileError, match="this is no C") as raised:
        compiled([x], [op(x, x)])
    assert "-std=c99" in str(raised.value)


# Nodes and types without C ----------------------------------------------------------------------


def test_b21_a_node_without_c_code_runs_in_python_in_the_middle():
    x, y, z = xyz()
    out = mul(python_add(mul(x, y), x), z)
    assert compiled([x, y, z], [out])(1.0, 2.0, 3.0) == 9.0
    with pytest.raises(MissingMethodError, match=r"node 1, t1 = python_add.* is demanded"):
        CLinker(graph([x, y, z], [out]), demand_c=True).source()
    with pytest.raises(MissingMethodError, match="python_add"):
        pb.function([x, y, z], out, mode="c_only")


def test_b21_a_type_without_c_stays_in_python():
    class Text(Type):
        def filter(self, value, strict=False, allow_downcast=None):
            if not isinstance(value, str):
                raise TypeError(f"expected a str, got {value!r}")
            return value

    class Join(Op):
        def make_node(self, *parts):
            return Apply(self, parts, [parts[0].type()])

        def perform(self, node, inputs, output_storage):
            output_storage[0][0] = "".join(inputs)

    text = Text()
    a, b, x = text("a"), text("b"), double("x")
    f = compiled([a, b, x], [Join()(a, b, Constant(text, "!")), add(x, x), a])
    assert f("c", "d", 1.0) == ["cd!", 2.0, "c"]
    with pytest.raises(TypeError, match="expected a str, got 3") as raised:
        f("c", 3, 1.0)
    assert "In input 1, b" in str(raised.value)
    with pytest.raises(MissingMethodError, match=r"a: the type .*Text.* has no C code"):
        CLinker(graph([a], [a]), demand_c=True).source()


def test_b21_errors_and_wrong_results_of_perform():
    class Odd(PythonBinary):
        __props__ = ("name",)

        def perform(self, node, inputs, output_storage):
            if inputs[0] == 1.0:
                raise KeyError("one")
            if inputs[0] == 2.0:
                output_storage[0].append(1.0)
            output_storage[0][0] = "text" if inputs[0] == 3.0 else 0.5

    x, y = double("x"), double("y")
    f = compiled([x, y], [add(Odd("odd", "+")(x, y), y)])
    assert f(0.0, 1.0) == 1.5
    with pytest.raises(KeyError, match="one") as raised:
        f(1.0, 1.0)
    assert raised.value.graph_place.node.op.name == "odd"
    with pytest.raises(ContractError, match="resized the storage of output 0"):
        f(2.0, 1.0)
    with pytest.raises(TypeError, match="expected a float") as raised:
        f(3.0, 1.0)
    assert "In node 0 of 2, odd, output t0" in str(raised.value)


def test_b21_what_a_node_in_python_is_given_is_extracted_again():
    x, y = logged("x"), logged("y")
    op = PythonBinary("python", "+", logged)
    done, _ = logs(compiled([x, y], [logged_add(op(x, y), y)]), 1.0, 2.0)
    assert ", ".join(done) == (
        "extract V1, extract V2, init V3, init V4, sync V1, sync V2, cleanup V3, extract V3, "
        "cleanup V1, extract V1, cleanup V2, extract V2, add, cleanup add, sync V4, "
        "cleanup V4, cleanup V3, cleanup V2, cleanup V1"
    )


# Threads ----------------------------------------------------------------------------------------


class Meet(Binary):
    """Says that it runs, then waits for an answer: 1 where one came, 0 after `patience` ms."""

    patience = 300

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.said = (ctypes.c_int * 2)()

    def c_headers(self):
        return ["<unistd.h>"]

    def c_code(self, node, name, inputs, outputs, sub):
        return f"""
            volatile int *said = (volatile int *)0x{ctypes.addressof(self.said):x};
            said[0] = 1;
            for (int i = 0; i < {self.patience} && !said[1]; i++) usleep(1000);
            {outputs[0]} = said[1];"""

    def c_compile_args(self):
        return ["-D_DEFAULT_SOURCE"]


class FreeMeet(Meet):
    patience = 60_000

    def c_needs_gil(self, node):
        return False


@pytest.mark.parametrize(("kind", "others_run"), [(Meet, 0), (FreeMeet, 1)])
def test_other_threads_run_while_no_node_needs_the_interpreter(kind, others_run):
    x = double("x")
    op = kind("meet", "+")
    f = compiled([x], [op(x, x)])
    results = []
    thread = threading.Thread(target=lambda: results.append(f(1.0)))
    thread.start()
    while not op.said[0]:
        time.sleep(0.001)
    op.said[1] = 1
    thread.join()
    assert results == [others_run]


def test_several_threads_call_one_graph():
    x, y, z = xyz()
    f = compiled([x, y, z], [mul(python_add(x, y), z)])
    wrong = []

    def work(k):
        for i in range(2000):
            if f(float(i), float(k), 2.0) != 2.0 * (i + k):
                wrong.append((i, k))

    in_threads(work)
    assert not wrong


def test_a_callable_can_be_collected():
    import weakref

    x = double("x")
    f = compiled([x], [add(x, x)])
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None
