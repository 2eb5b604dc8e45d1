"""Options: what is left out is PyTorch's default, and what is written is given, also a zero.

A field of a plain number or bool cannot tell its zero from nothing, so it may only stand where
PyTorch's default is that zero. The lists below are held to be complete, and the defaults in Go's
comments to be PyTorch's.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch.nn.functional as F
from torch import amp, autograd, distributed, distributions, nn, profiler
from torch.autograd.profiler_util import EventList
from torch.distributed import checkpoint
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributions import constraints, relaxed_bernoulli, relaxed_categorical, transforms
from torch.nn import init
from torch.nn import utils as nn_utils
from torch.nn.utils import parametrize, prune
from torch.optim import Optimizer, swa_utils
from torch.utils.data import DataLoader

from pytorch_bridge.codegen import api
from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.schema import Names, counterparts, functions
from pytorch_bridge.schema.nn import layers
from pytorch_bridge.schema.python_api import NO_DEFAULT, python_api
from pytorch_bridge.testing.conformance.detection import go_name
from pytorch_bridge.testing.conformance.metrics import FIELDS as FIELDS_OF_METRICS

# What options belong to, where the name of the struct does not say it.
PYTHON: dict[str, Callable[..., Any]] = {
    "gotorch/optim: GradScalerOptions": amp.GradScaler,
    "gotorch/optim: HookOptions": Optimizer.register_state_dict_pre_hook,
    "gotorch/nn: LoadOptions": nn.Module.load_state_dict,
    "gotorch/data: LoaderOptions": DataLoader,
    "gotorch/distributed: DataParallelOptions": nn.parallel.DistributedDataParallel,
    "gotorch/distributed: GroupOptions": distributed.new_group,
    "gotorch/distributed: JoinOptions": nn.parallel.DistributedDataParallel.join,
    "gotorch/distributed: MonitoredBarrierOptions": distributed.monitored_barrier,
    "gotorch/distributed: ObjectOptions": distributed.all_gather_object,
    "gotorch/distributed: Options": distributed.init_process_group,
    "gotorch/distributed: P2POptions": distributed.send,
    "gotorch/distributed/checkpoint: LoadOptions": checkpoint.load,
    "gotorch/distributed/checkpoint: SaveOptions": checkpoint.save,
    "gotorch/distributed: PeriodicModelAveragerOptions": PeriodicModelAverager,
    "gotorch/distributed: PostLocalSGDOptions": PostLocalSGDState,
    "gotorch/distributed: PowerSGDOptions": PowerSGDState,
    "gotorch/distributed: TCPStoreOptions": distributed.TCPStore.__init__,
    "gotorch/profiler: KeyAveragesOptions": profiler.profile.key_averages,
    "gotorch/profiler: Options": profiler.profile,
    "gotorch/profiler: ScheduleOptions": profiler.schedule,
    "gotorch/profiler: TableOptions": EventList.table,
}
SHARED = {
    "gotorch/data: PadOptions": nn_utils.rnn.pad_sequence,
    "gotorch/gotorchtest: GradCheckOptions": autograd.gradcheck,
    "gotorch/gotorchtest: GradGradCheckOptions": autograd.gradgradcheck,
    "gotorch/nn: AttentionOptions": nn.MultiheadAttention.forward,
    "gotorch/nn: BatchNormOptions": nn.BatchNorm2d,
    "gotorch/nn: ConvOptions": nn.Conv2d,
    "gotorch/nn: ConvTransposeOptions": nn.ConvTranspose2d,
    "gotorch/nn: DecoderOptions": nn.TransformerDecoder.forward,
    "gotorch/nn: EncoderOptions": nn.TransformerEncoder.forward,
    "gotorch/nn: GRUOptions": nn.RNNBase,
    "gotorch/nn: InstanceNormOptions": nn.InstanceNorm2d,
    "gotorch/nn: LSTMOptions": nn.RNNBase,
    "gotorch/nn: RNNOptions": nn.RNNBase,
    "gotorch/nn: TransformerModelOptions": nn.Transformer,
    "gotorch/nn: TransformerOptions": nn.TransformerEncoderLayer,
    "gotorch/nn: ZeroGradOptions": nn.Module.zero_grad,
    "gotorch/nn/functional: ConvOptions": nn.Conv2d,
    "gotorch/nn/functional: ConvTransposeOptions": nn.ConvTranspose2d,
    "gotorch/nn/functional: FractionalMaxPoolOptions": nn.FractionalMaxPool2d,
    "gotorch/nn/functional: GaussianNLLLossOptions": nn.GaussianNLLLoss,
    "gotorch/nn/functional: LPPoolOptions": nn.LPPool2d,
    "gotorch/nn/functional: MaxUnpoolOptions": F.max_unpool2d,
    "gotorch/nn/utils: FuseConvBNOptions": nn_utils.fuse_conv_bn_eval,
    "gotorch/nn/utils: RemoveNormOptions": nn_utils.remove_weight_norm,
    "gotorch/nn/utils/parametrize: RegisterOptions": parametrize.register_parametrization,
    "gotorch/nn/utils/parametrize: RemoveOptions": parametrize.remove_parametrizations,
    "gotorch/nn/utils/parametrize: TransferOptions": (
        parametrize.transfer_parametrizations_and_params
    ),
    "gotorch/nn/utils/prune: GlobalOptions": prune.global_unstructured,
    "gotorch/nn/utils/prune: ImportanceOptions": prune.l1_unstructured,
    "gotorch/nn/utils/prune: PruneOptions": prune.BasePruningMethod.prune,
    "gotorch/nn/init: KaimingOptions": init.kaiming_uniform_,
    "gotorch/nn/init: XavierOptions": init.xavier_uniform_,
    "gotorch/nn/utils: SkipInitOptions": nn.Linear,  # of any module: the device
    "gotorch/optim/swautils: EMAOptions": swa_utils.get_ema_avg_fn,
    "gotorch/optim/swautils: UpdateBNOptions": swa_utils.update_bn,
}


def signature(of: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function; of one that pybind11 has bound, what the first line of its text says."""
    try:
        return inspect.signature(of)
    except ValueError:
        line = (of.__doc__ or "").partition("\n")[0]
        [bound] = ast.parse(f"def {line}: ...").body
        assert isinstance(bound, ast.FunctionDef)
        names = [a.arg for a in bound.args.args]
        without = len(names) - len(bound.args.defaults)
        defaults = [inspect.Parameter.empty] * without + [
            d.value if isinstance(d, ast.Constant) else ast.unparse(d) for d in bound.args.defaults
        ]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature(
            inspect.Parameter(name, kind, default=default)
            for name, default in zip(names, defaults, strict=True)
        )


