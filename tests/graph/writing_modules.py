"""Random modules, exported and held to `program.module()`: results and what becomes of arguments,
buffers and memory that is shared, bit for bit and stride for stride.

They make views of views of arguments, buffers and tensors of their own, of all dtypes and sizes,
write into these, assert, draw random numbers, and call torch.cond and operators of libraries. Each
call has other values, strides and, where they are open, sizes.

    .venv/bin/python tests/graph/writing_modules.py 17             # one seed, with its program
    .venv/bin/python tests/graph/writing_modules.py 0:500          # prints those that fail
    .venv/bin/python tests/graph/writing_modules.py 5000: 10m c    # compiled, for ten minutes
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from random_graphs import main

import pytorch_bridge as pb
from pytorch_bridge.aliasing.unalias import overlap
from pytorch_bridge.errors import BridgeError
from pytorch_bridge.ops.from_fx import UnsupportedNode

Tensor = torch.Tensor

torch.library.define("writing::_assert_scaled", "(Tensor x) -> Tensor")
torch.library.impl("writing::_assert_scaled", "default", lambda x: x + x)
torch.library.register_fake("writing::_assert_scaled", lambda x: torch.empty_like(x))

torch.library.define("writing::bump", "(Tensor(a!) x, Tensor y) -> Tensor")
torch.library.impl(
    "writing::bump", "CompositeExplicitAutograd", lambda x, y: x.add_(y.sum().to(x.dtype)).sum() + 1
)
torch.library.register_fake(
    "writing::bump", lambda x, y: (x.new_empty((), device="meta").sum() + 1).to(x.device)
)
torch.library.define("writing::doubled", "(Tensor(a!) x) -> Tensor(a!)")
torch.library.impl("writing::doubled", "CompositeExplicitAutograd", lambda x: x.add_(x))
torch.library.register_fake("writing::doubled", lambda x: x)


@torch.library.custom_op("writing::exchange", mutates_args=("x", "y"))
def exchange(x: Tensor, y: Tensor, by: int) -> None:
    """Two tensors that are written into, and no result."""
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    for _ in range(by):
        y.copy_(y.flip(0)) if y.dim() else None


@torch.library.custom_op("writing::parted", mutates_args=())
def parted(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two new tensors."""
    return x + x, x.flatten().clone()


@parted.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.numel())


NUMBERS = (torch.float32,) * 6 + (torch.float64, torch.bfloat16, torch.float16, torch.complex64)
DTYPES = (*NUMBERS, torch.int64, torch.int32, torch.uint8, torch.bool)
# The sizes of an argument.
SHAPES = ((3, 4),) * 6 + ((1, 4), (3, 1), (1, 1), (0, 4), (3, 0), (4,), (), (2, 3, 2))


