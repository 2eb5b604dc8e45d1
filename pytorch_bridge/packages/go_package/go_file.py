"""The Go files of a generated package."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import BridgeValueError
from ...types.tensor import TensorType
from . import go_names, golden, outputs
from .abi import ABI
from .c_file import PackageFunction
from .crossing import go_type, structs
from .folder import GENERATED
from .weights import WEIGHTS, Weight, go_device

OWN = (
    *("Load", "Net", "Close", "Save", "Weights", "SetWeights"),
    *("SaveCheckpoint", "LoadCheckpoint"),
)
"""What a package defines beside its functions."""


GOLDEN = "TestGolden"


def described(t: Any) -> str:
    """A type for a reader of Go: "float32 [?, 784]"."""
    if not isinstance(t, TensorType):
        return str(t)
    dims = (
        ""
        if t.shape is None
        else " [" + ", ".join("?" if d is None else str(d) for d in t.shape) + "]"
    )
    device = "" if t.device in (None, "cpu") else f" on {t.device}"
    return f"{t.dtype or 'a tensor'}{dims}{device}"


@dataclass(eq=False)
class GoFunction:
    """A function of the package: its C, and how it looks in Go."""

    c: PackageFunction
    name: str  # in Go
    tree: outputs.Tree
    struct: str  # what a struct of its results is called
    summary: str  # the first sentences of its documentation, after the name
    weights: list[int]  # the numbers of the weights that it reads or changes, in C's order
    changes: bool = False  # the weights
    step: bool = False  # its first input is the number of the step, which the package counts
    names: Sequence[str | None] = ()  # of the inputs in Python
    parameters: list[str] = field(init=False)
    results: outputs.Results = field(init=False)

    def __post_init__(self) -> None:
        skip = int(self.step)
        self.names = list(self.names or [v.name for v in self.inputs])
        self.parameters = go_names.parameters(self.names, "in")
        outs = self.c.outputs[: len(self.c.gives)]
        self.results = outputs.results(
            self.tree,
            [go_type(v.type) for v in outs],
            [g.taken() for g in self.c.gives],
            [described(v.type) for v in outs],
            self.struct,
        )
        assert len(self.takes) == len(self.parameters), skip

    @property
    def inputs(self) -> list[Any]:
        return self.c.inputs[int(self.step) : len(self.c.takes)]

    @property
    def takes(self) -> list[Any]:
        return self.c.takes[int(self.step) :]

    def signature(self) -> str:
        parameters = ", ".join(
            f"{p} {go_type(v.type)}" for p, v in zip(self.parameters, self.inputs, strict=True)
        )
        types = self.results.types
        results = types[0] if len(types) == 1 else f"({', '.join(types)})" if types else ""
        return f"{self.name}({parameters}) {results}".rstrip()


@dataclass
class Package:
    """What the Go files are written from."""

    name: str
    title: str  # what the package computes, for its documentation
    functions: list[GoFunction]
    weights: list[Weight]
    states: list[Weight]  # what begins as zeros
    digest: str  # of the weights' file
    embedded: bool = False  # the weights are in the program
    data: bytes = b""  # then: the file
    device: str | None = None  # where the functions compute; None: on the CPU
    # For a package that trains: the golden values of some steps, from those of the first function.
    train: Callable[[list[Any], list[Any]], dict[str, Any]] | None = None

    @property
    def trained(self) -> bool:
        return self.train is not None

    @property
    def loaded(self) -> bool:
        """Whether there is something to load before a function can be called."""
        return bool(self.weights or self.states) and not self.embedded

    def check(self) -> None:
        """BridgeValueError where two things would have one name."""
        seen = dict.fromkeys(OWN if self.loaded else (), "the package itself")
        if not self.loaded:  # else the functions are methods
            seen[GOLDEN] = "the package's test"
        for f in self.functions:
            for name, what in (
                (f.name, "a function"),
                *((_declared(s), "a struct of results") for s in f.results.structs),
            ):
                if name in seen:
                    raise BridgeValueError(
                        f"export_go: {name} would be the name of {what} and of {seen[name]}; give "
                        "another name="
                    )
                seen[name] = what
        for name in self.structs():
            if name in seen:
                raise BridgeValueError(
                    f"export_go: {name} would be the name of a struct and of {seen[name]}; give "
                    "the type's model another go_type"
                )
            seen[name] = "a struct"

    def structs(self) -> dict[str, str]:
        """The structs of registered types."""
        types = [
            v.type for f in self.functions for v in [*f.inputs, *f.c.outputs[: len(f.c.gives)]]
        ]
        return structs(types)


def _declared(struct: str) -> str:
    found = re.search(r"^type (\w+)", struct, re.M)
    assert found
    return found[1]


def _imports(text: str, known: dict[str, str]) -> str:
    """The import block of what a text uses; standard packages first."""
    code = re.sub(r"//[^\n]*", "", re.sub(r'"(?:[^"\\\n]|\\.)*"', "", text))
    used = [path for path, name in known.items() if re.search(rf"\b{name}\.", code)]
    groups = [[p for p in used if "." not in p], [p for p in used if "." in p]]
    lines = "\n\n".join("\n".join(f'\t"{p}"' for p in sorted(g)) for g in groups if g)
    return f"import (\n{lines}\n)\n" if lines else ""


_KNOWN = {
    "encoding/base64": "base64",
    "os": "os",
    "path/filepath": "filepath",
    "runtime": "runtime",
    "sync": "sync",
    "testing": "testing",
    "unsafe": "unsafe",
    "gotorch.dev/gotorch": "gotorch",
    "gotorch.dev/gotorch/graph": "graph",
    "gotorch.dev/gotorch/graph/graphtest": "graphtest",
}


def _comment(text: str) -> str:
    return "\n".join(f"// {line}".rstrip() for line in text.split("\n"))


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"\t{line}" for line in lines)


def _doc(f: GoFunction, package: Package) -> str:
    """The documentation of a function."""
    rows = []
    for p, n, v in zip(f.parameters, f.names, f.inputs, strict=True):
        python = go_names.remark(n or "")
        known = f", {python} in Python" if python and python != p else ""
        rows.append((p, described(v.type) + known))
    outs = f.c.outputs[: len(f.c.gives)]
    leaves = _leaf_names(f)
    rows += [(name, described(v.type)) for name, v in zip(leaves, outs, strict=True)]
    width = max((len(a) for a, _ in rows), default=0)
    table = "\n".join(f"\t{a:<{width}}  {b}" for a, b in rows)
    parts = [f"{f.name} {f.summary}"]
    if table:
        parts.append(f"\n{table}\n")
    panics = (
        "It panics with a *gotorch.Error: of kind TypeError before anything has run, if an input"
    )
    panics += "\nis not as above, and with that of the operation that fails else."
    if package.loaded:
        panics += " [gotorch.Try] makes the panic\nan error."
    else:
        panics += (
            " [gotorch.Try] makes the panic\nan error. Several goroutines may call it at once."
        )
    return _comment("\n".join([*parts, panics]))


def _leaf_names(f: GoFunction) -> list[str]:
    if len(f.results.types) == 1 and not f.results.structs:
        return ["result"] * len(f.c.gives)
    if not f.results.structs:
        return [f"result {int(x[3:]) + 1}" for x in f.results.leaves]
    return [f"result{x.removeprefix('out0')}" for x in f.results.leaves]


def _function(f: GoFunction, package: Package) -> str:
    op = f"{package.name}.{f.name}"
    receiver = "(net *Net) " if package.loaded else ""
    lines = [f"const op = {go_names.quoted(op)}", "var blk struct {", "\tgraph.Block"]
    lines += [f"\t{name} {kind}" for name, kind in f.c.go_fields()]
    lines += ["}", "var call graph.Call", "defer call.Warn() // when the weights are free again"]
    for p, python, taken in zip(f.parameters, f.names, f.takes, strict=True):
        lines += taken.fill(p, go_names.quoted(python or p))
    if f.weights:
        source = "net.weights" if package.loaded else "constants()"
        if not package.loaded:
            lines.append("weights := constants()")
            source = "weights"
        use, done = ("Change", "Changed") if f.changes else ("Use", "Done")
        k = package.functions.index(f)
        member = "constants" if f.c.constants else "state"
        lines += [f"blk.{member} = {source}.{use}(op, {k})", f"defer {source}.{done}()"]
        if f.c.constants and f.c.n_state:
            n = len(f.c.constants)
            lines.append(f"blk.state = unsafe.Add(blk.constants, {n}*unsafe.Sizeof(blk.constants))")
    if f.step:
        lines.append("blk.in0 = float64(net.weights.Steps + 1)")
    # In a statement of its own: cgo would look into what stands in the call.
    lines.append(f"block := (*C.struct_{f.c.block})(unsafe.Pointer(&blk))")
    lines.append("call = graph.Begin()")
    lines.append(f"C.{f.c.entry}(block)")
    lines.append("call.End(op, blk.Block)")
    for p, taken in zip(f.parameters, f.takes, strict=True):
        lines += [f"runtime.KeepAlive({e})" for e in taken.keep(p)]
    if f.step:
        lines.append("net.weights.Steps++")
    values = f.results.values
    results = [f"out{i}" for i in range(len(values))]
    lines += [f"{r} := {v}" for r, v in zip(results, values, strict=True)]
    if results:
        lines.append(f"return {', '.join(results)}")
    return f"{_doc(f, package)}\nfunc {receiver}{f.signature()} {{\n{_indented(lines)}\n}}"


def _cgo(package: Package) -> str:
    merged: dict[str, list[str]] = {}  # the words of each kind of flags, each once
    for f in package.functions:
        for kind, words in f.c.cgo_flags().items():
            have = merged.setdefault(kind, [])
            have += [w for w in words if w not in have]
    out = []
    for kind, found in merged.items():
        # They are those of all C files: the one that optimises least counts.
        levels = sorted(w for w in found if re.fullmatch(r"-O\d", w))
        out.append(f"#cgo {kind}: {' '.join(w for w in found if w not in levels[1:])}")
    out += [f'#include "{f.c.file}.h"' for f in package.functions]
    for f in package.functions:
        out += [f"#cgo noescape {f.c.entry}", f"#cgo nocallback {f.c.entry}"]
    return "/*\n" + "\n".join(out) + '\n*/\nimport "C"'


_NET = """\
// Net is the model with its weights.{rules}
type Net struct {{
	weights *graph.Weights
}}