@cache
def arguments(struct: str) -> dict[str, Any]:
    """The arguments of what the struct has options of, with their defaults: by the names that Go's
    rule gives them in packages nn, and by Python's elsewhere."""
    if struct in PYTHON:
        found = signature(PYTHON[struct]).parameters
        # Of an argument that has to be given, zero is as good as none.
        return {n: NO_DEFAULT if p.default is p.empty else p.default for n, p in found.items()}
    package, name = struct.removesuffix("Options").split(": ")
    if package == "gotorch/metrics":
        return _of_metrics(name)
    if package == "gotorch/vision/models":
        return _of_models(name)
    if package.startswith("gotorch/vision/transforms"):
        return _of_transforms(package, name)
    if package == "gotorch/train/tensorboard":
        return _of_tensorboard(name)
    if package in VISION:
        return _of_vision(package, name)
    if package.startswith("gotorch/distributions"):
        found = inspect.signature(_of_distributions(package, name)).parameters
        by_name = {n: p.default for n, p in found.items()}
        if "validate_args" in by_name:
            by_name["validate_args"] = True  # what None means there
    elif struct in SHARED:
        found = inspect.signature(SHARED[struct]).parameters
        by_name = {n: p.default for n, p in found.items()}
    else:
        key = counterparts.key(name)
        full = next(
            n.full
            for n in python_api().values()
            if package.removeprefix("gotorch/") == counterparts.package(n.namespace)
            and n.arguments is not None
            and key in (counterparts.key(n.name), counterparts.key(_go_name(n.name)))
        )
        by_name = {a.name: a.default for a in python_api()[full].arguments or ()}
    return {Names().field(n): default for n, default in by_name.items()}