def drawn(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Values of a dtype, small enough for sums of them to be exact in most."""
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0, 5, shape, generator=generator).to(dtype)
    wide = torch.complex64 if dtype.is_complex else torch.float32
    return torch.randn(shape, generator=generator, dtype=wide).to(dtype)


def branch(rng: random.Random, by: int) -> Any:
    """What a branch makes of its operand, with a constant and writes of its own."""
    kind = rng.randrange(5)

    def run(v: Tensor) -> tuple[Tensor]:
        w = v + v if kind != 3 else v.clone()
        t = torch.tensor(by, dtype=v.dtype)
        if kind == 0:
            w.reshape(-1).add_(t)
        elif kind == 1:
            torch._assert(v.isfinite().all(), "no number")
            w.unsqueeze(0)[0].add_(t)
        elif kind == 2 and w.dim():
            w.transpose(0, -1).copy_(t.expand_as(w.transpose(0, -1)))
        elif kind == 3:
            u = torch.rand(2)
            w[..., :1] = (u[0] > 0.5).to(w.dtype)
        else:
            w.fill_(by)
        return (w.clone(),)

    return run


class Writes(torch.nn.Module):
    """A seed's steps: views, writes into them, and what reads either, in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        rng = random.Random(f"{seed} buffers")
        self.dtype = random.Random(f"{seed} dtype").choice(DTYPES)
        kept = drawn(rng, (3, 8), self.dtype)
        lies = rng.randrange(4)
        self.register_buffer(
            "kept",
            (kept[:, ::2], kept[:, :4].contiguous(), kept[:, :4].t().contiguous().t(), kept)[lies],
        )
        self.register_buffer("other", drawn(rng, (2, 3), self.dtype))
        self.constant = drawn(rng, (2, 2), self.dtype)

    def forward(self, x: Tensor, y: Tensor) -> list[Tensor]:
        rng = random.Random(self.seed)
        start = rng.choice((x, x, self.kept)) if rng.random() < 0.6 else self.made(rng, x)
        pool, read = [start], []
        for _ in range(rng.randint(3, 10)):
            v = rng.choice(pool[-4:])
            kind = rng.randrange(7)
            if kind < 2:
                pool += self.views(rng, v)
            elif kind < 5:
                self.write(rng, v, y)
            elif kind == 5:
                read.append(self.reads(rng, v))
            else:
                self.others(rng, v, y, pool, read)
        if rng.random() < 0.3:
            read.append(pool[-1])
        return [*read, start.clone(), *(v.clone() for v in pool)]

    def reads(self, rng: random.Random, v: Tensor) -> Tensor:
        kind = rng.randrange(6)
        if kind == 0:
            return v.sum(0) if v.dim() else v.clone()
        if kind == 1:
            return v.clone() if self.dtype == torch.bool else v * 3
        if kind == 2 and v.dim() == 2:
            return torch.cat([v, v], 1)
        if kind == 3:
            return v == v
        if kind == 4 and v.dtype.is_floating_point and v.dim():
            return v.softmax(-1)
        return v.clone()

    def made(self, rng: random.Random, x: Tensor) -> Tensor:
        """A tensor of the model's own."""
        kind = rng.randrange(9)
        dtype, few = self.dtype, [[1, 0, 3, 4], [5, 1, 1, 0], [0, 0, 1, 2]]
        if kind == 0:
            return torch.tensor(few, dtype=dtype)
        if kind == 1:
            return x.new_tensor([[1, 0], [2, 3]])
        if kind == 2:
            return torch.zeros(3, 4, dtype=dtype)
        if kind == 3:
            return torch.full_like(x, 1)
        if kind == 4:
            return torch.arange(12).reshape(3, 4).to(dtype)
        if kind == 5:
            return torch.as_tensor(few).to(dtype)
        if kind == 6:
            return self.constant.clone()
        return x.clone() if kind == 7 or dtype == torch.bool else x + x

    def others(self, rng: Any, v: Tensor, y: Tensor, pool: list[Any], read: list[Any]) -> None:
        """What is neither a view nor a write: operators of libraries, constants, assertions,
        random numbers, torch.cond."""
        kind = rng.randrange(19)
        if kind == 4:
            torch._assert_async((v == v).all())
        elif kind == 5 and v.dtype != torch.bool:
            read.append(torch.ops.writing.bump(v, y))
        elif kind == 6:
            pool.append(torch.ops.writing.doubled(v))
        elif kind == 7:
            positive = (y == y).sum() > 2
            (r,) = torch.cond(positive, branch(rng, 1), branch(rng, 2), (v.clone(),))
            pool.append(r)
        elif kind == 0:
            read.append(torch.ops.writing._assert_scaled(v))
        elif kind == 1:
            t = torch.tensor(rng.choice((1, 2)), dtype=self.dtype)
            t |= t if self.dtype == torch.bool else 0
            t.add_(y[0, 0])
            pool.append(t)
        elif kind == 2:
            t = torch.as_tensor([1, 0, 3]).to(self.dtype)
            t[1:].add_(y[0, 1])
            read.append(t)
        elif kind == 8:
            read += [
                o for r in torch.ops.writing.parted(v) for o in (r if type(r) is list else [r])
            ]
        elif kind == 9:
            torch.ops.writing.exchange(self.other[0], self.other[1], rng.randrange(2))
        elif kind == 10:
            self.other.copy_(y[:, :1].expand(2, 3))
            pool.append(self.other)
        elif kind == 11:
            self.other = self.other + y[:1, :1]
            read.append(self.other.clone())
        elif kind == 12:
            n = (y == y).sum().item()
            torch._check(n > 1)
            torch._check(n < 100)
            read.append(torch.zeros(n))
        elif kind == 13:
            read.append(torch.rand(2, 2))
        elif kind == 14:
            torch.randn(3)
        elif kind == 15:
            read.append(torch.rand_like(v) if v.dtype.is_floating_point else torch.randperm(4))
        elif kind == 16:
            v.random_(0, 2) if v.dtype != torch.complex64 else v.normal_()
        elif kind == 17:
            pool.append(self.constant)
        else:
            torch._assert((y == y).all(), "y has a NaN")

    def views(self, rng: random.Random, v: Tensor) -> list[Tensor]:
        if v.dim() == 0:
            return [v.reshape(1), v.expand(2), v.view(1, 1)][rng.randrange(3) :][:1]
        d = rng.randrange(v.dim())
        kind = rng.randrange(22)
        if kind < 4:
            return [
                v.narrow(d, 0, v.shape[d])[(slice(None),) * d + (slice(rng.randint(0, 1), None),)]
            ]
        if kind == 4 and v.shape[d]:
            return [v.select(d, -1)]
        if kind == 5 and v.dim() > 1:
            return [v.transpose(0, -1)]
        if kind == 6:
            return [v.unsqueeze(d)]
        if kind == 7 and v.dim() > 1:
            return [v.diagonal(rng.choice((0, 1)), 0, 1)]
        if kind == 8 and 0 < v.shape[d] < 5:
            return list(v.unbind(d))[:2] if rng.random() < 0.5 else list(v.split(2, d))[:2]
        if kind == 9 and v.dim() > 1:
            return [v.flatten(0, 1)]
        if kind == 10:
            return [rng.choice((v.contiguous, v.ravel, lambda: v.to(v.dtype)))()]
        if kind == 11:
            same = (lambda: v.type_as(v), lambda: v.detach(), lambda: torch.real(v).detach())
            return [rng.choice(same[: 3 if v.dtype.is_complex else 2])()]
        if kind == 12 and v.dim() > 1:
            return [v.transpose(0, 1).reshape(-1)]
        if kind == 13:
            return [v[(slice(None),) * d + (slice(None, None, 2),)]]
        if kind == 14:
            return [v[None].squeeze(0)]  # of an open size, it may be of fewer dimensions
        if kind == 15:
            return [rng.choice((v.movedim, v.swapaxes))(d, 0)]
        if kind == 16 and v.shape[d] > 1:
            return [v.unfold(d, 2, 2)]
        if kind == 17:
            return list(v.chunk(2, d))[-1:]
        if kind == 18 and v.dtype.is_complex:
            return [rng.choice((v.conj, lambda: torch.view_as_real(v), lambda: v.conj().imag))()]
        if kind == 19:
            return [v.mT if v.dim() > 1 else v.unsqueeze(0).expand(2, -1)]
        if kind == 20 and v.dim() == 2:
            return [v.unflatten(1, (-1, 1)) if rng.random() < 0.5 else v.permute(1, 0)[:, None]]
        if kind == 21:
            return list(v.tensor_split(2, d))[:1]
        return [v.reshape(-1) if rng.random() < 0.5 else v[None, ...]]

    def write(self, rng: random.Random, v: Tensor, y: Tensor) -> None:
        kind = rng.randrange(20)
        number, floats = v.dtype != torch.bool, v.dtype.is_floating_point
        if kind == 0:
            v.fill_(2)
        elif kind == 1:
            v.mul_(rng.choice((2, 0.5)) if v.dtype in NUMBERS else 1)
        elif kind == 2:
            # One that torch would have to repeat is lost when it makes the program functional.
            v.copy_(y[0, 0].expand_as(v))
        elif kind == 3:
            v.zero_()
        elif kind == 4:
            v += v
        elif kind == 5 and v.dim():
            v[..., :1] = y[0, 1]
        elif kind == 6 and number:
            v.neg_()
        elif kind == 7 and v.dim() and v.shape[0]:
            v.index_fill_(0, torch.tensor([0]), 1)
        elif kind == 8 and number and not v.dtype.is_complex:
            v.pow_(2).clamp_(-9, 9)
        elif kind == 9:
            v.masked_fill_(v == v, 1)
        elif kind == 10 and v.dim() and v.shape[0] and number:
            v.index_add_(0, torch.tensor([0]), v[:1] * 2)
        elif kind == 11 and number:
            v.sub_(v.detach() * rng.choice((1, 2)))
        elif kind == 12 and floats:
            rng.choice((v.tanh_, v.exp_, v.relu_, v.sigmoid_, v.abs_, v.round_, v.sqrt_))()
        elif kind == 13 and v.dim():
            v.cumsum_(rng.randrange(v.dim())) if number else v.logical_not_()
        elif kind == 14 and v.dim() == 1:
            v.index_put_((torch.tensor([0, -1]) % max(v.shape[0], 1),), y[0]) if len(v) > 1 else 0
        elif kind == 15 and v.dim() and v.shape[0]:
            v[-1] = v[0] if rng.random() < 0.5 else 1
        elif kind == 16 and number:
            v.addcmul_(y[0, 0], y[1, 1])
        elif kind == 17 and floats:
            v.div_(3).lerp_(y[0, 1], 0.5)
        elif kind == 18 and v.dim() == 2:
            v.tril_()
        elif kind == 19 and v.dim():
            v.scatter_(0, torch.zeros([1] * v.dim(), dtype=torch.int64), 1) if v.numel() else 0
        else:
            v.add_(y[1, 1])


# How an argument may lie in memory.
LAYOUTS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda t: t,
    lambda t: (
        t.t().contiguous().t()
        if t.dim() == 2
        else t.movedim(0, -1).contiguous().movedim(-1, 0)
        if t.dim()
        else t
    ),
    lambda t: torch.cat([t, t], -1)[..., ::2].copy_(t) if t.dim() else t,
    lambda t: torch.cat([t, t, t], 0)[1 : 1 + len(t)].copy_(t) if t.dim() else t,
)


