"""The Go library computes what PyTorch computes, to the last bit.

tests/parity is a Go program with a case for each function here that is marked with `case`; both
get the same inputs, and write what is compared. Layers start from the same seed, so that initial
values and dropout masks are compared too.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, TensorDataset

from pytorch_bridge.native import versions
from pytorch_bridge.native.toolchain import build_dir
from pytorch_bridge.testing.gotests import run_go

Tensors = dict[str, Tensor]
Case = Callable[[Tensors, Path], Tensors]

inputs: dict[str, Callable[[], Tensors]] = {}
cases: dict[str, Case] = {}


def nothing() -> Tensors:
    return {}


def case(name: str, given: Callable[[], Tensors] = nothing) -> Callable[[Case], Case]:
    def register(function: Case) -> Case:
        inputs[name], cases[name] = given, function
        return function

    return register


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed))


# Layers ----------------------------------------------------------------------------------------

layers: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(5, 3),
    "linear_no_bias": lambda: nn.Linear(5, 3, bias=False),
    "linear_float64": lambda: nn.Linear(5, 3, dtype=torch.float64),
    "conv": lambda: nn.Conv2d(4, 6, 3),
    "conv_pairs": lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
    "conv_groups": lambda: nn.Conv2d(4, 6, 3, groups=2, bias=False),
    "conv_same": lambda: nn.Conv2d(4, 6, (4, 3), padding="same", dilation=(1, 2)),
    "conv_reflect": lambda: nn.Conv2d(4, 6, 3, padding=(2, 1), padding_mode="reflect"),
    "conv_circular_same": lambda: nn.Conv2d(4, 6, (4, 3), padding="same", padding_mode="circular"),
    "conv_replicate": lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="replicate"),
    "max_pool": lambda: nn.MaxPool2d(2),
    "max_pool_options": lambda: nn.MaxPool2d(
        (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), ceil_mode=True
    ),
    "relu": lambda: nn.ReLU(),
    "flatten": lambda: nn.Flatten(),
    "flatten_dims": lambda: nn.Flatten(0, 1),
    "dropout": lambda: nn.Dropout(0.3),
    "batch_norm": lambda: nn.BatchNorm2d(4),
    "batch_norm_no_bias": lambda: nn.BatchNorm2d(4, bias=False, eps=1e-3, momentum=0.0),
    "batch_norm_cumulative": lambda: nn.BatchNorm2d(4, momentum=None, affine=False),
    "batch_norm_untracked": lambda: nn.BatchNorm2d(4, track_running_stats=False, momentum=0.3),
    "sequential": lambda: nn.Sequential(
        nn.Conv2d(4, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5, inplace=True),
        nn.Linear(72, 3),
    ),
}


def layer_inputs(name: str) -> Tensors:
    shape = (6, 5) if name.startswith("linear") else (2, 4, 8, 8)
    dtype = torch.float64 if name.endswith("float64") else torch.float32
    return {f"x{i}": randn(*shape, seed=i).to(dtype) for i in range(2)}


def layer_case(make: Callable[[], nn.Module]) -> Case:
    """Trains for two batches and evaluates one: outputs, gradients and state."""

    def run(given: Tensors, _: Path) -> Tensors:
        torch.manual_seed(7)
        layer, out = make(), {}
        for i in range(2):
            x = given[f"x{i}"].requires_grad_()
            y = layer(x * 1)
            (y * y.detach().cos()).sum().backward()
            out[f"y{i}"], out[f"dx{i}"] = y.detach(), x.grad
        layer.eval()
        out["evaluated"] = layer(given["x0"]).detach()
        out |= {f"grad.{name}": p.grad for name, p in layer.named_parameters()}
        out |= {f"state.{name}": t for name, t in layer.state_dict().items()}
        return out

    return run


for name, make in layers.items():
    case(f"layer_{name}", lambda name=name: layer_inputs(name))(layer_case(make))


@case("init")
def init(_: Tensors, __: Path) -> Tensors:
    torch.manual_seed(3)
    i, empty = nn.init, torch.empty
    out = {
        "uniform": i.uniform_(empty(5, 7)),
        "uniform_bounds": i.uniform_(empty(5, 7), -2, 0),
        "normal": i.normal_(empty(5, 7), 1, 3),
        "trunc_normal": i.trunc_normal_(empty(20, 30)),
        "trunc_normal_narrow": i.trunc_normal_(empty(20, 30), 0.5, 2.0, -0.1, 0.4),
        "constant": i.constant_(empty(3), 2.5),
        "ones": i.ones_(empty(3)),
        "zeros": i.zeros_(empty(3)),
        "eye": i.eye_(empty(3, 5)),
        "dirac3": i.dirac_(empty(4, 3, 5)),
        "dirac4": i.dirac_(empty(6, 2, 3, 4), groups=3),
        "dirac5": i.dirac_(empty(2, 3, 3, 3, 3)),
        "xavier_uniform": i.xavier_uniform_(empty(5, 7, 3), gain=1.5),
        "xavier_normal": i.xavier_normal_(empty(5, 7)),
        "kaiming_uniform": i.kaiming_uniform_(empty(5, 7, 3, 3)),
        "kaiming_uniform_out": i.kaiming_uniform_(empty(5, 7), mode="fan_out", nonlinearity="relu"),
        "kaiming_normal": i.kaiming_normal_(empty(5, 7), a=0.2),
        "orthogonal_tall": i.orthogonal_(empty(7, 4)),
        "orthogonal_wide": i.orthogonal_(empty(3, 2, 5), gain=2),
        "sparse": i.sparse_(empty(10, 6), 0.35),
        "generator": i.kaiming_normal_(empty(5, 7), generator=generator(11)),
    }
    gain = i.calculate_gain
    gains = [gain("linear"), gain("sigmoid"), gain("tanh"), gain("relu"), gain("leaky_relu")]
    gains += [gain("leaky_relu", 0.2), gain("selu")]
    return out | {"gains": torch.tensor(gains, dtype=torch.float64)}


# Functions -------------------------------------------------------------------------------------


def functional_inputs() -> Tensors:
    shapes = {"x": (2, 4, 6, 6), "weight": (3, 4, 3, 3), "bias": (3,), "square": (5, 6)}
    shapes |= {"row": (5,), "mean": (4,), "var": (4,)}
    given = {name: randn(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    return given | {"var": given["var"].square() + 0.1}


@case("functional", functional_inputs)
def functional(given: Tensors, _: Path) -> Tensors:
    x, mean, var = given["x"], given["mean"].clone(), given["var"].clone()
    torch.manual_seed(5)
    largest, indices = F.max_pool2d(x, 2, stride=1, return_indices=True)
    return {
        "linear": F.linear(x, given["square"], given["row"]),
        "conv": F.conv2d(x, given["weight"], given["bias"], padding=1),
        "pad": F.pad(x, [1, 2], value=3),
        "pad_reflect": F.pad(x, [1, 2, 2, 1], mode="reflect"),
        "max_pool": F.max_pool2d(x, 2),
        "largest": largest,
        "indices": indices,
        "relu": F.relu(x),
        "dropout": F.dropout(x, 0.4),
        "dropout_off": F.dropout(x, 0.4, training=False),
        "batch_norm": F.batch_norm(x, mean, var, training=True, momentum=0.25),
        "running_mean": mean,
        "running_var": var,
        "batch_norm_eval": F.batch_norm(x, given["mean"], given["var"], eps=0.5),
        "softmax": F.softmax(x, 1),
        "log_softmax": F.log_softmax(x, -1, dtype=torch.float64),
    }


def loss_inputs() -> Tensors:
    return {
        "scores": randn(6, 5),
        "classes": torch.tensor([0, 2, 1, 4, 2, 3]),
        "probabilities": randn(6, 5, seed=1).softmax(1),
        "weight": torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0]),
    }


@case("losses", loss_inputs)
def losses(given: Tensors, _: Path) -> Tensors:
    scores, classes, probabilities, weight = (given[k] for k in loss_inputs())
    out = {}
    for reduction in ["mean", "sum", "none"]:
        out |= {
            f"cross_entropy.{reduction}": F.cross_entropy(scores, classes, reduction=reduction),
            f"cross_entropy_weight.{reduction}": F.cross_entropy(
                scores,
                classes,
                weight=weight,
                ignore_index=2,
                label_smoothing=0.1,
                reduction=reduction,
            ),
            f"cross_entropy_probabilities.{reduction}": F.cross_entropy(
                scores, probabilities, label_smoothing=0.2, reduction=reduction
            ),
            f"nll.{reduction}": F.nll_loss(
                scores.log_softmax(1), classes, weight, ignore_index=0, reduction=reduction
            ),
            f"mse.{reduction}": F.mse_loss(scores, probabilities, reduction=reduction),
            f"mse_weight.{reduction}": F.mse_loss(
                scores, probabilities, reduction=reduction, weight=scores.abs()
            ),
        }
    loss = nn.CrossEntropyLoss(weight=weight, label_smoothing=0.1)
    return out | {"module": loss(scores, classes)}


# Optimisers ------------------------------------------------------------------------------------

SGD, Adam, AdamW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
optimizers: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "sgd": lambda p: SGD(p),
    "sgd_momentum": lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.25),
    "sgd_nesterov": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd_maximize": lambda p: SGD(p, lr=0.1, momentum=0.5, maximize=True, weight_decay=0.1),
    "sgd_fused": lambda p: SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, fused=True),
    "sgd_fused_plain": lambda p: SGD(p, lr=0.1, fused=True, maximize=True),
    "adam": lambda p: Adam(p),
    "adam_decay": lambda p: Adam(p, lr=0.01, weight_decay=0.1, betas=(0.8, 0.95), eps=1e-5),
    "adam_amsgrad": lambda p: Adam(p, lr=0.01, amsgrad=True, maximize=True),
    "adam_fused": lambda p: Adam(p, lr=0.01, weight_decay=0.1, fused=True),
    "adamw": lambda p: AdamW(p),
    "adamw_zero": lambda p: AdamW(p, lr=0.01, weight_decay=0.0, betas=(0.0, 0.5)),
    "adamw_amsgrad": lambda p: AdamW(p, lr=0.01, amsgrad=True, maximize=True, weight_decay=0.2),
    "adamw_fused": lambda p: AdamW(p, lr=0.01, amsgrad=True, fused=True),
    "sgd_groups": lambda p: with_group(
        SGD(p[:1], lr=0.1, momentum=0.9), {"params": p[1:], "lr": 0.01}
    ),
}


def with_group(optimizer: torch.optim.Optimizer, group: dict) -> torch.optim.Optimizer:
    """The optimizer with one more group, whose other options are the constructor's."""
    optimizer.add_param_group(group)
    return optimizer


