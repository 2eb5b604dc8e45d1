"""Go packages from graphs. All packages are exported once and built as one Go module, outside of the
repository; each Go test in it is a fact here."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import models as model_zoo
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch.utils import _pytree

import pytorch_bridge as pb
from pytorch_bridge import TensorType, ops, schema_type
from pytorch_bridge.errors import BridgeTypeError, BridgeValueError, MissingMethodError
from pytorch_bridge.frontend.model import Model
from pytorch_bridge.native import atomic_files, env
from pytorch_bridge.native.extension import live_handles
from pytorch_bridge.native.toolchain import ROOT, find_go
from pytorch_bridge.ops.op import Op
from pytorch_bridge.packages.go_package import ExportError, export_go, folder
from pytorch_bridge.packages.go_package.export import _package
from pytorch_bridge.packages.go_package.golden import one_thread
from pytorch_bridge.packages.go_package.source import source
from pytorch_bridge.testing.gotests import run_go

pytestmark = pytest.mark.long

sys.path.insert(0, str(ROOT / "examples/extending"))

DRIVERS = Path(__file__).with_name("export_go_drivers")


def tensor(*sizes, dtype="float32", name=None):
    return TensorType(dtype, sizes)(name)


def exported(module, *example, **options):
    return pb.from_exported(torch.export.export(module, example, **options))


def batch(*modules):
    return {"dynamic_shapes": tuple({0: Dim.AUTO} for _ in modules or "x")}


class TwoHeads(nn.Module):
    """Results in a dict, with a tuple and a list in it."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x, *, scale):
        h = self.body(x).relu()
        return {"logits": self.head(h) * scale, "hidden": (h, [h + 1, h + 2]), "no": None}


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.norm, self.out = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.twin = nn.Linear(3, 3, bias=False)
        self.same = self.twin

    def forward(self, x):
        return self.same(self.twin(self.out(self.norm(self.lin(x)).relu())))


class Transposed(nn.Module):
    """Its linear has another kernel, and other last bits, where its weights require no gradient."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(128, 128)

    def forward(self, x):
        return self.lin(x.transpose(0, 1))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Gapped(nn.Module):
    """A buffer with gaps between its elements, by which sums are added up in another order."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.randn(3, 514)[:, ::2])

    def forward(self, x):
        self.kept.add_(x)
        return self.kept.mean(1)


