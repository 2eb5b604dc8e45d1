"""Cases for the functions that PyTorch's database does not reach, written by hand.

Each line is a function's name in the schema, and arguments as torch.ops takes them. What a function
has of other forms (in-place, out=, methods) follows from it, see derive.py.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from .cases import Case, make
from .operators import operators

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


class Numbers:
    """Makes tensors of numbers that are always the same."""

    def __init__(self, seed: int = 7) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def f(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Numbers between -1 and 1."""
        return (torch.rand(shape, generator=self.generator, dtype=torch.float64) * 2 - 1).to(dtype)

    def p(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Numbers between 0.1 and 1."""
        return (torch.rand(shape, generator=self.generator) * 0.9 + 0.1).to(dtype)

    def i(self, *shape: int, low: int = 0, high: int = 10) -> torch.Tensor:
        """Integers."""
        return torch.randint(low, high, shape, generator=self.generator)

    def b(self, *shape: int) -> torch.Tensor:
        return self.i(*shape, high=2).bool()


def cases(sections: list[Callable[[], Iterator[Call]]] | None = None) -> Iterator[Case]:
    """Those of the sections, or all of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for section in sections or SECTIONS:
            for at, (name, args, kwargs) in enumerate(section()):
                origin = f"{section.__name__.strip('_')} by hand, #{at}"
                yield make(operators()[name], args, kwargs, origin)


def _(name: str, *args: Any, **kwargs: Any) -> Call:
    return name, args, kwargs


def _bits() -> Iterator[Call]:
    n = Numbers()
    a, b, s = n.i(3, 4), n.i(3, 4), n.i(3, 4, high=5)
    for op in ("and", "or", "xor"):
        yield _(f"__{op}__.Tensor", a, b)
        yield _(f"__{op}__.Scalar", a, 6)
        yield _(f"__i{op}__.Tensor", a, b)
        yield _(f"__i{op}__.Scalar", a, 6)
        yield _(f"bitwise_{op}.Tensor", a, b)
        yield _(f"bitwise_{op}.Scalar", a, 6)
        yield _(f"bitwise_{op}.Scalar_Tensor", 6, a)
    for op in ("left", "right"):
        yield _(f"__{op[0]}shift__.Tensor", a, s)
        yield _(f"__{op[0]}shift__.Scalar", a, 2)
        yield _(f"__i{op[0]}shift__.Tensor", a, s)
        yield _(f"__i{op[0]}shift__.Scalar", a, 2)
        yield _(f"bitwise_{op}_shift.Tensor", a, s)
        yield _(f"bitwise_{op}_shift.Tensor_Scalar", a, 2)
        yield _(f"bitwise_{op}_shift.Scalar_Tensor", 37, s)
    yield _("gcd", a, b)
    yield _("lcm", a, b)
    yield _("bincount", n.i(9), None, 3)
    yield _("bincount", n.i(9), n.f(9))


def _numbers_and_tensors() -> Iterator[Call]:
    n = Numbers()
    x, y, k = n.p(3, 4), n.p(3, 4), n.i(3, 4, high=4)
    for kind in (
        "chebyshev_polynomial_t",
        "chebyshev_polynomial_u",
        "chebyshev_polynomial_v",
        "chebyshev_polynomial_w",
        "hermite_polynomial_h",
        "hermite_polynomial_he",
        "laguerre_polynomial_l",
        "legendre_polynomial_p",
        "shifted_chebyshev_polynomial_t",
        "shifted_chebyshev_polynomial_u",
        "shifted_chebyshev_polynomial_v",
        "shifted_chebyshev_polynomial_w",
    ):
        yield _(f"special_{kind}", x, k)
        yield _(f"special_{kind}.n_scalar", x, 3)
        yield _(f"special_{kind}.x_scalar", 0.3, k)
    for op in ("xlog1py", "xlogy", "zeta"):
        yield _(f"special_{op}", x + 1, y)
        yield _(f"special_{op}.other_scalar", x + 1, 0.4)
        yield _(f"special_{op}.self_scalar", 2.5, x)
    yield _("xlogy.Scalar_Other", x, 0.4)
    yield _("xlogy.Scalar_Self", 2.5, x)
    yield _("special_gammainc", x, y)
    yield _("special_gammaincc", x, y)
    yield _("remainder.Scalar_Tensor", 7, x)
    yield _("floor_divide.Scalar", x, 0.3)
    yield _("fmod.Scalar", x, 0.3)
    yield _("true_divide.Scalar", x, 0.3)
    for op in ("div", "divide"):
        yield _(f"{op}.Scalar_mode", x, 0.3, rounding_mode="floor")
        yield _(f"{op}.Scalar_mode", x, 0.3, rounding_mode=None)
        yield _(f"{op}_.Scalar_mode", x, 0.3, rounding_mode="trunc")
        yield _(f"{op}.Tensor_mode", x, y, rounding_mode="floor")
    yield _("float_power.Scalar", 2, x)
    yield _("float_power.Tensor_Scalar", x, 2)
    yield _("float_power_.Tensor", x.double(), y.double())
    yield _("float_power_.Scalar", x.double(), 3)
    yield _("polygamma_", x, 2)
    yield _("clamp_max", x, 0.4)
    yield _("clamp_min", x, 0.4)
    yield _("isin.Scalar_Tensor", 3, k)
    yield _("isin.Tensor_Scalar", k, 3, invert=True)
    yield _("bucketize.Scalar", 0.4, torch.tensor([0.1, 0.2, 0.5]), right=True)
    yield _("where", k > 1)
    yield _("where.Scalar", k > 1, 2.5, -1)
    yield _("where.ScalarOther", k > 1, x, -1.5)
    yield _("where.ScalarSelf", k > 1, 2.5, y)
    yield _("fill.Tensor", x, torch.tensor(2.0))
    yield _("fill_diagonal_", n.f(7, 3), 2.5)
    yield _("fill_diagonal_", n.f(7, 3), 2.5, True)
    yield _("zero", x)
    yield _("vander", n.f(4), 3, True)
    yield _("vander", n.f(4))


def _windows() -> Iterator[Call]:
    for kind in ("bartlett", "blackman", "hamming", "hann", "kaiser"):
        yield _(f"{kind}_window", 7)
        yield _(f"{kind}_window", 7, dtype=torch.float64, requires_grad=True)
        yield _(f"{kind}_window.periodic", 7, False)
    yield _("hamming_window.periodic_alpha", 7, True, 0.4)
    yield _("hamming_window.periodic_alpha_beta", 7, True, 0.4, 0.3)
    yield _("kaiser_window.beta", 7, True, 3.5)
    yield _("fft_fftfreq", 7, 0.5)
    yield _("fft_rfftfreq", 7)
    yield _("range", 1, 4)
    yield _("range.step", 1, 4, 0.5)
    yield _("range.step", 1, 4)
    yield _("tril_indices", 3, 4, -1, dtype=torch.int32)
    yield _("tril_indices", 3, 4)
    yield _("triu_indices", 3, 4, 1)


def _random() -> Iterator[Call]:
    n = Numbers()
    x, p = n.f(3, 4), n.p(3, 4)

    def g() -> torch.Generator:
        return torch.Generator().manual_seed(5)

    yield _("rand.generator", [3, 4], generator=g())
    yield _("rand.generator", [3, 4], generator=None, dtype=torch.float64)
    yield _("randn.generator", [3, 4], generator=g())
    yield _("randint.generator", 9, [3, 4], generator=g())
    yield _("randint.low_generator", 2, 9, [3, 4], generator=g(), dtype=torch.int16)
    yield _("rand_like.generator", x, generator=g())
    yield _("randn_like.generator", x, generator=g())
    yield _("randint_like.generator", x, 9, generator=g())
    yield _("randint_like.low_generator_dtype", x, 2, 9, generator=g())
    yield _("randint_like.Tensor", x, torch.tensor(9))
    yield _("randint_like.Tensor_generator", x, torch.tensor(9), generator=g())
    yield _("randperm", 7)
    yield _("randperm", 7, dtype=torch.int16)
    yield _("randperm.generator", 7, generator=g())
    yield _("random", n.i(3, 4))
    yield _("random.from", n.i(3, 4), 2, 9)
    yield _("random_.from", n.i(3, 4), 2, None)
    yield _("random.to", n.i(3, 4), 9, generator=g())
    for op, args in (
        ("normal", (1.5, 2.0)),
        ("uniform", (1.0, 2.0)),
        ("cauchy", (1.0, 2.0)),
        ("log_normal", (0.5, 0.25)),
        ("exponential", (2.0,)),
        ("geometric", (0.3,)),
    ):
        yield _(f"{op}_", x, *args)
        yield _(f"{op}_", x, *args, generator=g())
    yield _("bernoulli", p, generator=g())
    yield _("bernoulli.p", x, 0.3, generator=g())
    yield _("bernoulli.p", x, 0.3)
    yield _("bernoulli.Tensor", x, p)
    yield _("bernoulli_.float", x, 0.3, generator=g())
    yield _("bernoulli_.float", x)
    yield _("binomial", n.i(3, 4).float(), p)
    yield _("binomial", n.i(3, 4).float(), p, g())
    yield _("poisson", p * 5)
    yield _("poisson", p * 5, g())
    yield _("normal.float_Tensor", 1.5, p)
    yield _("normal.Tensor_float", x, 1.5, generator=g())
    yield _("normal.Tensor_Tensor", x, p, generator=g())
    yield _("normal.float_float", 1.5, 2.0, [3, 4], generator=g())
    yield _("multinomial", p, 6, True, generator=g())
    for op in ("alpha_dropout_", "dropout_", "feature_alpha_dropout_", "feature_dropout_"):
        yield _(op, n.f(3, 4, 2), 0.4, True)
        yield _(op, n.f(3, 4, 2), 0.4, False)
    yield _("native_dropout", x, 0.4, True)
    yield _("native_dropout", x, 0.4, None)


def _queries() -> Iterator[Call]:
    n = Numbers()
    x, k = n.f(3, 4), n.i(3, 4)
    leaf = n.f(3).requires_grad_()
    for t in (x, k, x.t(), leaf, n.f(2, dtype=torch.complex64).conj()):
        for name in (
            "is_conj",
            "is_neg",
            "is_contiguous",
            "is_inference",
            "is_signed",
            "is_leaf",
            "is_distributed",
            "output_nr",
            "storage_offset",
            "sym_numel",
            "numel",
            "dim",
            "sym_storage_offset",
            "retains_grad",
            "is_complex",
            "is_floating_point",
            "sym_is_contiguous",
        ):
            yield _(name, t)
        yield _("size.int", t, 0)
        yield _("sym_size.int", t, -1)
        yield _("stride.int", t, 0)
        yield _("sym_stride.int", t, -1)
    yield _("is_contiguous.memory_format", n.f(1, 2, 3, 4), torch.channels_last)
    yield _("sym_is_contiguous", n.f(1, 2, 3, 4), torch.channels_last)
    yield _("is_nonzero", torch.tensor(3))
    yield _("is_nonzero", torch.tensor(0.0))
    yield _("is_pinned", x)
    yield _("is_same_size", x, k)
    yield _("is_set_to", x, x)
    yield _("is_set_to", x, x.clone())
    yield _("is_vulkan_available")
    yield _("get_device", torch.empty(1, device="meta"))
    yield _("get_device", x)
    yield _("can_cast", torch.float32, torch.int64)
    yield _("can_cast", torch.int64, torch.bfloat16)
    yield _("promote_types", torch.int64, torch.bfloat16)
    yield _("result_type.Tensor", x, k)
    yield _("result_type.Scalar", k, 2.5)
    yield _("result_type.Scalar_Tensor", 2.5, k)
    yield _("result_type.Scalar_Scalar", 2, 2.5)
    yield _("cudnn_is_acceptable", x)
    yield _("item", torch.tensor(2.5))
    yield _("item", torch.tensor(7))
    yield _("item", torch.tensor(True))
    yield _("item", torch.tensor(1 + 2j))
    yield _("equal", x, x)
    yield _("allclose", x, x + 1e-9)
    yield _("sym_constrain_range", 3, min=0, max=5)
    yield _("sym_constrain_range_for_size", 3, min=0, max=5)
    yield _("sym_constrain_range", 3)
    yield _("requires_grad_", x)
    yield _("requires_grad_", leaf, False)
    yield _("retain_grad", leaf)


def _views() -> Iterator[Call]:
    n = Numbers()
    x, z, q = n.f(3, 4), n.f(3, 4, dtype=torch.complex64), n.f(2, 3, 4)
    yield _("adjoint", z)
    yield _("mH", z)
    yield _("mT", q)
    yield _("matrix_H", z)
    yield _("numpy_T", x)
    yield _("imag", z)
    yield _("real", z)
    yield _("data", x)
    yield _("lift", x)
    yield _("meshgrid", [n.f(2), n.f(3)])
    yield _("moveaxis.int", q, 0, 2)
    yield _("movedim.int", q, 0, 2)
    yield _("swapaxes", q, 0, 2)
    yield _("swapdims_", q, 0, 2)
    yield _("swapaxes_", q, 0, 2)
    yield _("type_as", x, n.i(1))
    yield _("type_as", x, x)
    yield _("view.dtype", x, torch.int32)
    yield _("view.dtype", x, torch.int16)
    yield _("view_copy.dtype", x, torch.int32)
    yield _("split.sizes", x, [1, 3], 1)
    yield _("split.sizes", x, [1, 2])
    yield _("unsafe_split_with_sizes", x, [1, 3], 1)
    yield _("nonzero_numpy", n.i(3, 4, high=2))
    yield _("to.dtype_layout", x, dtype=torch.float64)
    yield _("to.dtype_layout", x)
    yield _("to.dtype_layout", x, dtype=torch.float32, layout=torch.strided, copy=True)
    yield _("to.dtype", x, torch.float64, False, True)
    yield _("to.other", x, n.i(1))
    yield _("to.device", x, torch.device("cpu"), torch.float64)
    yield _("to.device", x, torch.device("meta"), torch.float64)
    yield _("slice_inverse", n.f(3, 4), torch.ones(2, 4), 0, 1, 3)
    big = n.f(3, 4)
    yield _("slice_inverse", big[1:3], big, 0, 1, 3)
    yield _("set", x)
    yield _("set.source_Tensor", x, n.f(5))
    yield _("set.source_Storage", x, n.f(5).untyped_storage())
    yield _("set.source_Storage_storage_offset", x, n.f(9).untyped_storage(), 2, [2, 2], [3, 1])
    yield _("set.source_Storage_storage_offset", x, n.f(9).untyped_storage(), 2, [2, 2])
    yield _("set_.source_Tensor_storage_offset", x, n.f(9), 2, [2, 2], [3, 1])
    yield _("set_data", x, n.f(5))
    yield _("flatten_dense_tensors", [x, q])
    yield _("unflatten_dense_tensors", n.f(36), [x, q])
    yield _("pad_sequence", [n.f(3, 2), n.f(2, 2)], True, 0.5, "left")
    yield _("pad_sequence", [n.f(3, 2), n.f(2, 2)])
    yield _("native_channel_shuffle", n.f(1, 4, 2, 2), 2)
    yield _("one_hot", n.i(4, high=3))
    yield _("one_hot", n.i(4, high=3), 5)
    yield _("unique_dim_consecutive", torch.tensor([[1, 1], [1, 1], [2, 3]]), 0, True, True)
    yield _("unique_dim_consecutive", torch.tensor([[1, 1], [1, 1], [2, 3]]), 0)
    yield _("empty_permuted", [2, 3, 4], [2, 0, 1])
    yield _("pin_memory", x)


def _linear() -> Iterator[Call]:
    n = Numbers()
    x, s = n.f(3, 4), n.f(3, 3) + 2 * torch.eye(3)
    yield _("chain_matmul", [n.f(2, 3), n.f(3, 4), n.f(4, 1)])
    yield _("det", s)
    yield _("slogdet", s)
    yield _("inverse", s)
    yield _("frobenius_norm.dim", x, [1], True)
    yield _("nuclear_norm", x)
    yield _("nuclear_norm.dim", n.f(2, 3, 4), [0, 2], True)
    yield _("linalg_cond.p_str", s, "fro")
    yield _("linalg_matrix_rank", s, 0.1)
    yield _("linalg_matrix_rank.tol_tensor", s, torch.tensor(0.1), True)
    yield _("linalg_pinv", s, 0.1)
    yield _("linalg_pinv.rcond_tensor", s, torch.tensor(0.1))
    yield _("linalg__powsum", x, 3, [1], True)
    yield _("linalg__powsum", x)
    yield _("orgqr", n.f(4, 3), n.f(3))
    yield _("norm.Scalar", x)
    yield _("norm.Scalar", x, 3)
    yield _("norm.ScalarOpt_dtype", x, 3, dtype=torch.float64)
    yield _("norm.ScalarOpt_dim_dtype", x, 3, [1], True, dtype=torch.float64)
    yield _("native_norm", _sparse(x), 3)
    yield _("native_norm.ScalarOpt_dim_dtype", _sparse(x), 3, [0, 1], False, None)
    yield _("norm_except_dim", x, 2, 1)
    yield _("norm_except_dim", x)
    yield _("gradient.array", n.f(5, 6), dim=[0, 1])
    yield _("gradient.scalararray", n.f(5, 6), spacing=0.5, dim=[0, 1], edge_order=2)
    yield _("gradient.tensorarrayint", n.f(5), spacing=[n.p(5).cumsum(0)], dim=0)
    yield _("histogramdd.int_bins", n.f(9, 2), 3)
    yield _("histogramdd.int_bins", n.f(9, 2), 3, [-1.0, 1.0, -1.0, 1.0], n.p(9), True)
    yield _("stft.center", n.f(40), 8, 2, 8, n.p(8), return_complex=True)
    yield _("stft.center", n.f(40), 8, center=False, return_complex=True)
    spectrum = torch.stft(n.f(40), 8, 2, window=torch.ones(8), return_complex=True)
    yield _("istft", spectrum, 8, 2, 8, torch.ones(8))
    yield _("istft", spectrum, 8, 2, None, torch.ones(8), length=40)


def _scatter() -> Iterator[Call]:
    n = Numbers()
    x, index = n.f(3, 4), n.i(2, 4, high=3)
    yield _("scatter.reduce", x, 0, index, n.f(2, 4), reduce="add")
    yield _("scatter_.reduce", x, 0, index, n.f(2, 4), reduce="multiply")
    yield _("scatter.value_reduce", x, 0, index, 2.5, reduce="multiply")
    yield _("gather_backward", n.f(2, 4), x, 0, index, False)
    yield _("index_select_backward", n.f(2, 4), [3, 4], 0, n.i(2, high=3))
    yield _(
        "masked_select_backward",
        n.f(3),
        x,
        torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]]).bool(),
    )
    yield _("value_selecting_reduction_backward", n.f(3), 1, n.i(3, high=4), [3, 4], False)
    yield _("trace_backward", torch.tensor(2.0), [3, 4])
    yield _("cumprod_backward", n.f(3, 4), n.f(3, 4), 1, n.f(3, 4))
    yield _("cummaxmin_backward", n.f(3, 4), n.f(3, 4), n.i(3, 4, high=4), 1)
    yield _("matrix_exp_backward", n.f(3, 3), n.f(3, 3))
    yield _("infinitely_differentiable_gelu_backward", x, n.f(3, 4))
    yield _("glu_jvp", n.f(3, 2), x, n.f(3, 4), 1)
    yield _("glu_backward_jvp", x, n.f(3, 2), x, n.f(3, 2), n.f(3, 4), 1)


