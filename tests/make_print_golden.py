"""Writes gotorch/testdata/print.json: tensors, and the text that PyTorch gives them.

    python tests/make_print_golden.py

The Go test TestPrintGolden rebuilds each tensor and compares its text. There are two kinds of
cases. A "strided" case carries dtype, shape, strides and memory, so that any dtype, magnitude and
memory layout can be written down. A "built" case is a Python expression, for which the Go test has
the same in Go: sparse and quantized tensors, other devices, autograd.

tests/test_print.py fails if the file is not what the installed PyTorch says, and feeds random
strided cases through the same Go test.
"""

import base64
import json
import math
import random
import warnings
from pathlib import Path

import torch

GOLDEN = Path(__file__).parent.parent / "gotorch" / "testdata" / "print.json"

RELEASE = torch.__version__.partition("+")[0]

INTEGERS = [
    torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.int8, torch.int16, torch.int32, torch.int64,
]  # fmt: skip
FLOATS = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
    torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e5m2fnuz, torch.float8_e4m3fnuz,
    torch.float8_e8m0fnu, torch.float4_e2m1fn_x2,
]  # fmt: skip
# bcomplex32 is new in torch 2.15.
COMPLEX = [torch.complex64, torch.complex128, torch.complex32] + (
    [torch.bcomplex32] if hasattr(torch, "bcomplex32") else []
)
DTYPES = [torch.bool, *INTEGERS, *FLOATS, *COMPLEX]

INF, NAN = math.inf, math.nan


def text(tensor: torch.Tensor, options: dict) -> str:
    """What PyTorch prints, with these arguments of set_printoptions."""
    try:
        torch.set_printoptions(**{"profile": "default", **options})
        return repr(tensor)
    finally:
        torch.set_printoptions(profile="default")


def memory(tensor: torch.Tensor) -> bytes:
    """The bytes from the tensor's first element to the end of its last."""
    size = tensor.element_size()
    if tensor.numel() == 0:
        return b""
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.storage_offset() * size
    raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    return bytes(raw[start : start + (last + 1) * size].tolist())


def strided(
    tensor: torch.Tensor, name: str = "", default: torch.dtype = torch.float32, **options
) -> dict:
    torch.set_default_dtype(default)
    try:
        want = text(tensor, options)
    finally:
        torch.set_default_dtype(torch.float32)
    case = {
        "name": name,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "data": base64.b64encode(memory(tensor)).decode(),
        "want": want,
    }
    extras = {
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
        "requires_grad": tensor.requires_grad,
        "default_dtype": str(default).removeprefix("torch.") if default != torch.float32 else "",
        "options": options,
    }
    return case | {key: value for key, value in extras.items() if value}


def bits(pattern: bytes, dtype: torch.dtype) -> torch.Tensor:
    """A vector with these bytes, whatever numbers they stand for."""
    return torch.tensor(list(pattern), dtype=torch.uint8).view(dtype)


# Random cases ------------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5, 1e-4, 9.9999e-5, 1e8, 1.0001e8, 5e-324, 1e308]


def random_float(rng: random.Random, regime: str) -> float:
    sign = rng.choice([1, 1, -1])
    match regime:
        case "whole":
            return float(rng.randint(-9, 99))
        case "whole wide":
            return sign * float(10 ** rng.randint(0, 12))
        case "unit":
            return rng.gauss(0, 1)
        case "ties":  # exactly between two decimals
            return sign * rng.randint(0, 200) / 2.0 ** rng.randint(0, 8)
        case "decades":
            return sign * rng.random() * 10.0 ** rng.randint(-6, 6)
        case "huge":
            return sign * rng.random() * 10.0 ** rng.randint(5, 40)
        case "tiny":
            return sign * rng.random() * 10.0 ** rng.randint(-50, -3)
        case "double":
            return sign * rng.random() * 10.0 ** rng.randint(-308, 308)
        case "special":
            return rng.choice(SPECIAL)
    raise AssertionError(regime)


