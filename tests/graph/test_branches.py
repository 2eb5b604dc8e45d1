"""torch.cond: only the branch that is taken is computed, in Python and in packages."""

from __future__ import annotations

import copy

import models as model_zoo
import pytest
import torch
from package_form import PackageForm
from torch import nn

import pytorch_bridge as pb
from pytorch_bridge.errors import MissingMethodError


class Body(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.body = forward
        self.a = nn.Linear(4, 4)

    def forward(self, x):
        return self.body(self, x)


def of_a_number(m, x):
    n = x[0, 0].item()
    return torch.cond(n > 0, lambda x: x.sin(), lambda x: m.a(x), (x,))


def of_a_size(m, x):
    return torch.cond(x.shape[0] > 4, lambda x: x + 1, lambda x: x - 1, (x,))


def of_several_results(m, x):
    a, b = torch.cond(x.sum() > 0, lambda x: (x + 1, x.sum()), lambda x: (m.a(x), x.max()), (x,))
    return a * b, b


def of_the_operand(m, x):
    return torch.cond(x.sum() > 0, lambda x: x.clone(), lambda x: x * torch.ones(4).cumsum(0), (x,))


@pytest.mark.parametrize("body", [of_a_number, of_a_size, of_several_results, of_the_operand])
def test_each_way_is_that_of_the_module(body):
    torch.manual_seed(0)
    program = torch.export.export(
        Body(body), (torch.randn(6, 4),), dynamic_shapes=({0: torch.export.Dim.AUTO},)
    )
    model, package = pb.from_exported(program), PackageForm(program)
    forms = [model.compile("py"), model.compile(), lambda *x: tuple(package(*x))]
    for x in (torch.rand(6, 4), -torch.rand(6, 4), torch.rand(3, 4), -torch.rand(3, 4)):
        want = program.module()(x)
        want = want if isinstance(want, tuple) else (want,)
        for form in forms:
            got = form(x)
            got = got if isinstance(got, tuple) else (got,)
            assert all(map(torch.equal, got, want))
            assert all(t.data_ptr() != x.data_ptr() for t in got)


def test_only_the_branch_that_is_taken_is_computed():
    program = model_zoo.branching()
    singular = torch.ones(4, 4)
    model = pb.from_exported(program)
    for form in (model, model.compile("py"), lambda x: PackageForm(program)(x)[0]):
        for x in (*model_zoo.branching_runs(), singular):
            assert torch.equal(form(x), program.module()(x))
    other = singular.clone()
    other[0, 0] = -1
    with pytest.raises(RuntimeError, match="singular"):
        model(other)


def test_branches_have_gradients():
    torch.manual_seed(0)
    for rows in (None, ({0: torch.export.Dim.AUTO},)):
        module = Body(
            lambda m, x: m.a(
                torch.cond(
                    m.a(x).sum() > 0,
                    lambda x: torch.relu(m.a(x)) * x,
                    lambda x: x.sin() + torch.tensor([1.0, 2, 3, 4]),
                    (x * 2,),
                )
            )
        )
        program = torch.export.export(
            copy.deepcopy(module), (torch.randn(6, 4),), dynamic_shapes=rows
        )
        step = pb.training_step(pb.from_exported(program), pb.Training(), mode="py")
        opt = torch.optim.SGD(module.parameters(), lr=0.1)
        for k in range(4):
            x, t = torch.randn(6, 4) * (-1) ** k, torch.randint(4, (6,))
            loss = nn.functional.cross_entropy(module(x), t)
            opt.zero_grad()
            loss.backward()
            opt.step()
            assert torch.equal(step(x, t, lr=0.1), loss)
        for n, p in module.state_dict().items():
            torch.testing.assert_close(step.state_dict()[n], p)


def test_branches_that_draw_have_none():
    module = Body(
        lambda m, x: torch.cond(x.sum() > 0, lambda x: nn.functional.dropout(m.a(x)), m.a, (x,))
    )
    program = torch.export.export(module, (torch.randn(6, 4),))
    with pytest.raises(MissingMethodError, match="draws random numbers"):
        pb.training_step(pb.from_exported(program), pb.Training(), mode="py")