def _layers() -> Iterator[Call]:
    n = Numbers()
    theta = n.f(2, 2, 3)
    yield _("affine_grid_generator", theta, [2, 3, 4, 5], False)
    yield _("affine_grid_generator_backward", n.f(2, 4, 5, 2), [2, 3, 4, 5], True)
    yield _("batch_norm_update_stats", n.f(2, 3, 4), n.f(3), n.p(3), 0.1)
    yield _("conv_tbc", n.f(5, 2, 3), n.f(2, 3, 4), n.f(4), 1)
    yield _("conv_tbc_backward", n.f(6, 2, 4), n.f(5, 2, 3), n.f(2, 3, 4), n.f(4), 1)
    image, kernel, bias = n.f(1, 2, 5, 5), n.f(3, 2, 2, 2), n.f(3)
    volume, kernel3 = n.f(1, 2, 4, 4, 4), n.f(3, 2, 2, 2, 2)
    yield _("thnn_conv2d", image, kernel, [2, 2], bias, [2, 1], [1, 0])
    yield _("thnn_conv2d", image, kernel, [2, 2])
    yield _("slow_conv3d", volume, kernel3, [2, 2, 2], bias, [2, 1, 1], [1, 0, 1])
    yield _("slow_conv3d", volume, kernel3, [2, 2, 2])
    yield _("slow_conv3d_forward", volume, kernel3, [2, 2, 2], bias, [1, 2, 1], [1, 0, 1])
    yield _("slow_conv_dilated2d", image, kernel, [2, 2], bias, [1, 2], [1, 0], [2, 1])
    yield _("slow_conv_dilated2d", image, kernel, [2, 2])
    yield _(
        "slow_conv_dilated3d", volume, kernel3, [2, 2, 2], bias, [1, 2, 1], [1, 0, 1], [1, 2, 1]
    )
    up, up3 = n.f(2, 3, 2, 2), n.f(2, 3, 2, 2, 2)
    yield _("slow_conv_transpose2d", image, up, [2, 2], bias, [2, 1], [1, 0], [1, 0], [1, 2])
    yield _("slow_conv_transpose2d", image, up, [2, 2])
    yield _("slow_conv_transpose3d", volume, up3, [2, 2, 2], bias, [2, 1, 1], [1, 0, 0])
    yield _(
        "adaptive_avg_pool3d_backward.grad_input",
        n.f(1, 2, 2, 2, 2),
        volume,
        grad_input=torch.zeros_like(volume),
    )
    yield _("nll_loss", n.f(4, 3), n.i(4, high=3), n.p(3), 2, 1)
    yield _("nll_loss", n.f(4, 3), n.i(4, high=3))
    yield _("nll_loss2d", n.f(2, 3, 4, 4), n.i(2, 4, 4, high=3), n.p(3), 2, 1)
    yield _("nll_loss2d", n.f(2, 3, 4, 4), n.i(2, 4, 4, high=3))
    table, at = n.f(6, 3), n.i(5, high=6)
    yield _("embedding_bag", table, at, torch.tensor([0, 2]))
    yield _("embedding_bag", table, at, torch.tensor([0, 2, 5]), True, 1, False, None, True)
    yield _("embedding_bag", table, at, torch.tensor([0, 2]), mode=0, per_sample_weights=n.p(5))
    yield _("embedding_renorm", table, at, 0.5, 2.0)
    yield _("embedding_backward", n.f(5, 3), at, 6, 1, True, False)
    yield _("embedding_sparse_backward", n.f(5, 3), at, 6, 1, False)
    yield _(
        "ctc_loss.IntList",
        n.f(6, 2, 4).log_softmax(-1),
        n.i(2, 3, low=1, high=4),
        [6, 5],
        [3, 2],
        0,
        1,
        True,
    )


