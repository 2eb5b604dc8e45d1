"""What an older PyTorch computes as well, though its native functions do not have it yet.

A function that gotorch itself stands on, or that any program may call, is written here in C++ until
no supported PyTorch lacks it. All others return NotImplementedError there.
"""

from __future__ import annotations

STAND_INS = {
    "dim": "{self}.dim()",
    "get_device": "{self}.get_device()",
    "is_contiguous": "{self}.is_contiguous()",
    "is_contiguous.memory_format": "{self}.is_contiguous({memory_format})",
    "numel": "{self}.numel()",
    "storage_offset": "{self}.storage_offset()",
    "_foreach_clone": (
        "[](at::TensorList all, auto format) {{ std::vector<at::Tensor> out; "
        "for (const at::Tensor &one : all) out.push_back(one.clone(format)); "
        "return out; }}({self}, {memory_format})"
    ),
}
"""By the function's name, the C++ expression with the arguments by their names in the schema."""
