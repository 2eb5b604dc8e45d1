"""Small models as saved programs, for tests that have none of the libraries:

    python -m pytorch_bridge.testing.zoo.saved     writes them anew

A file has a program whose weights are zeros, and is small therefore. `load` fills them in.
"""

from __future__ import annotations

import io
import lzma
import sys
from pathlib import Path
from typing import Any

from ...native.toolchain import ROOT
from .catalogue import ZooModel, entries, timm_entry
from .one import exported, prepare

FOLDER = ROOT / "tests/graph/saved"
TIMM = ("test_convnext", "test_efficientnet", "test_vit")
TRANSFORMERS = ("bert", "gpt2", "llama", "mixtral", "t5", "wav2vec2", "deberta-v2")


def chosen() -> list[ZooModel]:
    found = [timm_entry(name) for name in TIMM]
    wanted = {f"transformers-{name}" for name in TRANSFORMERS}
    return found + [e for e in entries() if e.key in wanted]


def fill(program: Any) -> None:
    """Gives a program weights: those of floats by chance, always the same."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, t in sorted(program.state_dict.items()):
            if not t.is_floating_point():
                continue
            values = torch.randn(t.shape, generator=generator) * 0.2
            t.copy_(values.abs() + 0.5 if name.endswith("running_var") else values)


def load(name: str) -> Any:
    """The program of a file."""
    import torch

    data = lzma.decompress((FOLDER / f"{name}.pt2.xz").read_bytes())
    program = torch.export.load(io.BytesIO(data))
    fill(program)
    return program


def argument(example: Any, batch: int) -> Any:
    """An argument like that of the example, for another size of the batch."""
    import torch

    sizes = (batch, *example.shape[1:])
    return torch.randn(sizes) if example.is_floating_point() else torch.randint(3, 100, sizes)


def save(entry: ZooModel) -> Path:
    import torch

    model, inputs = prepare(entry)
    program = exported(entry, model, inputs)
    with torch.no_grad():
        for t in program.state_dict.values():
            if t.is_floating_point():
                t.zero_()
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
        node.meta.pop("nn_module_stack", None)
        node.meta.pop("source_fn_stack", None)
    args, kwargs = program.example_inputs
    shown = [torch.zeros_like(t) if t.is_floating_point() else t for t in args]
    program.example_inputs = tuple(shown), kwargs
    file = io.BytesIO()
    torch.export.save(program, file)
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{entry.key}.pt2.xz"
    path.write_bytes(lzma.compress(file.getvalue(), preset=9))
    return path


def main() -> int:
    for entry in chosen():
        path = save(entry)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
