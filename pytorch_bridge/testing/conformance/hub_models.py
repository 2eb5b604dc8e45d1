"""Models of Python's transformers as folders, with what they compute, for package hub/transformers.

`python -m pytorch_bridge.testing.conformance.hub_models` writes those that are kept in the
repository, where transformers is installed: some kilobytes each, with random weights.

transformers is optional. `Computed` has the same arithmetic in PyTorch's functions, so that Go's
results can be compared bit for bit with those of this machine anywhere.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from pytorch_bridge.native.toolchain import ROOT

TESTDATA = ROOT / "gotorch/hub/transformers/testdata"

# What a folder has beside the model: inputs and results.
EXPECTED = "expected.safetensors"


def gpt2(draw: random.Random) -> tuple[Any, dict[str, torch.Tensor]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    heads = draw.choice([1, 2, 4])
    config = GPT2Config(
        vocab_size=draw.randint(9, 70),
        n_positions=32,
        n_embd=heads * draw.choice([4, 6, 8]),
        n_layer=draw.randint(1, 3),
        n_head=heads,
        n_inner=draw.choice([None, 24]),
        activation_function=draw.choice(["gelu_new", "gelu", "relu", "gelu_pytorch_tanh", "silu"]),
        scale_attn_by_inverse_layer_idx=draw.random() < 0.3,
        tie_word_embeddings=draw.random() < 0.7,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return GPT2LMHeadModel(config), {}


def llama(draw: random.Random) -> tuple[Any, dict[str, torch.Tensor]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = draw.choice([2, 4])
    rope = draw.choice(
        [
            {"rope_type": "default", "rope_theta": 10000.0},
            {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
            {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        ]
    )
    size = draw.choice([4, 8])
    config = LlamaConfig(
        vocab_size=draw.randint(9, 70),
        hidden_size=heads * size,
        intermediate_size=draw.randint(5, 40),
        num_hidden_layers=draw.randint(1, 3),
        num_attention_heads=heads,
        num_key_value_heads=draw.choice([1, 2, heads]),
        head_dim=draw.choice([size, 6]),
        max_position_embeddings=32,
        rope_parameters=rope,
        attention_bias=draw.random() < 0.3,
        mlp_bias=draw.random() < 0.3,
        tie_word_embeddings=draw.random() < 0.3,
        hidden_act=draw.choice(["silu", "gelu"]),
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config), {}


def bert(draw: random.Random) -> tuple[Any, dict[str, torch.Tensor]]:
    from transformers import BertConfig, BertForSequenceClassification

    heads = draw.choice([1, 2, 4])
    config = BertConfig(
        vocab_size=draw.randint(9, 70),
        hidden_size=heads * draw.choice([4, 6, 8]),
        num_hidden_layers=draw.randint(1, 3),
        num_attention_heads=heads,
        intermediate_size=draw.randint(5, 40),
        max_position_embeddings=32,
        hidden_act=draw.choice(["gelu", "relu", "gelu_new"]),
        num_labels=draw.randint(2, 5),
    )
    model = BertForSequenceClassification(config)
    return model, {"token_type_ids": torch.zeros(0)}


KINDS: dict[str, Callable[[random.Random], tuple[Any, dict[str, torch.Tensor]]]] = {
    "gpt2": gpt2,
    "llama": llama,
    "bert": bert,
}


def write(folder: Path, kind: str, seed: int) -> None:
    """Saves a random model of a kind, and beside it what it computes."""
    draw = random.Random(f"{kind} {seed}")
    torch.manual_seed(seed)
    model, extra = KINDS[kind](draw)
    with torch.no_grad():  # the first values leave biases at 0 and norms at 1
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.eval()
    if dtype := draw.choice([None, None, torch.bfloat16]) if seed else None:
        model.to(dtype)
    shard = draw.choice(["4KB", "20KB", "1GB"]) if seed else "8KB"
    model.save_pretrained(folder, max_shard_size=shard)
    if seed:
        file = folder / "config.json"
        file.write_text(json.dumps(with_other_names(json.loads(file.read_text()), draw)))
    # Loaded anew, because `to` has converted tables that are float32 in a model that is loaded.
    model = type(model).from_pretrained(folder, dtype=dtype or torch.float32).eval()
    # safetensors leaves weights where they are in a file, at any multiple of four bytes, and a
    # product with one row has another order of sums there than in memory of PyTorch's own.
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    n, length = (draw.randint(1, 3), draw.randint(1, 12)) if seed else (2, 7)
    vocabulary = model.config.vocab_size
    inputs = {"input_ids": torch.randint(3, vocabulary, (n, length))}
    if "token_type_ids" in extra:
        inputs["token_type_ids"] = torch.randint(2, (n, length))
    mask = torch.ones(n, length, dtype=torch.int64)
    mask[0, max(1, length - 2) :] = 0
    expected = dict(inputs)
    with torch.no_grad():
        expected["logits"] = model(**inputs).logits
        expected["attention_mask"] = mask
        expected["masked"] = model(**inputs, attention_mask=mask).logits
        if kind != "bert":
            for name, more in {"greedy": {}, "ended": {"eos_token_id": None}}.items():
                expected[name] = model.generate(
                    inputs["input_ids"],
                    attention_mask=torch.ones_like(inputs["input_ids"]),
                    do_sample=False,
                    max_new_tokens=8,
                    **more,
                )
        else:
            expected["hidden"] = model.bert(**inputs).last_hidden_state
    save_file({k: v.contiguous() for k, v in expected.items()}, folder / EXPECTED)


# Names of GPT-2's sizes that transformers takes as well, and before its own.
GPT2_NAMES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}


def with_other_names(config: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """A configuration of the same sizes as another, in which some keys have an older or a common
    name, or both names with different values. Llama's positions may turn in another way."""
    kind = config["model_type"]
    if kind == "gpt2":
        for common, own in GPT2_NAMES.items():
            way = draw.randrange(4)
            if way:
                config[common] = config[own]
            if way == 2:
                del config[own]
            elif way == 3:
                config[own] = 7
    elif kind == "bert":
        if "id2label" in config and draw.random() < 0.5:
            config["num_labels"] = len(config["id2label"])
            if draw.random() < 0.5:
                config["id2label"] = {str(i): "a" for i in range(9)}
            else:
                del config["id2label"]
                config.pop("label2id", None)
    else:
        for name in ("rope_parameters", "rope_scaling"):
            config[name] = draw.choice([a_rope(draw), a_rope(draw), {}, None])
        if draw.random() < 0.5:
            config["rope_theta"] = draw.choice([300.0, 20000.0])
        if draw.random() < 0.5:
            config["original_max_position_embeddings"] = draw.choice([4, 8])
    return config