def _of_distributions(package: str, name: str) -> Callable[..., Any]:
    """What options of a package below distributions are of; Options are those that all have."""
    if name == "EnumerateSupport":
        return distributions.Distribution.enumerate_support
    if package.endswith("/transforms"):
        return getattr(transforms, f"{name or 'Exp'}Transform")
    if package.endswith("/constraints"):
        found = getattr(constraints, name.lower())
        return found if inspect.isclass(found) else type(found)
    for module in (distributions, relaxed_bernoulli, relaxed_categorical):
        if hasattr(module, name or "Normal"):
            return getattr(module, name or "Normal")
    raise AssertionError(f"there is no {name} in torch.distributions")


# Functions and classes of torchmetrics that a struct of package metrics has the options of.
MEASURED = {
    "Aggregator": ["aggregation.SumMetric"],
    "AUROC": ["functional.classification.multilabel_auroc", "functional.classification.binary_auroc"],
    "AveragePrecision": ["functional.classification.multilabel_average_precision"],
    "BLEUScore": ["text.BLEUScore"],
    "Binary": ["functional.classification.binary_precision"],
    "CalibrationError": ["functional.classification.binary_calibration_error"],
    "CohenKappa": ["functional.classification.binary_cohen_kappa"],
    "ConfusionMatrix": ["functional.classification.binary_confusion_matrix"],
    "CorrCoef": ["regression.PearsonCorrCoef"],
    "Curve": ["functional.classification.binary_roc"],
    "DiceScore": ["segmentation.DiceScore"],
    "EditDistance": ["text.EditDistance"],
    "ExactMatch": ["functional.classification.multilabel_exact_match"],
    "ExplainedVariance": ["regression.ExplainedVariance"],
    "JaccardIndex": ["functional.classification.multilabel_jaccard_index"],
    "KLDivergence": ["regression.KLDivergence"],
    "MatthewsCorrCoef": ["functional.classification.binary_matthews_corrcoef"],
    "MeanAbsoluteError": ["regression.MeanAbsoluteError"],
    "MeanAveragePrecision": ["detection.mean_ap.MeanAveragePrecision"],
    "MeanIoU": ["segmentation.MeanIoU"],
    "MeanSquaredError": ["regression.MeanSquaredError"],
    "Multiclass": ["functional.classification.multiclass_precision"],
    "Multilabel": ["functional.classification.multilabel_precision"],
    "PeakSignalNoiseRatio": ["image.PeakSignalNoiseRatio"],
    "Perplexity": ["text.Perplexity"],
    "R2Score": ["regression.R2Score"],
    "Reduction": ["regression.CosineSimilarity"],
    "StructuralSimilarity": ["image.StructuralSimilarityIndexMeasure"],
}  # fmt: skip


def _of_metrics(name: str) -> dict[str, Any]:
    pytest.importorskip("torchmetrics", reason="which has the options of package metrics")
    found: dict[str, Any] = {}
    for path in MEASURED[name]:
        module, _, function = f"torchmetrics.{path}".rpartition(".")
        of = getattr(importlib.import_module(module), function)
        found |= {n: p.default for n, p in inspect.signature(of).parameters.items()}
    return {FIELDS_OF_METRICS.get(n, Names().field(n)): default for n, default in found.items()}


