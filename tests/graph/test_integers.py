"""Numbers in C: Python's results, an error where 64 bits are not enough, and nothing undefined."""

from __future__ import annotations

import itertools
import math
import operator
import random
import subprocess

import pytest
import torch

from pytorch_bridge import TensorType, function, ops, schema_type
from pytorch_bridge.errors import BridgeTypeError
from pytorch_bridge.ops import scalar

SMALLEST, LARGEST = -(2**63), 2**63 - 1
EDGES = [SMALLEST, SMALLEST + 1, -(2**32), -3, -1, 0, 1, 2, 3, 62, 63, 64, 2**32, LARGEST]
BINARY = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "pow": lambda a, b: scalar._power(a, b) if abs(a) < 2 or b < 100 else 2**64,
    "bitwise_left_shift": lambda a, b: a << b if a == 0 or b < 100 else 2**64,
    "bitwise_right_shift": operator.rshift,
}
UNARY = {"neg": operator.neg, "abs": abs, "square": lambda a: a * a}
FLOATS = [0.5, -1.5, 2.0**53, -(2.0**63), 2.0**63, -(2.0**64), 1e300, math.inf, -math.inf, math.nan]


def outcome(f, *values):
    """The number, or the built-in error."""
    try:
        found = f(*values)
    except (OverflowError, ZeroDivisionError, ValueError) as e:
        for kind in (OverflowError, ZeroDivisionError, ValueError):
            if isinstance(e, kind):
                return kind
    return found if SMALLEST <= found <= LARGEST else OverflowError


@pytest.mark.parametrize("name", [*BINARY, *UNARY])
def test_integers_at_their_ends(name):
    expected = BINARY.get(name) or UNARY[name]
    arity = 2 if name in BINARY else 1
    inputs = [schema_type("int")(n) for n in "ab"[:arity]]
    compiled = function(inputs, getattr(scalar, name)(*inputs), "c_only")
    python = function(inputs, getattr(scalar, name)(*inputs), "py")
    for values in itertools.product(EDGES, repeat=arity):
        wanted = outcome(expected, *values)
        assert outcome(compiled, *values) == wanted, values
        if name not in ("pow", "bitwise_left_shift") or max(values) < 100:
            assert outcome(python, *values) == wanted, values