class Particular(nn.Module):
    """It takes no other numbers than those of the example."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        torch._assert_async((x == 1).all(), "not 1")
        self.calls += 1
        return x + self.calls


class Accumulate(nn.Module):
    def forward(self, total, x):
        total.add_(x)
        return total * 2


class Guarded(nn.Module):
    """Goes one way for some sizes, and another way for others."""

    def forward(self, x):
        y = x * 2 if x.shape[0] % 2 == 0 else x
        y = y + 1 if torch.sym_sqrt(x.shape[0]) > x.shape[1] / 2 else y
        return y.mean(0) if x.shape[0] * x.shape[1] > 10 else y.sum(0)


def guarded(root):
    """A package, and what module() says of all sizes from 1 to 8: "" where it takes them, else what
    ours says."""
    program = torch.export.export(
        Guarded(), (torch.randn(6, 4),), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},)
    )
    export_go(program, root / "guarded")
    theirs, ours = program.module(), pb.from_exported(program).compile("py")
    verdicts = [["" for _ in range(9)] for _ in range(9)]
    for n in range(1, 9):
        for m in range(1, 9):
            try:
                theirs(torch.ones(n, m))
            except AssertionError:
                with pytest.raises(BridgeValueError) as e:
                    ours(torch.ones(n, m))
                verdicts[n][m] = str(e.value)
    (root / "verdicts.json").write_text(json.dumps(verdicts))


def plain_function():
    x, w = tensor(None, 3, name="x"), tensor(3, 2, name="w")
    return [x, w], ops.softmax(ops.mm(x, w), -1)


def kinds():
    """Every type that can cross."""
    x = tensor(2, 3, name="x")
    n, r, flag = schema_type("int")("n"), schema_type("float")("r"), schema_type("bool")("flag")
    sizes, ts = schema_type("int[]")("sizes"), schema_type("Tensor[]")("ts")
    way, s = schema_type("str")("way"), schema_type("Scalar")("s")
    maybe = schema_type("int?")("maybe")
    y = ops.reshape(ops.add(ops.mul(x, n), s), sizes)
    total = ops.cat(ts, 0)
    inputs = [x, n, r, flag, sizes, ts, way, s, maybe]
    return inputs, [y, total, n, r, flag, sizes, ts, s, way]


KINDS_EXAMPLE = [
    torch.linspace(-1, 1, 6).reshape(2, 3),
    *(3, 0.5, True, [3, 2], [torch.ones(2), torch.zeros(1)], "größe", 2.5, None),
]


def names():
    """Inputs with names that Go, C or the generated code has other uses for."""
    given = [
        "func",
        "C",
        "gotorch",
        "größe",
        "",
        "op",
        "x y",
        "x_y",
        "blk",
        "runtime",
        "a\nb",
        "nil",
        "os",
        "sync",
    ]
    xs = [tensor(2, name=n) for n in given]
    total = xs[0]
    for i, x in enumerate(xs[1:], 2):
        total = ops.add(total, ops.mul(x, i))
    return xs, total


def constants():
    """Constants whose memory is not contiguous, overlaps itself, or is empty."""
    torch.manual_seed(3)
    x = tensor(None, 5, name="x")
    w = ops.constant(torch.randn(4, 5).t())
    row = ops.constant(torch.randn(1, 4).expand(3, 4))
    last = ops.constant(torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last))
    y, s = ops.mm(x, w), ops.sum(x)
    empty = ops.constant(torch.empty(0, 4))
    outputs = [y, ops.sum(ops.mul(row, s), [0]), ops.mul(last, s), ops.cat([y, empty], 0)]
    model = Model([x], outputs, name="odd")
    model.weights = {"w.t": w, "größe": row, 'quo"te\n😀': last}
    return model


class Twice(Op):
    """An op of somebody else's, in C++."""

    __props__ = ()

    def make_node(self, x):
        return pb.Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = inputs[0] * 2

    def c_code(self, node, name, inputs, outputs, sub):
        return (
            f"std::vector<Tensor> both{{{inputs[0]}, {inputs[0]}}};\n"
            f"const Scalar one = {{ScalarInt, {{1}}}};\n"
            f"pb_error = Add(both[0], both[1], one, &{outputs[0]});\nif (pb_error) {sub['fail']}"
        )

    def c_headers(self):
        return ["<vector>", "cgotorch.h"]

    def c_compiler(self):
        return "g++"

    def c_needs_gil(self, node):
        return False

    def c_code_cache_version(self):
        return (1,)


@pytest.fixture(scope="session")
def models():
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 5)).eval()
    return {"mlp": mlp, "heads": TwoHeads().eval(), "normed": Normed()}


TRAINING = {
    "sgd": (
        pb.SGD(momentum=0.9, weight_decay=1e-3, nesterov=True),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    ),
    "adam": (pb.Adam(weight_decay=0.01), lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.01)),
    "adamw": (pb.AdamW(), lambda p: torch.optim.AdamW(p, lr=0.05)),
}


ZOO = ("mlp", "gpt", "lstm", "resnet18", "resnet50")


@pytest.fixture(scope="session")
def zoo():
    """The programs of whole models."""
    return {name: model_zoo.make(name)[1] for name in ZOO}


TRANSPOSED_EXAMPLE = [torch.randn(5, 3, 128, generator=torch.Generator().manual_seed(6))]