# Classes and functions of torchvision.models that a struct of package vision/models has the options of.
MODELS = {
    "AlexNet": ["alexnet.AlexNet"],
    "ConvNeXt": ["convnext.ConvNeXt"],
    "EfficientNet": ["efficientnet.EfficientNet"],
    "MobileNetV2": ["mobilenetv2.MobileNetV2"],
    "MobileNetV3": ["mobilenetv3.MobileNetV3", "mobilenetv3._mobilenet_v3_conf"],
    "ResNet": ["resnet.ResNet"],
    "SqueezeNet": ["squeezenet.SqueezeNet"],
    "VGG": ["vgg.VGG"],
    "VisionTransformer": ["vision_transformer.VisionTransformer"],
}


def _of_models(name: str) -> dict[str, Any]:
    pytest.importorskip("torchvision", reason="which has the options of package vision/models")
    found: dict[str, Any] = {}
    for path in MODELS[name]:
        module, _, of = f"torchvision.models.{path}".rpartition(".")
        signature = inspect.signature(getattr(importlib.import_module(module), of))
        found |= {
            n: NO_DEFAULT if p.default is p.empty else p.default
            for n, p in signature.parameters.items()
        }
    return {Names().field(n): default for n, default in found.items()}


# Classes of torchvision.transforms.v2, and functions of its module functional, whose struct has another name.
TRANSFORMS = {
    "Flip": "RandomHorizontalFlip", "Probability": "RandomInvert", "Mix": "MixUp", "Grid": "perspective",
    "RGBToGrayscale": "rgb_to_grayscale", "Sanitize": "sanitize_bounding_boxes",
}  # fmt: skip


def _of_transforms(package: str, name: str) -> dict[str, Any]:
    pytest.importorskip("torchvision", reason=f"which has the options of {package}")
    v2 = importlib.import_module("torchvision.transforms.v2")
    of = TRANSFORMS.get(name, name)
    if package.endswith("/functional"):
        of = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", of).lower()
    found = inspect.signature(getattr(v2 if hasattr(v2, of) else v2.functional, of)).parameters
    return {
        Names().field(n): NO_DEFAULT if p.default is p.empty else p.default
        for n, p in found.items()
    }


# Methods of SummaryWriter that a struct of package train/tensorboard has the options of, where the name does not say it.
WRITTEN = {
    "AddCustomScalars": "add_custom_scalars_multilinechart",
    "AddHParams": "add_hparams",
    "AddPRCurve": "add_pr_curve",
    "AddPRCurveRaw": "add_pr_curve_raw",
    "SummaryWriter": "__init__",
}


def _of_tensorboard(name: str) -> dict[str, Any]:
    pytest.importorskip("tensorboard", reason="which torch.utils.tensorboard stands on")
    writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter
    method = WRITTEN.get(name) or re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    found = inspect.signature(getattr(writer, method)).parameters
    special = {"dataformats": "DataFormats", "fps": "FPS"}
    return {special.get(n, Names().field(n)): p.default for n, p in found.items()}


# Functions and classes that a struct of the packages around vision has the options of.
VISION = {
    "gotorch/vision/ops": {
        "BoxFormat": ["ops.box_iou"],
        "BoxIoU": ["ops.complete_box_iou"],
        "BoxIoULoss": ["ops.complete_box_iou_loss"],
        "ConvNormActivation": ["ops.Conv2dNormActivation"],
        "DeformConv2d": ["ops.deform_conv2d"],
        "DropBlock": ["ops.drop_block2d"],
        "FeaturePyramidNetwork": ["ops.FeaturePyramidNetwork"],
        "FrozenBatchNorm2d": ["ops.FrozenBatchNorm2d"],
        "MLP": ["ops.MLP"],
        "MultiScaleRoIAlign": ["ops.MultiScaleRoIAlign"],
        "NewDeformConv2d": ["ops.DeformConv2d"],
        "PSRoIAlign": ["ops.ps_roi_align"],
        "PSRoIPool": ["ops.ps_roi_pool"],
        "RoIAlign": ["ops.roi_align"],
        "RoIPool": ["ops.roi_pool"],
        "SigmoidFocalLoss": ["ops.sigmoid_focal_loss"],
        "SqueezeExcitation": ["ops.SqueezeExcitation"],
    },
    "gotorch/vision/models/detection": {
        "BackboneWithFPN": ["models.detection.backbone_utils.BackboneWithFPN"],
        "FastRCNNConvFCHead": ["models.detection.faster_rcnn.FastRCNNConvFCHead"],
        "FasterRCNN": [
            "models.detection.transform.GeneralizedRCNNTransform",
            "models.detection.fasterrcnn_resnet50_fpn",
            "models.detection.FasterRCNN",
        ],
        "GeneralizedRCNNTransform": ["models.detection.transform.GeneralizedRCNNTransform"],
        "RPNHead": ["models.detection.rpn.RPNHead"],
        "RegionProposalNetwork": ["models.detection.rpn.RegionProposalNetwork"],
    },
}