def a_rope(draw: random.Random) -> dict[str, Any]:
    """RoPE's parameters, in the form of new or old configurations."""
    rope: dict[str, Any] = {}
    if draw.random() < 0.5:
        rope["rope_theta"] = draw.choice([500.0, 10000.0])
    kind = draw.choice(["default", "linear", "llama3"])
    match draw.randrange(3):
        case 0:
            rope["type"] = kind
        case 1:
            rope["rope_type"] = kind
        case _:
            rope |= {"rope_type": kind, "type": draw.choice(["default", "linear"])}
    if kind != "default":
        rope["factor"] = draw.choice([2, 3.0, 4.0])
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
        if draw.random() < 0.5:
            rope["original_max_position_embeddings"] = 16
    return rope


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_new": lambda x: (
        0.5 * x * (1.0 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))
    ),
    "relu": F.relu,
    "silu": F.silu,
}


class Computed:
    """A model's results, by PyTorch's functions from its configuration and its weights."""

    def __init__(self, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
        self.config, self.weights = config, weights

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def norm(self, x: Tensor, name: str, eps: float) -> Tensor:
        w = self.weights
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, heads: int, **options: Any) -> Tensor:
        """Attention with `heads` heads of the queries; keys and values may have fewer."""
        size = q.shape[-1] // heads
        q, k, v = (t.view(*t.shape[:2], -1, size).transpose(1, 2) for t in (q, k, v))
        if turned := options.pop("turned", None):
            q, k = turned(q), turned(k)
        if options.get("attn_mask") is not None:
            times = heads // k.shape[1]
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
            options.pop("is_causal", None)
        elif k.shape[1] != heads:
            options["enable_gqa"] = True
        out = F.scaled_dot_product_attention(q, k, v, scale=size**-0.5, **options)
        return out.transpose(1, 2).flatten(2)

    def causal(self, ids: Tensor, mask: Tensor | None) -> dict[str, Any]:
        """The options of attention to the tokens before."""
        if mask is None:
            return {"is_causal": ids.shape[1] > 1}
        square = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        return {"attn_mask": square & mask.bool()[:, None, None, :]}

    def frequency(self, size: int) -> Tensor:
        """By how much pairs of features turn from one position to the next."""
        c = self.config
        rope = c.get("rope_scaling") or c.get("rope_parameters") or {}
        theta = rope.get("rope_theta", c.get("rope_theta", 10000.0))
        kind = rope.get("rope_type", rope.get("type", "default"))
        frequency = 1.0 / theta ** (torch.arange(0, size, 2).float() / size)
        if kind == "default":
            return frequency
        slow = frequency / rope["factor"]
        if kind == "linear":
            return slow
        length = rope.get("original_max_position_embeddings", c["max_position_embeddings"])
        length = c.get("original_max_position_embeddings", length)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        turns = 2 * torch.pi / frequency
        part = (length / turns - low) / (high - low)
        between = (1 - part) * frequency / rope["factor"] + part * frequency
        return torch.where(
            turns > length / low, slow, torch.where(turns < length / high, frequency, between)
        )

    def llama(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        c, w, options = self.config, self.weights, self.causal(ids, mask)
        heads = c["num_attention_heads"]
        size = w["model.layers.0.self_attn.q_proj.weight"].shape[0] // heads
        frequency = self.frequency(size)
        angles = torch.arange(ids.shape[1])[:, None].float() * frequency
        angles = torch.cat([angles, angles], -1)

        def norm(x: Tensor, name: str) -> Tensor:
            y = x.float()
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"])
            return w[name + ".weight"] * y.to(x.dtype)

        x = F.embedding(ids, w["model.embed_tokens.weight"])
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)

        def turned(x: Tensor) -> Tensor:
            a, b = x.chunk(2, -1)
            return x * cos + torch.cat([-b, a], -1) * sin

        for i in range(c["num_hidden_layers"]):
            at = f"model.layers.{i}."
            y = norm(x, at + "input_layernorm")
            q, k, v = (self.linear(y, f"{at}self_attn.{n}_proj") for n in "qkv")
            y = self.attend(q, k, v, heads, turned=turned, **options)
            x = x + self.linear(y, at + "self_attn.o_proj")
            y = norm(x, at + "post_attention_layernorm")
            gate = ACTIVATIONS[c["hidden_act"]](self.linear(y, at + "mlp.gate_proj"))
            x = x + self.linear(gate * self.linear(y, at + "mlp.up_proj"), at + "mlp.down_proj")
        head = "model.embed_tokens" if c["tie_word_embeddings"] else "lm_head"
        return F.linear(norm(x, "model.norm"), w[head + ".weight"])

    def gpt2(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        c, w, options = self.config, self.weights, self.causal(ids, mask)
        # Its weights are of Conv1D, which has them transposed; Go's Linear has them as rows.
        w = {
            n: t.t().contiguous()
            if n.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
            else t
            for n, t in w.items()
        }
        rows = Computed(c, w)
        eps = c["layer_norm_epsilon"]
        n_layer, n_head = (
            c.get(common) or c[GPT2_NAMES[common]]
            for common in ("num_hidden_layers", "num_attention_heads")
        )
        x = F.embedding(ids, w["transformer.wte.weight"])
        x = x + F.embedding(torch.arange(ids.shape[1])[None], w["transformer.wpe.weight"])
        for i in range(n_layer):
            at = f"transformer.h.{i}."
            qkv = rows.linear(rows.norm(x, at + "ln_1", eps), at + "attn.c_attn")
            q, k, v = qkv.split(x.shape[2], 2)
            y = rows.attend(q, k, v, n_head, **options)
            x = rows.linear(y, at + "attn.c_proj") + x
            y = rows.linear(rows.norm(x, at + "ln_2", eps), at + "mlp.c_fc")
            x = x + rows.linear(ACTIVATIONS[c["activation_function"]](y), at + "mlp.c_proj")
        head = "transformer.wte" if c["tie_word_embeddings"] else "lm_head"
        return F.linear(rows.norm(x, "transformer.ln_f", eps), w[head + ".weight"])

    def bert(self, ids: Tensor, types: Tensor, mask: Tensor | None) -> Tensor:
        """The hidden states."""
        c, w, eps = self.config, self.weights, self.config["layer_norm_eps"]
        at = "bert.embeddings."
        x = F.embedding(ids, w[at + "word_embeddings.weight"])
        x = x + F.embedding(types, w[at + "token_type_embeddings.weight"])
        x = x + F.embedding(torch.arange(ids.shape[1])[None], w[at + "position_embeddings.weight"])
        x = self.norm(x, at + "LayerNorm", eps)
        attended = None if mask is None else mask.bool()[:, None, None, :]
        for i in range(c["num_hidden_layers"]):
            at = f"bert.encoder.layer.{i}."
            q, k, v = (self.linear(x, f"{at}attention.self.{n}") for n in ("query", "key", "value"))
            y = self.attend(q, k, v, c["num_attention_heads"], attn_mask=attended)
            y = self.linear(y, at + "attention.output.dense")
            x = self.norm(y + x, at + "attention.output.LayerNorm", eps)
            y = ACTIVATIONS[c["hidden_act"]](self.linear(x, at + "intermediate.dense"))
            x = self.norm(self.linear(y, at + "output.dense") + x, at + "output.LayerNorm", eps)
        return x

    def classified(self, hidden: Tensor) -> Tensor:
        pooled = torch.tanh(self.linear(hidden[:, 0], "bert.pooler.dense"))
        return self.linear(pooled, "classifier")

    def results(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        """Write the inputs of `given` and the results beside the model."""
        ids, mask = given["input_ids"], given["attention_mask"]
        if self.config["model_type"] == "bert":
            types = given["token_type_ids"]
            hidden = self.bert(ids, types, None)
            masked = self.classified(self.bert(ids, types, mask))
            found = {"hidden": hidden, "logits": self.classified(hidden), "masked": masked}
            return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types, **found}
        forward = getattr(self, self.config["model_type"])
        found = {"logits": forward(ids, None), "masked": forward(ids, mask)}
        for name, end in {"greedy": self.config["eos_token_id"], "ended": None}.items():
            tokens, ended = ids, torch.zeros(len(ids), dtype=torch.bool)
            for _ in range(8):
                best = forward(tokens, None)[:, -1].argmax(-1)
                best[ended] = self.config["pad_token_id"]
                ended |= torch.tensor(False) if end is None else best == end
                tokens = torch.cat([tokens, best[:, None]], 1)
                if ended.all():
                    break
            found[name] = tokens
        return {"input_ids": ids, "attention_mask": mask, **found}


def opened(folder: Path) -> Computed:
    weights = {}
    for file in folder.glob("model*.safetensors"):
        # Cloned, because in the file they are at any multiple of four bytes: see `write`.
        weights.update({name: t.clone() for name, t in load_file(file).items()})
    return Computed(json.loads((folder / "config.json").read_text()), weights)


def vary(of: Path, folder: Path, seed: int) -> None:
    """Writes a model of the shapes of another, and beside it this machine's results.

    For seed 0 it has the same weights and inputs, for others random ones and another configuration.
    """
    draw = random.Random(seed)
    g = torch.Generator().manual_seed(seed)
    model, given = opened(of), load_file(of / EXPECTED)
    config = model.config
    if seed:
        for name, t in model.weights.items():
            model.weights[name] = torch.randn(t.shape, generator=g) * 0.3 + ("norm" in name.lower())
        acts = sorted(ACTIVATIONS)
        config["activation_function" if config["model_type"] == "gpt2" else "hidden_act"] = (
            draw.choice(acts)
        )
        if config["model_type"] == "bert":
            config["num_attention_heads"] = draw.choice([1, 2, 3, 4, 6])
        elif config["model_type"] == "gpt2":
            config["n_head"] = draw.choice([1, 2, 3, 4, 6])
        config = model.config = with_other_names(config, draw)
        vocabulary, shape = config["vocab_size"], (draw.randint(1, 3), draw.randint(2, 12))
        given["input_ids"] = torch.randint(3, vocabulary, shape, generator=g)
        given["token_type_ids"] = torch.randint(2, shape, generator=g)
        given["attention_mask"] = torch.ones(shape, dtype=torch.int64)
        given["attention_mask"][0, max(1, shape[1] - 2) :] = 0
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(model.weights, folder / "model.safetensors")
    with torch.no_grad():
        results = model.results(given)
    save_file({k: v.contiguous() for k, v in results.items()}, folder / EXPECTED)


def main() -> int:
    for kind in KINDS:
        folder = TESTDATA / kind
        shutil.rmtree(folder, ignore_errors=True)
        write(folder, kind, 0)
        (folder / "generation_config.json").unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
