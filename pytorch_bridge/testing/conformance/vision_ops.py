"""The functions of Go's package vision/ops, held to torchvision's on arguments drawn at random.

A `Call` is one: torchvision's function with its arguments, and Go's with the same. Results and
gradients are compared to the last bit, but for half precision where Go rounds once.

    python -m pytorch_bridge.testing.conformance.vision_ops

writes `EXPECTED` from the installed torchvision: what can be tested where there is none.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pytorch_bridge.native.toolchain import ROOT

from .harness import Harness
from .modules import Call as Arguments
from .modules import differ, functional

EXPECTED = ROOT / "gotorch" / "vision" / "ops" / "testdata" / "torchvision.json"
SEED = 11


@dataclass
class Call:
    """A call in Python and in Go. `tensors` are those that may have gradients."""

    name: str
    tensors: list[Tensor]
    python: Callable[..., Any]  # of the module torchvision.ops, and the tensors
    parameters: Callable[..., list[Any]]  # Go's, of the tensors
    options: Callable[..., dict[str, Any]] = field(default=lambda *_: {})
    gradients: list[int] = field(default_factory=list)  # which tensors have them
    close: float = 0  # how far results may be apart: see the reasons where it is given

    def __str__(self) -> str:
        given = ", ".join(f"{t.dtype} {list(t.shape)}" for t in self.tensors)
        return f"{self.name} of {given}".replace("torch.", "")


class Draw:
    """Draws calls."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def rand(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.rand(shape, generator=self.generator, dtype=torch.float64).to(dtype)

    def dtype(self, half: bool = False) -> torch.dtype:
        wide = [torch.float32, torch.float32, torch.float64]
        return self.random.choice([*wide, torch.float16] if half else wide)

    def boxes(self, n: int, size: float, dtype: torch.dtype, wild: bool = True) -> Tensor:
        """Boxes of two corners; some are strange."""
        b = self.rand(n, 4, dtype=torch.float64) * size
        lower, upper = torch.minimum(b[:, :2], b[:, 2:]), torch.maximum(b[:, :2], b[:, 2:])
        b = torch.cat([lower, upper], 1)
        if wild and n and self.random.random() < 0.3:
            b = b * 1.5 - size / 4  # some outside
        if wild and n > 1 and self.random.random() < 0.15:
            b[0] = b[0].flip(0)  # inside out
            b[1, 2:] = b[1, :2]  # without a size
        if wild and n > 2 and self.random.random() < 0.08:
            b[2, self.random.randrange(4)] = float("nan")
        if self.random.random() < 0.2:
            b = b.round()
        return b.to(dtype)

    def count(self, most: int = 12) -> int:
        return 0 if self.random.random() < 0.06 else self.random.randrange(1, most)

    def draw(self) -> Call:
        return self.random.choice(KINDS)(self)


def _same(*tensors: Any) -> list[Any]:
    return list(tensors)


def _nms(d: Draw) -> Call:
    n, dtype, threshold = d.count(60), d.dtype(), d.random.choice([0.0, 0.3, 0.5, 0.7, 1.0])
    scores = d.rand(n, dtype=dtype)
    if d.random.random() < 0.3:
        scores = (scores * 4).round()  # some are the same
    t = [d.boxes(n, 40, dtype), scores]
    return Call("nms", t, lambda o, b, s: o.nms(b, s, threshold), lambda b, s: [b, s, threshold])


def _batched_nms(d: Draw) -> Call:
    n = d.random.choice([d.count(60), d.count(60), d.count(60), 1100])
    dtype, threshold = d.dtype(), d.random.choice([0.0, 0.3, 0.5, 0.7])
    classes = (d.rand(n) * 4).floor().to(torch.int64)
    t = [d.boxes(n, 40, dtype, wild=n < 100), d.rand(n, dtype=dtype), classes]
    return Call(
        "batched_nms",
        t,
        lambda o, b, s, c: o.batched_nms(b, s, c, threshold),
        lambda b, s, c: [b, s, c, threshold],
    )


def _remove_small_boxes(d: Draw) -> Call:
    least = d.random.choice([0.0, 1e-3, 5.0, 20.0])
    t = [d.boxes(d.count(), 40, d.dtype())]
    return Call(
        "remove_small_boxes", t, lambda o, b: o.remove_small_boxes(b, least), lambda b: [b, least]
    )