// Load reads the model's weights from {file} in the folder dir, which is that of this
// package's source, or wherever the file has been copied. Nothing is read before.
//
// The error is that of the operating system if there is no such file, and else a *gotorch.Error of
// kind ValueError if it is not the file that belongs to this package.
func Load(dir string) (*Net, error) {{
	const op = {op}
	path := filepath.Join(dir, {quoted})
	weights, err := graph.LoadWeights(op, path, weightsSum, weightSpecs, {orders})
	if err != nil {{
		return nil, err
	}}
	return &Net{{weights: weights}}, nil
}}

// Weights returns the weights by their names in PyTorch's state_dict. They share memory with the
// model's.
func (net *Net) Weights() map[string]gotorch.Tensor {{ return net.weights.Map({weights_op}) }}

// Close waits for the calls that go on, and frees the weights. Closing twice is fine; calls after
// it panic. A model that is not closed is freed by the collector.
func (net *Net) Close() {{ net.weights.Close() }}
"""

_TRAINED = """
// Save writes the weights to a file under their names in PyTorch's state_dict: a safetensors file,
// or one for torch.load if path ends in .pt. A file at path is replaced when the new one is
// complete.
func (net *Net) Save(path string) error {{ return net.weights.Save({save_op}, path) }}

// SetWeights copies values into the weights of the same names. It changes nothing where a name or a
// shape does not fit, and returns a *gotorch.Error.
func (net *Net) SetWeights(values map[string]gotorch.Tensor) error {{
	return net.weights.Set({set_op}, values)
}}

