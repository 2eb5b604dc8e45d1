"""Runs the metrics of package metrics beside torchmetrics, on cases drawn at random.

A case is a metric with options and several batches. Python and Go get the same batches; values
are compared, and Go's also with those of one update with everything. In the middle Go's state goes
through a file into a new metric, which goes on.

torchmetrics computes in float32 where Go computes in float64, so that values are compared to a few
units of float32's last place.
"""

from __future__ import annotations

import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytorch_bridge.schema.names import Names

from .check import first_line
from .harness import Broken, GoCrash, Harness, Request, WrapperError
from .modules import FORGET, Tally

MEASURE, METHOD = -120, -121

CLOSE = {"rtol": 2e-5, "atol": 2e-6}

# What torchmetrics calls an argument, and Go.
FIELDS = {
    "multidim_average": "MultidimAverage",
    "multioutput": "MultiOutput",
    "substitution_cost": "SubstitutionCost",
    "max_fpr": "MaxFPR",
    "n_bins": "NBins",
    "nan_strategy": "NaNStrategy",
    "n_gram": "NGram",
    "iou_thresholds": "IoUThresholds",
}


@dataclass
class Case:
    """A metric, and the batches that it is updated with."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    batches: list[tuple[Any, ...]] = field(default_factory=list)
    joined: bool = True  # whether one update with everything gives the same
    wrong: str = ""  # what is wrong with the last batch

    def __repr__(self) -> str:
        given = [repr(a) for a in self.arguments]
        given += [f"{k}={v!r}" for k, v in self.options.items()]
        shapes = ", ".join(
            " ".join(f"{a.dtype}{list(a.shape)}" if isinstance(a, Tensor) else repr(a) for a in b)
            for b in self.batches
        )
        return f"{self.name}({', '.join(given)}) of {shapes}".replace("torch.", "")


@dataclass
class Images:
    """Seven tensors for each image: what was found, and what is there."""

    tensors: list[Tensor]


class Coco:
    """COCO's own evaluation, with the interface of a metric of torchmetrics."""

    def __init__(self, iou_thresholds: list[float] | None = None, box_format: str = "xyxy") -> None:
        self.thresholds, self.format = iou_thresholds, box_format
        self.images: list[list[Tensor]] = []

    def update(self, images: Images) -> None:
        self.images += [images.tensors[i : i + 7] for i in range(0, len(images.tensors), 7)]

    def boxes(self, boxes: Tensor) -> list[list[float]]:
        result = []
        for a, b, c, d in boxes.double().tolist():
            if self.format == "xywh":
                result.append([a, b, c, d])
            elif self.format == "cxcywh":
                result.append([a - c / 2, b - d / 2, c, d])
            else:
                result.append([a, b, c - a, d - b])
        return result

    def compute(self) -> list[Tensor]:
        import contextlib
        import io

        import numpy as np
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        found: list[dict[str, Any]] = []
        there: list[dict[str, Any]] = []
        for i, (boxes, scores, labels, gboxes, glabels, crowd, area) in enumerate(self.images):
            for box, score, label in zip(
                self.boxes(boxes), scores.tolist(), labels.tolist(), strict=True
            ):
                size = box[2] * box[3]
                found.append(
                    {
                        "image_id": i,
                        "bbox": box,
                        "area": size,
                        "iscrowd": 0,
                        "category_id": label,
                        "score": score,
                        "id": len(found) + 1,
                    }
                )
            for box, label, c, a in zip(
                self.boxes(gboxes), glabels.tolist(), crowd.tolist(), area.tolist(), strict=True
            ):
                size = a or box[2] * box[3]
                there.append(
                    {
                        "image_id": i,
                        "bbox": box,
                        "area": size,
                        "iscrowd": c,
                        "category_id": label,
                        "id": len(there) + 1,
                    }
                )
        classes = sorted({d["category_id"] for d in found + there})
        with contextlib.redirect_stdout(io.StringIO()):
            sides = []
            for annotations in (there, found):
                coco = COCO()
                coco.dataset = {
                    "images": [{"id": i} for i in range(len(self.images))],
                    "annotations": annotations,
                    "categories": [{"id": c} for c in classes],
                }
                coco.createIndex()
                sides.append(coco)
            evaluation = COCOeval(*sides, iouType="bbox")
            if self.thresholds:
                evaluation.params.iouThrs = np.array(self.thresholds)
            evaluation.evaluate()
            evaluation.accumulate()
        precision, recall = evaluation.eval["precision"], evaluation.eval["recall"]
        thresholds = evaluation.params.iouThrs

        def mean(values: Any) -> float:
            known = values[values > -1]
            return float(known.mean()) if known.size else -1.0

        at = [mean(precision[thresholds == t, :, :, 0, -1]) for t in (0.5, 0.75)]
        maps = [mean(precision[..., a, -1]) for a in range(4)]
        mars = [mean(recall[..., a, -1]) for a in range(1, 4)]
        rows = [
            [maps[0], *at, *maps[1:]],
            [mean(recall[..., 0, m]) for m in range(3)],
            mars,
            classes,
            [mean(precision[:, :, k, 0, -1]) for k in range(len(classes))],
            [mean(recall[:, k, 0, -1]) for k in range(len(classes))],
        ]
        return [torch.tensor(r, dtype=torch.float64) for r in rows]