def _of_vision(package: str, name: str) -> dict[str, Any]:
    pytest.importorskip("torchvision", reason="which has the options of what is around vision")
    found: dict[str, Any] = {}
    for path in VISION[package][name]:
        module, _, of = f"torchvision.{path}".rpartition(".")
        signature = inspect.signature(getattr(importlib.import_module(module), of))
        found |= {
            n: NO_DEFAULT if p.default is p.empty else p.default
            for n, p in signature.parameters.items()
        }
    return {_vision_name(n): default for n, default in found.items()}


def _vision_name(python: str) -> str:
    return Names().field(python) if python == "inplace" else go_name(python)


def _go_name(python: str) -> str:
    known = layers().functions.get(python)
    return known.go if known else Names().camel(python.rstrip("_"))


# Structs of functions that PyTorch does not have. Their plain fields begin with a zero that is meant.
OURS = {
    "gotorch/aoti: LoadOptions",
    "gotorch/jit: LoadOptions",
    "gotorch/jit: LoadStateDictOptions",
    "gotorch/jit: SaveOptions",
    "gotorch/distributed: FullStateOptions",
    "gotorch/distributed: FullyShardOptions",
    "gotorch/distributed/parallel: ColumnParallelLinearOptions",
    "gotorch/distributed/parallel: PipelineOptions",
    "gotorch/distributed/parallel: RowParallelLinearOptions",
    "gotorch/serve: Options",
    "gotorch/serve: RepositoryOptions",
    "gotorch/serve/daemon: Options",
    "gotorch/serve/middleware: TLSOptions",
    "gotorch/serve/middleware: TokensOptions",
    "gotorch/graph: OpenOptions",
    "gotorch/nn: SwapOptions",
    "gotorch/data: DistributedIterableOptions",
    "gotorch/data: InterleaveOptions",
    "gotorch/data/cifar: Options",
    "gotorch/data/csvdata: Options",
    "gotorch/data/imagefolder: Options",
    "gotorch/data/imagefolder: StreamOptions",
    "gotorch/data/lines: Options",
    "gotorch/data/npy: ZipOptions",
    "gotorch/data/parquet: Options",
    "gotorch/data/safetensors: Options",
    "gotorch/data/tokens: Options",
    "gotorch/data/webdataset: Options",
    "gotorch/gotorchtest: Options",
    "gotorch/hub: LoadOptions",
    "gotorch/hub: OpenOptions",
    "gotorch/hub: SaveOptions",
    "gotorch/hub: TensorOptions",
    "gotorch/hub/transformers: BertOptions",
    "gotorch/hub/transformers: ForwardOptions",
    "gotorch/hub/transformers: GenerateOptions",
    "gotorch/hub/transformers: LoadOptions",
    "gotorch/hub/transformers: Options",
    "gotorch/nn: SummaryOptions",
    "gotorch/train: CheckpointsOptions",
    "gotorch/train: EarlyStopOptions",
    "gotorch/train/plot: ConfusionMatrixOptions",
    "gotorch/train/plot: GridOptions",
    "gotorch/train/plot: HistogramOptions",
    "gotorch/train/plot: LinesOptions",
    "gotorch/train/plot: LossesOptions",
    "gotorch/train/plot: MetricOptions",
    "gotorch/train/tensorboard: HistogramOfOptions",
    "gotorch/train/tensorboard: LogOptions",
    "gotorch/train: FileLogOptions",
    "gotorch/train: FindLROptions",
    "gotorch/train: LogOptions",
    "gotorch/train: WatchOptions",
    "gotorch/vision/imageio: DecodeOptions",
    "gotorch/vision/imageio: Options",
    "gotorch/vision/imageio: WriteOptions",
    "gotorch/vision/models: DCGANOptions",
    "gotorch/vision/models: UNetOptions",
}

