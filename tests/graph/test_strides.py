"""Programs whose meaning depends on strides: what may be a view or a copy, and what is written into
a tensor with gaps. Each is held to program.module(), twice, with inputs laid out in other ways than
the example."""

from __future__ import annotations

import pytest
import torch

import pytorch_bridge as pb
from pytorch_bridge import TensorType, function, ops
from pytorch_bridge.ops.from_fx import UnsupportedNode
from pytorch_bridge.ops.native import find_packet, packet_names


class Calls(torch.nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.called = forward

    def forward(self, *args):
        return self.called(*args)


def row_major():
    return torch.arange(24.0).reshape(2, 3, 4)


def transposed():
    return torch.arange(24.0).reshape(4, 3, 2).permute(2, 1, 0)


def gaps():
    return torch.arange(48.0).reshape(2, 3, 8)[:, :, ::2]


def bits(t):
    return t.contiguous().reshape(-1).view(torch.uint8)


def same(mine, theirs):
    """Whether not a bit differs, and no stride."""
    if not isinstance(mine, torch.Tensor):
        return mine == theirs
    alike = mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
    return alike and torch.equal(bits(mine), bits(theirs))


def held(forward, example, given, mode="py"):
    """Compiles a program and holds it to itself, at two calls for each of the inputs."""
    program = torch.export.export(Calls(forward), example)
    compiled, module = pb.from_exported(program).compile(mode), program.module()
    for values in [*given, *given]:
        mine, theirs = ([torch.ops.aten.copy(v, v) for v in values] for _ in range(2))
        got, want = compiled(*mine), module(*theirs)
        if not isinstance(got, (list, tuple)):
            got, want = [got], [want]
        results = zip(got, want, strict=True)
        assert all(same(a, b) for a, b in (*results, *zip(mine, theirs, strict=True)))


def write(of, *then):
    """A program that writes into a view of its argument, perhaps, and returns the argument."""

    def forward(x):
        v = of(x)
        for name, *args in then or [("mul_", 2)]:
            getattr(v, name)(*args)
        return x + 1, v * 1

    return forward


def _twice(x):
    y = x * 2
    a, b = y.reshape(-1), y.transpose(0, 1).reshape(3, 8)
    a.add_(1)
    b.mul_(2)
    y.flatten()[2:].neg_()
    return y * 1, a, b * 1


def _chained(x):
    y = x * 2
    a = y.permute(1, 0, 2).reshape(3, 8)
    b = a.t().reshape(-1)
    b.mul_(3)
    a.add_(1)
    y.sub_(2)
    b[4:].copy_(a[1, 0])
    return y * 1, a * 1, b * 1


def _later(y):
    v = y.transpose(0, 1).reshape(3, 8)
    w = v[:, 1]
    y.index_add_(0, torch.tensor([1]), torch.ones(1, 3, 4))
    v.index_fill_(0, torch.tensor([1]), 5.0)
    return v * 1, w * 1, y * 1


def _turned(x):
    y = x * 2
    v = y[0]
    y.transpose_(0, 2)
    y.mul_(2)
    w = y.unsqueeze_(0)[0, 1]
    w.add_(v[1, 0])
    return v * 1, y * 1, w * 1


PROGRAMS = {
    "reshape": write(lambda x: x.transpose(0, 1).reshape(-1), ("mul_", 3), ("fill_", 2)),
    "flatten": write(lambda x: x.flatten(1)[:, 1:3]),
    "ravel": write(lambda x: x.ravel()[3:7]),
    "contiguous": write(lambda x: x.contiguous()),
    "channels last": write(lambda x: x[None].contiguous(memory_format=torch.channels_last)),
    "to": write(lambda x: x.to(torch.float32).type_as(x)),
    "to another": write(lambda x: x.to(torch.float64)),
    "copied": write(lambda x: x.to(torch.float32, copy=True)),
    "positive": write(lambda x: (+x).conj_physical()),
    "dropout": write(lambda x: torch.dropout(x, 0.5, False)),
    "index_add_": write(
        lambda x: x.reshape(-1), ("index_add_", 0, torch.tensor([1]), torch.ones(1))
    ),
    "of what has been": lambda x: _later(x * 2),
    "item": write(lambda x: x.reshape(6, 4), ("__setitem__", (slice(None), 1), 9.0)),
    "squeeze": write(lambda x: x[0, 0, 0].squeeze(0).unsqueeze(-1)),
    "squeeze one": write(lambda x: x[:1].squeeze(0)),
    "twice": _twice,
    "turned": _turned,
    "chained": _chained,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_call_decides_whether_there_is_a_view(name):
    for example in (row_major(), transposed()):
        held(PROGRAMS[name], (example,), [(row_major(),), (transposed(),), (gaps(),)])


def test_einsum_of_one_tensor_may_be_a_view():
    program = torch.export.export(
        Calls(write(lambda x: torch.einsum("abc->cab", x))), (row_major(),)
    )
    compiled, module = pb.from_exported(program).compile("py"), program.module()
    for layout in (row_major, transposed, gaps):
        mine, theirs = layout(), layout()
        got, want = compiled(mine), module(theirs)
        assert all(map(same, (*got, mine), (*want, theirs)))


def _autocast(x):
    z = x * 2
    with torch.autocast("cpu", torch.bfloat16):
        y = z @ z.t()
    z.sum_to_size(3, 4).add_(1)
    return y, z * 1


def test_what_only_torch_could_decide_by_the_example_is_refused():
    program = torch.export.export(Calls(_autocast), (torch.ones(3, 4),))
    with pytest.raises(UnsupportedNode, match="may be a view for some inputs"):
        pb.from_exported(program)


def test_strides_that_a_program_asserts_are_refused():
    """A type has none, and module() checks them."""

    def asserts(sizes, strides):
        def forward(x):
            torch._assert_tensor_metadata(x, sizes, strides, torch.float32)
            return x + 1

        return torch.export.export(Calls(forward), (row_major(),))

    with pytest.raises(UnsupportedNode, match="asserts more of args_0 than a type can say"):
        pb.from_exported(asserts(None, [12, 4, 1]))
    x = transposed()
    assert torch.equal(pb.from_exported(asserts([2, 3, 4], None)).compile("py")(x), x + 1)


@pytest.mark.parametrize("example", [row_major, transposed])
def test_random_numbers_are_drawn_into_what_may_be_a_view(example):
    program = torch.export.export(Calls(write(lambda x: x.reshape(-1), ("normal_",))), (example(),))
    compiled, module = pb.from_exported(program).compile("py"), program.module()
    for layout in (row_major, transposed, gaps):
        mine, theirs = layout(), layout()
        torch.manual_seed(3)
        got = compiled(mine)
        torch.manual_seed(3)
        want = module(theirs)
        assert all(map(same, (*got, mine), (*want, theirs)))


def _gaps(x):
    x.add_(1)
    return x.mean(1), x.mean(0)


def _masked(x):
    y = x.t() * 2
    y.masked_fill_(y > 1, 0.3)
    return y.mean(1), y


def test_what_is_written_keeps_its_strides():
    """Kernels round by strides, so that not the last bit of a mean may differ."""
    wide = torch.randn(257, 200)
    given = [(wide[:, ::2],), (wide[:, :100].contiguous(),), (torch.randn(100, 257).t(),)]
    for forward in (_gaps, _masked):
        held(forward, (wide[:, ::2],), given)
    # A graph that writes into an argument writes into a copy.
    x = TensorType("float32", (257, 100))("x")
    f = function(x, ops.mean(ops.add_(x, 1), [1]), "py")
    like = torch.ops.aten.copy(wide[:, ::2], wide[:, ::2])
    assert torch.equal(f(wide[:, ::2]), like.add_(1).mean(1))


def test_state_keeps_its_strides():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.randn(257, 200)[:, ::2])

        def forward(self, x):
            self.kept.add_(x)
            return self.kept.mean(1)

    module = Counts()
    program = torch.export.export(module, (torch.ones(100),))
    model, theirs = pb.from_exported(program), program.module()
    compiled = model.compile("py")
    for _ in range(3):
        x = torch.randn(100)
        assert torch.equal(compiled(x), theirs(x))
    new = torch.randn(257, 100)
    model.load_state({"kept": new})
    theirs.load_state_dict({"kept": new})
    assert torch.equal(compiled(x), theirs(x))


def _fresh(x):
    a = torch.tensor(0.0)
    a += x.sum()
    b = torch.as_tensor([0.0, 1.0])
    b.mul_(x[0, 0, 0])
    c = x.new_tensor([1.0, 2.0, 3.0])
    c[1:].add_(x[0, 0, :2])
    d = torch.tensor([5, 6])
    d.view(2, 1)[0] = 7
    return a * 1, b, c + 1, d


def test_a_constant_made_inside_is_new_at_each_call():
    held(_fresh, (row_major(),), [(row_major(),), (transposed() + 1,)])
    program = torch.export.export(Calls(_fresh), (row_major(),))
    assert not pb.from_exported(program).state


def test_in_c():
    """Both branches of what a call decides, in one compiled function."""

    def forward(x):
        y = x * 2
        y.transpose(0, 1).reshape(-1).mul_(3)
        x.contiguous().add_(1)
        t = torch.tensor([0.0, 1.0])
        t += x.sum()
        return y * 1, x.mean(2), t * 1

    held(forward, (row_major(),), [(row_major(),), (transposed(),), (gaps(),)], "c_only")


def test_a_gradient_goes_through_what_may_be_a_view():
    def forward(x, w):
        y = x * w
        y.transpose(0, 1).reshape(-1).mul_(3)
        return (y * y).sum()

    program = torch.export.export(Calls(forward), (row_major(), row_major()))
    compiled, module = pb.from_exported(program).compile("py"), program.module()
    for x in (row_major(), transposed(), gaps()):
        grads = []
        for f in (compiled, module):
            w = torch.ones(2, 3, 4, requires_grad=True)
            f(x, w).backward()
            grads.append(w.grad)
        assert torch.equal(*grads)


# Assertions


def _item(x, n):
    k = n.item()
    torch._check(k > 1)
    return k


ASSERTIONS = {
    "dead": lambda x, n: x + torch.zeros(_item(x, n)).shape[0] * 0,
    "number": _item,
    "fixed": lambda x, n: 3 if _item(x, n) is not None else 4,
    "written": lambda x, n: x.add_(1) if _item(x, n) is None else (x.add_(1), None)[1],
}


@pytest.mark.parametrize("name", ASSERTIONS)
def test_what_a_program_asserts_is_checked(name):
    held_module = torch.export.export(Calls(ASSERTIONS[name]), (row_major(), torch.tensor(3)))
    compiled, module = pb.from_exported(held_module).compile("py"), held_module.module()
    for n in (3, 1):
        got = []
        for f in (compiled, module):
            x = row_major()
            try:
                r = f(x, torch.tensor(n))
            except RuntimeError as e:
                r = str(e)
            got.append((r, x))
        (mine, x), (theirs, y) = got
        assert same(mine, theirs)
        assert same(x, y)
        assert (n == 1) == isinstance(mine, str)


# In-place functions

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.bool)
OTHERS = ((), (0.3,), (2,), ("like",), ("one",), ("like", 0.3), (0.3, 0.7))
# Of what is given, these take something else; `resize_` leaves what is in new memory.
APART = {"set_", "resize_", "resize_as_", "squeeze_", "unsqueeze_", "bernoulli_"}


