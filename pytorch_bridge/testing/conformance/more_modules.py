"""Inputs for the modules that PyTorch's module database leaves out, in its form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.testing._internal.common_modules import FunctionInput as Given
from torch.testing._internal.common_modules import ModuleInput

# Names of torch.nn that are no module of Go's, with the reason.
NOT_MODULES = {
    "Buffer": 'a field with the tag `nn:",buffer"`',
    "Container": "deprecated by PyTorch: a struct that embeds nn.Module",
    "CrossMapLRN2d": "not in PyTorch's reference: LocalResponseNorm",
    "DataParallel": "of several GPUs in one process, which PyTorch itself discourages",
    "LinearCrossEntropyOptions": "the type functional.LinearCrossEntropyChunking",
    "Module": "the type nn.Module, which a struct embeds",
    "NLLLoss2d": "deprecated by PyTorch in favour of NLLLoss",
    "Parameter": "the function nn.Parameter",
    "RNNBase": "the type nn.RNNBase, which RNN, GRU and LSTM embed",
    "RNNCellBase": "the type nn.RNNCellBase, which the cells embed",
    "UninitializedBuffer": "a lazy module has it inside",
    "UninitializedParameter": "a lazy module has it inside",
    "factory_kwargs": "the options Device and DType of each constructor",
}
# Those that hold others, which Go's own tests are about.
CONTAINERS = ("ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential")

Sample = tuple[tuple, dict[str, Any], tuple, dict[str, Any]]


def samples(dtype: torch.dtype) -> dict[str, list[ModuleInput]]:
    """The inputs, by class."""
    g = torch.Generator().manual_seed(11)

    def x(*shape: int, grad: bool = True) -> torch.Tensor:
        t = (torch.rand(shape, generator=g, dtype=torch.float64) * 2 - 1).to(dtype)
        return t.requires_grad_(grad)

    def i(*shape: int, high: int = 10) -> torch.Tensor:
        return torch.randint(high, shape, generator=g)

    def pooled(n: int, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
        pool = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[n - 1](2, return_indices=True, **options)
        y, indices = pool(x(2, 3, *[6] * n, grad=False))
        return y.requires_grad_(), indices

    found: dict[str, list[ModuleInput]] = {}
    options: dict[str, Any]
    shape: Any

    def _(name: str, *args: Any, given: Any = (), named: Any = None, **kwargs: Any) -> None:
        forward = Given(*given, **(named or {}))
        made = ModuleInput(Given(*args, **kwargs), forward, desc="by hand")
        found.setdefault(name, []).append(made)

    for options in ({}, {"div_value": 2.0, "head_bias": True}):
        _("AdaptiveLogSoftmaxWithLoss", 8, 20, [5, 12], **options, given=(x(6, 8), i(6, high=20)))
        _("AdaptiveLogSoftmaxWithLoss", 8, 20, [5, 12], **options, given=(x(8), i(high=20)))
    # 11 // 1.1 is 9 in Python, though 11 / 1.1 is 10.
    _("AdaptiveLogSoftmaxWithLoss", 11, 20, [5], div_value=1.1, given=(x(6, 11), i(6, high=20)))
    for name in ("AlphaDropout", "FeatureAlphaDropout"):
        _(name, 0.3, inplace=True, given=(x(3, 4, 5),))
    for name in (
        "AlphaDropout",
        "Dropout",
        "Dropout1d",
        "Dropout2d",
        "Dropout3d",
        "FeatureAlphaDropout",
    ):
        shape = {"1": (2, 4, 5), "2": (2, 4, 3, 5), "3": (2, 4, 3, 2, 5)}.get(name[-2], (3, 4, 5))
        for p in (0.0, 0.3, 1.0):
            _(name, p, given=(x(*shape),))
        if name[-1] == "d":
            _(name, 0.5, given=(x(*shape[1:]),) if name[-2] != "2" else (x(*shape),))
    _("ChannelShuffle", 2, given=(x(2, 4, 3, 3),))
    for options in ({}, {"dim": 0}, {"dim": -1, "eps": 0.1}):
        _("CosineSimilarity", **options, given=(x(4, 5), x(4, 5)))
    for mode in ("sum", "mean", "max"):
        _("EmbeddingBag", 10, 3, mode=mode, given=(i(4, 5),))
        _("EmbeddingBag", 10, 3, mode=mode, given=(i(7), torch.tensor([0, 3, 3])))
        _("EmbeddingBag", 10, 3, mode=mode, padding_idx=-2, given=(i(4, 5),))
        _("EmbeddingBag", 10, 3, mode=mode, max_norm=1.0, norm_type=1.0, given=(i(4, 5),))
    _("EmbeddingBag", 10, 3, mode="sum", given=(i(4, 5), None, x(4, 5)))
    _(
        "EmbeddingBag",
        10,
        3,
        mode="sum",
        include_last_offset=True,
        given=(i(7), torch.tensor([0, 3, 7])),
    )
    _("EmbeddingBag", 10, 3, scale_grad_by_freq=True, given=(i(4, 5),))
    _("EmbeddingBag", 10, 3, sparse=True, given=(i(4, 5),))
    for options in ({}, {"start_dim": 0}, {"start_dim": 1, "end_dim": 2}):
        _("Flatten", **options, given=(x(2, 3, 4, 5),))
    _("Fold", (4, 5), (2, 3), given=(x(2, 12, 9),))
    _("Fold", 6, 2, stride=2, given=(x(12, 9),))
    _("Fold", (4, 5), 2, dilation=1, padding=1, given=(x(1, 8, 30),))
    _("Unfold", (2, 3), given=(x(2, 3, 4, 5),))
    _("Unfold", 2, dilation=2, padding=1, stride=2, given=(x(2, 3, 6, 6),))
    _("Unfold", 2, given=(x(3, 4, 5),))
    for inplace in (False, True):
        _("Hardsigmoid", inplace=inplace, given=(x(3, 4, grad=not inplace) * 4,))
        _("RReLU", inplace=inplace, given=(x(3, 4, grad=not inplace),))
    _("RReLU", 0.2, 0.9, given=(x(3, 4),))
    _("Identity", given=(x(3, 4),))
    for n in (1, 2, 3):
        size = [4] * n
        for kind in ("BatchNorm", "InstanceNorm"):
            _(f"Lazy{kind}{n}d", given=(x(2, 3, *size),))
            _(f"Lazy{kind}{n}d", momentum=None, eps=0.01, given=(x(2, 3, *size),))
            _(f"Lazy{kind}{n}d", affine=False, track_running_stats=False, given=(x(2, 3, *size),))
        for options in ({}, {"padding": 1} if n < 3 else {"stride": 2}):
            y, indices = pooled(n, **options)
            _(f"MaxUnpool{n}d", 2, **options, given=(y, indices))
        y, indices = pooled(n)
        _(f"MaxUnpool{n}d", 2, given=(y, indices, [7] * n))
        _(f"MaxUnpool{n}d", 2, given=(y[0].detach().requires_grad_(), indices[0]))
    for options in ({}, {"bias": False}):
        _("LazyLinear", 5, **options, given=(x(2, 3),))
    for options in ({}, {"p": 1.0, "keepdim": True}, {"p": 3.0, "eps": 0.1}):
        _("PairwiseDistance", **options, given=(x(4, 5), x(4, 5)))
        _("PairwiseDistance", **options, given=(x(5), x(5)))
    _("PixelShuffle", 2, given=(x(2, 8, 3, 4),))
    _("PixelUnshuffle", 2, given=(x(2, 3, 4, 6),))
    for shape in ((4, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 4, 5)):
        _("SyncBatchNorm", 3, given=(x(*shape),))
    _("SyncBatchNorm", 3, momentum=None, affine=False, given=(x(4, 3, 5),))
    for options in (
        {},
        {"p": 1.0, "margin": 0.5},
        {"swap": True, "reduction": "sum"},
        {"reduction": "none"},
    ):
        _("TripletMarginLoss", **options, given=(x(4, 5), x(4, 5), x(4, 5)))
        options.pop("p", None)
        _("TripletMarginWithDistanceLoss", **options, given=(x(4, 5), x(4, 5), x(4, 5)))
    _("Unflatten", 1, (2, 3), given=(x(4, 6),))
    _("Unflatten", -1, (2, -1), given=(x(4, 6),))
    sizes: dict[int, tuple[str, ...]] = {
        1: ("nearest", "nearest-exact", "linear", "area"),
        2: ("nearest", "nearest-exact", "bilinear", "bicubic", "area"),
        3: ("nearest", "nearest-exact", "trilinear", "area"),
    }
    for n, modes in sizes.items():
        shape = [2, 3, *[4] * n]
        for mode in modes:
            _("Upsample", 7, mode=mode, given=(x(*shape),))
            _("Upsample", scale_factor=1.7, mode=mode, given=(x(*shape),))
            factor = (1.6, 1.3, 1.9)[:n] if n > 1 else 1.6
            recomputed: dict[str, Any] = {"scale_factor": factor, "recompute_scale_factor": True}
            _("Upsample", **recomputed, mode=mode, given=(x(*shape),))
            if mode.endswith(("linear", "cubic")):
                _(
                    "Upsample",
                    (5,) * n if n > 1 else 5,
                    mode=mode,
                    align_corners=True,
                    given=(x(*shape),),
                )
    for name in ("UpsamplingBilinear2d", "UpsamplingNearest2d"):
        _(name, (6, 5), given=(x(2, 3, 4, 4),))
        _(name, scale_factor=2, given=(x(2, 3, 4, 4),))
    if dtype.is_floating_point:
        layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.1, dtype=dtype)
        _("TransformerDecoder", layer, 2, given=(x(5, 2, 8), x(4, 2, 8)))
        mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=dtype)
        _("TransformerDecoder", layer, 2, given=(x(5, 2, 8), x(4, 2, 8)), named={"tgt_mask": mask})
        padding = torch.zeros(2, 4, dtype=torch.bool)
        padding[1, 3] = True
        _(
            "TransformerDecoder", layer, 1,
            given=(x(5, 2, 8), x(4, 2, 8)), named={"memory_key_padding_mask": padding},
        )  # fmt: skip
    return found


# What the modules of the samples are in, by dtype: torch.nn has no kernels for others here.
_FLOATS = (torch.float32, torch.float64)


class Info:
    """An entry as those of PyTorch's database are."""

    def __init__(self, name: str) -> None:
        self.module_cls = getattr(nn, name)
        self.dtypes = _FLOATS
        self.module_error_inputs_func: Callable[..., Any] | None = None

    def module_inputs_func(self, info: Any, dtype: torch.dtype, **_: Any) -> list[ModuleInput]:
        return samples(dtype)[self.module_cls.__name__]


def entries() -> Iterator[tuple[str, Info]]:
    for name in samples(torch.float32):
        yield name, Info(name)