# Names of Go's own, in the packages of PYTHON.
NAMES = {
    "Workers": "num_workers", "Prefetch": "prefetch_factor", "Partial": "strict",
    "Disabled": "enabled", "WithFLOPs": "with_flops",
    "BucketCapMB": "bucket_cap_mb", "Group": "process_group", "Server": "is_master",
    "NoBroadcastBuffers": "broadcast_buffers", "NoInitSync": "init_sync",
    "NoWaitForWorkers": "wait_for_workers", "Disable": "enable",
    "NoDivideByInitialWorldSize": "divide_by_initial_world_size",
    "StartPowerSGDIter": "start_powerSGD_iter", "StartLocalSGDIter": "start_localSGD_iter",
    "NoPostLocalGradientAllReduce": "post_local_gradient_allreduce",
    "NoErrorFeedback": "use_error_feedback", "NoWarmStart": "warm_start",
    "AnyOrder": "in_order", "WorkerInit": "worker_init_fn",
}  # fmt: skip
OPPOSITE = {
    "Partial", "Disabled",
    "NoBroadcastBuffers", "NoInitSync", "NoWaitForWorkers", "Disable",
    "NoDivideByInitialWorldSize", "NoErrorFeedback", "NoWarmStart",
    "NoPostLocalGradientAllReduce", "AnyOrder",
}  # fmt: skip

# Fields that are a value of another argument, or an argument that Python has not.
OTHERS = {
    "SamePadding",  # padding="same"
    "Report",  # what load_state_dict returns
    "SkipMismatched",  # an error in Python
    "CumulativeAverage",  # momentum=None
    "NumThresholds",  # thresholds, as a number
    "FanOut",  # mode="fan_out"
    "Seed",  # generator=
    "NoBatching",  # batch_size=None
    "MaxErrors", "OnError",  # of samples that fail, which end a loop in Python
    "Scoped",  # what Python does anyway
    "ActivationFunc",  # activation, as a function
    "embedded",
    "Nonlinearity",  # RNNBase has it in mode
    "Rename", "Device",  # of loading, which Python does before
    "NoCausalCheck",  # is_causal=False, where None has the mask looked at
    "Mask", "KeyPaddingMask", "IsCausal", "TgtIsCausal",  # mask or src_mask; None is not given
    "Freeze", "Weight",  # of embeddings, from_pretrained
    "Codec",  # which is pickle
    "Compression",  # register_comm_hook
    "NoOverwrite",  # overwrite=False, of FileSystemWriter
    "Modules", "CallerOnly", "MaxEvents", "GroupByGoroutine",  # a profile's, of Go's own
    "MaskFill",  # fill, by the kind of the input
    "RandomValue",  # value="random"
    "Generator",  # of functions that Python has draw from the default one
    "Labels",  # labels_getter
    "NoNormLayer", "NoActivation",  # norm_layer=None, activation_layer=None
    "Trained",  # weights or weights_backbone, of which Go downloads none
}  # fmt: skip

