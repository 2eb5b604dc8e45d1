"""Writes gotorch/testdata/index.json: what PyTorch gives for several hundred index expressions.

    python tests/make_index_golden.py            # write the file
    python tests/make_index_golden.py --check    # say whether it is what this torch gives

The Go tests index the same tensors with the same terms and compare shape, strides, values, sharing
of storage, gradients and errors. `random_cases` makes as many further cases as one likes; see
test_indexing.py.

A case is a tensor, filled with 0, 1, 2, ..., an index, and what comes of reading or writing there:

    {"python": "x[0:1, :]", "shape": [2, 3], "dtype": "float32", "layout": "contiguous",
     "index": [["slice", 0, 1, 1], ["slice", null, null, null]],
     "shape_out": [1, 3], "strides_out": [3, 1], "offset": 0, "shares": true,
     "values": [0, 1, 2], "grad": [1, 1, 1, 0, 0, 0]}
    {"python": "x[0] = 7", ..., "put": {"scalar": 7}, "values": [7, 7, 7, 3, 4, 5]}
    {"python": "x[2]", ..., "error": "IndexError: index 2 is out of bounds ..."}

Terms are ["at", i], ["slice", start, stop, step], ["ellipsis"], ["newaxis"], ["bool", b],
["ints", [i, ...]], ["bools", [b, ...]], ["tensor", dtype, shape, [flat values]], ["mask", shape,
[flat values]].
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

EXPRESSIONS = Path(__file__).with_name("index_expressions.txt")
GOLDEN = Path(__file__).parent.parent / "gotorch/testdata/index.json"

LAYOUTS = ["contiguous", "transposed"]

Index = Any  # whatever stands between the brackets
Case = dict[str, Any]


class Subscript:
    """`Subscript()[expression]` is the expression."""

    def __getitem__(self, index: Index) -> Index:
        return index


def tensor(values: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def mask(*shape: int, every: int = 2) -> torch.Tensor:
    """A mask with each `every`-th element set, from the first one on."""
    return torch.arange(math.prod(shape)).reshape(shape) % every == 0


def counting(shape: list[int], dtype: str, layout: str) -> torch.Tensor:
    """0, 1, 2, ... in the order of the memory; `transposed` has its dimensions reversed."""
    if layout == "transposed":
        dims = list(reversed(range(len(shape))))
        return counting(shape[::-1], dtype, "contiguous").permute(dims)
    return torch.arange(math.prod(shape)).reshape(shape).to(getattr(torch, dtype))


# What expressions are written with.
NAMES: dict[str, Any] = {
    "x": Subscript(),
    "t": tensor,
    "mask": mask,
    "f": functools.partial(torch.tensor, dtype=torch.float32),
    "f64": functools.partial(torch.tensor, dtype=torch.float64),
    "i": functools.partial(torch.tensor, dtype=torch.int64),
    **{
        name: getattr(torch, name)
        for name in ["bool", "uint8", "uint16", "int8", "int16", "int32", "float32"]
    },
    "float": float,
}


def term_to_json(term: Any) -> list[Any]:
    match term:
        case None:
            return ["newaxis"]
        case bool():
            return ["bool", term]
        case int():
            return ["at", term]
        case slice():
            return ["slice", term.start, term.stop, term.step]
        case list() if all(isinstance(e, bool) for e in term) and term:
            return ["bools", term]
        case list() if all(isinstance(e, int) for e in term):
            return ["ints", term]
        case list():
            return term_to_json(torch.tensor(term))
        case torch.Tensor():
            dtype = str(term.dtype).removeprefix("torch.")
            if dtype == "bool":
                return ["mask", list(term.shape), flat(term)]
            return ["tensor", dtype, list(term.shape), flat(term)]
    if term is Ellipsis:
        return ["ellipsis"]
    raise TypeError(f"no neutral form of {term!r}")


def index_to_json(index: Index) -> list[Any]:
    return [term_to_json(term) for term in (index if isinstance(index, tuple) else (index,))]


def error_to_json(err: Exception) -> str:
    return f"{type(err).__name__}: {str(err).splitlines()[0]}"


def number(v: bool | int | float) -> int | float | str:
    """As JSON has it; what JSON has no number for is a string."""
    if math.isfinite(v):
        return int(v) if v == int(v) else v
    return str(float(v))


def flat(t: torch.Tensor) -> list[Any]:
    values = t.flatten().tolist()
    if t.is_complex():
        return [[number(v.real), number(v.imag)] for v in values]
    return [number(v) for v in values]


def base(text: str, x: torch.Tensor, layout: str, index: Index) -> Case:
    return {
        "python": text,
        "shape": list(x.shape),
        "dtype": str(x.dtype).removeprefix("torch."),
        "layout": layout,
        "index": index_to_json(index),
    }


def get(text: str, shape: list[int], index: Index, dtype: str, layout: str) -> Case:
    """What x[index] is, and what backward through it gives."""
    x = counting(shape, dtype, layout)
    case = base(text, x, layout, index)
    try:
        y = x[index]
    except (IndexError, ValueError, RuntimeError, TypeError) as err:
        return case | {"error": error_to_json(err)}
    case |= {
        "shape_out": list(y.shape),
        "strides_out": list(y.stride()),
        "offset": y.storage_offset(),
        "shares": y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr(),
        "values": flat(y),
    }
    if x.numel() == 0:
        del case["shares"]  # empty storages have no address
    if x.is_floating_point():
        leaf = x.clone().requires_grad_()
        leaf[index].sum().backward()
        assert leaf.grad is not None
        case["grad"] = flat(leaf.grad)
    return case


def put(
    text: str,
    shape: list[int],
    index: Index,
    value: Any,
    dtype: str,
    layout: str,
    accumulate: bool = False,
) -> Case:
    """What x is after x[index] = value, or x[index] += value for every time an element is named."""
    x = counting(shape, dtype, layout)
    case = base(text, x, layout, index)
    case["put"] = value_to_json(value) | ({"accumulate": True} if accumulate else {})
    try:
        if accumulate:
            x = added(x, index, value)
        else:
            x[index] = value
    except (IndexError, ValueError, RuntimeError, TypeError) as err:
        # `added` fails in its own words where the value does not fit.
        kind_only = accumulate and not isinstance(err, IndexError | ValueError)
        return case | {"error": type(err).__name__ if kind_only else error_to_json(err)}
    return case | {"values": flat(x)}


def added(x: torch.Tensor, index: Index, value: Any) -> torch.Tensor:
    """x after adding value at the index. What a mixed index names is read from where it points to,
    so that the answer does not come from the code that is tested."""
    positions = torch.arange(x.numel()).reshape(x.shape)[index]
    value = torch.as_tensor(value, dtype=x.dtype)
    while value.dim() > positions.dim() and value.shape[0] == 1:
        value = value[0]
    value = value.expand(positions.shape)
    flat_x = x.flatten()
    return flat_x.index_put_((positions,), value, accumulate=True).reshape(x.shape)


def value_to_json(value: Any) -> dict[str, Any]:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return {"tensor": [dtype, list(value.shape), flat(value)]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, float):
        return {"float": number(value)}
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value}


def read_expressions() -> Iterator[tuple[list[int], str, str]]:
    """The shape, the dtype and the text of each expression in the file."""
    shape, dtype = [], ""
    for line in EXPRESSIONS.read_text().splitlines():
        if heading := re.fullmatch(r"\[([\d, ]*)\] (\w+)", line):
            shape, dtype = json.loads(f"[{heading[1]}]"), heading[2]
        elif line and not line.startswith("#"):
            yield shape, dtype, line


def fixed_cases() -> Iterator[Case]:
    for shape, dtype, text in read_expressions():
        for layout in LAYOUTS[: 2 if len(shape) == 3 else 1]:
            yield case_of(text, shape, dtype, layout)


def case_of(text: str, shape: list[int], dtype: str, layout: str) -> Case:
    left, operator, right = re.fullmatch(r"(x\[.*?\])(?: (\+?=) (.*))?", text).groups()
    index = eval(left, NAMES)
    if operator is None:
        return get(text, shape, index, dtype, layout)
    return put(text, shape, index, eval(right, NAMES), dtype, layout, operator == "+=")


def random_cases(seed: int, n: int) -> Iterator[Case]:
    """Cases that nobody thought of. Most are valid, some are not."""
    rng = random.Random(seed)
    for _ in range(n):
        shape = [rng.choice([0, 1, 2, 2, 3, 3, 4, 5]) for _ in range(rng.randrange(5))]
        terms = random_index(rng, shape)
        index = terms[0] if len(terms) == 1 else terms  # Python tells x[0] and x[(0,)] apart
        layout = rng.choice(LAYOUTS)
        text = f"x[{', '.join(map(str, terms))}]".replace("\n", "")
        if rng.random() < 0.6:
            dtype = rng.choice(["float32", "float32", "int64", "bool", "float64"])
            yield get(text, shape, index, dtype, layout)
            continue
        value: Any = rng.choice([7, -3, 2.0])
        accumulate = False
        try:
            shape_out = list(torch.zeros(shape)[index].shape)
        except (IndexError, ValueError, RuntimeError):
            pass
        else:
            if rng.random() < 0.6:
                value = random_value(rng, shape_out)
            # What happens to an element that two values go to is not defined: only added.
            named = torch.arange(math.prod(shape)).reshape(shape)[index].flatten().tolist()
            accumulate = rng.random() < 0.4 or len(set(named)) < len(named)
        text += f" {'+=' if accumulate else '='} {value}"
        yield put(text, shape, index, value, "float32", layout, accumulate)


def random_value(rng: random.Random, shape: list[int]) -> torch.Tensor:
    """A tensor that broadcasts to the shape; seldom one that does not."""
    shape = [1 if rng.random() < 0.2 else n for n in shape]
    shape = shape[rng.choice([0, 0, 0, len(shape) // 2]) :]
    if rng.random() < 0.05:
        shape = [*shape, 2]
    return torch.arange(math.prod(shape)).reshape(shape).float() + 100


def random_index(rng: random.Random, shape: list[int]) -> tuple[Any, ...]:
    terms: list[Any] = []
    dims = list(shape)
    ellipsis = False
    broadcast = [rng.choice([1, 2, 3]) for _ in range(rng.randrange(3))]
    while dims or rng.random() < 0.15:
        kind = rng.random()
        if kind < 0.08:
            terms.append(None)
        elif kind < 0.1:
            terms.append(rng.random() < 0.8)
        elif kind < 0.18 and not ellipsis:
            terms.append(...)
            ellipsis = True
            del dims[: rng.randrange(len(dims) + 1)]
        elif kind < 0.25:
            break
        elif kind < 0.33 and dims:
            n = rng.randrange(1, len(dims) + 1)
            part = [d + (rng.random() < 0.02) for d in dims[:n]]
            flags = [rng.random() < 0.5 for _ in range(math.prod(part))]
            terms.append(torch.tensor(flags, dtype=torch.bool).reshape(part))
            del dims[:n]
        else:
            size = dims.pop(0) if dims else 2
            terms.append(random_term(rng, size, broadcast))
    return tuple(terms)


def random_term(rng: random.Random, size: int, broadcast: list[int]) -> Any:
    def position() -> int:
        reach = size + (rng.random() < 0.02)
        return rng.randrange(-reach, reach) if reach else 0

    kind = rng.random()
    if kind < 0.3:
        return position()
    if kind < 0.6:
        ends = [rng.choice([None, rng.randrange(-size - 1, size + 2)]) for _ in range(2)]
        return slice(*ends, rng.choice([None, None, 1, 2, 3, 3, -1 if rng.random() < 0.1 else 2]))
    if kind < 0.7:
        return [position() for _ in range(broadcast[-1] if broadcast else 1)]
    shape = broadcast[rng.randrange(len(broadcast) + 1) :]
    if rng.random() < 0.03:
        shape = [*shape, 4]
    values = [position() for _ in range(math.prod(shape))]
    dtype = rng.choice([torch.int64, torch.int64, torch.int32])
    return torch.tensor(values, dtype=dtype).reshape(shape)


def to_text(cases: Iterator[Case]) -> str:
    """One case a line, so that a diff shows which changed."""
    lines = [json.dumps(case, separators=(",", ":")) for case in cases]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def golden() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # uint8 masks and the like
        return to_text(fixed_cases())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    text = golden()
    if options.check:
        if GOLDEN.read_text() != text:
            print(f"{GOLDEN} is not what torch {torch.__version__} gives", file=sys.stderr)
            return 1
        return 0
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
