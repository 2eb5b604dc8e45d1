"""Event files of package tensorboard, as TensorBoard itself reads them.

The same calls are made with torch.utils.tensorboard, at random by the hundred, and what its files have
must be in those of Go: every field of every summary but the time.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

pytest.importorskip("tensorboard", reason="which reads what is written")
np = pytest.importorskip("numpy")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from tensorboard.compat.proto import event_pb2, graph_pb2  # noqa: E402
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import (  # noqa: E402
    PyRecordReader_New,
)
from tensorboard.plugins.hparams import plugin_data_pb2  # noqa: E402
from torch.utils.tensorboard import SummaryWriter  # noqa: E402

FULL = os.environ.get("CONFORMANCE") == "full"

# Public methods of SummaryWriter that have another name in Go, or none.
OTHERS = {
    "add_hparams": "AddHParams",
    "add_pr_curve": "AddPRCurve",
    "add_pr_curve_raw": "AddPRCurveRaw",
    "get_logdir": "LogDir",
    "add_image_with_boxes": None,  # draw the boxes onto the picture, then AddFigure or AddImage
    "add_onnx_graph": None,  # of files of ONNX, which gotorch has no reader for
}


def test_every_method_of_summary_writer_is_in_go():
    api = (ROOT / "gotorch/testdata/api.txt").read_text()
    for name in dir(SummaryWriter):
        if name.startswith("_"):
            continue
        go = OTHERS.get(name, "".join(part.capitalize() for part in name.split("_")))
        if go is not None:
            assert f"gotorch/train/tensorboard: func (*SummaryWriter) {go}(" in api, name


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tensorboard") / "calls"
    built = run_go("build", "-o", str(path), "./tests/tensorboard")
    assert built.returncode == 0, built.stderr
    return path


def events(folder: Path, cut: bool = False) -> dict[str, list[event_pb2.Event]]:
    """The events of each folder below, in order; every record's checksums are looked at."""
    found: dict[str, list[event_pb2.Event]] = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        reader, read = (
            PyRecordReader_New(str(path)),
            found.setdefault(str(path.parent.relative_to(folder)), []),
        )
        while True:
            try:
                reader.GetNext()
            except IndexError:  # what it raises at the end
                break
            except Exception as e:
                truncated = "truncated" in str(e)
                if (
                    truncated
                    if not cut
                    else type(e).__name__ not in ("OutOfRangeError", "DataLossError")
                ):
                    raise
                if not truncated and type(e).__name__ != "OutOfRangeError":
                    raise
                break
            read.append(event_pb2.Event.FromString(reader.record()))
    return found


