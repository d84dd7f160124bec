"""Read the target's embeddings and write a drafter the way vLLM loads it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from dsd_tune.testbed.training.head import Eagle, Eagle3

TARGET_VOCABULARY = 49152


def read_embeddings(target: Path) -> Tensor:
    """Return the target's embeddings, which are its output layer too, as bf16 (vocabulary, hidden)."""
    with safe_open(target / "model.safetensors", framework="pt") as tensors:
        embeddings: Tensor = tensors.get_tensor("model.embed_tokens.weight")
    return embeddings


def save(drafter: Eagle | Eagle3, kept: Tensor, directory: Path) -> None:
    """Write weights in bf16 and the configuration; ``kept`` are EAGLE-3's token ids in rising order."""
    directory.mkdir(parents=True, exist_ok=True)
    weights = {name: w.detach().to(torch.bfloat16).contiguous() for name, w in drafter.named_parameters()}
    if isinstance(drafter, Eagle3):
        weights["d2t"] = kept - torch.arange(len(kept))
    partial = directory / "model.safetensors.partial"
    save_file(weights, partial, metadata={"format": "pt"})
    partial.rename(directory / "model.safetensors")
    text = json.dumps(_config(drafter, len(kept)), indent=2) + "\n"
    (directory / "config.json").write_text(text, encoding="utf-8")


def _config(drafter: Eagle | Eagle3, kept: int) -> dict[str, object]:
    shape = drafter.shape
    config: dict[str, object] = {
        "architectures": ["EagleLlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "dtype": "bfloat16",
        "head_dim": shape.head_size,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": 8192,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": 1,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.eps,
        "rope_parameters": {"rope_theta": shape.rope_theta, "rope_type": "default"},
        "tie_word_embeddings": False,
        "vocab_size": TARGET_VOCABULARY,
    }
    if isinstance(drafter, Eagle3):
        config |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": kept, "fc_norm": True}
    return config