def _recurrent() -> Iterator[Call]:
    n = Numbers()
    x, h, c = n.f(5, 2, 3), n.f(1, 2, 4), n.f(1, 2, 4)
    batch_sizes = torch.tensor([2, 2, 1])
    packed = n.f(5, 3)
    for kind, gates in (("gru", 3), ("rnn_relu", 1), ("rnn_tanh", 1), ("lstm", 4)):
        weights = [n.f(4 * gates, 3), n.f(4 * gates, 4), n.f(4 * gates), n.f(4 * gates)]
        state = [h, c] if kind == "lstm" else h
        yield _(f"{kind}.input", x, state, weights, True, 1, 0.0, False, False, False)
        yield _(f"{kind}.data", packed, batch_sizes, state, weights, True, 1, 0.0, True, False)
        first = [h[0], c[0]] if kind == "lstm" else h[0]
        yield _(f"{kind}_cell", x[0], first, *weights)
        yield _(f"{kind}_cell", x[0], first, *weights[:2])
    w = [n.f(16, 3), n.f(16, 4), n.f(16), n.f(16)]
    layer = (x, *w, h, c, False, [], 2, 4, 1, True, False, False, True)
    yield _("mkldnn_rnn_layer", *layer)
    y, hy, cy, workspace = torch.ops.aten.mkldnn_rnn_layer(*layer)
    yield _(
        "mkldnn_rnn_layer_backward",
        x,
        *w,
        h,
        c,
        y,
        hy,
        cy,
        n.f(5, 2, 4),
        n.f(1, 2, 4),
        n.f(1, 2, 4),
        False,
        2,
        4,
        1,
        True,
        True,
        False,
        [],
        False,
        workspace,
    )


