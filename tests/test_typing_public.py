"""What a type checker and a reader see of the Python package: stubs, signatures, docstrings."""

from __future__ import annotations

import inspect
import os
import re
import runpy
import subprocess
import sys

import pytest

import pytorch_bridge as pb
from pytorch_bridge import TensorType, ops
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.ops.native import Packet, native

HERE = ROOT / "tests/typing"


@pytest.fixture
def x():
    return pb.TensorType("float32", (2, 3))("x")


def test_mypy_takes_a_program_and_refuses_what_is_wrong():
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file", HERE / "mypy.ini"),
            *("--cache-dir", ROOT / "build/cache/mypy-typing", "--no-error-summary"),
            *(HERE / "consumer.py", HERE / "refused.py"),
        ],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    found = re.findall(r"^(\S+):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.M)
    lines = (HERE / "refused.py").read_text().splitlines()
    marked = [(n, line.partition("  # ")[2]) for n, line in enumerate(lines, 1) if "  # " in line]
    wanted = [("tests/typing/refused.py", str(n), reason) for n, reason in marked]
    assert len(wanted) > 10
    assert list(dict.fromkeys(found)) == wanted, done.stdout


def test_the_program_runs():
    runpy.run_path(str(HERE / "consumer.py"))


def test_one_overload_has_its_signature():
    found = inspect.signature(ops.softmax)
    assert list(found.parameters) == ["self", "dim", "dtype"]
    assert repr(found.parameters["dtype"].default) == "None"
    assert str(inspect.signature(ops.add.Tensor)) == (
        "(self: TensorLike, other: TensorLike, *, alpha: NumberLike = 1) -> TensorVariable"
    )


def test_several_overloads_have_what_they_begin_with():
    found = inspect.signature(ops.add).parameters
    assert list(found) == ["self", "other", "args", "kwargs"]
    assert repr(found["other"].annotation) == "TensorLike | NumberLike"
    # `from` is no name that Python takes: it and what is before it go by position.
    assert [p.kind.name for p in inspect.signature(ops.random_).parameters.values()] == [
        "POSITIONAL_ONLY",
        "VAR_POSITIONAL",
        "VAR_KEYWORD",
    ]


def test_signatures_tell_what_bind_takes(x):
    for name in ("softmax", "gelu", "detach", "linear", "layer_norm"):
        function = next(iter(getattr(ops, name).overloads.values()))
        for p, a, d in zip(
            inspect.signature(function).parameters.values(),
            function.function.arguments,
            function.defaults,
            strict=True,
        ):
            assert p.name == a.name
            if a.default is not None:
                assert eval(repr(p.default)) == d


def test_docstrings_say_what_a_function_does_and_what_each_overload_takes():
    softmax = ops.softmax.__doc__
    assert softmax.startswith("Returns exp(x) / Σ exp(x) along `dim`")
    assert "ops.softmax(self: TensorLike, dim: IntLike, dtype:" in softmax
    assert "With out= it writes into such tensors." in softmax
    assert "int_out" not in softmax
    largest = ops.max.__doc__
    assert largest.startswith("3 overloads")
    assert largest.count("\n\nops.max(") == 3
    assert "its" not in re.findall(r"\w+", ops.add.Scalar.__doc__.partition("\n")[0])
    assert "in place" in ops.add_.__doc__
    assert "It writes into self." in ops.add_.__doc__
    assert "shares storage with self" in ops.view.__doc__
    assert "draws random numbers" in ops.dropout.__doc__


def test_a_method_shows_what_its_function_does():
    x, c = TensorType("float32", (None, 3))("x"), TensorType("bool", (None, 3))("c")
    assert x.softmax.__doc__.startswith(ops.softmax.__doc__.partition("\n")[0])
    assert str(inspect.signature(x.softmax)) == (
        "(dim: IntLike, dtype: DTypeLike | None = None) -> TensorVariable"
    )
    assert repr(x.softmax) == "TensorVariable.softmax"
    # The variable is self, which these functions do not have first.
    assert str(inspect.signature(x.polygamma)) == "(n: IntLike) -> TensorVariable"
    for made in (x.where(c, 0.0), x.where(condition=c, other=0.0), x.where(c, other=0.0)):
        assert made.owner.inputs[:2] == [c, x]
    with pytest.raises(pb.BridgeTypeError, match="needs 'condition'"):
        x.where()


def test_every_function_has_a_docstring_and_a_signature():
    names = [n for n in dir(ops) if n not in ops.HAND_WRITTEN]
    assert len(names) > 1500
    for name in names:
        packet = getattr(ops, name)
        if isinstance(packet, Packet) and packet.overloads:
            assert packet.__doc__
            assert inspect.signature(packet)


def test_the_classes_keep_docstrings_of_their_own():
    assert Packet.__doc__ == "All overloads of one function."
    assert list(inspect.signature(Packet).parameters) == ["base"]


def test_help_shows_the_function(capsys):
    help(ops.softmax)
    assert "Returns exp(x)" in capsys.readouterr().out


def test_dir_lists_methods_and_functions(x):
    assert {"relu", "reshape", "shape", "owner"} <= set(dir(x))
    assert "numpy_T" in dir(ops)
    assert not [n for n in dir(ops) if n.startswith("__and")]
    assert all(getattr(x, n) for n in ("relu", "sum", "softmax"))


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs/reference/pytorch_bridge.md").read_text()
    for name in pb.__all__:
        found = getattr(pb, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert f"\n## {name}\n" in page
    index = (ROOT / "docs/reference/README.md").read_text()
    for file in (ROOT / "docs/reference").glob("*.md"):
        assert f"({file.name})" in index or file.name == "README.md"
    assert "- `softmax(self, dim, dtype=None)`: Returns exp(x)" in "".join(
        file.read_text() for file in (ROOT / "docs/reference").glob("ops_*.md")
    )


def test_a_refusal_has_each_schema_once_and_hides_out(x):
    with pytest.raises(pb.BridgeTypeError) as e:
        ops.add(x, "a", alpha=2)
    text = str(e.value)
    assert "given" not in text
    assert text.startswith(
        "no overload of add takes these arguments: (TensorType(float32, (2, 3)), 'a', alpha=2)\n"
    )
    for overload in ("Tensor", "Scalar"):
        assert text.count(native(f"add.{overload}").function.schema) == 1
    assert "out" not in text
    with pytest.raises(pb.BridgeTypeError) as e:
        ops.add(x)
    assert str(e.value).count("(Tensor self, Tensor other") == 1
    assert "add.Tensor needs 'other'" in str(e.value)


def test_a_refusal_shows_out_where_it_was_given(x):
    with pytest.raises(pb.BridgeTypeError) as e:
        ops.add(x, "a", out=x)
    assert native("add.out").function.schema in str(e.value)