REGIMES = [
    "whole", "whole", "whole wide", "unit", "unit", "ties",
    "decades", "huge", "tiny", "double", "special",
]  # fmt: skip


def random_floats(rng: random.Random, n: int) -> list[float]:
    regime = rng.choice(REGIMES)
    special = rng.choice([0, 0, 0, 0.1, 0.5])
    return [random_float(rng, "special" if rng.random() < special else regime) for _ in range(n)]


def random_vector(rng: random.Random, dtype: torch.dtype, n: int) -> torch.Tensor:
    size = dtype.itemsize
    if dtype == torch.bool:
        return torch.tensor([rng.random() < 0.5 for _ in range(n)], dtype=dtype)
    if rng.random() < 0.15 or dtype == torch.float4_e2m1fn_x2:
        return bits(rng.randbytes(n * size), dtype)
    if dtype in INTEGERS:
        limits = torch.iinfo(dtype)
        bound = rng.choice([1, 10, 100, 10**5, 2**64])
        low, high = max(limits.min, -bound), min(limits.max, bound)
        return torch.tensor([rng.randint(low, high) for _ in range(n)], dtype=dtype)
    values = torch.tensor(random_floats(rng, n), dtype=torch.float64)
    if dtype in COMPLEX:
        imag = torch.tensor(random_floats(rng, n), dtype=torch.float64)
        values = torch.complex(values, imag)
        return values.to(torch.complex64).to(dtype) if dtype != torch.complex128 else values
    values = values.to(torch.float32).to(dtype) if dtype != torch.float64 else values
    # Kernels of some processors make another NaN of a NaN than others do; a scalar is converted alike on all.
    return values.masked_fill(values.isnan(), NAN) if dtype == torch.bfloat16 else values