def _sparse(t: torch.Tensor, dims: int | None = None) -> torch.Tensor:
    return (t * (t > 0)).to_sparse(dims if dims is not None else t.dim())


def _mkldnn(t: torch.Tensor) -> torch.Tensor:
    return t.to_mkldnn()


def _sparse_tensors() -> Iterator[Call]:
    n = Numbers()
    x = n.f(4, 6)
    coo, dense = _sparse(x), x * (x > 0)
    twice = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1], [1, 1, 2]]), n.f(3), (4, 6))
    for name in (
        "sparse_dim",
        "dense_dim",
        "is_coalesced",
        "indices",
        "values",
        "to_dense",
        "coalesce",
        "indices_copy",
        "values_copy",
    ):
        yield _(name, coo)
    yield _("coalesce", twice)
    yield _("is_coalesced", twice)
    csr, csc = dense.to_sparse_csr(), dense.to_sparse_csc()
    for name in ("crow_indices", "col_indices", "values", "crow_indices_copy", "col_indices_copy"):
        yield _(name, csr)
    for name in ("ccol_indices", "row_indices", "ccol_indices_copy", "row_indices_copy"):
        yield _(name, csc)
    yield _("to_dense", csr, torch.float64)
    yield _("to_dense", coo, None, masked_grad=True)
    yield _("to_dense_backward", n.f(4, 6), coo)
    yield _("to_dense_backward", n.f(4, 6), coo, True)
    yield _("to_sparse", dense)
    yield _("to_sparse", dense, layout=torch.sparse_bsr, blocksize=[2, 3])
    yield _("to_sparse.sparse_dim", dense, 1)
    yield _("to_sparse_csr", dense)
    yield _("to_sparse_csc", dense)
    yield _("to_sparse_bsr", dense, [2, 3])
    yield _("to_sparse_bsc", dense, [2, 3])
    indices, values = coo.indices(), coo.values()
    yield _("sparse_coo_tensor.indices", indices, values)
    yield _("sparse_coo_tensor.indices", indices, values, dtype=torch.float64)
    yield _("sparse_coo_tensor.indices", indices, values, is_coalesced=True, requires_grad=True)
    yield _("sparse_coo_tensor.indices_size", indices, values, [4, 7])
    yield _("sparse_coo_tensor.indices_size", indices, values, [4, 7], is_coalesced=True)
    yield _("sparse_coo_tensor.size", [4, 7])
    yield _("sparse_coo_tensor.size", [4, 7], dtype=torch.float64, layout=torch.sparse_coo)
    for t, kind in (
        (csr, "csr"),
        (csc, "csc"),
        (dense.to_sparse_bsr([2, 3]), "bsr"),
        (dense.to_sparse_bsc([2, 3]), "bsc"),
    ):
        rows = kind in ("csr", "bsr")
        compressed = t.crow_indices() if rows else t.ccol_indices()
        plain = t.col_indices() if rows else t.row_indices()
        prefix = "crow_col" if rows else "ccol_row"
        yield _(f"sparse_{kind}_tensor.{prefix}_value", compressed, plain, t.values())
        yield _(
            f"sparse_{kind}_tensor.{prefix}_value_size",
            compressed,
            plain,
            t.values(),
            [4, 6],
            dtype=torch.float32,
        )
    parts = (csr.crow_indices(), csr.col_indices(), csr.values())
    yield _("sparse_compressed_tensor.comp_plain_value", *parts, layout=torch.sparse_csr)
    yield _(
        "sparse_compressed_tensor.comp_plain_value_size", *parts, [4, 6], layout=torch.sparse_csr
    )
    yield _("sparse_resize", twice, [5, 7], 2, 0)
    yield _("sparse_resize_and_clear", twice, [5, 7], 2, 0)
    yield _("resize_as_sparse", twice, _sparse(n.f(5, 7)))
    yield _("copy_sparse_to_sparse", twice, _sparse(n.f(4, 6)))
    yield _("copy_sparse_to_sparse_", twice, _sparse(n.f(4, 6)))
    yield _("sparse_mask", x, coo.coalesce())
    yield _("hspmm", coo, n.f(6, 3))
    yield _("smm", coo, n.f(6, 3))
    yield _("sspaddmm", _sparse(n.f(4, 3)), coo, n.f(6, 3), beta=2, alpha=0.5)
    yield _("sspaddmm", _sparse(n.f(4, 3)), coo, n.f(6, 3))
    yield _("native_norm", coo)
    yield _("mm", coo, n.f(6, 3))
    yield _("add.Tensor", coo, coo, alpha=2)
    yield _("mul.Tensor", coo, coo)
    yield _("sum", coo)
    yield _("_sparse_mm", coo, n.f(6, 3))
    yield _("_sparse_mm", coo, _sparse(n.f(6, 3)))
    for reduce in ("sum", "mean", "amax", "amin"):
        yield _("_sparse_mm.reduce", csr, n.f(6, 3), reduce)
    yield _("_sparse_addmm", n.f(4, 3), coo, n.f(6, 3))
    yield _("_sparse_addmm", n.f(4, 3), coo, n.f(6, 3), beta=2, alpha=0.5)
    for softmax in ("_sparse_softmax", "_sparse_log_softmax"):
        yield _(softmax, coo, 1, False)
        yield _(f"{softmax}.int", coo, 0)
        yield _(f"{softmax}.int", coo, -1, torch.float64)
    yield _("_sparse_sum", coo)
    yield _("_sparse_sum.dtype", coo, dtype=torch.float64)
    yield _("_sparse_sum.dim", coo, [0])
    yield _("_sparse_sum.dim", coo, [0, 1])
    yield _("_sparse_sum.dim_dtype", coo, [1], dtype=torch.float64)