def again(t: Tensor) -> Tensor:
    """A copy that lies in memory alike."""
    return torch.ops.aten.copy(t, t)


def strides(t: Tensor) -> list[int]:
    """Those that anything depends on."""
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] if t.numel() else []


def bits(t: Tensor) -> Any:
    """The dtype, sizes, strides and bits of a tensor; those of a NaN may differ."""
    v = t.detach()
    if v.is_floating_point():
        v = torch.where(v.isnan(), torch.nan, v)
    elif v.is_complex():
        v = torch.view_as_real(v.resolve_conj().clone())
        v = torch.where(v.isnan(), torch.nan, v)
    content = torch.empty(v.numel(), dtype=v.dtype).copy_(v.reshape(-1)).view(torch.uint8)
    return t.dtype, tuple(t.shape), strides(t), content.tolist()


# What torch, as it makes a program functional, cannot do, or may do otherwise than module().
KNOWN = (
    "fixes x.size()[0]",
    "may be a view for some inputs",
    "has alias annotations",
    "cannot make the program functional",
    "draws random numbers into a tensor",
    "drops an assertion without a message",
    "that share memory with others of its arguments",
)


def arguments(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    x = LAYOUTS[rng.randrange(4)](drawn(rng, shape, dtype))
    return [x, drawn(rng, (2, 2), dtype)]


def exported(seed: int) -> tuple[torch.export.ExportedProgram, tuple[int, ...], torch.dtype]:
    """The program of a seed, and what its first argument was."""
    rng = random.Random(f"{seed} arguments")
    shape, module = rng.choice(SHAPES), Writes(seed)
    auto = seed % 3 and shape and shape[0] > 1
    given = arguments(rng, shape, module.dtype)
    program = torch.export.export(
        module, tuple(given), dynamic_shapes=({0: torch.export.Dim.AUTO}, None) if auto else None
    )
    return program, shape, module.dtype


def check(seed: int, mode: str = "py") -> str:
    """How it went: "direct" where the program was imported as it is. AssertionError where anything
    differs from what `program.module()` does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program, shape, dtype = exported(seed)
    except Exception as e:  # torch's own
        return f"not exported: {type(e).__name__}"
    decomposed = 0
    original = torch.export.ExportedProgram.run_decompositions

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal decomposed
        decomposed += 1
        return original(*args, **kwargs)

    torch.export.ExportedProgram.run_decompositions = counted
    try:
        model = pb.from_exported(program)
    except UnsupportedNode as e:
        if not any(text in str(e) for text in KNOWN):
            raise
        return next(f"refused: {text}" for text in KNOWN if text in str(e))
    finally:
        torch.export.ExportedProgram.run_decompositions = original
    compiled = model.compile(mode)
    theirs = program.module()
    rng = random.Random(f"{seed} calls")
    ran = 0
    for n in range(4):
        sizes = (rng.choice((1, 2, 5, 0)), *shape[1:]) if n % 2 and seed % 3 and shape else shape
        given = arguments(rng, sizes, dtype)
        mine, their = ([again(t) for t in given] for _ in range(2))
        before = [bits(t) for t in (*mine, *model.state_dict().values())]
        with torch.no_grad():
            torch.manual_seed(n)
            try:
                want = theirs(*their)
            except Exception as e:
                refusal = e
                want = None
            after = torch.get_rng_state()
            torch.manual_seed(n)
            try:
                got = compiled(*mine)
            except (BridgeError, RuntimeError, ValueError, IndexError, TypeError):
                if want is not None:
                    raise
                # Nothing is written by a call that fails.
                assert before == [bits(t) for t in (*mine, *model.state_dict().values())]
                theirs = program.module()
                for name, value in model.state_dict().items():
                    theirs.get_buffer(name).copy_(value)
                continue
        assert want is not None, f"module() raises {refusal}"
        ran += 1
        assert torch.equal(torch.get_rng_state(), after), "other random numbers"
        for i, (r, s) in enumerate(zip(got, want, strict=True)):
            mine_is, theirs_is = bits(r), bits(s)
            if any(overlap(s, t) for t in (*their, *theirs.buffers())):
                # A copy, where PyTorch returns a view of what it is given, has no gaps.
                mine_is, theirs_is = (facts[:2] + facts[3:] for facts in (mine_is, theirs_is))
            assert mine_is == theirs_is, f"call {n}, result {i}: {mine_is}, not {theirs_is}"
        for a, b in zip(mine, their, strict=True):
            assert bits(a) == bits(b), f"call {n}, an argument: {bits(a)}, not {bits(b)}"
        kept = model.state_dict()
        for name, b in theirs.named_buffers():
            if name in kept:
                a = kept[name]
                assert bits(a) == bits(b), f"call {n}, {name}: {bits(a)}, not {bits(b)}"
        # A result is the caller's own: it shares memory with other results as PyTorch's do.
        kept = model.state_dict().values()
        for i, (r, s) in enumerate(zip(got, want, strict=True)):
            for a, b in zip(got[:i], want[:i], strict=True):
                assert overlap(r, a) <= overlap(s, b), f"call {n}: results that share memory"
            assert not any(overlap(r, t) for t in (*mine, *kept)), f"call {n}: result {i} is shared"
    return f"{'functional' if decomposed else 'direct'}, {ran} calls" if ran else "no call"


if __name__ == "__main__":
    argument, duration, mode = (*sys.argv[1:], *("0:100", "", "py")[len(sys.argv) - 1 :])
    if ":" not in argument:
        print(exported(int(argument))[0])
    sys.exit(main(lambda s: check(s, mode), lambda s: f"seed {s}", argument, duration))
