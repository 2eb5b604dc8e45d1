"""Which models there are, how each is made, and what it is called with.

All weights are random. Models of transformers get small sizes; the others are as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

# What is exported, and what it is called with beside that: sizes of the open dimensions.
BATCHES = (2, 3, 5, 1)
TOKENS = ((2, 12), (3, 9), (5, 17), (1, 12), (2, 16), (4, 12))


@dataclass(frozen=True)
class ZooModel:
    """A model. `make` returns it with a function from sizes to its arguments; the first of `sizes`
    is the one that it is exported with, `open` the number of open dimensions of each argument."""

    library: str
    name: str
    make: Callable[[], tuple[Any, Callable[..., tuple[Any, ...]]]]
    sizes: tuple[tuple[int, ...], ...]

    @property
    def key(self) -> str:
        return f"{self.library}-{self.name}"


def _words(text: str) -> list[str]:
    return text.split()


TORCHVISION = _words("""
alexnet convnext_tiny deeplabv3_mobilenet_v3_large deeplabv3_resnet50 densenet121 densenet161
efficientnet_b0 efficientnet_b1 efficientnet_v2_s fcn_resnet50 googlenet inception_v3
lraspp_mobilenet_v3_large maxvit_t mc3_18 mnasnet0_5 mnasnet1_0 mobilenet_v2 mobilenet_v3_large
mobilenet_v3_small mvit_v1_b mvit_v2_s r2plus1d_18 r3d_18 regnet_x_400mf regnet_x_1_6gf
regnet_y_400mf regnet_y_1_6gf resnet18 resnet34 resnet50 resnet101 resnext50_32x4d s3d
shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x2_0 squeezenet1_0 squeezenet1_1 swin_t
swin_v2_t swin3d_t vgg11 vgg11_bn vit_b_32 vit_b_16 wide_resnet50_2 retinanet_resnet50_fpn
""")

_VIDEO = {"mc3_18": 8, "r3d_18": 8, "r2plus1d_18": 8, "s3d": 16, "swin3d_t": 8}
_VIDEO |= {"mvit_v1_b": 16, "mvit_v2_s": 16}
_SIDES = {"inception_v3": 128, "maxvit_t": 224, "alexnet": 96, "s3d": 224, "densenet121": 64}
_SIDES |= {"mvit_v1_b": 224, "mvit_v2_s": 224}


def _torchvision(name: str) -> ZooModel:
    def make() -> tuple[Any, Callable[..., tuple[Any, ...]]]:
        import torch
        import torchvision  # type: ignore[import-not-found]

        options: dict[str, Any] = {"weights": None}
        if "resnet50_fpn" in name or name.startswith(("deeplab", "fcn", "lraspp", "retina")):
            options["weights_backbone"] = None
        if name in ("googlenet", "inception_v3"):
            options |= {"init_weights": False, "aux_logits": False}
        side = _SIDES.get(name, 64)
        if name.startswith("vit_"):
            options["image_size"] = side
        model = torchvision.models.get_model(name, **options)
        frames = (_VIDEO[name],) if name in _VIDEO else ()
        return model, lambda n: (torch.randn(n, 3, *frames, side, side),)

    sizes = ((1,),) if name.startswith("mvit") else tuple((n,) for n in BATCHES)
    if name.startswith("mvit"):
        sizes = ((2,), (1,), (3,))
    return ZooModel("torchvision", name, make, sizes)


TIMM = _words("""
bat_resnext26ts eca_resnext26ts gcresnext26ts gernet_s mobileone_s0 beit_base_patch16_224
botnet26t_256 halonet26t lambda_resnet26t lamhalobotnet50ts_256 sebotnet33ts_256 caformer_s18
convformer_s18 poolformer_s12 poolformerv2_s12 cait_xxs24_224 coat_tiny coat_lite_tiny
coatnet_nano_rw_224 maxvit_rmlp_pico_rw_256 convit_tiny convmixer_768_32 convnext_atto
convnextv2_atto crossvit_tiny_240 crossvit_9_dagger_240 cs3darknet_s cspresnet50 davit_tiny
deit_tiny_distilled_patch16_224 deit3_small_patch16_224 densenetblur121d dla34 dla46x_c
eca_nfnet_l0 nf_regnet_b0 dpn48b ese_vovnet19b_dw ecaresnet26t resnet10t edgenext_xx_small
efficientformer_l1 efficientformerv2_s0 efficientnet_b0_gn tf_efficientnet_lite0 mixnet_s
efficientvit_b0 efficientvit_m0 eva02_tiny_patch14_224 fasternet_t0 fastvit_t8 fbnetv3_b lcnet_035
mobilenetv3_small_050 focalnet_tiny_srf gcvit_xxtiny ghostnet_050 ghostnetv2_100 gmlp_ti16_224
mixer_s32_224 resmlp_12_224 hardcorenas_a hgnetv2_b0 hiera_tiny_224 hrnet_w18_small
inception_next_atto levit_128s levit_conv_128s mambaout_femto mobilevit_xxs mobilevitv2_050
mvitv2_tiny nest_tiny nextvit_small pit_ti_224 pvt_v2_b0 rdnet_tiny regnetz_b16 repghostnet_050
repvit_m0_9 res2net50_14w_8s resnest14d resnetv2_18 resnetv2_50x1_bit rexnet_100 selecsls42
sequencer2d_s shvit_s1 skresnet18 starnet_s050 swiftformer_xs swin_tiny_patch4_window7_224
swinv2_tiny_window8_256 swinv2_cr_tiny_224 tiny_vit_5m_224 tnt_s_patch16_224 tresnet_m
twins_svt_small twins_pcpvt_small visformer_tiny vit_tiny_patch16_224 vit_relpos_small_patch16_224
vit_srelpos_small_patch16_224 vitamin_small_224 volo_d1_224 xception41 xcit_nano_12_p16_224
""")


def timm_entry(name: str) -> ZooModel:
    def make() -> tuple[Any, Callable[..., tuple[Any, ...]]]:
        import timm  # type: ignore[import-not-found]
        import torch

        model = timm.create_model(name, pretrained=False)
        known = model.default_cfg
        channels, side, _ = known["input_size"]
        if not known.get("fixed_input_size"):
            side = min(side, 128)

        def inputs(n: int) -> tuple[Any, ...]:
            return (torch.randn(n, channels, side, side),)

        try:
            with torch.no_grad():
                model.eval()(*inputs(1))
        except Exception:  # one that says of no size that it is fixed
            side = known["input_size"][1]
        return model, inputs

    return ZooModel("timm", name, make, tuple((n,) for n in BATCHES))


# Sizes that every model of transformers gets, where its configuration has them.
SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "text_vocab_size", "entity_vocab_size"), 128),
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "word_embed_proj_dim"), 64
    ),
    **dict.fromkeys(("emb_dim", "attention_hidden_size", "text_embed_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "hidden_dim"), 128),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size"), 128),
    **dict.fromkeys(("ffn_hidden_size", "dff", "shared_expert_intermediate_size"), 128),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"), 64),
    "num_key_value_heads": 2,
    "head_dim": 16,
    "d_kv": 16,
    "d_head": 16,
    "rotary_dim": 8,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}

_TEXT = _words("""
albert bert bert-generation biogpt bitnet bloom camembert codegen cohere convbert cpmant ctrl
data2vec-text deberta deberta-v2 deepseek_v2 deepseek_v3 diffllama distilbert doge electra ernie esm
exaone4 falcon fnet funnel gemma gemma2 gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neo gpt_neox gptj
granite granitemoe helium ibert layoutlm lilt llama mamba mamba2 megatron-bert mistral mixtral
mobilebert modernbert mpnet mpt mra nemotron nystromformer olmo olmo2 olmoe openai-gpt opt persimmon
phi phi3 qwen2 qwen2_moe qwen3 qwen3_moe rembert roberta roberta-prelayernorm roformer rwkv seed_oss
smollm3 splinter squeezebert stablelm starcoder2 xglm xlm xlm-roberta xlnet xmod yoso
""")
_BOTH = _words(
    "bart blenderbot m2m_100 marian mbart mt5 pegasus plbart switch_transformers t5 umt5"
)
_IMAGES = _words("""
beit bit clip_vision_model convnext convnextv2 deit dinov2 dinov2_with_registers focalnet hiera
mobilenet_v1 mobilevit poolformer pvt_v2 regnet resnet segformer siglip_vision_model swin swinv2 vit
vit_msn yolos detr
""")
_SOUNDS = _words("hubert sew unispeech wav2vec2 wavlm")

_PARTICULAR: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 32},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "deepseek_v2": {
        **{"kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8},
        **{"v_head_dim": 16, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1},
        **{"num_key_value_heads": 4, "head_dim": 8},
    },
    "deepseek_v3": {
        **{"kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8},
        **{"v_head_dim": 16, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1},
        **{"num_key_value_heads": 4, "head_dim": 8},
    },
    "esm": {"position_embedding_type": "rotary", "emb_layer_norm_before": False},
    "funnel": {"block_sizes": [1, 1], "num_decoder_layers": 1},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "mamba": {"state_size": 8},
    "mamba2": {"num_heads": 8, "head_dim": 16, "state_size": 8, "n_groups": 1, "chunk_size": 8},
    "mixtral": {"experts_implementation": "batched_mm"},
    "mobilebert": {"intra_bottleneck_size": 32, "true_hidden_size": 32, "embedding_size": 32},
    "modernbert": {"global_attn_every_n_layers": 2, "local_attention": 8},
    "rwkv": {"attention_hidden_size": 64, "context_length": 64},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    # Images, in small.
    "swin": {"image_size": 64, "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4]},
    "swinv2": {"image_size": 64, "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4]},
}
_PARTICULAR["swin"]["window_size"] = _PARTICULAR["swinv2"]["window_size"] = 4
# Those whose attribute of a name is a list, or whose sizes belong to each other, stay as they are.
_AS_THEY_ARE = frozenset(
    _words("""bit convnext convnextv2 focalnet hiera mobilenet_v1 mobilevit poolformer pvt_v2 regnet
    resnet segformer""")
)
_CPU_EXPERTS = (
    "mixtral",
    "olmoe",
    "qwen2_moe",
    "qwen3_moe",
    "granitemoe",
    "deepseek_v2",
    "deepseek_v3",
)


def configuration(name: str) -> Any:
    """The configuration of a kind of model, made small."""
    import transformers

    kind = transformers.CONFIG_MAPPING[name]
    if name in _AS_THEY_ARE:
        return kind()
    known = kind()
    names = set(known.to_dict()) | set(getattr(kind, "attribute_map", ()))
    chosen = {
        k: v
        for k, v in SMALL.items()
        if k in names and not isinstance(getattr(known, k, 0), (list, tuple))
    }
    if "image_size" in names and isinstance(known.image_size, int):
        chosen["image_size"] = 64
    chosen |= _PARTICULAR.get(name, {})
    if name in _CPU_EXPERTS:
        chosen["experts_implementation"] = "batched_mm"
    experts = chosen.pop("experts_implementation", None)
    made = kind(**chosen)
    if experts is not None:
        made._experts_implementation = experts
    return made


class _First:
    """Makes a module that returns the first result, a tensor, of another."""

    def __new__(cls, model: Any, names: tuple[str, ...], masked: bool = False) -> Any:
        import torch

        class First(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, first: Any, second: Any = None) -> Any:
                named = dict(zip(names, (first, second), strict=False))
                if masked:  # which the model does not do by itself
                    named["attention_mask"] = torch.ones_like(first)
                    named["decoder_attention_mask"] = torch.ones_like(second)
                return self.model(**named)[0]

        return First()


def _transformers(name: str) -> ZooModel:
    def make() -> tuple[Any, Callable[..., tuple[Any, ...]]]:
        import torch
        import transformers

        config = configuration(name)
        kind = transformers.MODEL_MAPPING[type(config)]
        if isinstance(kind, (list, tuple)):
            kind = kind[0]
        model = kind(config)

        def ids(*sizes: int) -> Any:
            return torch.randint(3, 100, sizes)

        if name in _BOTH:
            masked = name == "switch_transformers"
            first = _First(model, ("input_ids", "decoder_input_ids"), masked)
            return first, lambda n, m: (ids(n, m), ids(n, m))
        if name in _IMAGES:
            side = getattr(config, "image_size", 64)
            side = side if isinstance(side, int) else 64
            side = 224 if name == "hiera" else min(side, 64)
            return _First(model, ("pixel_values",)), lambda n: (torch.randn(n, 3, side, side),)
        if name in _SOUNDS:
            return _First(model, ("input_values",)), lambda n: (torch.randn(n, 1600),)
        return _First(model, ("input_ids",)), lambda n, m: (ids(n, m),)

    sizes = tuple((n,) for n in BATCHES) if name in (*_IMAGES, *_SOUNDS) else TOKENS
    return ZooModel("transformers", name, make, sizes)


# What else is exported to Go, and compiled by torch.compile.
GO = _words("""
torchvision-resnet18 torchvision-mobilenet_v3_small torchvision-swin_t torchvision-vit_b_32
torchvision-mvit_v2_s torchvision-densenet121 torchvision-retinanet_resnet50_fpn timm-convnext_atto
timm-efficientnet_b0_gn timm-levit_128s timm-mobilevit_xxs timm-xcit_nano_12_p16_224
timm-vit_tiny_patch16_224 transformers-bert transformers-gpt2 transformers-llama transformers-t5
transformers-mixtral transformers-detr transformers-wav2vec2
""")


def entries() -> Iterator[ZooModel]:
    """All models. They come from the libraries in turn, so that a part of them is a sample."""
    lists = [
        [_torchvision(n) for n in TORCHVISION],
        [timm_entry(n) for n in TIMM],
        [_transformers(n) for n in (*_TEXT, *_BOTH, *_IMAGES, *_SOUNDS)],
    ]
    while any(lists):
        for some in lists:
            if some:
                yield some.pop(0)
