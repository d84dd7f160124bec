"""A random model of half a megabyte that vLLM runs like any other, EAGLE drafters for it, and the tuner's engine."""

import json
from pathlib import Path
from typing import Any

from dsd_tune.engines.vllm_engine import VllmEngine
from dsd_tune.records.condition import Condition
from dsd_tune.records.prompt import Prompt

CONDITION = Condition(256, 0.0)

PROMPTS = [Prompt(f"p{i:02}", f"Tell me the story number {i} of {100 * i} nights.") for i in range(24)]

_SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 320,
    "max_position_embeddings": 1024,
    "dtype": "bfloat16",
}


def make_target(folder: Path) -> Path:
    """A Llama with two layers, random weights and a tokenizer of bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(**_SHAPE, num_hidden_layers=2, bos_token_id=256, eos_token_id=257)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def make_experts(folder: Path) -> Path:
    """A mixture of four experts, as a configuration and a tokenizer."""
    from transformers import MixtralConfig

    config = MixtralConfig(**_SHAPE, num_hidden_layers=2, num_local_experts=4, bos_token_id=256, eos_token_id=257)
    config.architectures = ["MixtralForCausalLM"]
    config.save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def make_drafter(folder: Path, **changed: object) -> Path:
    """An EAGLE drafter with one layer and random weights: it runs, and is right by chance only."""
    import torch
    from safetensors.torch import save_file

    shape = {**_SHAPE, **changed}
    config = {"model_type": "llama", "architectures": ["EagleLlamaForCausalLM"], "num_hidden_layers": 1, **shape}
    hidden, inner = int(str(shape["hidden_size"])), int(str(shape["intermediate_size"]))
    shapes = {
        "fc.weight": (hidden, 2 * hidden),
        "layers.0.self_attn.q_proj.weight": (4 * 32, hidden),
        "layers.0.self_attn.k_proj.weight": (2 * 32, hidden),
        "layers.0.self_attn.v_proj.weight": (2 * 32, hidden),
        "layers.0.self_attn.o_proj.weight": (hidden, 4 * 32),
        "layers.0.mlp.gate_proj.weight": (inner, hidden),
        "layers.0.mlp.up_proj.weight": (inner, hidden),
        "layers.0.mlp.down_proj.weight": (hidden, inner),
        "layers.0.post_attention_layernorm.weight": (hidden,),
    }
    torch.manual_seed(1)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name: 0.02 * torch.randn(size).bfloat16() for name, size in shapes.items()}, folder / "model.safetensors"
    )
    return folder


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary |= {"<s>": 256, "</s>": 257}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")  # noqa: S106
    fast.save_pretrained(folder)


def an_engine(models: Path, log_dir: Path, **changed: Any) -> VllmEngine:
    """An engine with Ks 0 to 2 for `target` and `eagle` in `models`, with `changed` arguments."""
    arguments: dict[str, Any] = {
        "model": str(models / "target"),
        "speculative_config": {"method": "eagle", "model": str(models / "eagle")},
        "ks": (0, 1, 2),
        "max_num_seqs": 8,
        "conditions": (CONDITION,),
        "prompts": PROMPTS,
        "seed": 1,
        "engine_flags": ("--max-model-len", "512", "--enforce-eager"),
    }
    return VllmEngine(**{**arguments, **changed}, log_dir=log_dir)