STEPS = 30


def optim_inputs(complex: bool = True) -> Tensors:
    """Parameters of some sizes and dtypes, and their gradients."""
    params = {(7, 5): torch.float32, (40,): torch.float32, (3, 4): torch.float64}
    params |= {(2, 3): torch.float32, (33,): torch.float16, (34,): torch.bfloat16}
    params |= {(4,): torch.complex64} if complex else {}
    given = {}
    for i, (shape, dtype) in enumerate(params.items()):
        draw = torch.complex64 if dtype.is_complex else torch.float32
        given[f"p{i}"] = torch.randn(shape, generator=generator(i), dtype=draw).to(dtype)
        for step in range(STEPS):
            seed = generator(100 * (i + 1) + step)
            given[f"g{i}.{step}"] = torch.randn(shape, generator=seed, dtype=draw).to(dtype)
    return given


def optim_case(make: Callable[[list[Tensor]], torch.optim.Optimizer], late: bool) -> Case:
    """Makes steps by given gradients, where one parameter may get its first one late."""

    def run(given: Tensors, _: Path) -> Tensors:
        params = [t.requires_grad_() for name, t in given.items() if name[0] == "p"]
        opt = make(params)
        for step in range(STEPS):
            opt.zero_grad()
            for i, p in enumerate(params):
                if i != 3 or not late or step >= 5:
                    p.grad = given[f"g{i}.{step}"]
            opt.step()
            for group in opt.param_groups:
                group["lr"] *= 0.97
        return {f"p{i}": p.detach() for i, p in enumerate(params)}

    return run


