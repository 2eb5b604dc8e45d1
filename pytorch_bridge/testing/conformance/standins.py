"""Kernels that stand in for hardware that this machine lacks.

A function that only a GPU computes can be called here as well, once PyTorch is told of a kernel for
the CPU. The one here returns numbers that say what it was given, so that an argument which a
wrapper swaps or drops shows in the result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .operators import Operator, operators

_CUDA, _CUDNN, _MIOPEN, _MPS = "an NVIDIA GPU", "cuDNN", "MIOpen (an AMD GPU)", "Apple's MPS"
_NESTED = "a backend for nested tensors that has an out= form"
_SPARSE = "a kernel for sparse tensors, of which libtorch has none"
_ONEDNN = "a oneDNN that differentiates max pooling: this one could not execute a primitive"
_EXTERNAL = "a backend of one's own: libtorch leaves this function to be overridden"

# The functions, by schema name, with what they need.
NEEDS: dict[str, str] = {
    **dict.fromkeys(
        (
            "addmm.dtype",
            "addmm.dtype_out",
            "baddbmm.dtype",
            "baddbmm.dtype_out",
            "bmm.dtype",
            "bmm.dtype_out",
            "mm.dtype",
            "mm.dtype_out",
            "batch_norm_stats",
            "batch_norm_elemt",
            "batch_norm_elemt.out",
            "batch_norm_gather_stats",
            "batch_norm_gather_stats_with_counts",
            "batch_norm_backward_reduce",
            "batch_norm_backward_elemt",
            "conv_depthwise3d",
            "record_stream",
        ),
        _CUDA,
    ),
    **dict.fromkeys(
        (
            "cudnn_affine_grid_generator",
            "cudnn_affine_grid_generator_backward",
            "cudnn_batch_norm",
            "cudnn_batch_norm.out",
            "cudnn_batch_norm_backward",
            "cudnn_convolution",
            "cudnn_convolution.out",
            "cudnn_convolution_add_relu",
            "cudnn_convolution_relu",
            "cudnn_convolution_transpose",
            "cudnn_grid_sampler",
            "cudnn_grid_sampler_backward",
        ),
        _CUDNN,
    ),
    **dict.fromkeys(
        (
            "miopen_batch_norm",
            "miopen_batch_norm_backward",
            "miopen_convolution",
            "miopen_convolution_add_relu",
            "miopen_convolution_relu",
            "miopen_convolution_transpose",
            "miopen_depthwise_convolution",
            "miopen_ctc_loss",
            "miopen_ctc_loss.Tensor",
            "miopen_rnn",
            "miopen_rnn_backward",
        ),
        _MIOPEN,
    ),
    **dict.fromkeys(
        (
            "mps_convolution_backward",
            "mps_convolution_transpose_backward",
            "lstm_mps_backward",
            "max_pool2d_backward",
        ),
        _MPS,
    ),
    **dict.fromkeys(("linear_backward", "matmul_backward", "to_padded_tensor"), _NESTED),
    "mkldnn_max_pool2d_backward": _ONEDNN,
    "mkldnn_max_pool3d_backward": _ONEDNN,
    "indices_copy": _SPARSE,
    **dict.fromkeys(("convolution_overrideable", "convolution_backward_overrideable"), _EXTERNAL),
}


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """The stand-ins are there while inside."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for name in NEEDS:
            library.impl(name, _kernel(operators()[name]), "CPU")
        yield
    finally:
        library._destroy()


def _kernel(o: Operator) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        outs = [kwargs.pop(name) for name in o.out_names]
        said = list(_said([*args, *(kwargs[k] for k in sorted(kwargs))]))
        results = [_result(kind, said, i) for i, kind in enumerate(o.returns)]
        for out, result in zip(outs, results, strict=False):
            out.resize_(result.shape).copy_(result)
        results = outs or results
        return results[0] if len(results) == 1 else tuple(results) if results else None

    return kernel


def _result(kind: str, said: list[float], i: int) -> Any:
    t = torch.tensor(said, dtype=torch.float64) + 1000 * i
    return [t, t * 2] if kind == "Tensor[]" else t


def _said(v: Any) -> Iterator[float]:
    """Numbers that tell values apart."""
    if v is None:
        yield -0.5
    elif isinstance(v, torch.Tensor):
        yield from map(float, v.shape)
        if not v.is_nested:
            weights = torch.arange(1, v.numel() + 1, dtype=torch.float64).reshape(v.shape)
            yield float((v.detach().to(torch.float64) * weights).sum())
    elif isinstance(v, (list, tuple)):
        yield float(len(v))
        for x in v:
            yield from _said(x)
    elif isinstance(v, (bool, int, float)):
        yield float(v)
    else:
        yield float(sum(map(ord, str(v))))
