"""The models that parity.py compares: published shapes, small relatives of them for a CPU, and checkpoints of both."""

import json

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers.utils import logging

logging.disable_progress_bar()

LAYERS_OF_VARIANTS = 4


def llama3_rope(theta, factor, original):
    return {"rope_type": "llama3", "rope_theta": theta, "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": original}


def plain_rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


def shape(kind, hidden, inner, layers, heads, kv_heads, head_dim, vocabulary, tied, positions, rope, eps):
    """A config. Weights are drawn as wide as makes activations spread as at a hidden size of 4096: with transformers' 0.02
    a small model attends to everything alike and repeats its input, and a wrong position would hardly show."""
    return kind(initializer_range=0.02 * (4096 / hidden) ** 0.5,
                hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, head_dim=head_dim, vocab_size=vocabulary, tie_word_embeddings=tied,
                max_position_embeddings=positions, rope_parameters=rope, rms_norm_eps=eps, bos_token_id=1, eos_token_id=2,
                pad_token_id=None, **({"sliding_window": None} if kind is MistralConfig else {}))


# The published shapes.
FULL = {
    "Llama-3.2-1B": lambda: shape(LlamaConfig, 2048, 8192, 16, 32, 8, 64, 128256, True, 131072,
                                  llama3_rope(500000.0, 32.0, 8192), 1e-5),
    "Llama-3.1-8B": lambda: shape(LlamaConfig, 4096, 14336, 32, 32, 8, 128, 128256, False, 131072,
                                  llama3_rope(500000.0, 8.0, 8192), 1e-5),
    "Mistral-7B": lambda: shape(MistralConfig, 4096, 14336, 32, 32, 8, 128, 32768, False, 32768, plain_rope(1e6), 1e-5),
    "Qwen2.5-0.5B": lambda: shape(Qwen2Config, 896, 4864, 24, 14, 2, 64, 151936, True, 32768, plain_rope(1e6), 1e-6),
    "Qwen3-0.6B": lambda: shape(Qwen3Config, 1024, 3072, 28, 16, 8, 128, 151936, True, 40960, plain_rope(1e6), 1e-6),
}

# The same architectures, small: grouped queries, tied and not, heads of 64, 96 and 128 that need not fill the hidden size.
# llama3 scaling starts at 128 tokens, so that short prompts see it.
SMALL = {
    "Llama-3.2-1B": lambda: shape(LlamaConfig, 512, 1408, 4, 8, 2, 64, 4096, True, 4096,
                                  llama3_rope(500000.0, 32.0, 128), 1e-5),
    "Llama-3.1-8B": lambda: shape(LlamaConfig, 512, 1024, 4, 4, 1, 128, 4000, False, 4096,
                                  llama3_rope(500000.0, 8.0, 128), 1e-5),
    "Mistral-7B": lambda: shape(MistralConfig, 576, 1536, 4, 6, 2, 96, 2048, False, 4096, plain_rope(1e6), 1e-5),
    "Qwen2.5-0.5B": lambda: shape(Qwen2Config, 448, 1216, 4, 7, 1, 64, 3001, True, 4096, plain_rope(1e6), 1e-6),
    "Qwen3-0.6B": lambda: shape(Qwen3Config, 256, 768, 4, 4, 2, 128, 4096, True, 4096, plain_rope(1e6), 1e-6),
}


def of_two_layers(model, vocabulary, hidden, inner, heads, kv_heads, head_dim):
    kind, rope = {"llama": (LlamaConfig, llama3_rope(500000.0, 8.0, 8192)), "qwen2": (Qwen2Config, plain_rope(1e6)),
                  "qwen3": (Qwen3Config, plain_rope(1e6))}[model]
    return lambda: shape(kind, hidden, inner, 2, heads, kv_heads, head_dim, vocabulary, False, 4096, rope, 1e-5)


# For decode steps: heads of 64 and 128, 4, 5 and 7 query heads for each of K and V. Published widths for a GPU.
DECODED = {
    "cuda": {"Llama-3.2-1B": of_two_layers("llama", 16384, 2048, 8192, 32, 8, 64),
             "Llama-3.1-8B": of_two_layers("llama", 16384, 4096, 14336, 32, 8, 128),
             "Qwen2.5-0.5B": of_two_layers("qwen2", 16384, 896, 4864, 14, 2, 64),
             "Qwen2.5-7B": of_two_layers("qwen2", 16384, 3584, 18944, 28, 4, 128),
             "Qwen3-14B": of_two_layers("qwen3", 16384, 5120, 17408, 40, 8, 128)},
    "cpu": {"Llama-3.2-1B": of_two_layers("llama", 2048, 256, 704, 8, 2, 64),
            "Llama-3.1-8B": of_two_layers("llama", 2048, 512, 1024, 4, 1, 128),
            "Qwen2.5-0.5B": of_two_layers("qwen2", 2048, 448, 1216, 7, 1, 64),
            "Qwen2.5-7B": of_two_layers("qwen2", 2048, 448, 1216, 7, 1, 128),
            "Qwen3-14B": of_two_layers("qwen3", 2048, 320, 768, 5, 1, 128)},
}


def configure(name, table, layers=None):
    config = table[name]()
    if layers is not None:
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
    return config


@torch.no_grad()
def random_model(config, dtype, device, seed):
    """transformers' own initialization; norms and biases, which it makes ones and zeros, are random too."""
    torch.manual_seed(seed)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    generator = torch.Generator(device).manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, device=device) if parameter.dim() == 1 else None
        if noise is not None and name.endswith("bias"):
            parameter.copy_(0.1 * noise)
        elif noise is not None:
            parameter.copy_(1 + 0.1 * noise)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator, device=device))
    return model.eval()


def load(directory):
    """A checkpoint's model, in float32."""
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


def save(model, directory, sharded, classic):
    """Writes the checkpoint: one file or several shards, config.json as transformers 5 or as its predecessors spell it."""
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(directory, max_shard_size=max(size // 3, 1) if sharded else "100GB")
    assert (directory / "model.safetensors.index.json").exists() == sharded, "transformers sharded otherwise"
    if classic:
        path = directory / "config.json"
        path.write_text(json.dumps(classic_spelling(json.loads(path.read_text())), indent=2))
    return directory


def classic_spelling(config):
    rope = dict(config.pop("rope_parameters"))
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    return config