def _transposed() -> tuple[nn.Module, torch.Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return Transposed().eval(), TRANSPOSED_EXAMPLE[0]


def transposed():
    module, x = _transposed()
    return exported(module, x, **batch())


def test_transposed_tells_two_kernels_apart():
    """What the package of Transposed is for; on some CPUs both kernels add up in one order."""
    module, x = _transposed()
    with one_thread(), torch.no_grad():
        other = copy.deepcopy(module).requires_grad_(False)
        if torch.equal(module(x), other(x)):
            pytest.skip("on this CPU both kernels of linear have the same last bits")


@pytest.fixture(scope="session")
def module(library, models, zoo, tmp_path_factory) -> Path:
    """The Go module with all packages."""
    import interval
    import kernel

    before = live_handles()
    root = tmp_path_factory.mktemp("export")
    torch.manual_seed(1)
    mlp = exported(models["mlp"], torch.randn(2, 20), **batch())
    export_go(mlp, root / "mlp")
    program = torch.export.export(
        models["heads"],
        (torch.randn(2, 4),),
        {"scale": torch.tensor(2.0)},
        dynamic_shapes={"x": {0: Dim.AUTO}, "scale": None},
    )
    export_go(program, root / "heads")
    export_go(exported(Counter(), torch.ones(2)), root / "counter")
    export_go(exported(Gapped(), torch.randn(3, 257)), root / "gapped")
    export_go(exported(Particular(), torch.ones(3)), root / "particular")
    export_go(transposed(), root / "transposed", example=TRANSPOSED_EXAMPLE)
    export_go(exported(Accumulate(), torch.ones(2), torch.randn(2)), root / "accumulate")
    export_go(model_zoo.decoder(), root / "decoder")
    export_go(model_zoo.branching(), root / "branching")
    export_go(model_zoo.looping(), root / "looping")
    (root / "tokens.json").write_text(json.dumps(model_zoo.decoded(100)))
    guarded(root)
    export_go(plain_function(), root / "plain")
    # Packages of one name in one program: with the same function, and with another.
    export_go(plain_function(), root / "again/plain")
    (x, w), y = plain_function()
    export_go(([x, w], ops.neg(y)), root / "other/plain")
    export_go(kinds(), root / "kinds", example=KINDS_EXAMPLE)
    export_go(names(), root / "names")
    export_go(constants(), root / "constants", name="Predict")
    x = tensor(None, name="x")
    export_go((x, []), root / "nothing")
    export_go((x, [x, x]), root / "same")
    export_go(([], ops.mul(ops.constant(torch.arange(3.0)), 2)), root / "fixed")
    export_go((x, Twice()(x)), root / "cplusplus")
    export_go((x, ops.std(x)), root / "warns")
    limits = interval.Interval(-1.0, 2.0)
    export_go(interval.normalised, root / "interval", example=(torch.randn(5), limits))
    from pytorch_bridge.extending import jit

    shifted = jit(lambda a, b: a + b + 0.5)
    export_go(shifted, root / "shift", name="Shift", example=(limits, interval.Interval(3.0, 4.0)))
    sizes = ((5, 4), (4, 8), (8,), (8, 2), (2,))
    export_go(kernel.model, root / "kernel", example=[torch.randn(s) for s in sizes])

    for name, program in zoo.items():
        export_go(program, root / "zoo" / name)

    normed = models["normed"]
    evaluated = exported(copy.deepcopy(normed).eval(), torch.randn(4, 6), **batch())
    trained = exported(copy.deepcopy(normed).train(), torch.randn(4, 6), **batch())
    for name, (rule, _) in TRAINING.items():
        how = pb.Training(optimizer=rule, model=trained)
        export_go(evaluated, root / name, training=how)
    _training_values(normed, root / "training.safetensors")
    xs, ts = training_data()
    with one_thread():
        for name, (rule, _) in TRAINING.items():
            step = pb.training_step(trained, pb.Training(optimizer=rule))
            for x, t in list(zip(xs, ts, strict=True))[:5]:
                step(x, t, lr=0.05)
            torch.save(step.checkpoint(), root / f"{name}_python.pt")
    unfit = step.checkpoint()
    weight = unfit["model_state_dict"]["lin.weight"]
    unfit["model_state_dict"]["lin.weight"] = weight.to_sparse()
    torch.save(unfit, root / "sparse.pt")

    (root / "go.mod").write_text(
        "module example.org/export\n\ngo 1.26.0\n\nrequire gotorch.dev v0.0.0\n\n"
        f"replace gotorch.dev => {ROOT}\n"
    )
    for driver in DRIVERS.glob("*.go.txt"):
        (root / driver.name.removesuffix(".txt")).write_text(driver.read_text())
    assert live_handles() == before
    return root


def training_data():
    generator = torch.Generator().manual_seed(5)
    xs = [torch.randn(8, 6, generator=generator) for _ in range(10)]
    return xs, [torch.randint(3, (8,), generator=generator) for _ in xs]


def _training_values(normed, path):
    """Ten steps of torch.optim for each optimiser."""
    from safetensors.torch import save_file

    xs, ts = training_data()
    found = {f"x.{i}": x for i, x in enumerate(xs)} | {f"t.{i}": t for i, t in enumerate(ts)}
    with one_thread():
        for name, (_, make) in TRAINING.items():
            module = copy.deepcopy(normed).train()
            optimizer = make(module.parameters())
            for i, (x, t) in enumerate(zip(xs, ts, strict=True)):
                loss = nn.functional.cross_entropy(module(x), t)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found[f"{name}.loss.{i}"] = loss.detach()
            found |= {f"{name}.{n}": t.detach().clone() for n, t in module.state_dict().items()}
            module.eval()
            with torch.no_grad():
                found[f"{name}.eval"] = module(xs[0])
    save_file(found, path)


class Outcome(NamedTuple):
    passed: bool
    output: str


@pytest.fixture(scope="session")
def outcomes(module) -> dict[str, Outcome]:
    """What each Go test of the module did, by package and name."""
    options = ["-vet=all", "-ldflags=-s -w"]
    done = run_go("test", "-json", *options, "./...", cwd=module, **env.variables())
    found: dict[str, Outcome] = {}
    said: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        event = json.loads(line)
        package = event.get("Package", "").removeprefix("example.org/export").strip("/") or "."
        key = f"{package}:{event.get('Test', '')}"
        if event["Action"] == "build-output":
            said.setdefault(".:", []).append(event["Output"])
        elif event["Action"] == "output":
            said.setdefault(key, []).append(event["Output"])
        elif event["Action"] in ("pass", "fail"):
            found[key] = Outcome(event["Action"] == "pass", "".join(said.get(key, [])))
    assert found, done.stdout + done.stderr
    return found


def go_tests() -> Iterator[str]:
    for driver in sorted(DRIVERS.glob("*.go.txt")):
        for name in re.findall(r"^func (Test\w+)\(", driver.read_text(), re.M):
            yield f".:{name}"


PACKAGES = [
    *(
        "mlp",
        "heads",
        "counter",
        "gapped",
        "particular",
        "decoder",
        "branching",
        "looping",
        "accumulate",
        "transposed",
        "plain",
        "kinds",
        "names",
        "constants",
        "nothing",
        "same",
        "fixed",
    ),
    *(f"zoo/{name}" for name in ZOO),
    *("cplusplus", "warns", "interval", "shift", "kernel", *TRAINING),
]
GOLDEN = [f"{p}:TestGolden" for p in PACKAGES] + [f"{p}:TestGoldenTraining" for p in TRAINING]


@pytest.mark.parametrize("name", [*GOLDEN, *go_tests()])
def test_in_go(outcomes, name):
    broken = {n: o.output for n, o in outcomes.items() if n.endswith(":") and not o.passed}
    assert name in outcomes, broken
    assert outcomes[name].passed, outcomes[name].output
    # This machine has exported them: Go must find that every bit is to be the same.
    assert "was made on another machine" not in outcomes[name].output


def test_other_kernels_on_this_machine_are_compared_by_a_bound(module):
    """Those of libtorch without vectors, or with them where the tests are told to do without."""
    other = "avx2" if os.environ.get("ATEN_CPU_CAPABILITY") == "default" else "default"
    variables = {**env.variables(), "ATEN_CPU_CAPABILITY": other}
    packages = [f"./zoo/{name}" for name in ("mlp", "lstm")]
    done = run_go("test", "-v", "-run", "^TestGolden$", *packages, cwd=module, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("was made on another machine") == len(packages)


@pytest.mark.race
def test_goroutines_under_the_race_detector(module):
    tests = ["TestManyGoroutinesAndNoHandleIsLeft", "TestClose"]
    tests.append("TestTrainingStepsAndPassesAtTheSameTime")
    options = ["-race", "-v", "-run", f"^({'|'.join(tests)})$"]
    done = run_go("test", *options, ".", cwd=module, **env.variables())
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"--- PASS: {name} " in done.stdout for name in tests), done.stdout


def test_gofmt_has_nothing_to_say(module):
    gofmt = find_go().path.with_name("gofmt")
    go = sorted(map(str, module.glob("*/*.go")))
    assert subprocess.run([gofmt, "-l", *go], capture_output=True, text=True).stdout == ""


def test_the_packages_name_neither_python_nor_this_machine(module):
    for path in module.glob("*/*"):
        if path.suffix in (".go", ".c", ".cc", ".h"):
            text = path.read_text()
            assert "Py_" not in text, path
            assert str(ROOT) not in text, path
            assert "DO NOT EDIT" in text.splitlines()[0]


@pytest.mark.parametrize("name", ZOO)
def test_golden_values_are_those_of_the_module(module, zoo, name):
    from safetensors.torch import load_file

    values = load_file(module / "zoo" / name / "testdata/golden.safetensors")
    for call in ("", "again."):
        with one_thread(), torch.no_grad():
            results = zoo[name].module()(values[f"{call}in.0"])
        for i, result in enumerate(_pytree.tree_leaves(results)):
            assert torch.equal(result, values[f"{call}out.{i}"])


def test_a_golden_test_has_a_call_that_is_refused(module):
    """No inputs but the example's will do: others are refused in Go, and the next call is right."""
    from safetensors.torch import load_file

    values = load_file(module / "particular/testdata/golden.safetensors")
    assert torch.equal(values["again.in.0"], values["in.0"])
    assert not torch.equal(values["refused.in.0"], values["in.0"])
    assert values["again.after.0"].item() == 2
    test = (module / "particular/golden_test.go").read_text()
    assert 'golden.Refuses(func() {\n\t\tnet.Forward(golden.Tensor("refused.in.0"))' in test


def test_golden_values_have_what_a_call_writes(module):
    from safetensors.torch import load_file

    counted = load_file(module / "counter/testdata/golden.safetensors")
    assert counted["after.0"].item() == 1
    assert counted["again.after.0"].item() == 2
    summed = load_file(module / "accumulate/testdata/golden.safetensors")
    assert torch.equal(summed["after.0"], summed["in.0"] + summed["in.1"])
    for name, checked in (
        ("counter", 'net.Weights()["calls"]'),
        ("accumulate", 'golden.Tensor("in.0")'),
    ):
        test = (module / name / "golden_test.go").read_text()
        assert f'golden.Check("after.0", {checked})' in test


# In Python


def test_training_steps_in_half_precision_are_those_of_torch_optim():
    torch.manual_seed(0)
    module = nn.Linear(20, 5).bfloat16()
    step = pb.training_step(
        exported(copy.deepcopy(module), torch.randn(8, 20).bfloat16()),
        pb.Training(optimizer=pb.SGD(momentum=0.9)),
    )
    opt = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    for _ in range(4):
        x, t = torch.randn(8, 20).bfloat16(), torch.randint(5, (8,))
        opt.zero_grad()
        torch.nn.functional.cross_entropy(module(x), t).backward()
        opt.step()
        step(x, t, lr=0.05)
    assert torch.equal(step.checkpoint()["model_state_dict"]["weight"], module.weight)


def test_a_transformer_trains_as_torch_does():
    """With dropout too, whose strides are those of its tensor, not those of an example."""
    for rate, options in ((0.0, batch()), (0.1, {}), (0.1, batch())):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 12, rate, batch_first=True)
        module = nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 5)).train()
        x, t = torch.randn(4, 3, 8), torch.randint(5, (4,))
        step = pb.training_step(
            exported(copy.deepcopy(module), x, **options), pb.Training(), mode="py"
        )
        opt = torch.optim.SGD(module.parameters(), lr=0.05)
        for k in range(2):
            torch.manual_seed(k)
            loss = nn.functional.cross_entropy(module(x), t)
            opt.zero_grad()
            loss.backward()
            opt.step()
            torch.manual_seed(k)
            assert torch.equal(step(x, t, lr=0.05), loss)
        for n, p in module.state_dict().items():
            assert torch.equal(step.state_dict()[n], p)


