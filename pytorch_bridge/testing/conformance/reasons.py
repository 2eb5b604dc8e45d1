"""What cannot be checked, or only in part, and why."""

from __future__ import annotations

import re

_GARBAGE = "the elements are whatever was in memory"
_POINTERS = "the elements are addresses of an object of fbgemm's"

# Functions whose results' elements are not compared, with the reason; everything else of the
# results is.
UNINITIALISED: dict[str, str] = {
    **dict.fromkeys(
        (
            "empty.memory_format",
            "empty.out",
            "empty_like",
            "empty_like.out",
            "empty_permuted",
            "empty_permuted.out",
            "empty_quantized",
            "empty_quantized.out",
            "empty_strided",
            "empty_strided.out",
            "new_empty",
            "new_empty.out",
            "new_empty_strided",
            "new_empty_strided.out",
            "resize",
            "resize_",
            "resize.out",
            "resize_as",
            "resize_as_",
            "resize_as.out",
        ),
        _GARBAGE,
    ),
    **dict.fromkeys(
        (
            "fbgemm_pack_gemm_matrix_fp16",
            "fbgemm_pack_quantized_matrix",
            "fbgemm_pack_quantized_matrix.KN",
        ),
        _POINTERS,
    ),
}

# Single results, and arguments after the call, that are not compared: a function's name, and the
# number of the result or the name of the argument.
_WORKSPACE = "a workspace of oneDNN's, of which it fills a part"
OPAQUE: dict[tuple[str, int | str], str] = {
    ("mkldnn_rnn_layer", 3): _WORKSPACE,
    ("mkldnn_rnn_layer.out", 3): _WORKSPACE,
    ("mkldnn_rnn_layer.out", "out3"): _WORKSPACE,
}

# out= forms that do not resize an empty out as others do, so that it is not tried.
SKIPPED_OUT: dict[str, str] = {
    "rrelu_with_noise.out": "libtorch crashes: it writes into the empty noise",
    "native_batch_norm.out": "libtorch computes with what was in memory in place of save_mean",
}

# Entries whose samples are not tried without elements.
NEVER_EMPTY: dict[str, str] = {
    "nn.functional.pdist": "libtorch crashes in its backward pass",
}

# Families whose arguments are not varied.
_UNCHECKED = "libtorch does not check that it fits the tensors"
NEVER_VARIED: dict[str, str] = {
    **dict.fromkeys(
        (
            "gru",
            "lstm",
            "rnn_relu",
            "rnn_tanh",
            "mkldnn_rnn_layer",
            "mkldnn_rnn_layer_backward",
        ),
        _UNCHECKED,
    ),
    "mkldnn_linear_backward_weights": "without bias_defined the second result is garbage",
}

# Entries of PyTorch's database that call no native function, or none that the CPU has.
_JITERATOR = "jiterator compiles CUDA code: it needs an NVIDIA GPU"
ENTRIES: dict[str, str] = dict.fromkeys(
    (
        "jiterator_unary",
        "jiterator_binary",
        "jiterator_4inputs_with_extra_args",
        "jiterator_binary_return_by_ref",
        "jiterator_2inputs_2outputs",
    ),
    _JITERATOR,
)

# Functions that are not called on a GPU: there they end the process, or all that it computes
# afterwards, in Python alone too. Seen with torch 2.11.0 on an H200. Whether that is so only where
# a tensor among the arguments has no elements, and what happens.
FATAL_ON_CUDA: dict[str, tuple[bool, str]] = {
    "split_with_sizes_copy.out": (True, "libtorch divides by zero"),
    "cudnn_batch_norm.out": (False, "cuDNN corrupts the computer's memory"),
    "native_batch_norm_backward": (True, "libtorch crashes: save_mean is empty where it is read"),
    "embedding": (True, "an index out of bounds ends all that the process does on the GPU"),
}

# Functions of which there is no result to compare, with what they need.
UNREACHED: dict[str, str] = {
    "pin_memory": "needs an NVIDIA GPU and its driver: page-locked memory belongs to one",
}

UNFIT = "torch.ops takes no such value for the type in the schema, though Python's function does"

# How torch.ops says that a value is not of the schema's type, or that one is missing.
_REFUSED = re.compile(
    r"\(\) (Expected a value of type|is missing value for argument|expected at most"
    r"|received unexpected|got an unexpected|expected \d+ argument)"
    r"|Cast error details|Unable to cast|Overloaded torch operator|Could not convert|"
    r"incompatible function arguments|Unknown keyword argument"
)


def refused(err: BaseException, text: str) -> bool:
    """Whether the error comes from torch.ops itself: nothing was called."""
    return bool(_REFUSED.search(text)) and text.startswith(("aten::", "Could", "Unable", "Overl"))


def same_error(wanted: tuple[str, str], got: tuple[str, str]) -> bool:
    """Whether two errors are the same although they are not written the same."""
    return False


def error_reason(origin: str, wanted: object, called: bool) -> str:
    """Why a bad input of the database says nothing about Go."""
    if called:
        return "the error comes from Python code that runs after the operators"
    return "Python's own checks refuse the arguments before any operator is called"