class GoMetric:
    """A metric that Go has made."""

    def __init__(self, harness: Harness, case: Case) -> None:
        self.harness, self.number = harness, 0
        request = Request([MEASURE, 0, 0])
        request.text_only(case.name)
        request.invocation(list(case.arguments), go_options(case.options))
        self.number = harness.send(request)[0][0]

    def __del__(self) -> None:
        if self.number:
            self.harness.send(Request([FORGET, 0, 0, self.number]))

    def call(self, method: str, *args: Any) -> list[Any]:
        request = Request([METHOD, 0, 0, self.number])
        request.text_only(method)
        if method == "Update" and isinstance(args[0], Images):
            return self.call("UpdateImages", args[0])
        if method == "UpdateImages":
            request.value("Tensor[]", args[0].tensors)
        elif method in ("Save", "Load"):
            request.text_only(str(args[0]))
        else:
            request.invocation(list(args), {})
        return self.harness.send(request)[0]

    def compute(self) -> Any:
        results = self.call("Compute")
        return results[0] if len(results) == 1 else results


def go_options(options: dict[str, Any]) -> dict[str, Any]:
    """Python's options as fields of Go's struct."""
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name == "thresholds":
            fields["NumThresholds" if isinstance(value, int) else "Thresholds"] = value
        elif (value is True and name not in TRUE) or (value is False and name not in TRUE):
            fields[Names().field(name)] = value
        elif name in TRUE:
            fields[f"No{Names().field(name)}"] = not value
        elif name == "zero_division":
            fields["ZeroDivision"] = float(value)
        else:
            fields[FIELDS.get(name, Names().field(name))] = value
    return fields


# Bools that are true where they are left out.
TRUE = {"squared", "include_background", "gaussian_kernel"}


def python(case: Case) -> Any:
    """The metric of torchmetrics."""
    if case.name == "MeanAveragePrecision":
        return Coco(**case.options)
    import torchmetrics
    from torchmetrics import aggregation, classification, image, regression, segmentation, text

    places = (classification, regression, text, image, segmentation, aggregation, torchmetrics)
    cls = next(getattr(p, case.name) for p in places if hasattr(p, case.name))
    return cls(*case.arguments, **case.options)


def flattened(value: Any) -> list[Any]:
    """The tensors in what torchmetrics returns for curves: those of each class in turn."""
    x, y, thresholds = value
    if isinstance(x, Tensor) and x.dim() == 1:
        return [x, y, thresholds]
    each = thresholds if isinstance(thresholds, list) else [thresholds] * len(x)
    return [t for row in zip(x, y, each, strict=True) for t in row]


def differ(wanted: Any, got: Any) -> str:
    """How a value of torchmetrics and Go's differ."""
    if isinstance(wanted, (tuple, list)):
        wanted = flattened(wanted) if isinstance(wanted, tuple) else wanted
        got = [torch.tensor(g, dtype=torch.float64) for g in got]
        if len(wanted) != len(got):
            return f"{len(got)} lists, not {len(wanted)}"
        return next((d for w, g in zip(wanted, got, strict=True) if (d := differ(w, g))), "")
    w, g = wanted.detach().double(), got.detach().double()
    if w.numel() == 1 and g.dim() <= 1:  # torchmetrics loses the dimension of a list of one
        w, g = w.reshape(-1), g.reshape(-1)
    if w.shape != g.shape:
        return f"the shape is {list(g.shape)}, not {list(w.shape)}"
    if not torch.allclose(w, g, equal_nan=True, **CLOSE):
        return f"is {g.flatten()[:8].tolist()}, not {w.flatten()[:8].tolist()}"
    return ""