def test_training_steps_are_those_of_torch_optim(models):
    normed = models["normed"]
    trained = exported(copy.deepcopy(normed).train(), torch.randn(4, 6), **batch())
    xs, ts = training_data()
    for rule, make in TRAINING.values():
        step = pb.training_step(trained, pb.Training(optimizer=rule))
        module = copy.deepcopy(normed).train()
        optimizer = make(module.parameters())
        before = live_handles()
        for x, t in zip(xs, ts, strict=True):
            loss = nn.functional.cross_entropy(module(x), t)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert torch.equal(step(x, t, lr=0.05), loss)
        assert live_handles() == before
        state = module.state_dict()
        assert step.state_dict().keys() == state.keys()  # a tied weight has two names
        assert all(torch.equal(t, state[n]) for n, t in step.state_dict().items())
    assert not torch.equal(trained.weights["lin.weight"].data, step.state_dict()["lin.weight"])


def test_a_training_of_go_goes_on_in_python(module, models, outcomes):
    from safetensors.torch import load_file

    assert outcomes[".:TestATrainingGoesOnFromACheckpoint"].passed
    values = load_file(module / "training.safetensors")
    trained = exported(copy.deepcopy(models["normed"]).train(), torch.randn(4, 6), **batch())
    for name, (rule, _) in TRAINING.items():
        step = pb.training_step(trained, pb.Training(optimizer=rule))
        step.load_checkpoint(torch.load(module / f"{name}_go.pt"))
        with one_thread():
            for x, t in list(zip(*training_data(), strict=True))[5:]:
                step(x, t, lr=0.05)
        for n, t in step.state_dict().items():
            assert torch.equal(t, values[f"{name}.{n}"]), (name, n)