for name, make in optimizers.items():
    # PyTorch's fused SGD fails on a gradient that comes late.
    late = not name.startswith("sgd_fused")
    given = functools.partial(optim_inputs, complex="fused" not in name)
    case(f"optim_{name}", given)(optim_case(make, late))


resumable = {
    "sgd": lambda p: SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: AdamW(p, lr=0.1, amsgrad=True),
    "adamw_fused": lambda p: AdamW(p, lr=0.1, fused=True),
}


def train_a_bit(model: nn.Module, opt: torch.optim.Optimizer, x: Tensor, steps: int) -> None:
    for _ in range(steps):
        opt.zero_grad()
        model(x).pow(2).mean().backward()
        opt.step()


def resume_inputs() -> Tensors:
    return {"x": randn(4, 3)}


@case("optim_from_python", resume_inputs)
def optim_from_python(given: Tensors, folder: Path) -> Tensors:
    """Python trains, Go goes on."""
    out = {}
    for name, make in resumable.items():
        torch.manual_seed(2)
        model = nn.Linear(3, 2)
        opt = make(model.parameters())
        train_a_bit(model, opt, given["x"], 5)
        torch.save(model.state_dict(), folder / f"{name}_from_python.model.pt")
        torch.save(opt.state_dict(), folder / f"{name}_from_python.opt.pt")
        train_a_bit(model, opt, given["x"], 5)
        out[name] = model.weight.detach()
    return out