def attempt(fn: Callable[[], Any]) -> tuple[Any, str]:
    """A value, or the class of an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fn(), ""
        except WrapperError as err:
            return err.message, err.kind
        except (GoCrash, Broken):
            raise
        except Exception as err:
            return first_line(str(err)), type(err).__name__


class Metrics:
    """Runs cases with one harness."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.tallies: dict[str, Tally] = {}

    def run(self, name: str, tried: int) -> list[str]:
        tally = self.tallies.setdefault(name, Tally())
        for seed in range(tried):
            for case in cases(name, seed):
                try:
                    problem = self.one(tally, case)
                except (GoCrash, Broken) as err:
                    problem = f"{type(err).__name__}: {err}"[:2000]
                if problem:
                    tally.problems.append(f"{case!r}: {problem}")
        return tally.problems

    def one(self, tally: Tally, case: Case) -> str:
        theirs, refused = attempt(lambda: python(case))
        ours, refused_too = attempt(lambda: GoMetric(self.harness, case))
        if refused or refused_too:
            if bool(refused) != bool(refused_too):
                return f"refused with {refused_too!r} ({ours}), not {refused!r} ({theirs})"
            tally.errors += 1
            return ""
        middle = len(case.batches) // 2
        for i, batch in enumerate(case.batches):
            if i == middle:
                ours = self.through_a_file(case, ours)
            said, wanted = attempt(partial(theirs.update, *copied(batch)))
            told, got = attempt(partial(ours.call, "Update", *batch))
            if wanted or got:
                if got and case.wrong and "should h" in told:
                    tally.errors += 1  # which torchmetrics does not always see
                    return ""
                if not {wanted, got} <= SPOILT:
                    return f"batch {i} is refused with {got!r} ({told}), not {wanted!r} ({said})"
                tally.errors += 1
                return ""
            if i % 2 == 0 and i + 1 < len(case.batches):
                continue
            if problem := self.compare(tally, theirs, ours):
                return f"after batch {i}: {problem}"
        if case.joined and len(case.batches) > 1:
            once = GoMetric(self.harness, case)
            once.call("Update", *joined(case.batches))
            (left, a), (right, b) = attempt(ours.compute), attempt(once.compute)
            problem = f"{b}, not {a}" if a != b else "" if a else self.at_once(left, right)
            if problem:
                return f"in one update: {problem}"
        ours.call("Reset")
        fresh = GoMetric(self.harness, case)
        (left, first), (right, second) = attempt(ours.compute), attempt(fresh.compute)
        if first != second or (not first and self.at_once(left, right)):
            return f"after Reset it is {left}, and at first {right}"
        return ""

    def compare(self, tally: Tally, theirs: Any, ours: GoMetric) -> str:
        theirs._computed = None
        (value, wanted), (found, got) = attempt(theirs.compute), attempt(ours.compute)
        if wanted or got:
            if "no samples" in str(found) and not wanted and not value.nan_to_num().any():
                tally.errors += 1  # everything is ignored, of which torchmetrics makes NaN or 0
                return ""
            if bool(wanted) != bool(got):
                return f"compute is refused with {got!r} ({found}), not {wanted!r} ({value})"
            tally.errors += 1
            return ""
        tally.passed += 1
        return differ(value, found)

    @staticmethod
    def at_once(left: Any, right: Any) -> str:
        pairs = zip(left, right, strict=True) if isinstance(left, list) else [(left, right)]
        for a, b in pairs:
            a, b = (torch.as_tensor(v, dtype=torch.float64) for v in (a, b))
            if a.shape != b.shape or not torch.allclose(a, b, 1e-9, 1e-11, equal_nan=True):
                return f"{b.flatten()[:8].tolist()}, not {a.flatten()[:8].tolist()}"
        return ""

    def through_a_file(self, case: Case, ours: GoMetric) -> GoMetric:
        with tempfile.TemporaryDirectory() as folder:
            ours.call("Save", Path(folder, "state.pt"))
            other = GoMetric(self.harness, case)
            other.call("Load", Path(folder, "state.pt"))
        return other