def test_checkpoints_that_do_not_fit():
    model = exported(nn.Linear(3, 2), torch.randn(2, 3), **batch())
    step = pb.training_step(model, pb.Training(optimizer=pb.Adam()))
    step(torch.ones(2, 3), torch.tensor([0, 1]), lr=0.1)
    before = copy.deepcopy(step.checkpoint())
    more = {**before["model_state_dict"], "more": torch.ones(1)}
    sparse = {**before["model_state_dict"], "weight": torch.ones(2, 3).to_sparse()}
    less = {"step": 1, "state": {"exp_avg.weight": torch.ones(3, 2)}}
    for bad, text in (
        ({}, "takes what checkpoint"),
        ({**before, "optimizer_state_dict": [1]}, "takes what checkpoint"),
        ({**before, "optimizer_state_dict": {"step": -1, "state": {}}}, "step is -1"),
        ({**before, "model_state_dict": sparse}, "torch.sparse_coo., where this"),
        (
            {**before, "model_state_dict": more},
            r"more is torch.float32\[1\] .*, where this step has none",
        ),
        (
            {**before, "optimizer_state_dict": less},
            r"exp_avg.weight is torch.float32\[3, 2\] .*, where",
        ),
    ):
        with pytest.raises(BridgeValueError, match=text):
            step.load_checkpoint(bad)
    after = step.checkpoint()
    assert after["optimizer_state_dict"]["step"] == 1
    for a, b in zip(_pytree.tree_leaves(before), _pytree.tree_leaves(after), strict=True):
        assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))


