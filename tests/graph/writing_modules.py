"""Random modules that write into views, exported and held to themselves.

.venv/bin/python tests/graph/writing_modules.py 0:500      # seeds; prints those that fail
"""

from __future__ import annotations

import random
import sys
from typing import Any

import torch
import written_parts

import pytorch_bridge as pb
from pytorch_bridge.fx import UnsupportedNode


class Writes(torch.nn.Module):
    """A seed's steps: views, writes into them, and what reads either, in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.register_buffer("kept", torch.arange(12.0).reshape(3, 4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        rng = random.Random(self.seed)
        start = rng.choice((x, x, self.kept)) if rng.random() < 0.4 else x * 2
        pool, read = [start], []
        for _ in range(rng.randint(3, 9)):
            v = rng.choice(pool[-4:])
            kind = rng.randrange(5)
            if kind < 2:
                pool += self.views(rng, v)
            elif kind < 4:
                self.write(rng, v, y)
            else:
                read.append(v * 3)
        if rng.random() < 0.3:
            read.append(pool[-1])
        return [*read, start + 0, *(v * 1 for v in pool)]

    def views(self, rng: random.Random, v: torch.Tensor) -> list[torch.Tensor]:
        if v.dim() == 0:
            return []
        d = rng.randrange(v.dim())
        kind = rng.randrange(10)
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
        return [v.reshape(-1) if rng.random() < 0.3 else v[None, ...]]

    def write(self, rng: random.Random, v: torch.Tensor, y: torch.Tensor) -> None:
        kind = rng.randrange(9)
        if kind == 0:
            v.fill_(2)
        elif kind == 1:
            v.mul_(rng.choice((2, 0.5)))
        elif kind == 2:
            # One that torch would have to repeat is lost when it makes the program functional.
            v.copy_(y[0, 0].expand_as(v))
        elif kind == 3:
            v.zero_()
        elif kind == 4:
            v += v
        elif kind == 5 and v.dim():
            v[..., :1] = y[0, 1]
        elif kind == 6:
            v.neg_()
        elif kind == 7 and v.dim() and v.shape[0]:
            v.index_fill_(0, torch.tensor([0]), 4.0)
        else:
            v.add_(y[1, 1])


def check(seed: int) -> bool:
    """Whether the program was imported as it is. AssertionError where a result, an argument or a
    buffer differs from the module's."""
    module = Writes(seed)
    example = torch.randn(3, 4), torch.randn(2, 2)
    rows = ({0: torch.export.Dim.AUTO}, None) if seed % 3 else None
    program = torch.export.export(
        Writes(seed), tuple(t.clone() for t in example), dynamic_shapes=rows
    )
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
        # torch, as it makes the program functional, leaves fewer sizes open.
        if rows is None or "fixes x.size()[0]" not in str(e):
            raise
        return False
    finally:
        torch.export.ExportedProgram.run_decompositions = original
    compiled = model.compile("py")
    theirs = program.module()
    for _ in range(2):
        given = [torch.randn(3, 4), torch.randn(2, 2)]
        mine, their, plain = ([t.clone() for t in given] for _ in range(3))
        with torch.no_grad():
            got, want, eager = compiled(*mine), theirs(*their), module(*plain)
        for r, s, t in zip(got, want, eager, strict=True):
            assert written_parts.facts(r)[-1] == written_parts.facts(s)[-1]
            assert written_parts.facts(r)[-1] == written_parts.facts(t)[-1]
        for a, b in zip(mine, their, strict=True):
            assert torch.equal(a, b)
    assert torch.equal(model.state_dict()["kept"], module.kept)
    return not decomposed


def main(seeds: str) -> int:
    start, end = map(int, seeds.split(":"))
    failed = direct = 0
    for seed in range(start, end):
        try:
            direct += check(seed)
        except Exception as e:
            failed += 1
            print(seed, type(e).__name__, str(e)[:400])
    print(f"{end - start} modules, {direct} imported as they are, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