@case("optim_to_python", resume_inputs)
def optim_to_python(given: Tensors, folder: Path) -> Tensors:
    """Go trains, Python goes on. This runs after the Go program."""
    out = {}
    for name, make in resumable.items():
        model = nn.Linear(3, 2)
        opt = make(model.parameters())
        model.load_state_dict(torch.load(folder / f"{name}_to_python.model.pt"))
        opt.load_state_dict(torch.load(folder / f"{name}_to_python.opt.pt"))
        train_a_bit(model, opt, given["x"], 5)
        out[name] = model.weight.detach()
    return out


# Training --------------------------------------------------------------------------------------


def digits() -> Tensors:
    labels = torch.randint(10, (30,), generator=generator(1))
    return {"images": randn(30, 1, 12, 12), "labels": labels}


@case("train_cnn", digits)
def train_cnn(given: Tensors, _: Path) -> Tensors:
    """Weights, batches and dropout masks all come from the one seed."""
    torch.manual_seed(42)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(8 * 5 * 5, 10),
    )
    opt = AdamW(model.parameters(), lr=0.01)
    dataset = TensorDataset(given["images"], given["labels"])
    batches = DataLoader(dataset, batch_size=8, shuffle=True)
    history = []
    for _ in range(3):
        for x, y in batches:
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            history.append(loss.detach())
    return {**model.state_dict(), "losses": torch.stack(history)}


@case("loader")
def loader(_: Tensors, __: Path) -> Tensors:
    out = {}
    for name, options in {
        "plain": {"batch_size": 5},
        "drop": {"batch_size": 5, "drop_last": True},
        "one": {},
        "seeded": {"batch_size": 4, "shuffle": True, "generator": generator(42)},
        "workers": {"batch_size": 4, "shuffle": True, "generator": generator(42)},
        "default": {"batch_size": 4, "shuffle": True},
    }.items():
        torch.manual_seed(9)
        batches = DataLoader(torch.arange(23), **options)
        for epoch in range(2):
            out |= {f"{name}.{epoch}.{i}": batch for i, batch in enumerate(batches)}
    return out


# Names and texts -------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.steps = nn.Sequential(nn.Linear(2, 2), nn.ReLU())


Block.__name__ = "block"  # as the Go type


class Net(nn.Module):
    """The double of Go's net."""

    def __init__(self, weights: bool = True) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 3)
        self.fc = nn.Linear(4, 3)
        self.blocks = nn.ModuleList([Block(), Block()])
        heads = {"a": nn.Linear(2, 1), "b": nn.Linear(2, 1, bias=False)}
        self.heads = nn.ModuleDict(heads)
        self.scale = nn.Parameter(torch.rand(3))
        if weights:
            self.weights = nn.ParameterList([torch.rand(2), torch.rand(1)])
        self.register_buffer("mean", torch.rand(3))
        self.register_buffer("cache", torch.rand(3), persistent=False)
        self.downsample = nn.Linear(1, 1)
        self.tied = self.downsample


Net.__name__ = "net"


@case("names")
def names(_: Tensors, folder: Path) -> Tensors:
    torch.manual_seed(1)
    net = Net()
    wanted = [f"parameter {name}" for name, _ in net.named_parameters()]
    wanted += [f"buffer {name}" for name, _ in net.named_buffers()]
    assert sorted((folder / "names.txt").read_text().splitlines()) == sorted(wanted)
    return dict(net.state_dict())


@case("state_from_python")
def state_from_python(_: Tensors, folder: Path) -> Tensors:
    torch.manual_seed(4)
    state = Net().state_dict()
    unshared = {name: t.clone() for name, t in state.items()}
    save_file(unshared, folder / "from_python.safetensors")
    torch.save(state, folder / "from_python.pt")
    return {f"{e}.{name}": t for e in ["safetensors", "pt"] for name, t in state.items()}


@case("state_to_python")
def state_to_python(_: Tensors, folder: Path) -> Tensors:
    a, b = Net(), Net()
    a.load_state_dict(load_file(folder / "to_python.safetensors"))
    saved = torch.load(folder / "to_python.pt")
    b.load_state_dict(saved)
    assert all(torch.equal(t, b.state_dict()[name]) for name, t in a.state_dict().items())
    return dict(a.state_dict())