def _mkldnn_tensors() -> Iterator[Call]:
    n = Numbers()
    image, weight, bias = n.f(1, 2, 6, 6), n.f(3, 2, 3, 3), n.f(3)
    volume = n.f(1, 2, 4, 4, 4)
    yield _("to_mkldnn", image)
    yield _("to_mkldnn", image, torch.float32)
    yield _("to_mkldnn_backward", _mkldnn(image), image)
    yield _("to_dense", _mkldnn(image))
    yield _("mkldnn_adaptive_avg_pool2d", _mkldnn(image), [3, 2])
    yield _("mkldnn_adaptive_avg_pool2d_backward", _mkldnn(n.f(1, 2, 3, 2)), _mkldnn(image))
    yield _("mkldnn_convolution", image, weight, bias, [1, 0], [1, 2], [1, 1], 1)
    yield _("mkldnn_convolution", image, weight, None, [1, 0], [1, 2], [1, 1], 1)
    yield _("mkldnn_linear", _mkldnn(n.f(2, 4)), n.f(3, 4), n.f(3))
    yield _("mkldnn_linear", _mkldnn(n.f(2, 4)), n.f(3, 4))
    yield _("mkldnn_linear_backward", _mkldnn(n.f(2, 4)), _mkldnn(n.f(2, 3)), n.f(3, 4), [True] * 3)
    yield _("mkldnn_linear_backward_input", [2, 4], _mkldnn(n.f(2, 3)), n.f(3, 4))
    yield _(
        "mkldnn_linear_backward_weights", _mkldnn(n.f(2, 3)), _mkldnn(n.f(2, 4)), n.f(3, 4), True
    )
    yield _("mkldnn_max_pool2d", _mkldnn(image), [2, 2])
    yield _("mkldnn_max_pool2d", _mkldnn(image), [2, 2], [2, 1], [1, 0], [1, 1], True)
    yield _("mkldnn_max_pool3d", _mkldnn(volume), [2, 2, 2])
    yield _("mkldnn_reorder_conv2d_weight", _mkldnn(weight), [1, 1], [1, 2], [1, 1], 1)
    yield _("mkldnn_reorder_conv2d_weight", _mkldnn(weight))
    yield _("mkldnn_reorder_conv3d_weight", _mkldnn(n.f(3, 2, 2, 2, 2)))