// SaveCheckpoint writes all that TrainStep goes on from: weights, the optimiser's state and the
// number of steps. Python's TrainingStep goes on from it too. A file at path is replaced when the
// new one is complete.
func (net *Net) SaveCheckpoint(path string) error {{
	return net.weights.SaveCheckpoint({save_checkpoint_op}, path)
}}

// LoadCheckpoint goes on from a file of SaveCheckpoint, or of Python's TrainingStep. Where the file
// does not fit it changes nothing and returns an error.
func (net *Net) LoadCheckpoint(path string) error {{
	return net.weights.LoadCheckpoint({load_checkpoint_op}, path)
}}
"""


def _net(package: Package) -> str:
    def op(name: str) -> str:
        return go_names.quoted(f"{package.name}.{name}")

    rules = " Its methods may be called from several goroutines at\n// once."
    if package.trained:
        rules += " A training step waits for the others, and they for it."
    orders = ", ".join(f"[]int{{{', '.join(map(str, f.weights))}}}" for f in package.functions)
    text = _NET.format(
        rules=rules,
        file=WEIGHTS,
        op=op("Load"),
        quoted=go_names.quoted(WEIGHTS),
        orders=orders,
        weights_op=op("Weights"),
    )
    if package.trained:
        text += _TRAINED.format(
            save_op=op("Save"),
            set_op=op("SetWeights"),
            save_checkpoint_op=op("SaveCheckpoint"),
            load_checkpoint_op=op("LoadCheckpoint"),
        )
    return text


def _specs(package: Package) -> str:
    lines = [f"\t{w.go()}," for w in package.weights]
    lines += [f"\t{w.go()}," for w in package.states]
    return "var weightSpecs = []graph.Weight{\n" + "\n".join(lines) + "\n}"


def main_file(package: Package) -> str:
    """The functions, and what loads the weights."""
    parts = [f"const _ = graph.{ABI} // generate the package again where this is not there"]
    if package.loaded:
        parts += [
            f"// weightsSum is the SHA-256 sum of {WEIGHTS}.\nconst weightsSum = "
            + go_names.quoted(package.digest),
            _specs(package),
            _net(package).rstrip(),
        ]
    elif package.weights:
        import base64

        data = base64.b64encode(package.data).decode()
        parts += [
            "// constants are tensors that the functions compute with.\n"
            "var constants = sync.OnceValue(func() *graph.Weights {\n"
            f"\tdata, _ := base64.StdEncoding.DecodeString({go_names.quoted(data)})\n"
            f"\treturn graph.EmbeddedWeights({go_names.quoted(package.name)}, data, weightSpecs, "
            + ", ".join(f"[]int{{{', '.join(map(str, f.weights))}}}" for f in package.functions)
            + ")\n})",
            _specs(package),
        ]
    parts += package.structs().values()
    for f in package.functions:
        parts += f.results.structs
        parts.append(_function(f, package))
    body = "\n\n".join(parts)
    return (
        f"{GENERATED}\npackage {package.name}\n\n{_cgo(package)}\n\n"
        f"{_imports(body, _KNOWN)}\n{body}\n"
    )


def doc_file(package: Package) -> str:
    """doc.go: what the package is, with an example."""
    f = package.functions[0]
    call = f"{f.name}({', '.join(f.parameters)})"
    names = [f"y{i + 1}" for i in range(len(f.results.types))]
    if len(names) == 1:
        names = ["y"]
    if package.loaded:
        call = f"net.{call}"
        example = [
            f"// The folder with {WEIGHTS}.",
            f"net, err := {package.name}.Load({go_names.quoted(package.name)})",
            "if err != nil {",
            "\tlog.Fatal(err)",
            "}",
            "defer net.Close()",
        ]
    else:
        call = f"{package.name}.{call}"
        example = []
    example.append(f"{', '.join(names)} := {call}" if names else call)
    text = [
        f"Package {package.name} {package.title}",
        "It was written by pytorch_bridge.export_go and needs gotorch, and no Python:",
        "",
        *(f"\t{line}" for line in example),
    ]
    if package.trained:
        step = package.functions[1]
        text += [
            "",
            "A training step is one call:",
            "",
            f"\tloss := net.{step.name}({', '.join(step.parameters)})",
        ]
    text += [
        "",
        "forward_gen.c".replace("forward_gen", f.c.file)
        + f" has {f.name} in C; each is one call of C from Go. `go test` compares with what Python",
        "computed when the package was written.",
    ]
    return f"{GENERATED}\n{_comment(chr(10).join(text))}\npackage {package.name}\n"


def _load_golden(package: Package) -> str:
    if package.device is None:
        return f'golden := graphtest.Load(t, "{golden.FILE}")'
    return f'golden := graphtest.LoadOn(t, "{golden.FILE}", {go_device(package.device)})'


def test_file(package: Package, written: Sequence[str | int], calls: Sequence[str]) -> str:
    """golden_test.go: the first function against the golden values. `written` are the weights, by
    name, and the inputs, by number, that a call writes into; `calls` are the calls, by what is
    before the names of their values."""
    f = package.functions[0]
    lines = [_load_golden(package)]
    if package.loaded:
        lines += [
            'net, err := Load(".")',
            "if err != nil {",
            "\tt.Fatal(err)",
            "}",
            "defer net.Close()",
        ]
    names = [f"out{i}" for i in range(len(f.results.types))]
    if not f.c.gives:
        names = ["_"] * len(names)
    for call in calls:
        reads = [golden.read(f"{call}in.{i}", c) for i, c in enumerate(f.takes)]
        target = f"{'net.' if package.loaded else ''}{f.name}({', '.join(reads)})"
        if call == golden.CALLS["refused"]:
            lines += ["golden.Refuses(func() {", f"\t{target}", "})"]
            continue
        if not f.c.gives:
            lines.append(f"{', '.join(names)} = {target}" if names else target)
            lines += ["_ = golden"] if call == calls[0] else []
        else:
            lines.append(f"{', '.join(names)} {':' if call == calls[0] else ''}= {target}")
        for i, (leaf, c) in enumerate(zip(f.results.leaves, f.c.gives, strict=True)):
            lines += golden.compared(f"{call}out.{i}", c, leaf)
        for i, w in enumerate(written):
            x = f"net.Weights()[{go_names.quoted(w)}]" if isinstance(w, str) else reads[w]
            lines.append(f'golden.Check("{call}after.{i}", {x})')
    body = (
        "// What Go computes is what Python computed, at a first call and at another with other\n"
        f"// inputs.\nfunc {GOLDEN}(t *testing.T) {{\n"
        f"{_indented(lines)}\n}}"
    )
    if package.trained:
        body += _training_test(package)
    return f"{GENERATED}\npackage {package.name}\n\n{_imports(body, _KNOWN)}\n{body}\n"


def _training_test(package: Package) -> str:
    f = package.functions[1]
    losses = ", ".join(go_names.quoted(f"train.loss.{i}") for i in range(golden.STEPS))
    reads = [golden.read(f"train.in.{i}", c) for i, c in enumerate(f.takes)]
    lines = [
        _load_golden(package),
        'net, err := Load(".")',
        "if err != nil {",
        "\tt.Fatal(err)",
        "}",
        "defer net.Close()",
        f"for _, want := range []string{{{losses}}} {{",
        f"\tgolden.Check(want, net.{f.name}({', '.join(reads)}))",
        "}",
        "for name, weight := range net.Weights() {",
        '\tgolden.Check("train.weights."+name, weight)',
        "}",
    ]
    return (
        "\n\n// Some steps give the losses and weights that they gave in Python.\n"
        f"func TestGoldenTraining(t *testing.T) {{\n{_indented(lines)}\n}}"
    )
