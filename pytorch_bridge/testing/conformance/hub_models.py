"""Models of Python's transformers as folders, with what they compute, for package hub/transformers.

`python -m pytorch_bridge.testing.conformance.hub_models` writes those that are kept in the
repository, where transformers is installed: some kilobytes each, with random weights.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from pytorch_bridge.toolchain import ROOT

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


def main() -> int:
    for kind in KINDS:
        folder = TESTDATA / kind
        shutil.rmtree(folder, ignore_errors=True)
        write(folder, kind, 0)
        (folder / "generation_config.json").unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