def _packed(t: torch.Tensor) -> torch.Tensor:
    """Marks a tensor whose storage is an object of fbgemm's, of which there is no copy."""
    t.is_packed = True
    return t


def _quantized() -> Iterator[Call]:
    n = Numbers()
    x, scales, zeros = n.f(3, 4), torch.tensor([0.1, 0.2, 0.05]), torch.tensor([0, 3, 1])
    q = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
    channels = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)
    yield _("quantize_per_tensor", x, 0.1, 3, torch.quint8)
    yield _(
        "quantize_per_tensor.tensor_qparams", x, torch.tensor(0.1), torch.tensor(3), torch.qint8
    )
    yield _("quantize_per_tensor.tensors", [x, x + 1], scales[:2], zeros[:2], torch.quint8)
    yield _("quantize_per_tensor_dynamic", x, torch.quint8, True)
    yield _("quantize_per_channel", x, scales, zeros, 0, torch.qint8)
    for name in ("dequantize.self", "int_repr", "q_scale", "q_zero_point", "qscheme"):
        yield _(name, q)
    for name in (
        "dequantize.self",
        "int_repr",
        "qscheme",
        "q_per_channel_axis",
        "q_per_channel_scales",
        "q_per_channel_zero_points",
    ):
        yield _(name, channels)
    yield _("dequantize.tensors", [q, channels])
    yield _("empty_quantized", [2, 3], q)
    image = torch.quantize_per_tensor(n.f(1, 2, 4, 4), 0.1, 3, torch.quint8)
    volume = torch.quantize_per_tensor(n.f(1, 2, 4, 4, 4), 0.1, 3, torch.quint8)
    yield _("quantized_batch_norm", image, n.f(2), n.f(2), n.f(2), n.p(2), 1e-5, 0.2, 1)
    yield _("quantized_max_pool1d", image[0], [2])
    yield _("quantized_max_pool2d", image, [2, 2])
    yield _("quantized_max_pool2d", image, [2, 2], [1, 2], [1, 0], [1, 1], True)
    yield _("quantized_max_pool3d", volume, [2, 2, 2])
    yield _("fake_quantize_per_tensor_affine", x, 0.1, 3, 0, 255)
    yield _(
        "fake_quantize_per_tensor_affine.tensor_qparams",
        x,
        torch.tensor(0.1),
        torch.tensor(3, dtype=torch.int32),
        0,
        255,
    )
    yield _("fake_quantize_per_tensor_affine_cachemask", x, 0.1, 3, 0, 255)
    yield _("fake_quantize_per_tensor_affine_cachemask_backward", x, n.b(3, 4))
    zeros32 = zeros.to(torch.int32)
    yield _("fake_quantize_per_channel_affine", x, scales, zeros32, 0, 0, 255)
    yield _("fake_quantize_per_channel_affine_cachemask", x, scales, zeros32, 0, 0, 255)
    yield _("fake_quantize_per_channel_affine_cachemask_backward", x, n.b(3, 4))
    yield _("choose_qparams_optimized", n.f(20), 20, 200, 0.16, 8)
    on = torch.tensor([1])
    yield _(
        "fused_moving_avg_obs_fake_quant",
        x,
        on,
        on,
        torch.tensor(-1.0),
        torch.tensor(1.0),
        torch.tensor([0.1]),
        torch.tensor([3], dtype=torch.int32),
        0.1,
        0,
        255,
        0,
    )
    w = n.f(16, 16)

    def fp16(t: torch.Tensor) -> torch.Tensor:
        return _packed(torch.ops.aten.fbgemm_pack_gemm_matrix_fp16(t))

    def pack(t: torch.Tensor) -> torch.Tensor:
        return _packed(torch.ops.aten.fbgemm_pack_quantized_matrix(t))

    yield _("fbgemm_pack_gemm_matrix_fp16", w)
    yield _("fbgemm_linear_fp16_weight", n.f(3, 16), fp16(w), n.f(16))
    yield _("fbgemm_linear_fp16_weight.out", n.f(3, 16), fp16(w), n.f(16), torch.zeros(3, 16))
    yield _("fbgemm_linear_fp16_weight_fp32_activation", n.f(3, 16), fp16(w), n.f(16))
    yield _(
        "fbgemm_linear_fp16_weight_fp32_activation.out",
        n.f(3, 16),
        fp16(w),
        n.f(16),
        torch.zeros(3, 16),
    )
    yield _("fbgemm_linear_quantize_weight", w)
    q_w, offsets, scale, zero = torch.ops.aten.fbgemm_linear_quantize_weight(w)
    yield _("fbgemm_pack_quantized_matrix", q_w)
    yield _("fbgemm_pack_quantized_matrix.KN", q_w, 16, 16)
    yield _("fbgemm_linear_int8_weight", n.f(3, 16), q_w, pack(q_w), offsets, scale, zero, n.f(16))
    yield _(
        "fbgemm_linear_int8_weight_fp32_activation",
        n.f(3, 16),
        q_w,
        pack(q_w),
        offsets,
        scale,
        zero,
        n.f(16),
    )
    for kind, gates in (("gru", 3), ("rnn_relu", 1), ("rnn_tanh", 1), ("lstm", 4)):
        w_ih, o_ih, s_ih, z_ih = torch.ops.aten.fbgemm_linear_quantize_weight(n.f(4 * gates, 3))
        w_hh, o_hh, s_hh, z_hh = torch.ops.aten.fbgemm_linear_quantize_weight(n.f(4 * gates, 4))
        h = n.f(2, 4)
        yield _(
            f"quantized_{kind}_cell",
            n.f(2, 3),
            [h, n.f(2, 4)] if kind == "lstm" else h,
            w_ih,
            w_hh,
            n.f(4 * gates),
            n.f(4 * gates),
            pack(w_ih),
            pack(w_hh),
            o_ih,
            o_hh,
            s_ih,
            s_hh,
            z_ih,
            z_hh,
        )


def _nested() -> Iterator[Call]:
    n = Numbers()
    nested = torch.nested.nested_tensor([n.f(2, 3), n.f(4, 3)])
    out = torch.nested.nested_tensor([n.f(2, 5), n.f(4, 5)])
    yield _("linear_backward", nested, out, n.f(5, 3), [True, True, True])
    yield _("nested_to_padded_tensor", nested, 0.5)
    yield _("nested_to_padded_tensor", nested, 0.5, [2, 5, 4])
    yield _("to_padded_tensor", nested, 0.5)
    yield _("to_padded_tensor", nested, 0.5, [2, 5, 4])
    yield _("matmul_backward", nested, nested, nested, [True, True])
    yield _("relu", nested)