def _numbers(dtype, generator, shape=(37,)):
    kind = torch.complex128 if dtype.is_complex else torch.float64
    t = torch.randn(shape, generator=generator, dtype=kind) * 3
    return t > 0 if dtype == torch.bool else t.to(dtype)


@pytest.mark.filterwarnings("ignore")
def test_every_in_place_function_is_its_method():
    generator = torch.Generator().manual_seed(0)
    differ, compared = [], 0
    for base in packet_names():
        if not base.endswith("_") or base in APART or base.startswith("_"):
            continue
        if not hasattr(torch.Tensor, base):
            continue
        for dtype in DTYPES:
            for kinds in OTHERS:
                shapes = {"like": (37,), "one": ()}
                args = [
                    _numbers(dtype, generator, shapes[k]) if isinstance(k, str) else k
                    for k in kinds
                ]
                x = _numbers(dtype, generator)
                mine = x.clone()
                torch.manual_seed(0)
                try:
                    getattr(x, base)(*args)
                except Exception:  # it takes no such arguments
                    continue
                v = TensorType(dtype, x.shape)("x")
                made = find_packet(base)(v, *args)
                torch.manual_seed(0)
                function(v, made, "py", mutable=[v], rewrite=False)(mine)
                compared += 1
                if not torch.equal(bits(mine), bits(x)):
                    differ.append((base, dtype, kinds))
    assert not differ
    assert compared > 1000
