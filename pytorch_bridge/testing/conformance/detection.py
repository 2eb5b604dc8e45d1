"""The networks of Go's package vision/models/detection, held to torchvision's.

Each is made in Python and in Go with the same seed, and compared in state dicts, losses with their
gradients, and what is found, to the last bit.

    python -m pytorch_bridge.testing.conformance.detection

writes `EXPECTED` from the installed torchvision: what can be tested where there is none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pytorch_bridge.native.toolchain import ROOT

from .harness import Harness
from .modules import Call, GoModule, differ
from .vision_models import digest, loaded, made, saved

EXPECTED = ROOT / "gotorch" / "vision" / "models" / "detection" / "testdata" / "torchvision.json"
SEED = 5

# What words of Python's names are in Go.
WORDS = {
    "rpn": "RPN",
    "nms": "NMS",
    "fg": "FG",
    "bg": "BG",
    "iou": "IoU",
    "roi": "RoI",
    "bbox": "BBox",
}


def go_name(python: str) -> str:
    """The field of Go's options that is an argument of this name."""
    return "".join(WORDS.get(w) or w.title() for w in python.split("_"))


@dataclass(frozen=True)
class Case:
    """A network with options. Images are small, so that it is quick."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    trained: bool = False
    light: bool = False  # so light that every run of the tests has it
    sizes: tuple[tuple[int, int], ...] = ((64, 80), (48, 96))

    def __str__(self) -> str:
        options = ",".join(f"{k}={v}" for k, v in self.options.items())
        return " ".join(filter(None, (self.name, "trained" * self.trained, options)))

    def python(self) -> nn.Module:
        from torchvision.models import detection, mobilenetv3, resnet  # type: ignore[import-not-found]

        options = {"num_classes": 7, **self.options}
        if not self.trained:
            return getattr(detection, self.name)(weights=None, weights_backbone=None, **options)
        # As for weights that are downloaded, without the download.
        mobile = "mobilenet" in self.name
        kinds = (mobilenetv3.MobileNet_V3_Large_Weights, resnet.ResNet50_Weights)
        weights = kinds[not mobile].IMAGENET1K_V1
        cls = type(weights)
        before, load = cls.get_state_dict, nn.Module.load_state_dict
        cls.get_state_dict = lambda *_, **__: {}
        nn.Module.load_state_dict = lambda *_, **__: None
        module = mobilenetv3 if mobile else resnet
        over = module._ovewrite_named_param
        module._ovewrite_named_param = lambda *_, **__: None
        try:
            return getattr(detection, self.name)(weights=None, weights_backbone=weights, **options)
        finally:
            cls.get_state_dict, nn.Module.load_state_dict = before, load
            module._ovewrite_named_param = over

    def go(self, harness: Harness) -> GoModule:
        options = {go_name(k): v for k, v in {"num_classes": 7, **self.options}.items()}
        if self.trained:
            options["Trained"] = True
        return GoModule(harness, self.name, Call([], options))

    def images(self) -> list[Tensor]:
        g = torch.Generator().manual_seed(SEED)
        return [torch.rand(3, *s, generator=g) for s in self.sizes]

    def targets(self, empty: bool = False) -> list[dict[str, Tensor]]:
        """What is there; in the first image nothing, if that is wanted."""
        found = []
        for i, (h, w) in enumerate(self.sizes):
            boxes = torch.tensor([[3.0, 5, w / 2, h / 2], [w / 3, h / 4, w - 2.5, h - 3]])
            labels = torch.tensor([1 + i, 5])
            keep = 0 if empty and i == 0 else 2
            found.append({"boxes": boxes[:keep], "labels": labels[:keep]})
        return found


SMALL = {"min_size": 64, "max_size": 128}
CASES = [
    Case("fasterrcnn_mobilenet_v3_large_fpn", {**SMALL, "box_score_thresh": 0.0}, light=True),
    Case(
        "fasterrcnn_mobilenet_v3_large_fpn",
        {**SMALL, "rpn_batch_size_per_image": 16, "box_batch_size_per_image": 24,
         "rpn_post_nms_top_n_train": 50, "box_detections_per_img": 5, "box_nms_thresh": 0.3,
         "rpn_fg_iou_thresh": 0.5, "bbox_reg_weights": [1.0, 2.0, 3.0, 4.0],
         "box_score_thresh": 0.0},
        trained=True,
    ),
    Case("fasterrcnn_mobilenet_v3_large_320_fpn", {"box_score_thresh": 0.0}),
    Case("fasterrcnn_resnet50_fpn", {**SMALL, "box_score_thresh": 0.0}),
    Case(
        "fasterrcnn_resnet50_fpn",
        {**SMALL, "box_score_thresh": 0.0, "trainable_backbone_layers": 2},
        trained=True,
        light=True,
    ),
    Case("fasterrcnn_resnet50_fpn_v2", {**SMALL, "min_size": (64, 72), "box_score_thresh": 0.0}),
]  # fmt: skip

LOSSES = ("loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg")


def losses_of_go(
    go: GoModule, images: list[Tensor], targets: list[dict[str, Tensor]]
) -> list[Tensor]:
    return go.method("Losses", images, *([t[k] for t in targets] for k in ("boxes", "labels")))


def unlike(case: Case, harness: Harness, folder: Path) -> str:
    """What of a network in Go is not as in torchvision; nothing if all is."""
    file = folder / "of_go.pt"
    python, go, problem = made(case, harness, file, SEED)
    if problem:
        return problem
    texts = [" ".join(str(m).split()).replace(" )", ")").replace("( ", "(") for m in (python, go)]
    if texts[0] != texts[1]:
        return f"text: {texts[1]}, not {texts[0]}"
    learn = [n for n, p in python.named_parameters() if p.requires_grad]
    own = go.tensors()[0]
    if learn != [n for n, p in own.items() if p.requires_grad]:
        return "other parameters learn"
    for empty in (False, True):
        python.train()
        go.train(True)
        torch.manual_seed(SEED)
        wanted = python(case.images(), case.targets(empty))
        harness.seed(SEED)
        got = losses_of_go(go, case.images(), case.targets(empty))
        for name, g in zip(LOSSES, got, strict=True):
            if problem := differ(name, wanted[name], g):
                return f"losses (empty: {empty}): {problem}"
        parameters = [p for p in python.parameters() if p.requires_grad]
        theirs = torch.autograd.grad(sum(wanted[n] for n in LOSSES), parameters, allow_unused=True)
        ours = torch.autograd.grad(sum(got), [own[n] for n in learn], allow_unused=True)
        for name, a, b in zip(learn, theirs, ours, strict=True):
            if (a is None) != (b is None):
                return f"gradient of {name} is none in one of them"
            if a is not None and not torch.allclose(a, b, rtol=1e-4, atol=1e-6):
                return f"gradient (empty: {empty}): {differ(name, a, b)}"
    python.eval()
    go.train(False)
    with torch.no_grad():
        expected = python(case.images())
        found = go.method("Found", case.images())
    for i, e in enumerate(expected):
        for name, g in zip(("boxes", "labels", "scores"), found[3 * i :], strict=False):
            if problem := differ(name, e[name], g):
                return f"image {i}: {problem}"
    if not len(expected[0]["boxes"]):
        return "nothing was found, so that nothing was compared"
    # A file of Python's into a network of Go's, and the other way round.
    torch.save(python.state_dict(), file)
    loaded(go, file)
    saved(go, file)
    python.load_state_dict(torch.load(file), strict=True)
    return ""


def measured(state: dict[str, Tensor], losses: list[Tensor], found: list[Tensor]) -> dict[str, Any]:
    """What `EXPECTED` has of a network."""
    return {
        "digest": digest(state.items()),
        "losses": [float(v.detach()) for v in losses],
        "boxes": [list(t.shape) for t in found],
        "first": [[float(v) for v in t.flatten()[:4]] for t in found],
    }


def of_python(case: Case) -> dict[str, Any]:
    torch.manual_seed(SEED)
    model = case.python()
    state = model.state_dict()
    torch.manual_seed(SEED)
    losses = model(case.images(), case.targets())
    model.eval()
    with torch.no_grad():
        found = model(case.images())
    return measured(
        state,
        [losses[n] for n in LOSSES],
        [f[k] for f in found for k in ("boxes", "labels", "scores")],
    )


def of_go(case: Case, harness: Harness, file: Path) -> dict[str, Any]:
    harness.seed(SEED)
    go = case.go(harness)
    saved(go, file)
    harness.seed(SEED)
    losses = losses_of_go(go, case.images(), case.targets())
    go.train(False)
    with torch.no_grad():
        found = go.method("Found", case.images())
    return measured(torch.load(file), losses, found)


if __name__ == "__main__":
    torch.set_num_threads(1)
    EXPECTED.parent.mkdir(exist_ok=True)
    EXPECTED.write_text(json.dumps({str(c): of_python(c) for c in CASES}, indent=1) + "\n")