def _files() -> Iterator[Call]:
    path = Path(tempfile.gettempdir(), "gotorch-conformance.bin")
    Numbers().f(20).numpy().tofile(path)
    yield _("from_file", str(path), False, 12, dtype=torch.float32)
    yield _("from_file", str(path), None, 12)


def _optimizers() -> Iterator[Call]:
    n = Numbers()

    def some(make: Callable[..., torch.Tensor] = n.f) -> list[torch.Tensor]:
        return [make(3), make(2, 2)]

    def steps() -> list[torch.Tensor]:
        return [torch.tensor(1.0), torch.tensor(2.0)]

    adam = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-6, "amsgrad": True}
    sgd = {"weight_decay": 0.1, "momentum": 0.9, "dampening": 0.2, "nesterov": False}
    adagrad = {"lr_decay": 0.1, "weight_decay": 0.2, "eps": 1e-6, "maximize": True}
    for overload, lr in (("", 0.3), (".tensor_lr", torch.tensor(0.3))):
        out = f"{overload}_out" if overload else ".out"
        for kind in ("adam", "adamw"):
            for form in (overload, f"_{overload}", out):
                more = {"out": some()} if form == out else {}
                lists = (some(), some(), some(n.p), some(n.p), some(n.p), steps())
                name = f"_fused_{kind}{form}"
                yield _(name, *lists, lr=lr, maximize=False, **adam, **more)
                scale = {"grad_scale": torch.tensor(2.0), "found_inf": torch.tensor(0.0)}
                yield _(name, *lists, lr=lr, maximize=True, **adam, **scale, **more)
        for form in (overload, f"_{overload}", out):
            more = {"out": some()} if form == out else {}
            three = (some(), some(), some())
            name, first = f"_fused_sgd{form}", {"maximize": True, "is_first_step": False}
            yield _(name, *three, lr=lr, **first, **sgd, **more)
            first = {"maximize": False, "is_first_step": True}
            yield _(name, *three, lr=lr, **first, **sgd, grad_scale=torch.tensor(2.0), **more)
            four = (some(), some(), some(n.p), steps())
            yield _(f"_fused_adagrad{form}", *four, lr=lr, **adagrad, **more)


def _lists() -> Iterator[Call]:
    n = Numbers()

    def some() -> list[torch.Tensor]:
        return [n.p(3), n.p(2, 2)]

    yield _("_foreach_zero", some())
    yield _("_foreach_zero_", some())
    yield _("_foreach_powsum.Scalar", some(), 3, torch.float64)
    yield _("_foreach_powsum.Scalar", some())
    two = torch.tensor(2.0)
    for op in ("add", "mul", "div"):
        yield _(f"_foreach_{op}.Tensor", some(), two)
        yield _(f"_foreach_{op}_.Tensor", some(), two)
    yield _("_foreach_add.Tensor", some(), two, alpha=3)
    for op in ("addcdiv", "addcmul"):
        yield _(f"_foreach_{op}.Tensor", some(), some(), some(), torch.tensor([2.0, 3.0]))
        yield _(f"_foreach_{op}_.Tensor", some(), some(), some(), torch.tensor([2.0, 3.0]))
        yield _(f"_foreach_{op}.Scalar", some(), some(), some())
    for op in ("clamp_min", "maximum", "div", "pow", "add", "mul", "sub"):
        yield _(f"_foreach_{op}.ScalarList", some(), [2.0, 3])
        yield _(f"_foreach_{op}_.ScalarList", some(), [2.0, 3])
    yield _("_foreach_pow.ScalarAndTensor", 2.5, some())
    yield _("_foreach_copy", some(), some())