@pytest.mark.parametrize(
    ("name", "expected"),
    [("sym_int", int), ("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc)],
)
def test_floats_that_are_no_integers(name, expected):
    x = schema_type("float")("x")
    for mode in ("c_only", "py"):
        f = function([x], getattr(scalar, name)(x), mode)
        for value in FLOATS:
            assert outcome(f, value) == outcome(expected, value), (mode, value)


def test_a_condition_that_is_a_float_leaves_integers_as_they_are():
    c, n, m = (schema_type(k)("v") for k in ("float", "int", "int"))
    f = function([c, n, m], scalar.where(c, n, m), "c_only")
    assert [f(v, 2**53 + 1, -1) for v in (0.5, -0.0)] == [2**53 + 1, -1]


def test_powers_are_rounded_as_pow_rounds_them():
    """A compiler that makes 1 / a of pow(a, -1) rounds otherwise."""
    x, n = schema_type("float")("x"), schema_type("int")("n")
    values = 0.49999999999999994, -1
    assert function([x, n], x**n, "c_only")(*values) == pow(*values)


def test_numbers_before_tensors():
    x, n = TensorType("float32", (3,))("x"), schema_type("int")("n")
    value = torch.tensor([3.0, 0.0, -7.0])
    quotient, difference = function([x, n], [n / x, n - x], "c_only")(value, 10)
    assert torch.equal(quotient, 10 / value)
    assert torch.equal(difference, 10 - value)


def test_bits_of_floats_are_refused_before_anything_runs():
    with pytest.raises(BridgeTypeError, match="input 1 must be an integer or a bool"):
        schema_type("int")("n") & 1.5


def test_a_scalar_becomes_a_number_of_one_kind_or_an_error():
    s = schema_type("Scalar")("s")
    for kind, value, wanted in (
        ("bool", 2j, True),
        ("bool", 0j, False),
        ("float", 2**64 - 1, 2.0**64),
        ("float", 1 + 2j, TypeError),
        ("int", 1 + 2j, TypeError),
        ("int", 2**63, OverflowError),
    ):
        for mode in ("c_only", "py"):
            f = function([s], scalar.NumberOf(kind)(s), mode)
            if isinstance(wanted, type):
                with pytest.raises(wanted):
                    f(value)
            else:
                assert f(value) == wanted


def test_the_error_says_what_happened():
    n, m = schema_type("int")("n"), schema_type("int")("m")
    f = function([n, m], [n // m, n % m], "c_only")
    with pytest.raises(OverflowError, match="floor_divide: the result has more than 64 bits"):
        f(SMALLEST, -1)
    assert f(-7, 2) == [-4, 1]
    assert function([n, m], n % m, "c_only")(SMALLEST, -1) == 0


def test_tensors_of_integers_wrap_around_as_pytorch_has_it():
    x, y = (TensorType("int64", (None,))(n) for n in "xy")
    a, b = (torch.tensor(v) for v in zip(*itertools.product(EDGES, EDGES), strict=True))
    b = torch.where(b == 0, 1, b)
    for build in (
        lambda A, x, y: A.mul(A.add(x, y), A.sub(x, y)),
        lambda A, x, y: A.abs(A.neg(A.mul(x, y))),
        lambda A, x, y: A.add(A.floor_divide(x, y), A.remainder(x, y)),
    ):
        f = function([x, y], build(ops, x, y), "c_only")
        assert torch.equal(f(a, b), build(torch.ops.aten, a, b))


def test_nothing_is_undefined(tmp_path):
    """The helpers under the sanitizer, with all pairs of edges."""
    calls = [
        f"pb_{n}_int(a, b, &r);"
        for n in ("add", "sub", "mul", "floor_divide", "pow", "bitwise_left_shift")
    ]
    guards = {"floor_divide": "if (b)", "pow": "if (b >= 0)", "bitwise_left_shift": "if (b >= 0)"}
    lines = [next((g for n, g in guards.items() if n in c), "") + " bad += " + c for c in calls]
    lines += [f"bad += pb_{n}_int(a, &r);" for n in ("neg", "abs", "square")]
    lines += ["if (b) bad += (int)pb_remainder_int(a, b);"]
    lines += ["if (b) bad += pb_divide(a, b) > 1;", "bad += (unsigned)pb_order(a, (double)b);"]
    lines += ["if (b >= 0) bad += (int)pb_shift_right(a, b);", "bad += pb_is_int((double)a);"]
    edges = ", ".join("INT64_MIN" if e == SMALLEST else f"INT64_C({e})" for e in EDGES)
    source = "\n".join(
        [
            "#include <math.h>\n#include <stdint.h>",
            scalar.SUPPORT,
            f"static const int64_t edges[] = {{{edges}}};",
            "int main(void) {",
            "  volatile unsigned bad = 0;",
            f"  for (int i = 0; i < {len(EDGES)}; i++)",
            f"    for (int j = 0; j < {len(EDGES)}; j++) {{",
            "      const int64_t a = edges[i], b = edges[j];",
            "      int64_t r;",
            *lines,
            "    }",
            "  return 0;",
            "}",
        ]
    )
    file, program = tmp_path / "edges.c", tmp_path / "edges"
    file.write_text(source)
    flags = ["-std=c99", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["cc", *flags, str(file), "-o", str(program), "-lm"], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


REALS = [
    *(0.0, -0.0, 0.5, -1.5, 3.0, -2.0, 2.0**53, 1e300, -1e300, 5e-324, 710.0, -1000.0),
    *(math.inf, -math.inf, math.nan),
]
VALUES = {"int": [*EDGES, 2**53 + 1, -(2**53) - 1], "float": REALS, "bool": [False, True]}
KINDS = {"int": int, "float": float, "bool": bool}
# Too many powers are too large to be looked at.
_HUGE = {"pow": 100, "bitwise_left_shift": 1000}


def as_kind(kind, f, *values):
    """A number of a kind with what sets it apart from an equal one, or the built-in error."""
    try:
        found = KINDS[kind](f(*values))
    except (OverflowError, ZeroDivisionError, ValueError) as e:
        return next(k for k in (OverflowError, ZeroDivisionError, ValueError) if isinstance(e, k))
    if kind == "int" and not SMALLEST <= found <= LARGEST:
        return OverflowError
    return kind, repr(found)


@pytest.mark.parametrize("kinds", list(itertools.product(KINDS, repeat=2)), ids="-".join)
def test_numbers_of_every_kind_are_what_python_says(kinds):
    held_to_python(kinds, [n for n in scalar.NAMES if getattr(scalar, n).arity == 2])


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_alone_are_what_python_says(kind):
    held_to_python((kind,), [n for n in scalar.NAMES if getattr(scalar, n).arity == 1])


def held_to_python(kinds, names):
    for name in names:
        op = getattr(scalar, name)
        if "float" in kinds and name.startswith("bitwise"):
            continue
        inputs = [schema_type(kind)(n) for kind, n in zip(kinds, "ab", strict=False)]
        out = op(*inputs)
        calls = [function(inputs, out, mode) for mode in ("c_only", "py")]
        for values in itertools.product(*(VALUES[kind] for kind in kinds)):
            if max(values[1:], default=0) > _HUGE.get(name, math.inf):
                continue
            wanted = as_kind(out.type.kind, op.entry.python, *values)
            for f in calls:
                assert as_kind(out.type.kind, f, *values) == wanted, (name, values)
                result = None if isinstance(wanted, type) else f(*values)
                assert result is None or type(result) is KINDS[out.type.kind], (name, values)


def test_a_choice_of_numbers_is_of_one_kind():
    c, n, x = (schema_type(k)(k) for k in ("bool", "int", "float"))
    for mode in ("c_only", "py"):
        f = function([c, n, x], scalar.where(c, n, x), mode)
        assert [type(v) for v in (f(True, 3, 0.5), f(False, 3, 0.5))] == [float, float]
        assert (f(True, 3, 0.5), f(False, 3, 0.5)) == (3.0, 0.5)


def test_a_quotient_of_integers_is_rounded_once():
    n, m = schema_type("int")("n"), schema_type("int")("m")
    f = function([n, m], n / m, "c_only")
    rng = random.Random(0)
    for _ in range(4000):
        a, b = (rng.choice((-1, 1)) * rng.getrandbits(rng.randint(1, 63)) for _ in "ab")
        assert f(a, b or 1) == a / (b or 1), (a, b)
