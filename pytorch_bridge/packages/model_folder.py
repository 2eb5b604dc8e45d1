"""export_model: a graph or a model as a folder that a running program loads.

    manifest.json         what the model takes and returns, what it needs, the digests of the others
    model.so              the C function of the graph, compiled
    weights.safetensors   its tensors, unless it has none

gotorch/graph opens such a folder (`graph.Open`), and package serve a folder of them. The library
is linked to nothing but libc and libm: the functions of libcgotorch that it calls are those of the
program that loads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BridgeTypeError, BridgeValueError, MissingMethodError
from ..graph.basic import Variable
from ..native.artifacts import run_compiler
from ..ops.checks import CheckSizes
from ..ops.row_independence import independent
from ..types import TensorType, Type
from ..types.enums import dtype_name
from .go_package import abi, folder, weights
from .go_package.c_file import PackageFunction
from .go_package.outputs import Tree
from .go_package.source import Source, source

if TYPE_CHECKING:
    from .go_package.export import Exportable

FORMAT = "gotorch-model"
VERSION = 1
MANIFEST = "manifest.json"
LIBRARY = "model.so"

_FUNCTION = "gotorch_model"

# What a program asks the library for: which functions it was compiled against, how many inputs,
# outputs, constants and tensors of the model's own its block has, and the entry.
_ENTRY = """
__attribute__((visibility("default"))) const char gotorch_model_abi[] = "{abi}";

__attribute__((visibility("default"))) const char gotorch_model_layout[] = "{layout}";

