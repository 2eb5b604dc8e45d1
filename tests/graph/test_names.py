"""What something is called decides nothing: no op of a user's is taken for one of PyTorch's."""

import ast
import functools
from pathlib import Path

import pytest
import torch

import pytorch_bridge as pb
from pytorch_bridge import Apply, FunctionGraph, Op, TensorType, function, ops
from pytorch_bridge.errors import BridgeTypeError, RegistrationError
from pytorch_bridge.ops.torch_functions import own_name
from pytorch_bridge.rewrite import canonical, copies
from pytorch_bridge.rewrite.rules import Rules, owner

PACKAGE = Path(pb.__file__).parent


def matrix(name=None):
    return TensorType("float32", (None, None))(name)


def roots():
    """The functions and classes that a rule is for."""
    found = [e.key for rule in (canonical.rule, copies.rule) for e in rule.table.entries()]
    return sorted({getattr(r, "__name__", r) for r in found})


class Named(Op):
    """Twice its inputs' sum, whatever it is called."""

    __props__ = ("train", "dim")

    def __init__(self, train=False, dim=0):
        self.train, self.dim = train, dim

    def make_node(self, *inputs):
        return Apply(self, list(inputs), [inputs[0].type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = sum(inputs) * 2

    def grad(self, inputs, output_grads):
        return [g * 2 for g in output_grads] * len(inputs)


@pytest.mark.parametrize("base", [*roots(), "empty_like", "new_empty", "as_strided", "sum"])
def test_an_op_called_as_one_of_pytorch_is_not_that(base):
    for name in (base, base.partition(".")[0]):
        kind = type(name, (Named,), {"name": name})
        x, y = matrix("x"), matrix("y")
        once = kind()(x)
        f = function([x, y], [kind()(once), kind()(x, y), once[:, ::1] + 0])
        a, b = torch.rand(2, 3), torch.rand(2, 3)
        twice, both, plain = f(a, b)
        assert torch.equal(twice, a * 4)
        assert torch.equal(both, (a + b) * 2)
        assert torch.equal(plain, a * 2)
        assert owner(once, base) is None
        (g,) = pb.grad(kind()(x).sum(), [x])
        assert torch.equal(function([x], g)(a), torch.full((2, 3), 2.0))


def test_a_rule_is_for_a_function_of_pytorch_or_a_class():
    rules = Rules("mine")

    class relu(Named):
        pass

    @rules("relu(x) -> x", relu)
    def _(node):
        return node.inputs[0]

    x = matrix("x")
    fgraph = FunctionGraph([x], [relu()(ops.relu(x)).sum()])
    assert rules.apply(fgraph) == 1
    assert [str(n.op) for n in fgraph.toposort()] == ["relu", "sum"]
    assert owner(relu()(x), relu) is not None
    for wrong in ("Named", "relu.tensor", "pytorch", int, None, Op()):
        with pytest.raises(RegistrationError, match="give the class of an op of your own"):
            rules("wrong", wrong)


def test_an_op_that_rewrites_know_cannot_be_derived_from():
    for base in (type(ops.relu(matrix()).owner.op), type(pb.ops.scalar.add), ops.DeepCopyOp):
        with pytest.raises(BridgeTypeError, match=r"derives from .*derive from Op"):
            type("Mine", (base,), {})


def test_a_function_is_one_of_pytorch_if_pytorch_has_it():
    def relu(x):
        return x * 2

    impostors = [relu, functools.wraps(torch.nn.functional.relu)(relu)]
    relu.__module__ = "torch"
    for func in impostors:
        assert own_name(func) is None
        with pytest.raises(BridgeTypeError, match="no function of PyTorch"):
            torch.overrides.handle_torch_function(func, (matrix(),), matrix())
    for func in (torch.relu, torch.nn.functional.relu, torch.Tensor.relu, torch.ones(1).relu):
        assert own_name(func) == "relu"
    assert own_name(torch.linalg.inv) == "linalg_inv"
    assert own_name(torch.Tensor.__add__) == "__add__"


def test_a_class_is_a_dtype_if_it_is_one():
    class float32:
        pass

    with pytest.raises(BridgeTypeError, match="is no dtype"):
        TensorType(float32, ())


# Comparisons with the name of a class, a function or a module -----------------------------------

_DUNDER = {"__name__", "__qualname__", "__module__"}
_SHOWS = (ast.JoinedStr, ast.Raise)

# Where a name is looked at otherwise than to be shown: the function, and why that is right.
PROVED = {
    "cli.py command": "registers a command of this package's own",
    "exported.py _step": "names of torch's own functions of sizes",
    "exported.py _input": "classes of torch.export, of the arguments that it lists",
    "extending/jitted.py __reduce__": "the very object must be there under the name",
    "extending/outside.py _hidden": "the very class must be there under the name",
    "extending/outside.py _value": "an iterator is refused, in words of its own",
    "extending/proxies.py is_sequence": "PyTorch must have that very class under the name",
    "extending/templates.py _reachable": "the very object must be there under the name",
    "extending/tracing.py _check_builtin": "the package that a function of C is from",
    "extending/tracing.py _python": "the module that a function is written in",
    "link/c_linker.py versions": "a part of a key that has the whole source beside it",
    "link/content.py _check_named": "the very class must be there under the name",
    "link/content.py _defined": "the module that a class says it is from, for the text of its file",
    "packages/load_go/module.py __getattr__": "the name of the module itself",
    "ops/size_guards.py _kind": "of int, float and bool, which the parser lets in",
    "ops/library_operators.py _value": "of int, float and bool, which it has compared",
    "ops/torch_functions.py own_name": "PyTorch must have that very object under the name",
    "ops/native.py _text": "how a parameter is shown",
    "registry.py _same": "a class whose file was executed again",
    "cli/export.py load": "how an exception is shown",
    "schema/python_api.py": "walks PyTorch's own modules to list what is public",
}


def _uses(path):
    """The functions of a file that read the name of something, except to show it."""
    tree = ast.parse(path.read_text())
    parents = {c: p for p in ast.walk(tree) for c in ast.iter_child_nodes(p)}
    for node in ast.walk(tree):
        read = isinstance(node, ast.Attribute) and node.attr in _DUNDER
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr"):
            read |= isinstance(node.args[1], ast.Constant) and node.args[1].value in _DUNDER
        if not read or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            continue
        above, compared, inside = parents.get(node), False, "<module>"
        while above is not None:
            if isinstance(above, _SHOWS):
                break
            if isinstance(above, ast.FunctionDef):
                inside = above.name
                break
            compared |= isinstance(above, (ast.Compare, ast.Subscript, ast.Dict))
            call = getattr(getattr(above, "func", None), "attr", "")
            compared |= call in ("startswith", "endswith", "get", "partition", "removeprefix")
            above = parents.get(above)
        else:
            continue
        if not isinstance(above, _SHOWS) and compared:
            yield node.lineno, inside


def test_no_name_is_compared():
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        if file.startswith(("testing/", "bench/")):
            continue
        found += [
            f"{file}:{line} {inside}"
            for line, inside in _uses(path)
            if not {file, f"{file} {inside}"} & PROVED.keys()
        ]
    assert not found, "\n".join(found)


def test_the_name_of_an_op_is_read_of_a_native_one():
    """`Op` has no `name`, so mypy lets it be read where the class is known; nothing goes by that."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            place = f"{path}:{number}"
            assert not (".op.name" in line and "type: ignore" in line), place
            assert not ("getattr(" in line and '.op, "name"' in line), place
            assert " in str(client.op" not in line, place