def _clip(d: Draw) -> Call:
    h, w = d.random.randrange(30), d.random.randrange(30)
    b = d.boxes(d.count(), 40, d.dtype())
    if len(b) % 2 == 0:
        b = b.view(2, -1, 4)
    return Call(
        "clip_boxes_to_image",
        [b],
        lambda o, b: o.clip_boxes_to_image(b, (h, w)),
        lambda b: [b, h, w],
        gradients=[0],
    )


def _convert(d: Draw) -> Call:
    straight, turned = ["xyxy", "xywh", "cxcywh"], ["xywhr", "cxcywhr", "xyxyxyxy"]
    formats = d.random.choice([straight, turned])
    a, b = d.random.choice(formats), d.random.choice(formats)
    k = {"xywhr": 5, "cxcywhr": 5, "xyxyxyxy": 8}.get(a, 4)
    shape = d.random.choice([(k,), (d.count(), k), (2, 3, k)])
    dtype = d.random.choice([torch.float32, torch.float64, torch.float16, torch.int64])
    t = (d.rand(*shape, dtype=torch.float64) * 30).to(dtype)
    return Call(
        "box_convert",
        [t],
        lambda o, t: o.box_convert(t, a, b),
        lambda t: [t, a, b],
        gradients=[0] if dtype.is_floating_point and a != "xyxyxyxy" else [],
    )


def _pairs(name: str) -> Callable[[Draw], Call]:
    def draw(d: Draw) -> Call:
        dtype = d.random.choice([torch.float32, torch.float64, torch.float16, torch.int64])
        many = () if d.random.random() < 0.7 else (2,)
        t = [d.boxes(2 * d.count(), 30, torch.float64, wild=dtype.is_floating_point) for _ in "ab"]
        t = [b.to(dtype).view(*many, -1, 4) for b in t]
        options: dict[str, Any] = {}
        given: dict[str, Any] = {}
        if name == "box_iou" and d.random.random() < 0.5:
            given["fmt"] = options["Fmt"] = d.random.choice(["xyxy", "xywh", "cxcywh"])
        if name in ("distance_box_iou", "complete_box_iou") and d.random.random() < 0.5:
            given["eps"] = options["Eps"] = d.random.choice([0.0, 1e-3])
        return Call(
            name,
            t,
            lambda o, a, b: getattr(o, name)(a, b, **given),
            _same,
            lambda *_: options,
            gradients=[0, 1] if dtype.is_floating_point else [],
        )

    return draw


def _area(d: Draw) -> Call:
    dtype = d.random.choice([torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8])
    fmt = d.random.choice(["xyxy", "xywh", "cxcywh"])
    t = d.boxes(d.count(), 30, torch.float64, wild=False).to(dtype)
    return Call(
        "box_area", [t], lambda o, t: o.box_area(t, fmt=fmt), _same, lambda *_: {"Fmt": fmt}
    )


def _masks(d: Draw) -> Call:
    n, h, w = d.count(5), d.count(9), d.count(9)
    dtype = d.random.choice([torch.bool, torch.uint8, torch.float32, torch.int64])
    return Call(
        "masks_to_boxes",
        [(d.rand(n, h, w) > 0.85).to(dtype)],
        lambda o, m: o.masks_to_boxes(m),
        _same,
    )


def _regions(name: str) -> Callable[[Draw], Call]:
    def draw(d: Draw) -> Call:
        r = d.random
        aligned = "align" in name
        dtype = d.dtype(half=aligned)
        n, c, h, w = r.randrange(1, 3), d.count(4), r.randrange(1, 14), r.randrange(1, 14)
        size = r.choice([(1, 1), (2, 3), (7, 7), (3, 2)])
        if name.startswith("ps_"):
            c *= size[0] * size[1]
        scale = r.choice([1.0, 0.5, 0.25])
        k = d.count(7)
        wild = dtype != torch.float16
        # What is no number torchvision casts to an integer, and reads far from the map, or crashes.
        boxes = d.boxes(k, max(h, w) / scale, dtype, wild=wild).nan_to_num(3, 3, 3)
        numbers = (d.rand(k) * n).floor().to(dtype)
        x = d.rand(n, c, h, w, dtype=dtype)
        if r.random() < 0.3:
            x = x.transpose(2, 3)
        if r.random() < 0.3:
            x = x - 0.5
        given: dict[str, Any] = {"spatial_scale": scale}
        options: dict[str, Any] = {"SpatialScale": scale}
        if aligned:
            ratio = r.choice([-1, 0, 1, 2, 3])
            given["sampling_ratio"] = options["SamplingRatio"] = ratio
            if name == "roi_align":
                given["aligned"] = options["Aligned"] = r.random() < 0.5
        return Call(
            name,
            [x, torch.cat([numbers[:, None], boxes], 1)],
            lambda o, x, b: getattr(o, name)(x, b, size, **given),
            lambda x, b: [x, b, list(size)],
            lambda *_: options,
            gradients=[0],
            close=2e-2 if dtype == torch.float16 else 0,  # Go rounds once, torchvision each sum
        )

    return draw