__attribute__((visibility("default"))) void gotorch_model_call(struct {block} *b) {{ {entry}(b); }}
"""


def export_model(
    graph: Exportable,
    dir: str | Path,
    *,
    name: str | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    state: Mapping[str, str] | None = None,
    example: Sequence[Any] | None = None,
) -> Path:
    """Writes a folder that a running Go program or server loads, and returns it.

    `graph` is what export_go takes: a Model (what from_exported returns) or an exported program, a
    compiled function, a FunctionGraph, or a pair of inputs and outputs. The folder has the compiled
    function, a manifest and the weights; who loads it needs neither Python nor Go nor a compiler.
    `graph.Open` of Go loads one, and a server a folder of them: `models/digits/1/`.

    `name` is what the manifest calls the model, by default what the graph or else the folder is
    called. `inputs` and `outputs` are the names that clients see, in order: by default those of
    the graph's inputs, or input0 ...; and the keys where a model returns a dict, or output0 ....

    `state` makes it a sequence model: {"h_out": "h_in"} says that what a call returns as h_out is
    h_in of the sequence's next call, and zeros at the first. A server keeps such tensors and shows
    them to no client. Of their sizes only the first may be open.

    If it can prove that row i of each output depends on row i of the inputs alone, the manifest
    says so, and a server joins requests.

    Inputs and outputs are tensors on the CPU whose dtype is known. `example` chooses one of the
    functions that jit has compiled.

    The folder is written whole or not at all; equal graphs give equal bytes. Files of an earlier
    export are replaced, others stay: ExportError where one of them has the name of a new file.
    BridgeTypeError for a graph that no such folder can hold, BridgeValueError for wrong names.

        >>> import tempfile
        >>> x = pb.TensorType("float32", (None, 4))("x")
        >>> with tempfile.TemporaryDirectory() as models:
        ...     folder = pb.export_model(([x], [pb.ops.exp(x)]), f"{models}/exp/1")
        ...     sorted(file.name for file in folder.iterdir())
        ['manifest.json', 'model.so']
    """
    target = folder.absolute(dir, "export_model")
    made = source(graph, example)
    c = PackageFunction(made.fgraph(), _FUNCTION, len(made.state), len(made.hidden))
    found = weights.collect(c.constants, made.weights)
    weights.alias(found, made.weights)
    found += [weights.Weight(n, made.values[n]) for n in made.state]
    for w in found:
        if w.device is not None or w.tensor.device.type != "cpu":
            raise BridgeTypeError(f"export_model: {w.name} is on {w.tensor.device}, not on the CPU")
    tensors = {w.name: w.tensor for w in found}
    data = weights.contents(tensors, op="export_model") if found else b""

    in_types = [v.type for v in c.inputs[: len(c.inputs) - c.n_state]]
    out_types = [v.type for v in c.outputs[: len(c.outputs) - c.n_hidden]]
    in_names = _names("input", inputs, _input_names(made))
    out_names = _names("output", outputs, _output_names(made))
    ins = [_tensor("input", n, t) for n, t in zip(in_names, in_types, strict=True)]
    outs = [_tensor("output", n, t) for n, t in zip(out_names, out_types, strict=True)]
    if not outs:
        raise BridgeTypeError(
            "export_model: the model returns no tensors, so nothing would come of a call; let it "
            "return what it computes, also what it writes into its arguments"
        )
    library = _compiled(c)
    text = {
        "format": FORMAT,
        "version": VERSION,
        "name": _title(name, graph, target),
        "abi": abi.ABI,
        "torch": _torch_release(),
        "platform": f"{sys.platform}/{platform.machine()}",
        "inputs": ins,
        "outputs": outs,
        "sizes": _sizes(made.inputs, in_names, c),
        "state": _state(state or {}, ins, outs),
        # That it is not proved is nothing to say.
        **({"independent_rows": True} if not state and _independent(made) else {}),
        "library": _file(LIBRARY, library),
        "weights": _file(weights.WEIGHTS, data) if data else None,
        "tensors": [_weight(w) for w in found],
        "constants": len(c.constants),
        "changes": bool(made.hidden),
    }
    manifest = json.dumps(text, indent=1, ensure_ascii=False).encode() + b"\n"
    files = {LIBRARY: library, MANIFEST: manifest}
    if data:
        files[weights.WEIGHTS] = data
    folder.write(target, files, "export_model", _written)
    return target


def _written(place: Path) -> list[str]:
    """The files that an earlier export has written into a folder: those that its manifest names."""
    try:
        with (place / MANIFEST).open("rb") as f:
            text = json.loads(f.read(1 << 26))
        if text["format"] != FORMAT:
            return []
        names = {MANIFEST, text["library"]["file"], (text["weights"] or {}).get("file")}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []
    known = {MANIFEST, LIBRARY, weights.WEIGHTS}
    return sorted(n for n in names & known if os.path.lexists(place / n))


def _title(name: str | None, graph: Any, target: Path) -> str:
    for text in (name, getattr(graph, "name", None), target.name):
        if isinstance(text, str) and text:
            # The name of a folder may be none in UTF-8.
            return text.encode(errors="replace").decode()
    return "model"


def _torch_release() -> str:
    import torch

    return str(torch.__version__).partition("+")[0]


def _file(name: str, data: bytes) -> dict[str, Any]:
    return {"file": name, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def _weight(w: weights.Weight) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": w.name,
        "dtype": dtype_name(w.tensor.dtype),
        "shape": list(w.tensor.shape),
    }
    if w.strides is not None:
        found["strides"] = w.strides
    if w.aliases:
        found["aliases"] = w.aliases
    if not w.named:
        found["constant"] = True
    if w.requires_grad:
        found["requires_grad"] = True
    return found


# Names


def _names(kind: str, given: Sequence[str] | None, default: list[str]) -> list[str]:
    names = default if given is None else list(given)
    if len(names) != len(default):
        raise BridgeValueError(
            f"export_model: {len(names)} names of {kind}s are given, and there are {len(default)}"
        )
    for n in names:
        if not isinstance(n, str) or not n or re.search("[\0-\x1f\x7f\ud800-\udfff]", n):
            raise BridgeValueError(f"export_model: an {kind} cannot be called {n!r}")
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise BridgeValueError(f"export_model: two {kind}s are called {min(twice)!r}")
    return names


def _input_names(made: Source) -> list[str]:
    names: list[str] = []
    for i, n in enumerate(made.names):
        n = n or f"input{i}"
        while n in names:
            n += "_"
        names.append(n)
    return names


def _output_names(made: Source) -> list[str]:
    """By the keys of the dicts that a model returns; the others by their numbers."""
    names: dict[int, str] = {}

    def visit(node: Tree, path: list[str], keyed: bool) -> None:
        if node.leaf is not None and keyed and (name := ".".join(path)) not in names.values():
            names[node.leaf] = name
        for key, child in zip(node.names, node.children, strict=True):
            visit(child, [*path, key], keyed or node.named)

    visit(made.tree, [], False)
    # After all keys, for one of them may be like the name that another's number gives.
    for i in range(len(made.outputs)):
        if i not in names:
            name = f"output{i}"
            while name in names.values():
                name += "_"
            names[i] = name
    return [names[i] for i in range(len(made.outputs))]


# The signature


def _tensor(kind: str, name: str, t: Type) -> dict[str, Any]:
    if not isinstance(t, TensorType):
        raise BridgeTypeError(
            f"export_model: the {kind} {name} is {t}, where a model that is loaded takes and gives "
            "tensors of a known dtype; export_go takes others"
        )
    if t.dtype is None:
        raise BridgeTypeError(
            f"export_model: the dtype of the {kind} {name} is open: its type must say it"
        )
    if t.device != "cpu":
        raise BridgeTypeError(f"export_model: the {kind} {name} is on {t.device}, not on the CPU")
    shape = None if t.shape is None else [-1 if n is None else n for n in t.shape]
    return {"name": name, "dtype": dtype_name(t.dtype), "shape": shape}


def _sizes(inputs: Sequence[Variable], names: Sequence[str], c: Any) -> list[dict[str, Any]]:
    """What the graph demands of open sizes: its function checks it, and the manifest tells it."""
    found: list[dict[str, Any]] = []
    places = dict(zip(c.inputs, names, strict=False))
    for node in c.order:
        if not isinstance(node.op, CheckSizes):
            continue
        for rule in node.op.rules:
            name = places.get(node.inputs[rule.input])
            if name is None or rule.dim is None:
                continue
            one: dict[str, Any] = {"input": name, "dim": rule.dim, "symbol": rule.symbol}
            one |= {"scale": rule.scale, "offset": rule.offset}
            one |= {k: n for k, n in (("min", rule.low), ("max", rule.high)) if n is not None}
            found.append(one)
    return found


def _independent(made: Source) -> bool:
    """Whether it is proved that requests may be joined along the first dimension."""
    return not made.state and not made.hidden and independent(made.inputs, made.outputs)


def _state(
    pairs: Mapping[str, str], ins: list[dict[str, Any]], outs: list[dict[str, Any]]
) -> list[dict[str, str]]:
    inputs, outputs = {s["name"]: s for s in ins}, {s["name"]: s for s in outs}
    for out, into in pairs.items():
        for kind, name, known in (("output", out, outputs), ("input", into, inputs)):
            if name not in known:
                raise BridgeValueError(
                    f"export_model: state= names the {kind} {name!r}; there are {', '.join(known)}"
                )
        a, b = inputs[into], outputs[out]
        if a["dtype"] != b["dtype"]:
            raise BridgeValueError(
                f"export_model: state {out} is {b['dtype']}, and {into}, which it becomes, is "
                f"{a['dtype']}"
            )
        if a["shape"] is None or any(n < 0 for n in a["shape"][1:]):
            raise BridgeValueError(
                f"export_model: the sizes of state {into} must be known but for the first: zeros "
                f"of them begin a sequence, and they are {a['shape']}"
            )
        if b["shape"] is not None and (
            len(b["shape"]) != len(a["shape"])
            or any(
                n not in (-1, m) and m != -1 for n, m in zip(b["shape"], a["shape"], strict=True)
            )
        ):
            raise BridgeValueError(
                f"export_model: state {out} has shape {b['shape']}, and {into}, which it becomes, "
                f"{a['shape']}"
            )
    if len(set(pairs.values())) != len(pairs):
        raise BridgeValueError("export_model: two outputs become the same input of state=")
    return [{"output": o, "input": i} for o, i in sorted(pairs.items())]


# The library


def _compiled(c: PackageFunction) -> bytes:
    """The shared object. What it calls of libcgotorch is left to the program that loads it."""
    foreign = [lib for lib in c.libraries() if lib not in ("cgotorch", "m", "-lm")]
    if foreign:
        raise MissingMethodError(
            f"export_model: the graph needs the libraries {', '.join(foreign)}, which the machine "
            "that loads it may not have; export_go takes it"
        )
    layout = f"{len(c.takes)} {len(c.gives)} {len(c.constants)} {c.n_state}"
    entry = _ENTRY.format(abi=abi.ABI, layout=layout, block=c.block, entry=c.entry)
    text = c.source() + entry
    with tempfile.TemporaryDirectory(prefix="gotorch-") as at:
        place = Path(at)
        main = place / f"{c.file}{c.suffix}"
        main.write_text(text)
        (place / f"{c.file}.h").write_text(c.header())
        (place / "cgotorch.h").write_text(abi.header(c.source()))
        library = place / LIBRARY
        command = [*c.compiler().words(), *c.compile_args(), "-shared", "-s"]
        # No path of this machine, and nothing that differs from one time to the next.
        command += [f"-ffile-prefix-map={at}=.", "-Wl,--build-id=none", "-Wl,-z,now", f"-I{at}"]
        command += [f"-I{d}" for d in c.header_dirs()]
        run_compiler([*command, str(main), "-o", str(library), "-lm"])
        return library.read_bytes()