# Which of these it is depends in torchmetrics on what fails first in the end.
SPOILT = {"RuntimeError", "ValueError", "IndexError"}


def copied(batch: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.clone() if isinstance(a, Tensor) else a for a in batch)


def joined(batches: list[tuple[Any, ...]]) -> list[Any]:
    if isinstance(batches[0][0], Images):
        return [Images([t for (b,) in batches for t in b.tensors])]
    return [
        torch.cat(parts) if isinstance(parts[0], Tensor) else [x for p in parts for x in p]
        for parts in zip(*batches, strict=True)
    ]


# Cases -------------------------------------------------------------------------------------------

AVERAGES = ["micro", "macro", "weighted", "none"]

SCORED = ("Accuracy", "Precision", "Recall", "F1Score", "FBetaScore", "Specificity",
          "HammingDistance", "StatScores", "ExactMatch")  # fmt: skip
CURVES = ("ROC", "PrecisionRecallCurve", "AUROC", "AveragePrecision", "CalibrationError")
OTHERS = ("ConfusionMatrix", "CohenKappa", "MatthewsCorrCoef", "JaccardIndex")
REGRESSION = (
    "MeanSquaredError", "MeanAbsoluteError", "R2Score", "ExplainedVariance", "PearsonCorrCoef",
    "SpearmanCorrCoef", "CosineSimilarity", "KLDivergence",
)  # fmt: skip

AGGREGATES = ("MeanMetric", "SumMetric", "MaxMetric", "MinMetric")
TEXTS = ("WordErrorRate", "CharErrorRate", "EditDistance", "BLEUScore")

NAMES = [
    *(
        f"{kind}{what}"
        for what in (*SCORED, *CURVES, *OTHERS)
        for kind in ("Binary", "Multiclass", "Multilabel")
        if (kind, what)
        not in {
            ("Binary", "ExactMatch"),
            ("Multilabel", "CohenKappa"),
            ("Multilabel", "CalibrationError"),
        }
    ),
    *REGRESSION,
    *AGGREGATES,
    *TEXTS,
    "Perplexity",
    "PeakSignalNoiseRatio",
    "StructuralSimilarityIndexMeasure",
    "MeanIoU",
    "DiceScore",
    "MeanAveragePrecision",
]


def cases(name: str, seed: int) -> Iterator[Case]:
    """The cases of one seed."""
    draw = Draw(name, seed)
    for kind in ("Binary", "Multiclass", "Multilabel"):
        if name.startswith(kind):
            yield draw.classification(kind, name.removeprefix(kind))
            return
    yield getattr(draw, MAKERS.get(name, "regression"))(name)


MAKERS = {
    **dict.fromkeys(AGGREGATES, "aggregate"),
    **dict.fromkeys(TEXTS, "text"),
    "Perplexity": "perplexity",
    "PeakSignalNoiseRatio": "image",
    "StructuralSimilarityIndexMeasure": "image",
    "MeanIoU": "segmentation",
    "DiceScore": "segmentation",
    "MeanAveragePrecision": "detection",
}