@case("repr")
def representation(_: Tensors, folder: Path) -> Tensors:
    modules = [layers[name]() for name in sorted(layers)]
    modules += [Net(weights=False), nn.CrossEntropyLoss()]
    assert (folder / "repr.txt").read_text() == "\n".join(map(str, modules))
    return {}


# Cases of more.go -------------------------------------------------------------------------------


@case("containers")
def containers(_: Tensors, folder: Path) -> Tensors:
    torch.manual_seed(4)
    of = nn.ModuleList([nn.Linear(2, 3), nn.ReLU()])
    of.append(nn.Linear(3, 1))
    of.insert(1, nn.BatchNorm1d(3))
    named_modules = nn.ModuleDict({"z": nn.Linear(1, 2), "a": of, "gone": nn.Linear(9, 9)})
    named_modules["z"] = nn.Linear(2, 2, bias=False)
    del named_modules["gone"]
    parameters = nn.ParameterList([torch.rand(2), torch.rand(3, 1, dtype=torch.float64)])
    parameters.append(torch.rand(()))
    named = nn.ParameterDict()  # which sorts what its constructor gets
    for name, shape in (("w", (2, 3)), ("b", (3,)), ("w", (1,))):
        named[name] = torch.rand(shape)
    every = nn.ModuleDict({"dict": named_modules, "stored": parameters, "named": named})
    empty = [nn.ModuleList(), nn.ModuleDict(), nn.ParameterList(), nn.ParameterDict()]
    lines = [str(m) for m in (of, named_modules, parameters, named, every, *empty)]
    lines += [name for name, _ in every.named_parameters()]
    lines += [f"module {name}" for name, _ in every.named_modules()]
    lines += [f"key {name}" for name in named_modules]
    lines += [f"{len(of)} {len(named_modules)} {len(parameters)} {len(named)}"]
    assert (folder / "containers.txt").read_text() == "\n".join(lines)
    return dict(every.state_dict())


def of_lengths() -> Tensors:
    lengths = {"sorted": [7, 4, 4, 1], "mixed": [3, 8, 1, 5, 3], "one": [6]}
    found = {"permutation": torch.tensor([3, 0, 4, 1, 2])}
    for name, ns in lengths.items():
        found |= {f"{name}.{i}": randn(n, 2, seed=n) for i, n in enumerate(ns)}
    return found


@case("sequences", of_lengths)
def sequences(given: Tensors, _: Path) -> Tensors:
    rnn = nn.utils.rnn
    out: Tensors = {}

    def packed(name: str, p: rnn.PackedSequence) -> None:
        out[f"{name}.data"], out[f"{name}.batch_sizes"] = p.data, p.batch_sizes
        if p.sorted_indices is not None:
            out[f"{name}.sorted"], out[f"{name}.unsorted"] = p.sorted_indices, p.unsorted_indices
        for first in (False, True):
            padded, lengths = rnn.pad_packed_sequence(
                p, batch_first=first, padding_value=-1.5, total_length=9
            )
            at = f"{name}.{str(first).lower()}"
            out[f"{at}.padded"], out[f"{at}.lengths"] = padded, lengths
        out.update({f"{name}.unpacked.{i}": s for i, s in enumerate(rnn.unpack_sequence(p))})

    for name in ("sorted", "mixed", "one"):
        seqs = [given[f"{name}.{i}"] for i in range(9) if f"{name}.{i}" in given]
        ordered = name != "mixed"
        packed(f"{name}.pack", rnn.pack_sequence(seqs, enforce_sorted=ordered))
        for first in (False, True):
            at = f"{name}.{str(first).lower()}"
            padded = rnn.pad_sequence(seqs, batch_first=first, padding_value=2)
            out[f"{at}.right"] = padded
            out[f"{at}.left"] = rnn.pad_sequence(seqs, batch_first=first, padding_side="left")
            n = torch.tensor([len(s) for s in seqs])
            # It transposes what it is given, in place.
            unpadded = rnn.unpad_sequence(padded.clone(), n, batch_first=first)
            out.update({f"{at}.unpad.{i}": s for i, s in enumerate(unpadded)})
            of = rnn.pack_padded_sequence(padded, n, batch_first=first, enforce_sorted=ordered)
            packed(f"{at}.of", of)
    out["inverse"] = rnn.invert_permutation(given["permutation"])
    return out


