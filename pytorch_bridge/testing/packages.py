"""The compiled package that tests and docs share, made once.

AOTInductor takes half a minute for the smallest model. So there is one, the model of docs/aoti.md,
and it is kept under build/cache until the model, the torch or the machine is another one. A second
one, folding.pt2, computes constants from its parameters when these are set.

    python -m pytorch_bridge.testing.packages         prints the folder that it is in
    python -m pytorch_bridge.testing.packages FOLDER  copies it to a folder

Beside model.pt2 it has expected.safetensors: inputs, and what Python gets for them from the package
and from the model itself. In a copy, results of the package are those of the process that copies:
their last bits depend on what libtorch is told of the processor.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from pytorch_bridge.native import toolchain
from pytorch_bridge.native.artifacts import locked
from pytorch_bridge.native.toolchain import ROOT, build_dir

PAGE = ROOT / "docs/aoti.md"

BATCHES = (1, 3, 64)


def _digest(*parts: object) -> str:
    joined = "\0".join(str(part) for part in parts)
    return hashlib.sha256(joined.encode()).hexdigest()[:32]


def _machine() -> str:
    """What a compiler that compiles for this very machine sees of it."""
    told = platform.machine() + (toolchain.variable("ATEN_CPU_CAPABILITY") or "")
    with contextlib.suppress(OSError):
        if found := re.search(
            r"^(?:flags|Features)\s*:.*$", Path("/proc/cpuinfo").read_text(), re.M
        ):
            return told + found[0]
    return told


def _cache() -> Path:
    return build_dir() / "cache/aoti"


def program() -> str:
    """The Python of docs/aoti.md that makes model.pt2."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return next(block for block in blocks if "aoti_compile_and_package" in block)


def package() -> Path:
    """The folder with the package, which is made if it is not there."""
    text = Path(__file__).read_text()
    key = _digest(program(), text, metadata.version("torch"), sys.version, _machine())
    folder = _cache() / key
    if folder.exists():
        return folder
    _cache().mkdir(parents=True, exist_ok=True)
    with contextlib.redirect_stdout(sys.stderr), locked(_cache() / "lock", "compilation"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=_cache()) as temporary:
                made = Path(temporary) / "made"
                made.mkdir()
                _make(made)
                made.rename(folder)
    return folder


def _make(folder: Path) -> None:
    before = Path.cwd()
    os.chdir(folder)
    with cached_compiler(), contextlib.ExitStack() as stack:
        stack.callback(os.chdir, before)
        variables: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(program(), str(PAGE), "exec"), variables)

        import torch
        from safetensors.torch import save_file

        compiled = torch._inductor.aoti_load_package("model.pt2")
        tensors: dict[str, torch.Tensor] = {}
        for n in BATCHES:
            x, kind = torch.randn(n, 8), torch.randint(10, (n,))
            temperature = torch.rand(()) + 0.5
            tensors |= {f"{n}.x": x, f"{n}.kind": kind, f"{n}.temperature": temperature}
            with torch.no_grad():
                eager = variables["model"](x, kind, temperature=temperature)
            for name, value in compiled(x, kind, temperature=temperature).items():
                tensors |= {f"{n}.{name}": value, f"{n}.eager.{name}": eager[name]}
        save_file({name: t.contiguous() for name, t in tensors.items()}, "expected.safetensors")
        torch._inductor.aoti_compile_and_package(
            torch.export.export(_folding(), (torch.randn(5, 8),)),
            package_path="folding.pt2",
            inductor_configs={"aot_inductor.use_runtime_constant_folding": True},
        )


def _folding() -> Any:
    """x @ (tanh(weight) * scale).T, where the weight that x is multiplied with is a constant."""
    import torch

    class Folding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(16, 8))
            self.scale = torch.nn.Parameter(torch.randn(16, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ (self.weight.tanh() * self.scale).T

    return Folding().requires_grad_(False)


def copy(folder: Path) -> None:
    """Copies the package to a folder, with results of this process beside it."""
    import torch
    from safetensors.torch import load_file, save_file

    made = package()
    for name in ["model.pt2", "folding.pt2"]:
        shutil.copy(made / name, folder)
    tensors = load_file(made / "expected.safetensors")
    compiled = torch._inductor.aoti_load_package(str(folder / "model.pt2"))
    for n in BATCHES:
        x, kind, temperature = (tensors[f"{n}.{name}"] for name in ("x", "kind", "temperature"))
        for name, value in compiled(x, kind, temperature=temperature).items():
            tensors[f"{n}.{name}"] = value.contiguous()
    save_file(tensors, folder / "expected.safetensors")


@contextlib.contextmanager
def cached_compiler() -> Iterator[None]:
    """Has torch._inductor.aoti_compile_and_package remember what it made of which program."""
    import torch

    compiler = torch._inductor.aoti_compile_and_package

    def remembering(
        program: Any, *, package_path: str, inductor_configs: dict[str, Any] | None = None
    ) -> str:
        weights = [*program.state_dict.items(), *program.constants.items()]
        key = _digest(
            program.graph,
            program.graph_signature,
            program.range_constraints,
            *((name, t.shape, t.flatten().tolist()) for name, t in weights),
            Path(package_path).name,
            sorted((inductor_configs or {}).items(), key=str),
            torch.__version__,
            _machine(),
        )
        kept = _cache() / f"{key}.pt2"
        if not kept.exists():
            _cache().mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=_cache()) as temporary:
                made = Path(temporary) / Path(package_path).name
                compiler(program, package_path=str(made), inductor_configs=inductor_configs)
                made.rename(kept)
        shutil.copy(kept, package_path)
        return str(package_path)

    torch._inductor.aoti_compile_and_package = remembering
    try:
        yield
    finally:
        torch._inductor.aoti_compile_and_package = compiler


if __name__ == "__main__":
    # What the compiler keeps for itself.
    if toolchain.variable("TORCHINDUCTOR_CACHE_DIR") is None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(_cache() / "inductor")
    if len(sys.argv) > 1:
        copy(Path(sys.argv[1]))
    else:
        print(package())