class Draw:
    """Draws cases."""

    def __init__(self, name: str, seed: int) -> None:
        self.random = random.Random(f"{name} {seed}")
        self.generator = torch.Generator().manual_seed(self.random.randrange(1 << 30))

    def maybe(self, options: dict[str, Any], name: str, *values: Any, p: float = 0.4) -> None:
        if self.random.random() < p:
            options[name] = self.random.choice(values)

    def rand(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator)

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator)

    def randint(self, high: int, shape: tuple[int, ...]) -> Tensor:
        return torch.randint(0, high, shape, generator=self.generator)

    def classification(self, kind: str, what: str) -> Case:
        r = self.random
        name, n = f"{kind}{what}", r.randint(2, 6)
        options: dict[str, Any] = {}
        arguments: tuple[Any, ...] = () if kind == "Binary" else (n,)
        if what == "FBetaScore":
            arguments = (r.choice([0.5, 1.0, 2.0, 3.7]), *arguments)
        samplewise = False
        if what in SCORED:
            self.maybe(options, "multidim_average", "global", "samplewise", "samplewise")
            samplewise = options.get("multidim_average") == "samplewise"
            if what in ("Precision", "Recall", "F1Score", "FBetaScore"):
                self.maybe(options, "zero_division", 0, 1)
        averaged = (what in SCORED and what != "ExactMatch") or what in (
            "AUROC",
            "AveragePrecision",
            "JaccardIndex",
        )
        if kind != "Binary" and averaged:
            some = AVERAGES
            if what in ("AUROC", "AveragePrecision") and kind == "Multiclass":
                some = AVERAGES[1:]
            self.maybe(options, "average", *some, p=0.8)
        if what == "StatScores" and samplewise and options.get("average") == "weighted":
            options["average"] = (
                "none"  # whose weights torchmetrics sums over the samples of labels
            )
        if what == "ConfusionMatrix":
            self.maybe(options, "normalize", "true", "pred", "all", "none", p=0.7)
        if what == "CohenKappa":
            self.maybe(options, "weights", "linear", "quadratic", "none", p=0.7)
        if what == "CalibrationError":
            self.maybe(options, "n_bins", 1, 3, 10, 40)
            self.maybe(options, "norm", "l1", "l2", "max", p=0.7)
        elif what in CURVES:
            self.maybe(options, "thresholds", 2, 5, 11, [0.3, 0.1, 0.9, 0.5], [0.0, 1.0, 0.25])
            if what == "AUROC" and kind == "Binary":
                self.maybe(options, "max_fpr", 0.1, 0.5, 0.9, 1.0)
        elif kind != "Multiclass":
            self.maybe(options, "threshold", 0.0, 0.25, 0.5, 0.7, 1.0)
        top = False
        if kind == "Multiclass" and what in SCORED and what != "ExactMatch":
            self.maybe(options, "top_k", 1, 2, min(3, n), n, p=0.3)
            top = options.get("top_k", 1) > 1
        if "thresholds" in options and kind == "Multilabel":
            # One that is a class falls where torchmetrics marks what it ignores.
            ignores: tuple[int, ...] = (-1,)
        else:
            ignores = (-1, 0, 1, 255, n - 1)
        self.maybe(options, "ignore_index", *ignores, p=0.35)
        # torchmetrics squeezes away a dimension of one sample.
        least = 2 if samplewise else 1
        rest = r.choice([(), (), (3,), (2, 3)]) if not samplewise else r.choice([(3,), (2, 2)])
        if kind == "Binary" and samplewise:
            rest = rest or (4,)
        curve = what in CURVES
        scores = r.choice(["prob", "prob", "logit", "few", "label"])
        if curve or top:
            scores = r.choice(["prob", "prob", "logit", "few"])
        wrong = (
            "" if r.random() < 0.85 else r.choice(["shape", "label", "pred", "classes", "dtype"])
        )
        dtype = r.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
        if curve:
            dtype = r.choice([torch.float32, torch.float64])
        batches = []
        number = r.choice([1, 1, 2, 4])
        for _ in range(number):
            size = r.choice([least, 3, 8, r.randint(least, 40)])
            batches.append(
                self.batch(kind, n, size, rest, scores, dtype, options, r.random() < 0.1)
            )
        if wrong:
            batches[-1] = self.spoilt(kind, n, batches[-1], wrong)
        case = Case(name, arguments, options, batches)
        case.wrong = wrong
        case.joined = not wrong and scores != "logit"
        return case

    def batch(
        self, kind: str, n: int, size: int, rest: tuple[int, ...], scores: str,
        dtype: torch.dtype, options: dict[str, Any], one_sided: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        full = (size, *rest) if kind == "Binary" else (size, n, *rest)
        shape = full if kind == "Multilabel" else (size, *rest)
        classes = n if kind == "Multiclass" else 2
        target = self.randint(classes, shape)
        if one_sided:
            target = torch.full(shape, self.random.randrange(classes))
        if scores == "label":
            preds = self.randint(classes, shape)
        elif scores == "logit":
            preds = (3 * self.randn(*full)).to(dtype)
        elif scores == "few":
            preds = (self.randint(5, full) / 4).to(dtype)
        else:
            preds = self.rand(*full)
            preds = (preds.softmax(1) if kind == "Multiclass" else preds).to(dtype)
        if (ignore := options.get("ignore_index")) is not None:
            target = torch.where(self.rand(*shape) < 0.3, ignore, target)
        return preds, target

    def spoilt(
        self, kind: str, n: int, batch: tuple[Tensor, Tensor], wrong: str
    ) -> tuple[Tensor, Tensor]:
        preds, target = batch
        if wrong == "shape":
            return preds, torch.cat([target, target])
        if wrong == "label":
            return preds, torch.arange(target.numel()).reshape(target.shape) + 1000
        if wrong == "pred":
            return (torch.arange(target.numel()) + 1000).reshape(target.shape), target
        if wrong == "classes" and preds.dim() > 1:
            return torch.cat([preds, preds], 1), target
        return preds, target

    def regression(self, name: str) -> Case:
        r = self.random
        options: dict[str, Any] = {}
        width = r.choice([1, 1, 2, 5])
        matrix = name in ("CosineSimilarity", "KLDivergence")
        if not matrix and name not in ("R2Score", "ExplainedVariance") and width > 1:
            options["num_outputs"] = width
        if name == "MeanSquaredError":
            self.maybe(options, "squared", True, False)
        if name in ("R2Score", "ExplainedVariance"):
            self.maybe(
                options, "multioutput", "uniform_average", "variance_weighted", "raw_values", p=0.7
            )
        if name == "R2Score":
            self.maybe(options, "adjusted", 0, 1, 3, 100)
        if matrix:
            some = ["sum", "mean", "none"]
            self.maybe(options, "reduction", *some, p=0.7)
        if name == "KLDivergence":
            self.maybe(options, "log_prob", True, False)
        batches = []
        constant = r.random() < 0.1
        for _ in range(r.choice([1, 2, 5])):
            n = r.choice([2, 3, 17, r.randint(2, 60)])
            shape = (n, 4) if matrix else (n,) if width == 1 else (n, width)
            target = self.randn(*shape).double()
            preds = target + self.randn(*shape).double() * r.choice([0.0, 0.1, 1.0, 10.0])
            if constant:
                preds, target = torch.ones_like(preds), target * r.choice([0, 1])
            if name == "SpearmanCorrCoef" and r.random() < 0.5:
                preds, target = preds.round(), target.round()
            if name == "KLDivergence":
                preds, target = preds.softmax(-1), target.softmax(-1)
                if options.get("log_prob"):
                    preds, target = preds.log(), target.log()
            batches.append((preds, target))
        wrong = r.random() < 0.1
        if wrong:
            preds, target = batches[-1]
            batches[-1] = (preds, torch.cat([target, target]))
        return Case(name, (), options, batches, joined=not wrong)

    def aggregate(self, name: str) -> Case:
        options: dict[str, Any] = {}
        self.maybe(options, "nan_strategy", "ignore", "error", "disable", p=0.8)
        batches = []
        for _ in range(self.random.randint(1, 5)):
            values = self.randn(self.random.randint(0, 5), self.random.randint(1, 3)).double()
            batches.append((torch.where(self.rand(*values.shape) < 0.05, torch.nan, values),))
        return Case(name, (), options, batches, joined=False)

    def words(self, n: int) -> str:
        some = ["the", "a", "cat", "dog", "Ünï", "猫", "sat,", "on\u00a0mat", "\x1c", "  ", "\n"]
        return " ".join(self.random.choice(some) for _ in range(self.random.randint(0, n)))

    def text(self, name: str) -> Case:
        r = self.random
        options: dict[str, Any] = {}
        if name == "EditDistance":
            self.maybe(options, "substitution_cost", 1, 2, 3)
            self.maybe(options, "reduction", "mean", "sum", "none", p=0.7)
        if name == "BLEUScore":
            self.maybe(options, "n_gram", 1, 2, 3)
            self.maybe(options, "smooth", True, False)
            if r.random() < 0.3:
                n = options.get("n_gram", 4)
                options["weights"] = [r.random() for _ in range(n)]
        batches = []
        # torchmetrics looks for an edit distance in a beam, and misses the least of longer texts.
        long = 3 if name == "EditDistance" else 12
        for _ in range(r.randint(1, 4)):
            n = r.randint(1, 4)
            preds = [self.words(long) for _ in range(n)]
            target: list[Any] = [p if r.random() < 0.3 else self.words(long) for p in preds]
            if name == "BLEUScore":
                target = [[t, *(self.words(12) for _ in range(r.randint(0, 2)))] for t in target]
            batches.append((preds, target))
        return Case(name, (), options, batches)

    def perplexity(self, name: str) -> Case:
        options: dict[str, Any] = {}
        self.maybe(options, "ignore_index", -100, 0, 2)
        vocabulary = self.random.randint(3, 20)
        batches = []
        for _ in range(self.random.randint(1, 4)):
            shape = (self.random.randint(1, 4), 5)
            target = self.randint(vocabulary, shape)
            if "ignore_index" in options:
                target = torch.where(self.rand(*shape) < 0.2, options["ignore_index"], target)
            batches.append((3 * self.randn(*shape, vocabulary), target))
        return Case(name, (), options, batches)

    def image(self, name: str) -> Case:
        r = self.random
        options: dict[str, Any] = {}
        arguments: tuple[Any, ...] = ()
        if name == "PeakSignalNoiseRatio":
            arguments = (r.choice([1.0, 255.0, 2.5]),)
            self.maybe(options, "base", 2.0, 10.0)
        else:
            self.maybe(options, "data_range", 1.0, 2.0)
            self.maybe(options, "sigma", 0.5, 1.5, 2.0)
            self.maybe(options, "gaussian_kernel", True, False)
            self.maybe(options, "kernel_size", 3, 7, 11, p=0.3)
            self.maybe(options, "reduction", "elementwise_mean", "sum", "none", p=0.7)
            self.maybe(options, "k1", 0.01, 0.1)
        batches = []
        for _ in range(r.randint(1, 3)):
            shape = (r.randint(1, 3), r.choice([1, 3]), r.randint(12, 20), r.randint(12, 20))
            target = self.rand(*shape).double()
            batches.append((target + 0.3 * self.randn(*shape).double(), target))
        return Case(name, arguments, options, batches, joined=False)

    def segmentation(self, name: str) -> Case:
        r = self.random
        n = r.randint(2, 5)
        options: dict[str, Any] = {}
        self.maybe(options, "include_background", True, False)
        layout = r.choice(["one-hot", "one-hot", "index"])
        options["input_format"] = layout
        if name == "MeanIoU":
            self.maybe(options, "per_class", True, False)
        else:
            options["average"] = r.choice(AVERAGES)
            self.maybe(options, "aggregation_level", "samplewise", "global")
        batches = []
        present = r.randint(1, n)
        for _ in range(r.randint(1, 3)):
            shape = (r.randint(1, 4), 6, 5)
            both = [self.randint(present, shape) for _ in range(2)]
            if layout == "one-hot":
                both = [torch.nn.functional.one_hot(t, n).movedim(-1, 1).contiguous() for t in both]
                if r.random() < 0.3:
                    both[0] = self.rand(*both[0].shape)
            batches.append((both[0], both[1]))
        return Case(name, (n,), options, batches)

    def detection(self, name: str) -> Case:
        r = self.random
        options: dict[str, Any] = {}
        self.maybe(options, "iou_thresholds", [0.5], [0.1, 0.75], p=0.2)
        self.maybe(options, "box_format", "xyxy", "xywh", "cxcywh")
        layout = options.get("box_format", "xyxy")
        size = r.choice([20, 80, 300])

        def boxes(n: int) -> Tensor:
            corner, wide = self.randint(size, (n, 2)), 1 + self.randint(size, (n, 2))
            if layout == "xyxy":
                wide = corner + wide
            return torch.cat([corner, wide], 1).double()

        batches = []
        for _ in range(r.randint(1, 3)):
            images: list[Tensor] = []
            for _ in range(r.randint(1, 4)):
                n = r.choice([0, 1, 3, 8, 30])
                there = boxes(n)
                near = there[: r.randint(0, n)] + self.randint(5, (1, 4)) - 2
                near[:, 2:] = (
                    torch.maximum(near[:, 2:], near[:, :2] + 1)
                    if layout == "xyxy"
                    else near[:, 2:].clamp(min=1)
                )
                found = torch.cat([near, boxes(r.choice([0, 1, 5, 120]))])
                images += [
                    found,
                    (self.rand(len(found)) * r.choice([1, 8]))
                    .round(decimals=r.choice([0, 6]))
                    .double(),
                    self.randint(3, (len(found),)),
                    there,
                    self.randint(r.choice([1, 3, 4]), (n,)),
                    (self.rand(n) < r.choice([0.0, 0.3])).long(),
                    torch.where(self.rand(n) < 0.5, 0.0, 3000 * self.rand(n)).double(),
                ]
            batches.append((Images(images),))
        return Case(name, (), options, batches)