def _devices() -> Iterator[Call]:
    n = Numbers()
    x, g, w, b = n.f(2, 3, 4, 4), n.f(2, 3, 4, 4), n.f(3, 3, 2, 2), n.f(3)
    ints = ([1, 0], [1, 2], [1, 1], 1)
    v = n.f(3)
    yield _("batch_norm_stats", x, 1e-5)
    yield _("batch_norm_elemt", x, b, None, v, b, 1e-5)
    yield _("batch_norm_gather_stats", x, n.f(2, 3), n.f(2, 3), None, b, 0.1, 1e-5, 7)
    yield _("batch_norm_gather_stats_with_counts", x, n.f(2, 3), n.f(2, 3), b, None, 0.1, 1e-5, v)
    yield _("batch_norm_backward_reduce", g, x, v, b, None, True, False, True)
    yield _("batch_norm_backward_elemt", g, x, v, b, None, n.f(3), n.f(3), n.i(3))
    yield _("cudnn_affine_grid_generator", n.f(2, 2, 3), 2, 3, 4, 5)
    yield _("cudnn_affine_grid_generator_backward", n.f(2, 4, 5, 2), 2, 3, 4, 5)
    yield _("cudnn_batch_norm", x, v, b, None, n.p(3), True, 0.1, 1e-5)
    yield _("cudnn_batch_norm_backward", x, g, v, None, b, n.f(3), None, 1e-5, n.f(7))
    yield _("cudnn_convolution", x, w, *ints, True, False, True)
    yield _("cudnn_convolution_add_relu", x, w, g, 2.5, b, *ints)
    yield _("cudnn_convolution_add_relu", x, w, g, None, None, *ints)
    yield _("cudnn_convolution_relu", x, w, b, *ints)
    yield _(
        "cudnn_convolution_transpose", x, w, [1, 0], [2, 3], [4, 5], [6, 7], 1, True, False, True
    )
    yield _("cudnn_grid_sampler", x, n.f(2, 4, 5, 2))
    yield _("cudnn_grid_sampler_backward", x, n.f(2, 4, 5, 2), n.f(2, 3, 4, 5))
    yield _("miopen_batch_norm", x, v, b, None, n.p(3), True, 0.1, 1e-5)
    yield _("miopen_batch_norm_backward", x, g, v, None, b, n.f(3), None, 1e-5)
    yield _("miopen_convolution", x, w, b, *ints, True, False)
    yield _("miopen_convolution_add_relu", x, w, g, 2.5, b, *ints)
    yield _("miopen_convolution_relu", x, w, b, *ints)
    yield _("miopen_convolution_transpose", x, w, b, [1, 0], [2, 3], [4, 5], [6, 7], 1, True, False)
    yield _("miopen_depthwise_convolution", x, w, None, *ints, True, False)
    yield _("miopen_ctc_loss", n.f(6, 2, 4), n.i(5), [6, 5], [3, 2], 1, True, False)
    yield _("miopen_ctc_loss.Tensor", n.f(6, 2, 4), n.i(5), n.i(2), n.i(2), 1, True, False)
    yield _("miopen_rnn", x, [w, b], 2, v, None, 3, 4, 5, True, 0.5, False, True, [2, 1], b)
    yield _(
        "miopen_rnn_backward",
        x,
        [w, b],
        2,
        v,
        b,
        None,
        g,
        v,
        None,
        b,
        3,
        4,
        5,
        True,
        0.5,
        False,
        True,
        [2, 1],
        None,
        g,
        [True, False, False, True],
    )
    yield _("mps_convolution_backward", x, g, w, *ints, [True, False, True])
    yield _(
        "mps_convolution_transpose_backward",
        x,
        g,
        w,
        [1, 0],
        [2, 3],
        [4, 5],
        [6, 7],
        1,
        [True, False],
    )
    yield _(
        "lstm_mps_backward",
        g,
        None,
        v,
        b,
        n.f(2),
        x,
        w,
        [v, b],
        [w, b],
        True,
        3,
        0.5,
        False,
        True,
        False,
    )
    yield _("max_pool2d_backward", n.f(1, 2, 2, 2), n.f(1, 2, 4, 4), [2, 2])
    yield _(
        "max_pool2d_backward",
        n.f(1, 2, 2, 2),
        n.f(1, 2, 4, 4),
        [2, 2],
        [1, 2],
        [1, 0],
        [2, 1],
        True,
    )
    yield _("linear_backward", n.f(2, 4), n.f(2, 3), n.f(3, 4), [True, False, True])
    yield _("matmul_backward", n.f(2, 3), n.f(2, 4), n.f(4, 3), [True, False])
    yield _("to_padded_tensor", n.f(2, 3), 0.5)
    yield _("to_padded_tensor", n.f(2, 3), 0.5, [4, 5])
    yield _("mm.dtype", n.f(3, 4), n.f(4, 5), torch.float32)
    yield _("addmm.dtype", n.f(3, 5), n.f(3, 4), n.f(4, 5), torch.float64, beta=2, alpha=0.5)
    yield _("bmm.dtype", n.f(1, 3, 4), n.f(1, 4, 5), torch.float64)
    yield _("baddbmm.dtype", n.f(1, 3, 5), n.f(1, 3, 4), n.f(1, 4, 5), torch.float32)
    yield _("indices_copy", x)
    for d, t in ((2, n.f(1, 2, 4, 4)), (3, n.f(1, 2, 4, 4, 4))):
        yield _(f"mkldnn_max_pool{d}d_backward", t, t + 1, t + 2, [2] * d)
        yield _(
            f"mkldnn_max_pool{d}d_backward",
            t,
            t + 1,
            t + 2,
            [2] * d,
            [1] * d,
            [0] * d,
            [3] * d,
            True,
        )
    yield _("record_stream", x, torch.Stream(stream_id=3, device_index=0, device_type=0))
    yield _(
        "conv_depthwise3d",
        n.f(1, 2, 4, 4, 4),
        n.f(2, 1, 2, 2, 2),
        [2, 2, 2],
        None,
        [1, 2, 1],
        [1, 0, 1],
        [1, 1, 2],
    )
    yield _("convolution_overrideable", x, w, b, [1, 2], [1, 0], [1, 1], True, [0, 1], 2)
    yield _(
        "convolution_backward_overrideable",
        g,
        x,
        w,
        [1, 2],
        [1, 0],
        [1, 1],
        True,
        [0, 1],
        2,
        [True, False, True],
    )


def _behind_layers() -> Iterator[Call]:
    """The native functions that layers of torch.nn call and Python users do not."""
    n = Numbers()
    for kind in ("nearest_exact1d", "nearest_exact2d", "nearest_exact3d"):
        d = int(kind[-2])
        x, scales = n.f(1, 2, *[4] * d), [None, 1.5, 2.5][-d:]
        yield _(f"_upsample_{kind}", x, [5, 6, 7][-d:], *scales)
        yield _(f"_upsample_{kind}.vec", x, [5, 6, 7][-d:], None)
        yield _(f"_upsample_{kind}.vec", x, None, [1.5, 2.0, 1.3][-d:])
    for kind in ("bicubic", "bilinear", "lanczos"):
        x = n.f(1, 2, 5, 6)
        for align in (False, True):
            if align and kind == "lanczos":
                continue
            yield _(f"_upsample_{kind}2d_aa", x, [3, 4], align)
            yield _(f"_upsample_{kind}2d_aa", x, [3, 4], align, 0.6, 0.7)
            yield _(f"_upsample_{kind}2d_aa.vec", x, [3, 4], align, None)
        yield _(f"_upsample_{kind}2d_aa.vec", x, None, False, [0.6, 0.7])
    lengths = torch.tensor([4, 2, 1])
    yield _("_pack_padded_sequence", n.f(4, 3, 2), lengths, False)
    yield _("_pack_padded_sequence", n.f(3, 4, 2), lengths, True)
    sizes = torch.tensor([3, 2, 1, 1])
    yield _("_pad_packed_sequence", n.f(7, 2), sizes, False, 0.5, 5)
    yield _("_pad_packed_sequence", n.f(7, 2), sizes, True, 0, 4)
    x, q = n.f(2, 3, 4), (n.f(12, 4), n.f(12), n.f(4, 4), n.f(4))
    mask = torch.tensor([[False, False, True], [False, False, False]])
    yield _("_native_multi_head_attention", x, x, x, 4, 2, *q)
    yield _("_native_multi_head_attention", x, x, x, 4, 2, *q, None, False)
    yield _("_native_multi_head_attention", x, x, x, 4, 2, *q, mask, True, False, 1)
    norms, feed = (n.f(4), n.f(4), n.f(4), n.f(4)), (n.f(8, 4), n.f(8), n.f(4, 8), n.f(4))
    for gelu, first in ((False, False), (True, True)):
        layer = (x, 4, 2, *q, gelu, first, 1e-5, *norms, *feed)
        yield _("_transformer_encoder_layer_fwd", *layer)
        yield _("_transformer_encoder_layer_fwd", *layer, mask, 1)


SECTIONS: list[Callable[[], Iterator[Call]]] = [
    _bits,
    _numbers_and_tensors,
    _windows,
    _random,
    _queries,
    _views,
    _linear,
    _scatter,
    _layers,
    _behind_layers,
    _recurrent,
    _sparse_tensors,
    _mkldnn_tensors,
    _quantized,
    _nested,
    _files,
    _optimizers,
    _lists,
    _devices,
]

# Those that stand-ins compute, because this machine lacks what they need.
STOOD_IN = [_devices]