def test_a_loss_and_an_optimizer_of_ones_own():
    class SignDescent:
        def state(self):
            return []

        def update(self, parameter, gradient, state, lr, step):
            return [ops.add_(parameter, ops.sign(gradient), alpha=-lr)]

    torch.manual_seed(0)
    module = nn.Linear(3, 1)
    model = exported(module, torch.randn(2, 3), **batch())
    how = pb.Training(
        loss=lambda y, t: ops.mse_loss(y, t),
        targets=[TensorType("float32", (None, 1))],
        optimizer=SignDescent(),
        parameters=["weight"],
    )
    step = pb.training_step(model, how)
    x, t = torch.randn(4, 3), torch.randn(4, 1)
    nn.functional.mse_loss(module(x), t).backward()
    expected = module.weight.detach() - 0.1 * module.weight.grad.sign()
    step(x, t, lr=0.1)
    assert torch.equal(step.state_dict()["weight"], expected)
    assert torch.equal(step.state_dict()["bias"], module.bias)


def test_training_says_what_it_cannot_do(tmp_path):
    model = exported(nn.Linear(3, 2), torch.randn(2, 3), **batch())
    for how, error, text in (
        (pb.Training(loss=lambda y: ops.sum(y)), BridgeValueError, "targets= are the types"),
        (pb.Training(parameters=["w"]), BridgeValueError, "no weight 'w'; it has weight, bias"),
        (pb.Training(loss=lambda y, t: ops.sum(t), targets=[torch.ones(2)]), ValueError, "depends"),
        ("yes", BridgeTypeError, r"True or a pb\.Training"),
    ):
        with pytest.raises(error, match=text):
            pb.training_step(model, how)
    with pytest.raises(BridgeValueError, match="nesterov takes a momentum"):
        pb.SGD(nesterov=True)
    with pytest.raises(BridgeTypeError, match="training= takes a Model"):
        export_go(plain_function(), tmp_path / "p", training=True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"package": "Mnist"}, "no name for a Go package"),
        ({"package": "func"}, "no name for a Go package"),
        ({"package": "main"}, "no name for a Go package"),
        ({"package": "init"}, "no name for a Go package"),
        ({"package": "net_test"}, "no name for a Go package"),
        ({"name": "TestGolden"}, "name of a function and of the package's test"),
        ({"name": "forward"}, "no name for a Go function"),
        ({"name": "Größe"}, "no name for a Go function"),
        ({"module": "two words"}, "no path for a Go module"),
        ({"example": [torch.ones(2, 3)]}, "1 values for 2 inputs"),
    ],
)
def test_options_that_will_not_do(tmp_path, options, text):
    with pytest.raises(BridgeValueError, match=text):
        export_go(plain_function(), tmp_path / "p", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["main", "documentation"])
def test_a_folder_that_go_would_not_compile_needs_a_package(tmp_path, name):
    with pytest.raises(BridgeValueError, match="no Go package can be named after the folder"):
        export_go(plain_function(), tmp_path / name)