def _deform(d: Draw) -> Call:
    r = d.random
    dtype = d.dtype()
    groups, offset_groups = r.choice([1, 2]), r.choice([1, 2])
    n, c, out = d.count(5), 4, 2 * groups
    kernel = [r.randrange(1, 4), r.randrange(1, 4)]
    stride, padding = r.randrange(1, 3), r.randrange(3)
    dilation = r.randrange(1, 3)
    size = [dilation * (k - 1) + 1 + r.randrange(5) for k in kernel]
    to = [
        (s + 2 * padding - dilation * (k - 1) - 1) // stride + 1
        for s, k in zip(size, kernel, strict=True)
    ]
    x = d.rand(n, c, *size, dtype=dtype)
    offset = d.rand(n, 2 * offset_groups * kernel[0] * kernel[1], *to, dtype=dtype) * 4 - 2
    if r.random() < 0.2:
        offset = offset.round()
    weight = d.rand(out, c // groups, *kernel, dtype=dtype) - 0.5
    t = [x, offset, weight]
    bias, mask = r.random() < 0.5, r.random() < 0.6
    if bias:
        t.append(d.rand(out, dtype=dtype))
    if mask:
        t.append(d.rand(n, offset_groups * kernel[0] * kernel[1], *to, dtype=dtype))
    given = {"stride": stride, "padding": padding, "dilation": dilation}

    def more(rest: tuple[Tensor, ...]) -> tuple[Tensor | None, Tensor | None]:
        return rest[0] if bias else None, rest[-1] if mask else None

    def python(o: Any, x: Tensor, offset: Tensor, weight: Tensor, *rest: Tensor) -> Tensor:
        b, m = more(rest)
        return o.deform_conv2d(x, offset, weight, b, mask=m, **given)

    def options(x: Tensor, offset: Tensor, weight: Tensor, *rest: Tensor) -> dict[str, Any]:
        b, m = more(rest)
        found: dict[str, Any] = {k.title(): v for k, v in given.items()}
        found |= {} if b is None else {"Bias": b}
        return found | ({} if m is None else {"Mask": m})

    return Call(
        "deform_conv2d",
        t,
        python,
        lambda *t: list(t[:3]),
        options,
        gradients=list(range(len(t))),
        # The last bits of a product of matrices depend on where they are in memory.
        close=1e-5 if dtype == torch.float32 else 1e-13,
    )


def _loss(name: str) -> Callable[[Draw], Call]:
    def draw(d: Draw) -> Call:
        dtype = d.dtype(half=name != "sigmoid_focal_loss")
        reduction = d.random.choice(["none", "mean", "sum"])
        given: dict[str, Any] = {"reduction": reduction}
        options: dict[str, Any] = {"Reduction": reduction}
        if name == "sigmoid_focal_loss":
            n = d.count()
            t = [d.rand(n, 3, dtype=dtype) * 6 - 3, d.rand(n, 3, dtype=dtype).round()]
            if d.random.random() < 0.7:
                given["alpha"] = options["Alpha"] = d.random.choice([-1, 0.0, 0.5, 1.0])
                given["gamma"] = options["Gamma"] = d.random.choice([0, 1.5, 3])
        else:
            n = d.count()
            t = [d.boxes(n, 20, dtype, wild=False) for _ in "ab"]
            if d.random.random() < 0.5:
                given["eps"] = options["Eps"] = 1e-3
        return Call(
            name,
            t,
            lambda o, a, b: getattr(o, name)(a, b, **given),
            _same,
            lambda *_: options,
            gradients=[0],
        )

    return draw


def _stochastic_depth(d: Draw) -> Call:
    p, mode = d.random.choice([0.0, 0.3, 1.0]), d.random.choice(["row", "batch"])
    training = d.random.random() < 0.8
    x = d.rand(*([d.count(5), 2, 3][: d.random.randrange(1, 4)]), dtype=d.dtype())
    return Call(
        "stochastic_depth",
        [x],
        lambda o, x: o.stochastic_depth(x, p, mode, training),
        lambda x: [x, p, mode, training],
        gradients=[0],
    )


def _drop_block(n: int) -> Callable[[Draw], Call]:
    def draw(d: Draw) -> Call:
        p, block = d.random.choice([0.0, 0.2, 0.7, 1.0]), d.random.choice([1, 3, 5])
        x = d.rand(d.random.randrange(1, 3), 2, *[d.random.choice([3, 5, 7])] * n, dtype=d.dtype())
        training = d.random.random() < 0.8
        return Call(
            f"drop_block{n}d",
            [x],
            lambda o, x: getattr(o, f"drop_block{n}d")(x, p, block, training=training),
            lambda x: [x, p, block, training],
            gradients=[0],
        )

    return draw


REGIONS = ["roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"]
PAIRS = ["box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou"]
LOSSES = [f"{n}_loss" for n in (*PAIRS[1:], "sigmoid_focal")]
KINDS: list[Callable[[Draw], Call]] = [
    _nms, _batched_nms, _remove_small_boxes, _clip, _convert, _area, _masks, _deform,
    _stochastic_depth, _drop_block(2), _drop_block(3),
    *(_regions(n) for n in REGIONS), *(_pairs(n) for n in PAIRS), *(_loss(n) for n in LOSSES),
]  # fmt: skip


def calls(each: int, seed: int = SEED) -> list[Call]:
    """So many of each function."""
    d = Draw(seed)
    return [kind(d) for kind in KINDS for _ in range(each)]


def run_go(harness: Harness, call: Call, tensors: list[Tensor]) -> Any:
    harness.seed(SEED)
    return functional(
        harness, call.name, Arguments(call.parameters(*tensors), call.options(*tensors))
    )


def run_python(call: Call, tensors: list[Tensor]) -> Any:
    from torchvision import ops  # type: ignore[import-not-found]

    torch.manual_seed(SEED)
    return call.python(ops, *tensors)


def with_gradients(call: Call, run: Callable[[list[Tensor]], Any]) -> list[Tensor]:
    """The result, and the gradients of the tensors that have them."""
    tensors = [t.clone().requires_grad_(i in call.gradients) for i, t in enumerate(call.tensors)]
    result = run(tensors)
    found = [result.detach()]
    if call.gradients and result.requires_grad:
        weights = torch.sin(torch.arange(result.numel()).double()).to(result.dtype)
        found += torch.autograd.grad(
            result, [tensors[i] for i in call.gradients], weights.view(result.shape)
        )
    return found


def unlike(call: Call, harness: Harness) -> str:
    """How Go's results differ from Python's; nothing if they do not."""
    wanted = with_gradients(call, lambda t: run_python(call, t))
    got = with_gradients(call, lambda t: run_go(harness, call, t))
    if len(wanted) != len(got):
        return f"{call}: {len(got)} results, not {len(wanted)}"
    for i, (w, g) in enumerate(zip(wanted, got, strict=True)):
        what = f"gradient {i}" if i else "result"
        if call.close:
            near = torch.allclose(w, g, rtol=call.close, atol=call.close, equal_nan=True)
            if w.dtype != g.dtype or not near:
                return f"{call}: {what}: {g} is not close to {w}"
        elif problem := differ(what, w, g):
            return f"{call}: {problem}"
    return ""


def measured(results: list[Tensor]) -> list[Any]:
    return [
        [list(r.shape), str(r.dtype), float(r.double().nan_to_num(7).abs().sum()),
         [float(v) for v in r.double().nan_to_num(7).flatten()[:3]]]
        for r in results
    ]  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    EXPECTED.parent.mkdir(exist_ok=True)
    lines = [
        json.dumps([str(c), *measured(with_gradients(c, lambda t, c=c: run_python(c, t)))])  # type: ignore[misc]
        for c in calls(2)
    ]
    EXPECTED.write_text("[\n" + ",\n".join(lines) + "\n]\n")
