"""The dtypes that fused loops compute with.

A dtype is a C type in memory and one that expressions are computed in, with the C that leads from
one to the other. bfloat16 is computed in float, and rounded after every op as PyTorch rounds:

    register_fused_dtype("int16", FusedDType("int16_t", "int16_t"))
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import BridgeTypeError, RegistrationError
from ..registry import Table
from ..types.enums import C_ELEMENTS, DTYPES


@dataclass(frozen=True)
class FusedDType:
    """How a loop has the elements of a dtype.

    `load` is C that makes a value to compute with of one in memory, {0}; `store` is the way back,
    and `round` both, which every op does with its result. They may call functions in `support`, C
    that is written before the loop, where PB_INLINE stands for `static inline` and pb_bits is a
    union of a float and its bits. Where the C types are the same, there is none of these.
    """

    stored: str
    computed: str
    load: str = "{0}"
    store: str = "{0}"
    round: str = "{0}"
    support: str = ""

    @property
    def floating(self) -> bool:
        return self.computed in ("float", "double")

    @property
    def integer(self) -> bool:
        return not self.floating and self.computed != "bool"

    @property
    def short(self) -> bool:
        """Whether values are computed with more digits than are kept."""
        return self.stored != self.computed


_dtypes = Table("fused dtype", unique=True, resolved=False)


def register_fused_dtype(dtype: str, how: FusedDType) -> None:
    """Has fused loops compute with a dtype of PyTorch, "int16" for example. For each op that loops
    know, what they give must be what PyTorch gives, to the last bit.

    DuplicateError where there is one for it already, RegistrationError for what is no dtype, or
    has no such C types.

        >>> with pb.temporary():
        ...     pb.register_fused_dtype("int16", pb.FusedDType("int16_t", "int16_t"))
        ...     x = pb.TensorType("int16", (None,))("x")
        ...     f = pb.function(x, pb.ops.neg(x.abs()))
        >>> f(torch.tensor([-3, 4], dtype=torch.int16))
        tensor([-3, -4], dtype=torch.int16)
    """
    if dtype not in DTYPES:
        raise RegistrationError(f"{dtype!r} is no dtype of PyTorch: there are {', '.join(DTYPES)}")
    if how.computed not in C_ELEMENTS.values():
        raise RegistrationError(
            f"{dtype} cannot be computed in {how.computed!r}: the C types are "
            f"{', '.join(C_ELEMENTS.values())}"
        )
    _dtypes.add(dtype, how)


def fused_dtype(dtype: str) -> FusedDType | None:
    """How loops have a dtype; None for those that they do not compute with."""
    found: FusedDType | None = _dtypes.one(dtype)
    return found


def known(dtype: str) -> FusedDType:
    """How loops have a dtype that they compute with."""
    found = fused_dtype(dtype)
    if found is None:
        raise BridgeTypeError(f"fused loops do not compute with {dtype}")
    return found


for _dtype in ("float32", "float64", "int64", "int32", "bool"):
    register_fused_dtype(_dtype, FusedDType(C_ELEMENTS[_dtype], C_ELEMENTS[_dtype]))

# Rounding is to the nearest, ties to even, without branches, so that compilers use vectors.
register_fused_dtype(
    "bfloat16",
    FusedDType(
        "uint16_t",
        "float",
        "pb_from_bfloat16({0})",
        "pb_to_bfloat16({0})",
        "pb_round_bfloat16({0})",
        """\
PB_INLINE float pb_from_bfloat16(uint16_t h) {
  pb_bits x;
  x.u = (uint32_t)h << 16;
  return x.f;
}
PB_INLINE float pb_round_bfloat16(float v) {
  pb_bits x = {v};
  x.u = v != v ? x.u : (x.u + 0x7fff + (x.u >> 16 & 1)) & 0xffff0000;
  return x.f;
}
PB_INLINE uint16_t pb_to_bfloat16(float v) {
  const pb_bits x = {v};
  return (uint16_t)(v != v ? 0x7fc0 : (x.u + 0x7fff + (x.u >> 16 & 1)) >> 16);
}
""",
    ),
)
# Float rounds to 11 digits when 2^13 times the power of two below is added; numbers below 2^-14,
# which are multiples of 2^-24, when 0.5 is.
register_fused_dtype(
    "float16",
    FusedDType(
        "uint16_t",
        "float",
        "pb_from_float16({0})",
        "pb_to_float16({0})",
        "pb_round_float16({0})",
        """\
PB_INLINE float pb_from_float16(uint16_t h) {
  const uint32_t rest = h & 0x7fffu;
  const pb_bits small = {(float)(int32_t)rest * 0x1p-24f};
  const uint32_t large = (rest << 13) + (rest < 0x7c00 ? 0x38000000u : 0x70000000u);
  pb_bits x;
  x.u = (uint32_t)(h & 0x8000u) << 16 | (rest < 0x400 ? small.u : large);
  return x.f;
}
PB_INLINE float pb_round_float16(float v) {
  const pb_bits x = {v};
  pb_bits size, cut, r;
  size.u = x.u & 0x7fffffffu;
  cut.u = x.u & 0x7f800000u;
  cut.u = (cut.u > 0x38800000u ? cut.u : 0x38800000u) + (13u << 23);
  r.f = size.f + cut.f - cut.f;
  const uint32_t most = size.u > 0x7f800000u ? size.u : 0x7f800000u;
  r.u = (size.u < 0x477ff000u ? r.u : most) | (x.u & 0x80000000u);
  return r.f;
}
PB_INLINE uint16_t pb_to_float16(float v) {
  const pb_bits x = {v};
  pb_bits r, small;
  r.u = x.u & 0x7fffffffu;
  small.f = r.f + 0.5f;
  const uint32_t normal = (r.u - 0x38000000u + 0xfff + (r.u >> 13 & 1)) >> 13;
  const uint32_t most = r.u > 0x7f800000u ? 0x7e00u : 0x7c00u;
  r.u = r.u < 0x38800000u ? small.u - 0x3f000000u : r.u < 0x477ff000u ? normal : most;
  return (uint16_t)((x.u >> 16 & 0x8000u) | r.u);
}
""",
    ),
)