# Where PyTorch's signature has None, and says elsewhere what that is.
MEANT = {
    ("gotorch/data: LoaderOptions", "Prefetch"): 2,
    ("gotorch/distributed: DataParallelOptions", "NoBroadcastBuffers"): True,
    ("gotorch/distributed: Options", "Rank"): None,
    ("gotorch/distributed: Options", "WorldSize"): None,
}

PLAIN = {"bool", "int", "int64", "uint64", "float64", "string"}


@cache
def structs() -> dict[str, dict[str, str]]:
    """The option structs that are written by hand outside of package gotorch: fields and types."""
    found: dict[str, dict[str, str]] = {}
    for line in (ROOT / "gotorch/testdata/api.txt").read_text().splitlines():
        if m := re.fullmatch(r"(gotorch/\S+): type (\w*Options) struct, (\w+) (.*)", line):
            found.setdefault(f"{m[1]}: {m[2]}", {})[m[3]] = m[4]
    return found


@cache
def _sources(package: str) -> str:
    return "\n".join(p.read_text() for p in sorted((ROOT / package).glob("*.go")))


def documented(struct: str, field: str) -> str | None:
    """The default that the comment of a field tells."""
    package, name = struct.split(": ")
    if body := re.search(rf"\ntype {name} struct {{\n(.*?)\n}}", _sources(package), re.S):
        line = re.search(rf"((?:^\t//.*\n)*)^\t(?:\w+, )*{field}\b.*$", body[1], re.M)
        default = line and (
            re.search(r"default: ([^;]+)$", line[0])
            or re.search(r"Default: ([^.]+)\.$", line[1], re.M)
        )
        return default[1] if default else None
    raise AssertionError(f"no source of {struct}")


def python_default(struct: str, field: str) -> Any:
    known = arguments(struct)
    name = field
    if struct in PYTHON:
        name = NAMES.get(field) or re.sub(r"(?<!^)(?=[A-Z])", "_", field).lower()
    if name in known:
        default = MEANT.get((struct, field), known[name])
        if default is NO_DEFAULT:
            return None  # an argument that may be None
        return not default if field in OPPOSITE else default
    assert name.startswith("No"), f"{struct}: {field} is no argument of PyTorch's, by the rule"
    default = known[name.removeprefix("No")]
    assert default is True, f"{struct}: the opposite of {field} is not true by default"
    return not default


def test_every_options_struct_is_known():
    for struct in set(structs()) - OURS:
        if not struct.startswith(OPTIONAL):
            assert arguments(struct), struct
    assert set(PYTHON) | set(SHARED) | OURS <= set(structs())


FIELDS = [(s, f) for s, fields in structs().items() if s not in OURS for f in fields]


# Packages whose counterpart need not be installed. Their fields are held to it where it is.
OPTIONAL = (
    "gotorch/train/tensorboard: ",
    "gotorch/vision/models: ",
    "gotorch/vision/transforms",
    *(f"{package}: " for package in VISION),
)


@pytest.mark.parametrize(("struct", "field"), [(s, f) for s, f in FIELDS if f not in OTHERS])
def test_a_field_that_is_left_out_is_pytorchs_default(struct, field):
    kind, default = structs()[struct][field], python_default(struct, field)
    if kind == "string" and default is not None:
        assert documented(struct, field) == f'"{getattr(default, "__name__", default)}"'
    elif kind in PLAIN:
        assert not default, "this zero is not PyTorch's default"
    elif kind == "gotorch.Scalar" and default is not None:
        said = documented(struct, field)
        assert said is not None, "the comment does not tell the default"
        assert float(said.split(",")[0]) == default


def test_generated_options_have_no_zero_that_is_not_the_default():
    """A plain number has the default 0, and a plain bool False, by the schema."""
    checked = 0
    for op in api.resolve(functions.load_reference(), Names()):
        for p in op.optional:
            option = p.option
            if option is not None and option.type in PLAIN - {"string"}:
                checked += 1
                assert p.argument.default in ("0", "0.", "0.0", "False", "None", "-0."), (
                    op.go,
                    p.field,
                )
    assert checked > 500