def random_shape(rng: random.Random) -> list[int]:
    dims = rng.randint(0, 5)
    if rng.random() < 0.15:  # big enough for a summary
        longest = [0, 4000, 200, 30, 12, 8][dims]
        return [rng.choice([1, longest // 4, longest]) for _ in range(dims)]
    longest = [0, 60, 12, 6, 4, 3][dims]
    return [rng.randint(1 if rng.random() < 0.97 else 0, longest) for _ in range(dims)]


def random_layout(rng: random.Random, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of a random shape: contiguous, or a view of many kinds."""
    shape = random_shape(rng)
    kind = rng.choice(["plain", "plain", "permuted", "sliced", "expanded"])
    base = list(shape)
    if kind == "sliced":
        base = [2 * n for n in shape]
    elif kind == "expanded":
        base = [rng.choice([1, n]) for n in shape]
    tensor = random_vector(rng, dtype, math.prod(base)).reshape(base)
    match kind:
        case "permuted":
            tensor = tensor.permute(rng.sample(range(len(shape)), len(shape)))
        case "sliced":
            for dim, n in enumerate(shape):
                start = rng.randint(0, n)
                tensor = tensor.narrow(dim, start, n)
        case "expanded":
            tensor = tensor.expand(shape)
    if dtype in (torch.complex64, torch.complex128) and rng.random() < 0.3:
        tensor = tensor.conj()
        if rng.random() < 0.5:
            tensor = tensor.imag
    return tensor


def random_options(rng: random.Random) -> dict:
    if rng.random() < 0.6:
        return {}
    options = {
        "precision": rng.choice([0, 1, 2, 4, 6, 10, 17]),
        "threshold": rng.choice([0, 5, 50, 1000, 100000]),
        "edgeitems": rng.choice([0, 1, 2, 3, 5]),
        "linewidth": rng.choice([1, 20, 40, 80, 120, 200]),
        "profile": rng.choice(["default", "short", "full"]),
        "sci_mode": rng.choice([True, False]),
    }
    return {key: value for key, value in options.items() if rng.random() < 0.3}


def random_cases(seed: int, count: int) -> list[dict]:
    rng = random.Random(seed)
    cases = []
    for i in range(count):
        dtype = DTYPES[i % len(DTYPES)]
        tensor = random_layout(rng, dtype)
        options = random_options(rng)
        if dtype == torch.float4_e2m1fn_x2 and tensor.dim() == 0:
            continue  # PyTorch raises NotImplementedError here
        default = rng.choice([torch.float32] * 6 + [torch.float64, torch.float16, torch.bfloat16])
        if tensor.is_floating_point() and tensor.element_size() > 1 and rng.random() < 0.1:
            tensor = tensor.detach().requires_grad_()
        cases.append(strided(tensor, f"random {seed}/{i}", default, **options))
    return cases


# Chosen cases ------------------------------------------------------------------------------------


def chosen_strided() -> list[dict]:
    case = strided
    t = torch.tensor
    f64, long = torch.float64, torch.int64
    cases = [
        case(t([1.0, 2.0]), "whole numbers end in a point"),
        case(t([1.0, 2.5]), "four decimals otherwise"),
        case(t([0.0, -0.0]), "two zeros"),
        case(t([1.0, -0.0, -10.0]), "columns are right-aligned"),
        case(t([0.125, 0.03125, 2.00005]), "ties round to even"),
        case(t([0.12345, 2.34565], dtype=torch.float32), "float32 is rounded as a double"),
        case(t([1.0, INF, -INF, NAN]), "specials do not widen a column"),
        case(t([NAN, INF]), "nothing finite"),
        case(t([1.5, INF, -INF, NAN]), "specials are padded"),
        case(t([1.0, 1000.0]), "three decades"),
        case(t([1.0, 1001.0]), "more than three decades"),
        case(t([1e8, 1e8]), "1e8 is not scientific"),
        case(t([1.00000008e8]), "above 1e8 is"),
        case(t([1e-4], dtype=f64), "1e-4 is not scientific"),
        case(t([9.9999e-5]), "below 1e-4 is"),
        case(t([0.0, 1e-5, -3.0]), "zeros do not ask for the scientific form"),
        case(t([5e-324, 1e308, -1.7976931348623157e308], dtype=f64), "ends of float64"),
        case(t([1e-45, 3.4028234663852886e38, 1.1754943508222875e-38]), "ends of float32"),
        case(t([3.4e38, 1.0]), "no scientific form when refused", sci_mode=False),
        case(t([3.0, 1.5]), "scientific form when asked", sci_mode=True),
        case(t([0.0, 0.0]), "not even then for zeros", sci_mode=True),
        case(t([1.23456789, 100.0], dtype=f64), "precision", precision=8),
        case(t([0.5, 1.5, 2.5]), "precision 0", precision=0),
        case(t([1.5, 2.5e9]), "precision 0, scientific", precision=0),
        case(t(2.5), "scalar"),
        case(t(-7), "integer scalar"),
        case(t(True), "boolean scalar"),
        case(t(1 + 2j), "complex scalar"),
        case(t(-0.5 - 0.0j), "complex scalar, minus zero"),
        case(t(3.0, dtype=f64, requires_grad=True), "scalar that requires grad"),
        case(t([[True, False], [False, True]]), "booleans"),
        case(t([1, -22, 333]), "integers"),
        case(t([2**64 - 1, 0], dtype=torch.uint64), "the largest uint64"),
        case(t([2**63 - 1, -(2**63)]), "ends of int64"),
        case(t([1 + 2j, -3 - 4j]), "whole complex numbers"),
        case(t([1.5 + 2j, complex(NAN, INF), complex(-INF, -0.0)]), "complex specials"),
        case(t([1e-9 + 1j, 2 + 3j]), "real part scientific, imaginary part not"),
        case(t([1 + 2j, 3 - 4j]).conj(), "conjugate bit"),
        case(t([1 + 2j, 3 + 0j, 3 - 0j]).conj().imag, "negative bit"),
        case(t([1 + 2j], dtype=torch.complex128), "complex128"),
        case(t([1 + 2j], dtype=torch.complex128), "complex128 by default", default=f64),
        case(t([1 + 2j]), "complex64, not the default", default=f64),
        case(t([1.0]), "float32, not the default", default=f64),
        case(t([1.0], dtype=torch.float16), "float16 by default", default=torch.float16),
        case(t([1 + 2j]), "complex64 with float16 by default", default=torch.float16),
        case(torch.empty(0), "empty vector"),
        case(torch.empty(0, dtype=long), "empty integers name their dtype"),
        case(torch.empty(0, 3), "empty matrix"),
        case(torch.empty(2, 0, 3, dtype=torch.bool), "empty with three dimensions"),
        case(torch.empty(0, 1, requires_grad=True), "empty that requires grad"),
        case(torch.empty(0, dtype=torch.int4 if hasattr(torch, "int4") else long), "empty int4"),
        case(torch.arange(30.0), "lines are broken at 80"),
        case(torch.arange(60).reshape(2, 30) * 100, "lines of a matrix"),
        case(torch.arange(24.0).reshape(2, 3, 4), "three dimensions"),
        case(torch.arange(16).reshape(2, 2, 2, 2), "four dimensions"),
        case(torch.arange(32).reshape(2, 2, 2, 2, 2), "five dimensions"),
        case(torch.arange(6).reshape(2, 3).t(), "transposed"),
        case(torch.arange(20)[3:18:4], "sliced"),
        case(t([7.0]).expand(2, 3), "expanded"),
        case(torch.arange(12, dtype=f64).reshape(1, 12) / 7, "the dtype goes to a new line"),
        case(torch.arange(20, dtype=torch.int32), "a suffix that fits", linewidth=90),
        case(torch.arange(1000, dtype=torch.int16), "1000 elements are printed"),
        case(torch.arange(1001, dtype=torch.int16), "1001 are summarized"),
        case(torch.arange(26.0).expand(40, 26) / 3, "floats, summarized"),
        case(torch.arange(1.0).expand(10**6), "a million elements"),
        case(t([[1.0, 2.0]]).expand(400, 2, 2), "only long dimensions are cut"),
        case(torch.arange(7.0).expand(7, 7, 7, 7), "four dimensions, summarized"),
        case(t([1 + 1j]).expand(30, 50), "complex, summarized"),
        case(t([0.5] * 4 + [1e4] + [0.5] * 4), "hidden numbers do not count", threshold=8),
        case(torch.arange(10), "threshold", threshold=5),
        case(torch.arange(10), "edge items", threshold=5, edgeitems=1),
        case(torch.arange(6), "exactly the edge items", threshold=5),
        case(torch.arange(10), "no edge items", threshold=5, edgeitems=0),
        case(torch.ones(3, 4), "no edge items of a matrix", threshold=5, edgeitems=0),
        case(t(3.0), "scalar above the threshold", threshold=0),
        case(torch.arange(6).reshape(2, 3), "narrow lines", linewidth=1),
        case(torch.arange(50.0).expand(60, 50), "the short profile", profile="short"),
        case(torch.arange(1100, dtype=torch.int16), "the full profile", profile="full"),
    ]
    cases += [
        case(torch.empty(2, 0, 1, 1, dtype=f64, requires_grad=True), "suffixes", linewidth=width)
        for width in range(30, 65)
    ]
    cases += [
        case(bits(bytes(range(256)), dtype), f"all of {dtype}".replace("torch.", ""), precision=9)
        for dtype in FLOATS
        if dtype.itemsize == 1
    ]
    few = [c for c in random_cases(seed=0, count=12 * len(DTYPES)) if len(json.dumps(c)) < 1000]
    return cases + few


def copy_slices():
    base = torch.ones(3, requires_grad=True).clone()
    base[:2].mul_(2)
    return base


def view_made_without_grad():
    base = torch.ones(3, requires_grad=True).clone()
    with torch.no_grad():
        view = base.view(-1)
        view.mul_(2)
    return view


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


# Expressions that gotorch/print_test.go has in Go as well, under the same text.
BUILT = [
    "torch.ones(3, requires_grad=True) + torch.ones(3)",
    "torch.ones(2, 2, dtype=torch.float64, requires_grad=True).t()",
    "torch.ones(40, requires_grad=True).exp()",
    "torch.ones(2, requires_grad=True).unbind()[0]",
    "torch.empty(0, 2, requires_grad=True).neg()",
    "copy_slices()",
    "view_made_without_grad()",
    "torch.arange(10**6).reshape(1000, 1000)",
    "torch._efficientzerotensor((2, 3))",
    "torch.ones(2, device='meta')",
    "torch.ones(2, 3, dtype=torch.int64, device='meta')",
    "torch.ones(2, 3, dtype=torch.complex64, device='meta', requires_grad=True)",
    "torch.empty(0, device='meta')",
    "torch.eye(2).to_sparse()",
    "torch.eye(2).to_sparse().requires_grad_()",
    "torch.eye(2, requires_grad=True).to_sparse().neg()",
    "torch.eye(40, dtype=torch.float64).to_sparse()",
    "torch.ones(2000, dtype=torch.int32).to_sparse()",
    "torch.ones(2, 3, 2).to_sparse(1)",
    "torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([3 + 1j, 4]), (2,))",
    "torch.sparse_coo_tensor(size=(2, 3))",
    "torch.sparse_coo_tensor(size=(2, 3), device='meta')",
    "torch.sparse_coo_tensor(size=())",
    "torch.sparse_coo_tensor(size=(0, 3), dtype=torch.int64)",
    "torch.tensor([[1, 0], [0, 2.5]]).to_sparse_csr()",
    "torch.tensor([[1, 0], [0, 2.5]], dtype=torch.float64).to_sparse_csc()",
    "torch.eye(4).to_sparse_bsr((2, 2))",
    "torch.eye(4).to_sparse_bsc((2, 2))",
    "torch.zeros(2, 3).to_sparse_csr()",
    "torch.eye(40).to_sparse_csr()",
    "torch.zeros(2, 3).to_sparse_csr().to('meta')",
    "torch.quantize_per_tensor(torch.tensor([1.0, -2.5]), 0.1, 30, torch.quint8)",
    "torch.quantize_per_tensor(torch.tensor([1.0, -2.5]), 1e-7, 0, torch.qint32)",
    "torch.quantize_per_tensor(torch.tensor([1.0, -2.5]), 2.0, 0, torch.qint8)",
    "torch.quantize_per_channel("
    "torch.ones(2, 2), torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), 0, torch.qint8)",
    "torch.quantize_per_channel("
    "torch.ones(2, 2), torch.tensor([0.1, 0.2]), torch.tensor([0.0, 1.0]), 0, torch.quint4x2)",
    "torch.nested.nested_tensor([torch.ones(2), torch.zeros(2, 3)[0]])",
    "torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(1, 2)], requires_grad=True).neg()",
    "torch.nested.nested_tensor([torch.ones(2, dtype=torch.float64)], dtype=torch.float64)",
    "torch.nested.nested_tensor([])",
    "torch.ones(2, 3, requires_grad=True).to_mkldnn()",
]


def built() -> list[dict]:
    return [{"python": code, "want": text(eval(code), {})} for code in BUILT]


def golden() -> dict:
    with warnings.catch_warnings():
        # Half complex, sparse CSR, quantized and nested tensors say how mature they are.
        warnings.simplefilter("ignore")
        return {"torch": RELEASE, "strided": chosen_strided(), "built": built()}


def lines(cases: dict) -> str:
    """JSON with one case a line, so that a change of one is a diff of one line."""
    parts = []
    for key, value in cases.items():
        if isinstance(value, list):
            items = ",\n".join(json.dumps(item, sort_keys=True) for item in value)
            parts.append(f"{json.dumps(key)}: [\n{items}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{" + ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    GOLDEN.parent.mkdir(parents=True, exist_ok=True)
    GOLDEN.write_text(lines(golden()))
    print(f"wrote {GOLDEN}")