def test_structs_of_results_have_a_name_each():
    class Nested(nn.Module):
        def forward(self, x):
            return {"a": {"b": {"c": x + 1}}, "aB": {"d": x + 2}}

    found = _package(source(exported(Nested(), torch.ones(2)), None), "p", "Forward").functions[0]
    declared = re.findall(r"^type (\w+)", "\n".join(found.results.structs), re.M)
    assert declared == ["Output", "OutputA", "OutputAB", "OutputAB_"]


def test_headers_of_names_that_differ_in_case_go_together(tmp_path):
    model = exported(nn.Linear(3, 2), torch.randn(2, 3))
    export_go(model, tmp_path / "p", name="TRAINSTEP", training=True, golden=False)
    guards = [re.findall("#ifndef (.*)", p.read_text())[0] for p in tmp_path.glob("p/*step_gen.h")]
    assert len(set(guards)) == 2


@pytest.mark.parametrize("name", ["__metadata__", "a\0b", "\ud800"])
def test_a_name_that_no_file_of_weights_can_have(tmp_path, name):
    module = nn.Module()
    module.register_buffer(name, torch.ones(2))
    module.forward = lambda x: x + module._buffers[name]
    with pytest.raises(BridgeValueError, match="in a safetensors file can have the name"):
        export_go(exported(module, torch.ones(2)), tmp_path / "p")


def test_every_weight_can_be_set():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(3), nn.LayerNorm(3)

        def forward(self, x):
            return self.second(self.first(x)) @ self.first.weight.view(3, 1).t().view(3, 1)

    model = exported(Twice(), torch.randn(2, 3))
    found = _package(source(model, None), "p", "Forward").weights
    assert sorted(w.name for w in found if w.named) == sorted(model.weights)
    assert len(found) == len(model.weights)


def test_graphs_that_will_not_do(tmp_path):
    class PythonOnly(Op):
        __props__ = ()

        def make_node(self, x):
            return pb.Apply(self, [x], [x.type()])

        def perform(self, node, inputs, output_storage):
            output_storage[0][0] = inputs[0]

    x, target = tensor(None, name="x"), tmp_path / "p"
    dtype = schema_type("ScalarType")("dtype")
    index = tensor(None, 2, dtype="int64", name="index")
    for graph, error, text in (
        (nn.Linear(1, 1), BridgeTypeError, "export_go takes a Model .*got Linear"),
        ((x, PythonOnly()(x)), MissingMethodError, "PythonOnly has no C code"),
        (([x, dtype], x), MissingMethodError, "cannot have an input of type ScalarType"),
        (([x, pb.generic("o")], x), MissingMethodError, "of type object: it is neither"),
        (([x, index], ops.reshape(x, [7, 7])), BridgeValueError, "give example="),
    ):
        with pytest.raises(error, match=text):
            export_go(graph, target)
    model = exported(nn.Linear(3, 2), torch.randn(2, 3))
    with pytest.raises(BridgeValueError, match="Load would be the name of a function and of the"):
        export_go(model, target, name="Load")
    with pytest.raises(BridgeTypeError, match=r"example: input 0 \(input\): expected"):
        export_go(model, target, example=[torch.ones(1)])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_written_whole_and_the_users_files_stay(tmp_path, monkeypatch):
    target = tmp_path / "net"
    export_go(plain_function(), target)
    (target / "mine.go").write_text("package net\n")
    (target / "sub").mkdir()
    (target / "sub/notes.txt").write_text("notes")
    model = exported(nn.Linear(3, 2), torch.randn(2, 3))
    export_go(model, target, name="Predict", module="example.org/net")
    written = {p.name for p in target.iterdir()}
    assert {"predict_gen.c", "weights.safetensors", "mine.go", "go.mod", "sub"} <= written
    assert not written & {"forward_gen.c", "forward_gen.go"}  # of the first export
    assert (target / "sub/notes.txt").read_text() == "notes"

    (target / "doc.go").write_text("package net // by hand\n")
    before = {p: p.read_bytes() for p in target.rglob("*") if p.is_file()}
    with pytest.raises(ExportError, match=r"doc\.go was not written by export_go"):
        export_go(model, target)
    # A disk that is full in the middle leaves nothing behind.
    (target / "doc.go").unlink()
    before.pop(target / "doc.go")
    write = Path.write_bytes

    def full(path, data):
        if path.name == "weights.safetensors":
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ExportError, match="No space left"):
        export_go(model, target)
    assert {p: p.read_bytes() for p in target.rglob("*") if p.is_file()} == before
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(ExportError, match="is a file, not a folder"):
        folder.write(target / "mine.go", {})