class Draw:
    """Calls at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.torch = torch.Generator().manual_seed(seed)

    def tensor(self, *shape: int, low: float = -3, high: float = 3) -> torch.Tensor:
        t = torch.rand(shape, generator=self.torch, dtype=torch.float64) * (high - low) + low
        dtype = self.rng.choice([torch.float32, torch.float64, torch.float16, torch.float32])
        return t.to(dtype)

    def size(self) -> int:
        return self.rng.choice([1, 1, 2, 3, 5, 17, 130, 1000])

    def tag(self) -> str:
        return self.rng.choice(["loss", "a/b", "Ünïcode ✓", "with space", "x" * 200, ""])

    def scalar(self) -> dict[str, Any]:
        value = self.rng.choice(
            [0.0, -0.0, 1.5, 1e300, -1e-300, float("inf"), float("nan"), self.rng.gauss(0, 1)]
        )
        new = self.rng.random() < 0.3
        return {"method": "add_scalar", "tag": self.tag(), "scalar_value": value, "new_style": new, "double_precision": new and self.rng.random() < 0.5,
                **({"walltime": 1234567.0} if self.rng.random() < 0.2 else {})}  # fmt: skip

    def scalars(self) -> dict[str, Any]:
        names = self.rng.sample(["a", "b", "c d", "é"], self.rng.randrange(1, 4))
        return {
            "method": "add_scalars",
            "main_tag": self.rng.choice(["m", "m/n"]),
            "tag_scalar_dict": {n: self.rng.gauss(0, 1) for n in names},
        }

    def tensor_(self) -> dict[str, Any]:
        dtype = self.rng.choice([torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32,
                                 torch.int64, torch.uint8, torch.bool, torch.complex64, torch.complex128])  # fmt: skip
        shape = self.rng.choice([(), (0,), (3,), (2, 3), (1, 0, 2), (2, 1, 3)])
        t = (torch.randn(shape, generator=self.torch) * 50).to(dtype)
        return {"method": "add_tensor", "tag": self.tag(), "tensor": t.t() if t.dim() == 2 else t}

    def histogram(self) -> dict[str, Any]:
        n, kind = self.size(), self.rng.randrange(8)
        values = torch.randn(n, generator=self.torch, dtype=torch.float64)
        if kind == 0:
            values = values * 10 ** self.rng.uniform(-14, 22)
        elif kind == 1:
            values = torch.zeros(n, dtype=torch.float64)
        elif kind == 2:
            values = values.round().to(torch.int64)
        elif kind == 3:
            values[0] = self.rng.choice(
                [float("inf"), float("-inf"), float("nan"), 1e-12, 1e25, -1e-12]
            )
        elif kind == 4:
            values = (values > 0) if self.rng.random() < 0.5 else values.reshape(-1, 1).float()
        elif kind == 5:
            values = values[:0]
        options: dict[str, Any] = {}
        if self.rng.random() < 0.4:
            options["bins"] = sorted(
                self.rng.choice([self.rng.gauss(0, 1), float(self.rng.randrange(-3, 4))])
                for _ in range(self.rng.randrange(2, 30))
            )
        if self.rng.random() < 0.3:
            options["max_bins"] = self.rng.choice([1, 2, 7, 30, 5000])
        return {"method": "add_histogram", "tag": self.tag(), "values": values, **options}

    def histogram_raw(self) -> dict[str, Any]:
        n = self.rng.randrange(0, 5)
        return {"method": "add_histogram_raw", "tag": self.tag(), "min": -1.0, "max": 2.5, "num": 9.0, "sum": 3.0, "sum_squares": 0.0,
                "bucket_limits": [float(i) for i in range(n)], "bucket_counts": [float(i % 3) for i in range(n + (self.rng.random() < 0.1))]}  # fmt: skip

    def image(self) -> dict[str, Any]:
        formats = self.rng.choice(
            ["CHW", "HWC", "HW", "WH", "chw", "NCHW", "NHWC", "CHWN", "CHW", "CHH"]
        )
        sizes = {
            "C": self.rng.choice([1, 3, 3, 4, 2]),
            "H": self.rng.randrange(1, 9),
            "W": self.rng.randrange(1, 9),
            "N": self.rng.choice([1, 3, 9, 17]),
        }
        t = self.tensor(*(sizes[c] for c in formats.upper()), low=-0.2, high=1.2)
        if self.rng.random() < 0.4:
            t = (t * 100 + 50).clamp(0, 255).to(torch.uint8)
        elif self.rng.random() < 0.2:
            t = t > 0.5
        method = "add_images" if len(formats) == 4 else "add_image"
        return {"method": method, "tag": self.tag(), "img_tensor": t, "dataformats": formats}

    def audio(self) -> dict[str, Any]:
        sound = self.tensor(
            *self.rng.choice([(7,), (1, 20), (20, 1), (2, 3), (1000,)]), low=-1.3, high=1.3
        )
        if sound.dtype == torch.float16:  # PyTorch multiplies in 16 bits
            sound = sound.float()
        return {
            "method": "add_audio",
            "tag": self.tag(),
            "snd_tensor": sound,
            "sample_rate": self.rng.choice([8000, 44100]),
        }

    def text(self) -> dict[str, Any]:
        return {
            "method": "add_text",
            "tag": self.tag(),
            "text_string": self.rng.choice(["", "# Title\n\n| a | b |", "ü" * 300, "a\x00b"]),
        }

    def pr_curve(self) -> dict[str, Any]:
        n = self.size()
        predictions = (
            self.tensor(n, low=0, high=1)
            if self.rng.random() < 0.9
            else self.tensor(n, low=-1, high=2)
        )
        if predictions.dtype == torch.float16:
            predictions = predictions.float()
        predictions[0] = self.rng.choice([0.0, 1.0, 0.5])
        options: dict[str, Any] = {}
        if self.rng.random() < 0.5:
            options["num_thresholds"] = self.rng.choice([2, 3, 10, 127, 500])
        if self.rng.random() < 0.3:
            options["weights"] = torch.rand(n, generator=self.torch, dtype=torch.float64)
        labels = (torch.rand(n, generator=self.torch) < 0.5).to(
            self.rng.choice([torch.int64, torch.float32, torch.bool])
        )
        return {
            "method": "add_pr_curve",
            "tag": self.tag(),
            "labels": labels,
            "predictions": predictions,
            **options,
        }

    def pr_curve_raw(self) -> dict[str, Any]:
        n = self.rng.choice([1, 5, 127])
        rows = {k: [self.rng.random() for _ in range(n)] for k in (
            "true_positive_counts", "false_positive_counts", "true_negative_counts", "false_negative_counts", "precision", "recall")}  # fmt: skip
        return {
            "method": "add_pr_curve_raw",
            "tag": self.tag(),
            **rows,
            "num_thresholds": self.rng.choice([n, 127, 200]),
        }

    def mesh(self) -> dict[str, Any]:
        b, n = self.rng.randrange(1, 3), self.rng.randrange(1, 6)
        call: dict[str, Any] = {
            "method": "add_mesh",
            "tag": self.tag(),
            "vertices": torch.rand(b, n, 3, generator=self.torch),
        }
        if self.rng.random() < 0.5:
            call["colors"] = torch.randint(256, (b, n, 3), generator=self.torch)
        if self.rng.random() < 0.5:
            call["faces"] = torch.randint(n, (b, 4, 3), generator=self.torch)
        if self.rng.random() < 0.5:
            call["json"] = json.dumps(
                {"camera": {"cls": "PerspectiveCamera", "fov": 75}}, sort_keys=True
            )
        return call

    def hparams(self) -> dict[str, Any]:
        values = {
            "lr": self.rng.gauss(0, 1),
            "size": self.rng.randrange(100),
            "name": self.rng.choice(["adam", "sgd"]),
        }
        call = {
            "method": "add_hparams",
            "hparam_dict": values,
            "metric_dict": {"hparam/loss": self.rng.gauss(0, 1)},
            "run_name": f"run{self.rng.randrange(10**9)}",
        }
        if self.rng.random() < 0.5:
            call["hparam_domain_discrete"] = {"name": ["adam", "sgd", "lbfgs"], "lr": [0.1, 0.2]}
        return call

    def call(self) -> dict[str, Any]:
        kinds = [self.scalar, self.scalars, self.tensor_, self.histogram, self.histogram, self.histogram_raw, self.image, self.image,
                 self.audio, self.text, self.pr_curve, self.pr_curve_raw, self.mesh, self.hparams]  # fmt: skip
        return {**self.rng.choice(kinds)(), "global_step": self.rng.choice([0, 1, 7, 2**40])}


# What PyTorch refuses because of a library below it, or not at all, and Go always.
def refused(call: dict[str, Any]) -> bool:
    method = call["method"]
    if method in ("add_image", "add_images"):
        formats, shape = call["dataformats"].upper(), call["img_tensor"].shape
        return len(set(formats)) != len(formats) or (
            "C" in formats
            and shape[formats.index("C")] not in ((1, 3) if len(formats) == 4 else (1, 3, 4))
        )
    if method == "add_audio":
        return call["snd_tensor"].squeeze().dim() != 1
    if method == "add_histogram_raw":
        return len(call["bucket_limits"]) != len(call["bucket_counts"])
    if method == "add_histogram":
        v = call["values"].double().flatten().numpy()
        if v.size == 0:
            return True
        bins = call.get("bins") or [-1.1e20, 1.1e20]
        bins = bins if "bins" in call else SummaryWriter_bins()
        return not np.histogram(v, bins=bins)[0].any()
    return False


def SummaryWriter_bins() -> list[float]:
    v, up = 1e-12, []
    while v < 1e20:
        up.append(v)
        v *= 1.1
    return [-x for x in up[::-1]] + [0] + up


def do(writer: SummaryWriter, call: dict[str, Any]) -> None:
    arguments = {k: v for k, v in call.items() if k not in ("method", "refused", "json")}
    if call["method"].startswith("add_custom_scalars"):
        arguments.pop("global_step", None)
    if "json" in call:
        arguments["config_dict"] = json.loads(call["json"])
    if call["method"] == "add_pr_curve" and "weights" in arguments:
        arguments["weights"] = arguments["weights"].numpy()
    if call["method"] == "add_histogram" and "bins" in arguments:
        arguments["bins"] = np.array(arguments["bins"])
    if call["method"] == "add_histogram_raw":
        arguments["num"] = int(arguments["num"])
    getattr(writer, call["method"])(**arguments)


def close(a: float, b: float) -> bool:
    return a == b or (a != a and b != b) or abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def check(ours: event_pb2.Event, theirs: event_pb2.Event) -> None:
    assert ours.step == theirs.step
    assert len(ours.summary.value) == len(theirs.summary.value)
    for a, b in zip(ours.summary.value, theirs.summary.value, strict=True):
        kind = b.WhichOneof("value")
        assert a.WhichOneof("value") == kind, (a, b)
        if kind == "image":
            from PIL import Image

            pixels = [
                np.asarray(Image.open(io.BytesIO(v.image.encoded_image_string)).convert("RGBA"))
                for v in (a, b)
            ]
            assert (pixels[0] == pixels[1]).all()
            a.image.encoded_image_string = b.image.encoded_image_string
        if kind == "histo":
            for name in ("sum", "sum_squares", "min", "max"):
                x, y = getattr(a.histo, name), getattr(b.histo, name)
                assert close(x, y), (name, x, y)
                setattr(a.histo, name, y)
        if kind == "tensor":  # a list of which each may be NaN
            for name in ("float_val", "double_val", "scomplex_val", "dcomplex_val"):
                x, y = getattr(a.tensor, name), getattr(b.tensor, name)
                assert np.array_equal(np.array(x), np.array(y), equal_nan=True), (name, x, y)
                del x[:]
                x.extend(y)
        if a.metadata.plugin_data.plugin_name == "hparams":
            mine, yours = (
                plugin_data_pb2.HParamsPluginData.FromString(v.metadata.plugin_data.content)
                for v in (a, b)
            )
            assert mine == yours
            a.metadata.plugin_data.content = b.metadata.plugin_data.content
        assert a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True), (
            a,
            b,
        )


def test_calls_write_what_torchs_summary_writer_writes(program, tmp_path):
    draw = Draw(1)
    calls = [draw.call() for _ in range(5000 if FULL else 400)]
    calls += [
        {"method": "add_custom_scalars"},
        {"method": "add_custom_scalars_multilinechart", "tags": ["a", "b"], "category": "c"},
        {"method": "add_custom_scalars_marginchart", "tags": ["a", "b", "c"], "title": "t"},
    ]
    theirs = SummaryWriter(str(tmp_path / "python"))
    for call in calls:
        call["refused"] = refused(call)
        if call["refused"]:
            continue
        if call["method"] == "add_custom_scalars":
            theirs.add_custom_scalars({
                "a": {"both": ["Multiline", ["x/1", "x/2"]], "bounds": ["Margin", ["x", "low", "high"]]},
                "b": {"one": ["Multiline", ["y"]]},
            })  # fmt: skip
        else:
            do(theirs, call)
    theirs.close()
    torch.save(calls, tmp_path / "calls.pt")
    ran = subprocess.run(
        [program, tmp_path / "calls.pt", tmp_path / "go"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    ours, theirs_ = events(tmp_path / "go"), events(tmp_path / "python")
    assert ours.keys() == theirs_.keys()
    compared = 0
    for folder in ours:
        a, b = ours[folder], theirs_[folder]
        assert a[0].file_version == b[0].file_version == "brain.Event:2"
        assert len(a) == len(b), folder
        for x, y in zip(a[1:], b[1:], strict=True):
            check(x, y)
            compared += 1
    assert compared > len(calls) * 3 // 4
    times = [e.wall_time for e in ours["."] if e.wall_time < 2e6]
    assert times == [e.wall_time for e in theirs_["."] if e.wall_time < 2e6]
    assert set(times) == {1234567.0}


def test_tensorboard_reads_it_all_back(program, tmp_path):
    calls = [
        {"method": "add_scalar", "tag": "loss", "scalar_value": i / 4, "global_step": i}
        for i in range(50)
    ]
    calls += [
        {"method": "add_histogram", "tag": "h", "values": torch.arange(10.0), "global_step": 3},
        {"method": "add_text", "tag": "t", "text_string": "# words", "global_step": 4},
        {"method": "add_figure", "tag": "f", "global_step": 5},
        {"method": "add_video", "tag": "v", "vid_tensor": torch.rand(3, 6, 3, 8, 4), "global_step": 6},
        {"method": "add_audio", "tag": "s", "snd_tensor": torch.zeros(9), "sample_rate": 8000, "global_step": 7},
        {"method": "add_graph"},
        {"method": "add_embedding", "tag": 'e/"1', "mat": torch.tensor([[1.0, 2.5], [1e-9, -3e20], [0.1, 7.0]]), "metadata": ["a", "b", "ç"],
         "label_img": torch.rand(3, 3, 4, 5), "global_step": 8},
    ]  # fmt: skip
    torch.save(calls, tmp_path / "calls.pt")
    ran = subprocess.run(
        [program, tmp_path / "calls.pt", tmp_path / "go"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    read = EventAccumulator(str(tmp_path / "go"))
    read.Reload()
    tags = read.Tags()
    assert tags["scalars"] == ["loss"]
    assert tags["histograms"] == ["h"]
    assert set(tags["images"]) == {"f", "v"}
    assert tags["audio"] == ["s"]
    assert tags["graph"]
    assert tags["run_metadata"] == ["step1"]
    assert [(e.step, e.value) for e in read.Scalars("loss")] == [(i, i / 4) for i in range(50)]
    assert read.Histograms("h")[0].histogram_value.num == 10
    assert read.Tensors("t/text_summary")[0].tensor_proto.string_val == [b"# words"]

    from PIL import Image

    figure = np.asarray(
        Image.open(io.BytesIO(read.Images("f")[0].encoded_image_string)).convert("RGB")
    )
    assert [list(p) for p in figure.reshape(-1, 3)] == [[10 * i, 5 * i, 7] for i in range(20)]
    video = Image.open(io.BytesIO(read.Images("v")[0].encoded_image_string))
    assert (video.n_frames, video.size, video.info["duration"]) == (6, (12, 8), 100)

    nodes = {
        n.name: n for n in graph_pb2.GraphDef.FromString(read.Graph().SerializeToString()).node
    }
    linear = nodes["Sequential/Sequential[2]/Linear[1]/forward"]
    assert linear.op == "Linear"
    assert list(linear.input) == [
        "Sequential/Sequential[2]/Linear[1]/weight",
        "Sequential/Sequential[2]/Linear[1]/bias",
        "Sequential/Sequential[2]/Flatten[0]/forward",
    ]
    shape = linear.attr["_output_shapes"].list.shape[0]
    assert [d.size for d in shape.dim] == [5, 3]
    assert list(nodes["output/1"].input) == [linear.name]
    assert "input/1" in nodes["Sequential/Conv2d[0]/forward"].input

    from google.protobuf import text_format
    from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

    config = ProjectorConfig()
    text_format.Parse((tmp_path / "go/projector_config.pbtxt").read_text(), config)
    (info,) = config.embeddings
    assert info.tensor_name == 'e/"1:00008'
    points = np.loadtxt(tmp_path / "go" / info.tensor_path, delimiter="\t")
    assert (points.astype(np.float32) == calls[-1]["mat"].numpy()).all()
    assert (tmp_path / "go" / info.metadata_path).read_text(encoding="utf-8") == "a\nb\nç\n"
    assert Image.open(tmp_path / "go" / info.sprite.image_path).size == (10, 10)
    assert list(info.sprite.single_image_dim) == [5, 4]


def test_a_file_that_was_cut_anywhere_reads_up_to_there(program, tmp_path):
    calls = [
        {"method": "add_scalar", "tag": "loss", "scalar_value": float(i), "global_step": i}
        for i in range(20)
    ]
    torch.save(calls, tmp_path / "calls.pt")
    subprocess.run([program, tmp_path / "calls.pt", tmp_path / "go"], check=True)
    (path,) = (tmp_path / "go").iterdir()
    whole = path.read_bytes()
    last = 0
    for cut in range(60, len(whole), 7):
        path.write_bytes(whole[:cut])
        read = [e.step for e in events(tmp_path / "go", cut=True)["."] if e.summary.value]
        assert read == list(range(len(read)))
        assert len(read) >= last
        last = len(read)
    assert last >= 18


def test_the_page_names_what_torchs_has():
    page = (ROOT / "docs/watching.md").read_text()
    for name in dir(SummaryWriter):
        if not name.startswith("_"):
            assert re.search(rf"`{name}`", page), name
