"""Products of groups and of float8 numbers are PyTorch's, to the last bit, for arguments that are drawn at random:
results and gradients where the processor has a kernel, the class and the words of the error where it has none."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytorch_bridge.codegen.generate import reference_is_installed

if not reference_is_installed():
    pytest.skip("the functions are of the torch that Go was generated for", allow_module_level=True)

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.conformance.harness import Harness, WrapperError
from pytorch_bridge.testing.conformance.modules import Call, call, copied, differ, functional
from pytorch_bridge.testing.conformance.modules import gradients as compare_gradients

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]

FULL = os.environ.get("CONFORMANCE") == "full"
DRAWN = 4000 if FULL else 300
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz)
SPELT = {"NO_SWIZZLE": "None", "SWIZZLE_32_4_4": "32x4x4", "SWIZZLE_32_8": "32x8"}
RECIPES, SWIZZLES = list(F.ScalingType.__members__), list(F.SwizzleType.__members__)


class Draw:
    """Arguments at random, by PyTorch's names."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.g = torch.Generator().manual_seed(seed)

    def few(self, chance: float) -> bool:
        return self.r.random() < chance

    def tensor(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        t = torch.randn(shape, generator=self.g).to(dtype)
        if len(shape) > 1 and self.few(0.4):  # the last but one is what is next to each other
            axis = t.dim() - 2
            t = t.transpose(axis, -1).contiguous().transpose(axis, -1)
        return t

    def size(self) -> int:
        # Multiples of 16 bytes in each dtype are what kernels take.
        return self.r.choice((0, 8, 8, 16, 16, 24, 5 if self.few(0.2) else 8))

    def offsets(self, groups: int, end: int) -> torch.Tensor:
        found = sorted(self.r.randint(0, end) for _ in range(groups))
        if found and self.few(0.7):
            found[-1] = end
        return torch.tensor(found, dtype=torch.int64 if self.few(0.03) else torch.int32)

    def grouped(self, dtypes: tuple[torch.dtype, ...]) -> dict[str, Any]:
        """mat_a, mat_b and offs."""
        g, m, k, n = self.r.randint(0, 4), self.size(), self.size(), self.size()
        dtype = self.r.choice(dtypes)
        two_a, two_b = self.few(0.5), self.few(0.5)
        a = self.tensor(*(() if two_a else (g,)), m, k, dtype=dtype)
        b = self.tensor(*(() if two_b else (g,)), k, n, dtype=dtype)
        if self.few(0.03):
            b = b.to(self.r.choice((torch.float64, torch.bfloat16)))
        if self.few(0.03):
            b = self.tensor(*(() if two_b else (g,)), k + 8, n, dtype=dtype)
        bound: dict[str, Any] = {"mat_a": a, "mat_b": b}
        end = k if two_a and two_b else m if two_a else n
        if (two_a or two_b) != self.few(0.04):
            bound["offs"] = self.offsets(g, end)
        return bound

    def scaling(
        self, bound: dict[str, Any], rows: tuple[int, ...], columns: tuple[int, ...]
    ) -> None:
        """Scales, what they are for, and their order in memory."""
        recipe = self.r.choice(RECIPES[:2]) if self.few(0.8) else self.r.choice(RECIPES)
        for side, shape in (("a", rows), ("b", columns)):
            wanted = recipe if self.few(0.9) else self.r.choice(RECIPES)
            one = () if self.few(0.5) else (1,) * len(shape)
            size = one if wanted == "TensorWise" else shape
            count = 1 if self.few(0.95) else self.r.choice((0, 2))
            scales = [torch.rand(size, generator=self.g) + 0.5 for _ in range(count)]
            if scales and self.few(0.03):
                scales[0] = scales[0].double()
            bound[f"scale_{side}"] = scales
            bound[f"scale_recipe_{side}"] = [F.ScalingType.__members__[wanted]] * count
            if self.few(0.15):
                swizzle = F.SwizzleType.__members__[self.r.choice(SWIZZLES)]
                bound[f"swizzle_{side}"] = [swizzle] * count
        if self.few(0.15):
            bound["contraction_dim"] = self.r.choice(([], [1, 0], [-1, 0], [-1, -2], [0, 1], [1]))
        if self.few(0.2):
            bound["use_fast_accum"] = True

    def grouped_mm(self) -> dict[str, Any]:
        dtypes = (torch.float32, torch.float16, torch.bfloat16)
        if self.few(0.05):
            dtypes = (torch.float64, torch.int32)
        bound = self.grouped(dtypes)
        if self.few(0.05):
            bound["bias"] = self.tensor(bound["mat_b"].size(-1))
        if self.few(0.2):
            bound["out_dtype"] = self.r.choice((bound["mat_a"].dtype, torch.float32))
        return bound

    def scaled_mm(self) -> dict[str, Any]:
        m, k, n = self.size(), self.r.choice((0, 16, 32, 48)), self.r.choice((0, 16, 32))
        if self.few(0.1):
            k = self.size()
        a, b = (self.tensor(*s, dtype=self.r.choice(FLOAT8[:2])) for s in ((m, k), (k, n)))
        if self.few(0.05):
            a = self.tensor(m, k, dtype=self.r.choice((torch.float32, FLOAT8[2])))
        bound: dict[str, Any] = {"mat_a": a, "mat_b": b}
        self.scaling(bound, (m, 1), (1, n))
        if self.few(0.3):
            dtype = self.r.choice((torch.bfloat16, torch.float32, torch.float16))
            bound["bias"] = self.tensor(n if self.few(0.9) else n + 1, dtype=dtype)
        if self.few(0.6):
            dtypes = (torch.bfloat16, torch.float32, torch.float16, FLOAT8[0], torch.float64)
            bound["output_dtype"] = self.r.choice(dtypes)
        return bound

    def scaled_grouped_mm(self) -> dict[str, Any]:
        bound = self.grouped((FLOAT8[0],))
        groups = (bound["offs"].numel(),) if "offs" in bound else bound["mat_a"].shape[:-2]
        self.scaling(bound, (*groups, bound["mat_a"].size(-2)), (*groups, bound["mat_b"].size(-1)))
        return bound

    def scaled_addmm(self) -> dict[str, Any]:
        product = self.scaled_mm()
        rest = {k: v for k, v in product.items() if k[:4] not in ("mat_", "bias", "outp")}
        a, b = product["mat_a"], product["mat_b"]
        added = torch.randn(a.size(0), b.size(1), generator=self.g)
        for name in ("beta", "alpha"):
            if self.few(0.4):
                rest[name] = self.r.choice((0.0, 0.5, 2.0))
        return {"input": added, "mat1": a, "mat2": b, **rest}


def of_go(name: str, bound: dict[str, Any]) -> Call:
    """The arguments in Go, which has numbers for what is scaled and how it lies in memory."""
    numbers = {
        k: [int(x) for x in v] if k.startswith(("scale_recipe", "swizzle")) else v
        for k, v in bound.items()
    }
    return call(f"torch.nn.functional.{name}", numbers)


def told(bound: dict[str, Any]) -> str:
    def short(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return f"{v.dtype}{tuple(v.shape)}{v.stride()}"
        return [short(x) for x in v] if isinstance(v, list) else v

    return str({k: short(v) for k, v in bound.items()})


def compare(harness: Harness, name: str, bound: dict[str, Any], seen: Counter[str]) -> str:
    """What differs, or nothing."""
    ours, theirs = copied(bound), copied(bound)
    try:
        wanted: Any = getattr(F, name)(**theirs)
    except (RuntimeError, ValueError, NotImplementedError, IndexError) as err:
        wanted = err
    try:
        got = functional(harness, name, of_go(name, ours))
    except WrapperError as err:
        if not isinstance(wanted, Exception):
            return f"{err.kind} {err.message}, where Python returns"
        seen[err.kind] += 1
        said = str(wanted).splitlines()[0]
        if (err.kind, err.message) != (type(wanted).__name__, said):
            return f"{err.kind} {err.message}, not {type(wanted).__name__} {said}"
        return ""
    if isinstance(wanted, Exception):
        return f"no error, where Python says {wanted}"
    seen["results"] += 1
    wanted, got = ends(bound, wanted), ends(bound, got)
    if problem := differ("result", wanted, got):
        return problem
    counted, problem = compare_gradients(theirs, ours, wanted, got)
    seen["gradients"] += counted
    return problem


def whole(bound: dict[str, Any]) -> bool:
    """Whether the last group ends where the operands do; what is behind it has no gradients, but any numbers."""
    a, b, offs = bound["mat_a"], bound["mat_b"], bound.get("offs")
    along = a.size(1) if a.dim() == b.dim() == 2 else a.size(0) if a.dim() == 2 else b.size(-1)
    return offs is None or along == (int(offs[-1]) if offs.numel() else 0)


def ends(bound: dict[str, Any], result: torch.Tensor) -> torch.Tensor:
    """What is written to of a result: not what is behind the last offset of grouped_mm; bits of float8."""
    if result.dtype in FLOAT8:
        return result.view(torch.uint8)
    offs, a, b = bound.get("offs"), bound.get("mat_a"), bound.get("mat_b")
    if offs is None or a is None or b is None or a.dim() == b.dim() == 2:
        return result
    end = int(offs[-1]) if offs.numel() else 0
    return result[:end] if a.dim() == 2 else result[..., :end]


@pytest.mark.parametrize(
    ("name", "reached"),
    [
        ("grouped_mm", {"results": 150, "gradients": 60, "RuntimeError": 20}),
        ("scaled_mm", {"results": 100, "ValueError": 30}),
        ("scaled_grouped_mm", {"NotImplementedError": 5, "ValueError": 5}),
        ("scaled_addmm", {"NotImplementedError": 100}),
    ],
)
def test_products_are_pytorchs(harness: Harness, name: str, reached: dict[str, int]) -> None:
    seen: Counter[str] = Counter()
    problems = []
    for seed in range(DRAWN):
        draw = Draw(seed)
        bound = getattr(draw, name)()
        if name == "grouped_mm" and whole(bound):
            for key in ("mat_a", "mat_b"):
                if bound[key].is_floating_point():
                    bound[key].requires_grad_(draw.few(0.4))
        if problem := compare(harness, name, bound, seen):
            problems.append(f"{seed}: {told(bound)}: {problem}")
    assert not problems, "\n".join([f"{len(problems)} differ", *problems[:10]])
    for what, least in reached.items():
        assert seen[what] >= least, seen


def test_in_place_is_pytorchs_too(harness: Harness) -> None:
    """The processor has no kernel, so that what both say is all there is to compare."""
    for seed in range(20):
        assert not compare(harness, "scaled_addmm_", Draw(seed).scaled_addmm(), Counter())


def test_numbers_of_scalings_and_swizzles_are_pytorchs() -> None:
    text = (ROOT / "gotorch/nn/functional/products.go").read_text()
    for kind, members in (("Scaling", F.ScalingType), ("Swizzle", F.SwizzleType)):
        names = re.findall(rf"^\t{kind}(\w+)(?: +{kind}Type = iota)?\s+//", text, re.M)
        python = {SPELT.get(n, n): int(v) for n, v in members.__members__.items()}
        assert {n: i for i, n in enumerate(names)} == python