def of_functions() -> Tensors:
    shapes = {"x": (5, 3), "tangent": (5, 3), "weight": (4, 3), "bias": (2,), "mean": (4,)}
    return {name: randn(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}


@case("functions", of_functions)
def functions(given: Tensors, _: Path) -> Tensors:
    out: Tensors = {}
    torch.manual_seed(6)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))
    other = {
        "0.weight": given["weight"].clone().requires_grad_(),
        "3.bias": given["bias"].clone().requires_grad_(),
        "1.running_mean": given["mean"].clone(),
    }
    y = torch.func.functional_call(net, other, given["x"])
    y.pow(2).sum().backward()
    out["called"] = y.detach()
    for name, t in other.items():
        out[f"given.{name}"] = t.detach()
        if t.grad is not None:
            out[f"grad.{name}"] = t.grad
    out |= {f"own.{name}": t for name, t in net.state_dict().items()}
    out["own.grad"] = list(net.parameters())[1].grad

    value, jvp = torch.func.linearize(lambda x: (x.sin() * x).cumsum(0), given["x"])
    out["linear.value"] = value
    out["linear.one"], out["linear.two"] = jvp(given["tangent"]), jvp(given["tangent"] * -2)

    torch.manual_seed(7)
    drop = nn.Sequential(
        nn.Linear(3, 8), nn.Dropout(0.5), nn.GELU(), nn.Linear(8, 2), nn.Dropout(0.2)
    )
    x = given["x"].clone().requires_grad_()
    again = checkpoint(drop, x, use_reentrant=False)
    out["checkpoint"] = again.detach()
    again.pow(2).sum().backward()
    out["checkpoint.x"] = x.grad
    out |= {f"checkpoint.{name}": p.grad for name, p in drop.named_parameters()}
    out["checkpoint.random"] = torch.rand(2)

    torch.manual_seed(8)
    parts = [nn.Linear(3, 3), nn.Dropout(0.3), nn.Tanh(), nn.Linear(3, 3), nn.Dropout(0.3)]
    x = given["x"].clone().requires_grad_()
    row = checkpoint_sequential(parts, 2, x, use_reentrant=False)
    row.sum().backward()
    out["segments"], out["segments.x"] = row.detach(), x.grad

    for bound in (0, 0.3, 100):
        p, without = given["x"].clone().requires_grad_(), given["bias"].clone().requires_grad_()
        p.grad = given["tangent"].clone()
        nn.utils.clip_grad_value_([p, without], bound)
        out[f"clipped.{bound}"] = p.grad
    return out


# The comparison --------------------------------------------------------------------------------

BEFORE_GO = {"state_from_python", "optim_from_python"}
"""Cases whose Python side leaves files for Go; the others may read what Go has left."""

OLDER = not torch.__version__.startswith(versions.REFERENCE_TORCH)
NEW = {"init", "repr", "layer_batch_norm_no_bias"} if OLDER else set()
"""Cases in which older versions of PyTorch draw other numbers, or lack an option."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(library, one_thread, tmp_path_factory) -> Path:
    """Where the Go program has been through all cases."""
    folder = tmp_path_factory.mktemp("parity")
    for name, given in inputs.items():
        save_file(given(), folder / f"{name}.in.safetensors")
    for name in sorted(BEFORE_GO):
        torch.save(cases[name](inputs[name](), folder), folder / f"{name}.want.pt")
    program = build_dir() / "bin/parity"
    built = run_go("build", "-buildvcs=false", "-o", str(program), "./tests/parity")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_case_is_there_in_both_languages(folder: Path) -> None:
    assert (folder / "cases.txt").read_text().splitlines() == sorted(cases)


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", sorted(cases))
def test_go_computes_what_pytorch_computes(name: str, folder: Path) -> None:
    error = folder / f"{name}.error"
    assert not error.exists(), error.read_text()
    if name in NEW:
        pytest.skip(f"torch {torch.__version__} differs from {versions.REFERENCE_TORCH} here")
    got = load_file(folder / f"{name}.out.safetensors")
    if name in BEFORE_GO:
        want = torch.load(folder / f"{name}.want.pt")
    else:
        want = cases[name](inputs[name](), folder)
    assert sorted(got) == sorted(want)
    for key, value in want.items():
        assert got[key].dtype == value.dtype, key
        assert got[key].shape == value.shape, key
        torch.testing.assert_close(
            got[key], value, rtol=0, atol=0, equal_nan=True, msg=lambda m, k=key: f"{k}: {m}"
        )