def test_a_warning_handler_runs_when_the_weights_are_free(tmp_path):
    from pytorch_bridge import constant

    x = TensorType("float32", (None,))("x")
    w = constant(torch.randn(300, 300))
    go = (export_go((x, ops.std(x) + w), tmp_path / "net") / "forward_gen.go").read_text()
    # What is deferred first is done last.
    assert go.index("defer call.Warn()") < go.index(".Use(op") < go.index(".Done()")


def test_files_of_the_user_are_never_taken_for_generated_ones(tmp_path, monkeypatch):
    from safetensors.torch import save_file

    target = tmp_path / "net"
    generated = {"doc.go": f"// {folder.MARK}\n".encode(), "testdata/golden.safetensors": b""}
    folder.write(target, generated)
    save_file({"x": torch.ones(1)}, target / "learned.safetensors")  # without metadata
    (target / "list.safetensors").write_bytes((2).to_bytes(8, "little") + b"[]")
    (target / "README.md").write_text(f"doc.go says\n{folder.MARK}\n")
    (target / "ops_gen.go").write_text("// Code generated by pytorch_bridge; DO NOT EDIT.\n")
    (target / "sub").mkdir()
    mine = {p.name for p in target.iterdir()} - {"doc.go"}
    (target / "testdata/golden.safetensors").unlink()
    folder.write(target, generated)
    assert {p.name for p in target.iterdir()} == mine | {"doc.go"}

    # Whoever interrupts the export in its last moment still has them.
    rename = Path.rename

    def interrupted(path, to):
        if path.name == "new":
            raise KeyboardInterrupt
        return rename(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupted)
        (target / "testdata/golden.safetensors").unlink()
        folder.write(target, generated)  # in one step of the system
        patch.setattr(atomic_files, "_exchange", lambda a, b: False)
        (target / "testdata/golden.safetensors").unlink()
        with pytest.raises(KeyboardInterrupt):
            folder.write(target, generated)
    assert {p.name for p in target.iterdir()} == mine | {"doc.go"}
    assert list(tmp_path.iterdir()) == [target]

    monkeypatch.chdir(target / "sub")
    with pytest.raises(ExportError, match="is the current folder, or has it in it"):
        folder.write(target, generated)
    monkeypatch.undo()
    (target / "testdata").rmdir()
    (target / "testdata").symlink_to(target / "sub")
    with pytest.raises(ExportError, match="testdata is a link"):
        folder.write(target, generated)


def test_the_same_model_gives_the_same_package(tmp_path, models):
    model = exported(models["mlp"], torch.randn(2, 20), **batch())
    texts = []
    for name in ("a", "b"):
        path = export_go(model, tmp_path / name, package="net", example=[torch.ones(2, 20)])
        texts.append({p.name: p.read_bytes() for p in path.rglob("*") if p.is_file()})
    assert texts[0] == texts[1]


def test_the_command(tmp_path, capsys, models):
    from pytorch_bridge.cli import main

    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(models["mlp"], (torch.randn(2, 20),)), path)
    assert main(["export", str(path), "--go", str(tmp_path / "net"), "--package", "digits"]) == 0
    assert "package digits" in (tmp_path / "net/forward_gen.go").read_text()
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path}/net")

    (tmp_path / "short.pt2").write_bytes(path.read_bytes()[:1000])
    (tmp_path / "text.pt2").write_text("no model")
    for name, said in (
        ("none.pt2", "does not exist"),
        ("net", "is a folder"),
        ("short.pt2", "damaged"),
        ("text.pt2", "is no exported program"),
    ):
        assert main(["export", str(tmp_path / name), "--go", str(tmp_path / "other")]) == 1
        error = capsys.readouterr().err
        assert said in error
        assert "Traceback" not in error
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "module",
    ["", "x;y", "a b", "/x", "x/", "a//b", ".x", "x./y", "-x", "example.com/x/v1", "é", "x\ny", 3],
)
def test_a_module_that_go_would_refuse_is_refused_before_anything_is_done(module, tmp_path):
    x = TensorType("float32", (None,))("x")
    with pytest.raises((BridgeValueError, BridgeTypeError), match="export_go: module"):
        export_go(([x], [ops.exp(x)]), tmp_path / "net", module=module)
    assert not (tmp_path / "net").exists()
