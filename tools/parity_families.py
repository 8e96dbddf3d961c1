"""Tiny configurations of the families of models, in which every feature bites: windows shorter than the prompts, caps that
saturate, scales far from one, RoPE past its original context. parity.py compares them in float32."""

import copy
import json

import transformers

VOCABULARY = 211


def tiny(kind, **own):
    """Two query heads for each of K and V, whose heads together are not the hidden size. Weights are drawn as wide as makes
    activations spread; see parity_models.shape."""
    values = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=32, max_position_embeddings=512, initializer_range=0.16, bos_token_id=1,
                  eos_token_id=2, pad_token_id=0, tie_word_embeddings=False, rms_norm_eps=1e-5)
    values.update(own)
    return kind(**{key: value for key, value in values.items() if value is not None})


def rope(kind, theta=10000.0, **own):
    return {"rope_type": kind, "rope_theta": theta, **own}


def divisors(count, last):
    return [1 + (last - 1) * i / (count - 1) for i in range(count)]


def longrope(pairs, factor):
    return rope("longrope", short_factor=divisors(pairs, 1.5), long_factor=divisors(pairs, 20.0),
                original_max_position_embeddings=64, factor=factor)


def gemma3_ropes():
    return {"full_attention": rope("linear", 1e6, factor=8.0), "sliding_attention": rope("default", 1e4)}


# Prompts are longer than every window, and what one step of prefill takes is shorter than they are.
LENGTHS = (1, 23, 90, 140)


class Family:
    """`lengths`: of the prompts. `options`: of encore. `nested`: the checkpoint is that of a model of several kinds of
    input, and this is its text model. `fp8`: its layers' weights are stored so, with scales by "block" or by "channel"."""

    def __init__(self, config, lengths=LENGTHS, options=(), nested=None, fp8=None):
        self.config, self.lengths, self.options, self.nested, self.fp8 = config, lengths, options, nested, fp8


def families():
    t = transformers
    half = ["sliding_attention", "full_attention"] * 2
    return {
        "llama-linear": Family(tiny(t.LlamaConfig, rope_parameters=rope("linear", factor=4.0))),
        "llama-yarn": Family(tiny(t.LlamaConfig, rope_parameters=rope(
            "yarn", factor=8.0, original_max_position_embeddings=64))),
        "llama-yarn-mscale": Family(tiny(t.LlamaConfig, rope_parameters=rope(
            "yarn", factor=8.0, original_max_position_embeddings=64, beta_fast=4.0, beta_slow=2.0, mscale=0.7,
            mscale_all_dim=0.3, truncate=False))),
        # transformers takes the table of each prompt's own length, Encore that of the longest sequence.
        "llama-dynamic": Family(tiny(t.LlamaConfig, max_position_embeddings=64,
                                     rope_parameters=rope("dynamic", factor=4.0)),
                                lengths=(140, 140), options=("--max-seq-len", 140)),
        "llama-dynamic-short": Family(tiny(t.LlamaConfig, max_position_embeddings=64,
                                           rope_parameters=rope("dynamic", factor=4.0)),
                                      lengths=(1, 64), options=("--max-seq-len", 64)),
        "mistral-window": Family(tiny(t.MistralConfig, sliding_window=24)),
        "ministral": Family(tiny(t.MinistralConfig, sliding_window=17, layer_types=half)),
        "qwen2-late-window": Family(tiny(t.Qwen2Config, head_dim=None, use_sliding_window=True, sliding_window=20,
                                         max_window_layers=2)),
        "qwen3-moe": Family(tiny(t.Qwen3MoeConfig, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48,
                                 norm_topk_prob=True, mlp_only_layers=[1])),
        "qwen3-moe-sparse": Family(tiny(t.Qwen3MoeConfig, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=40,
                                        norm_topk_prob=False, decoder_sparse_step=2, attention_bias=True,
                                        use_sliding_window=True, sliding_window=24)),
        "mixtral": Family(tiny(t.MixtralConfig, num_local_experts=5, num_experts_per_tok=2)),
        "qwen3-moe-fp8": Family(tiny(t.Qwen3MoeConfig, hidden_size=192, num_experts=8, num_experts_per_tok=3,
                                     moe_intermediate_size=136, norm_topk_prob=True, mlp_only_layers=[1]),
                                options=("--activations", "16-bit"), fp8="block"),
        "mixtral-fp8": Family(tiny(t.MixtralConfig, num_local_experts=5, num_experts_per_tok=2),
                              options=("--activations", "16-bit"), fp8="channel"),
        "glm4-moe": Family(tiny(t.Glm4MoeConfig, n_routed_experts=12, n_group=3, topk_group=2, num_experts_per_tok=5,
                                moe_intermediate_size=40, n_shared_experts=2, routed_scaling_factor=2.5,
                                first_k_dense_replace=2, attention_bias=True)),
        "glm4-moe-normed": Family(tiny(t.Glm4MoeConfig, n_routed_experts=8, num_experts_per_tok=3,
                                       moe_intermediate_size=48, norm_topk_prob=False, use_qk_norm=True)),
        "gemma2": Family(tiny(t.Gemma2Config, sliding_window=24, query_pre_attn_scalar=20, attn_logit_softcapping=2.0,
                              final_logit_softcapping=3.0, tie_word_embeddings=True)),
        "gemma3": Family(tiny(t.Gemma3TextConfig, sliding_window=24, query_pre_attn_scalar=20, layer_types=half,
                              rope_parameters=gemma3_ropes(), tie_word_embeddings=True)),
        "gemma3-nested": Family(tiny(t.Gemma3TextConfig, sliding_window=24, query_pre_attn_scalar=20, layer_types=half,
                                     rope_parameters=gemma3_ropes(), tie_word_embeddings=True), nested="gemma3"),
        "phi3.5": Family(tiny(t.Phi3Config, head_dim=None, hidden_size=128, sliding_window=100,
                              original_max_position_embeddings=64, rope_parameters=longrope(16, 8.0)),
                         lengths=(65, 140)),
        "phi3.5-short": Family(tiny(t.Phi3Config, head_dim=None, hidden_size=128,
                                    original_max_position_embeddings=64, rope_parameters=longrope(16, 8.0)),
                               lengths=(1, 64), options=("--max-seq-len", 64)),
        "phi4-mini": Family(tiny(t.Phi3Config, head_dim=None, hidden_size=128, original_max_position_embeddings=64,
                                 rope_parameters=longrope(12, 8.0) | {"partial_rotary_factor": 0.75}),
                            lengths=(65, 140)),
        "smollm3": Family(tiny(t.SmolLM3Config, head_dim=None, num_key_value_heads=2, no_rope_layers=[1, 0, 1, 0],
                               use_sliding_window=True, sliding_window=24, tie_word_embeddings=True)),
        "olmo2": Family(tiny(t.Olmo2Config, head_dim=None)),
        "glm4": Family(tiny(t.Glm4Config, attention_bias=True, rope_parameters=rope("default", partial_rotary_factor=0.5))),
        "granite": Family(tiny(t.GraniteConfig, head_dim=None, attention_multiplier=0.1, embedding_multiplier=3.0,
                               residual_multiplier=0.22, logits_scaling=4.0, attention_bias=True, mlp_bias=True)),
        "seed-oss": Family(tiny(t.SeedOssConfig, attention_bias=True, attention_out_bias=True, mlp_bias=True)),
    }


def wide(kind, hidden, inner, heads, kv_heads, head_dim, **own):
    """The first two layers of a published model, with a small vocabulary."""
    return tiny(kind, hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads, num_key_value_heads=kv_heads,
                head_dim=head_dim, num_hidden_layers=2, initializer_range=0.02 * (4096 / hidden) ** 0.5, **own)


def widths():
    """Published widths: the kernels, tiles and merged weights that are served. Windows are short, so that prompts outgrow them."""
    t = transformers
    half = ["sliding_attention", "full_attention"]
    widths = {
        "Llama-3.1-8B, yarn": wide(t.LlamaConfig, 4096, 14336, 32, 8, 128, rope_parameters=rope(
            "yarn", 5e5, factor=4.0, original_max_position_embeddings=64)),
        "Mistral-7B-v0.1": wide(t.MistralConfig, 4096, 14336, 32, 8, 128, sliding_window=64),
        "Ministral-8B": wide(t.MinistralConfig, 4096, 12288, 32, 8, 128, sliding_window=64, layer_types=half),
        "Gemma-2-9B": wide(t.Gemma2Config, 3584, 14336, 16, 8, 256, sliding_window=64, query_pre_attn_scalar=256,
                           attn_logit_softcapping=2.0, final_logit_softcapping=3.0, tie_word_embeddings=True),
        "Gemma-3-27B": wide(t.Gemma3TextConfig, 5376, 21504, 32, 16, 128, sliding_window=64, query_pre_attn_scalar=168,
                            layer_types=half, rope_parameters=gemma3_ropes(), tie_word_embeddings=True),
        "Phi-3.5-mini": wide(t.Phi3Config, 3072, 8192, 32, 32, None, original_max_position_embeddings=64,
                             rope_parameters=longrope(48, 8.0)),
        "Phi-4-mini": wide(t.Phi3Config, 3072, 8192, 24, 8, None, original_max_position_embeddings=64,
                           rope_parameters=longrope(48, 8.0) | {"partial_rotary_factor": 0.75}),
        "SmolLM3-3B": wide(t.SmolLM3Config, 2048, 11008, 16, 4, None, no_rope_layers=[1, 0], tie_word_embeddings=True),
        "OLMo-2-7B": wide(t.Olmo2Config, 4096, 11008, 32, 32, None),
        "GLM-4-9B-0414": wide(t.Glm4Config, 4096, 13696, 32, 2, 128, attention_bias=True,
                              rope_parameters=rope("default", partial_rotary_factor=0.5)),
        "Granite-3.3-8B": wide(t.GraniteConfig, 4096, 12800, 32, 8, None, attention_multiplier=0.0078125,
                               embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=16.0),
        "Seed-OSS-36B": wide(t.SeedOssConfig, 5120, 27648, 80, 8, 128, attention_bias=True),
    }
    return {name: Family(config, lengths=(65, 140)) for name, config in widths.items()}


def nest(directory, kind):
    """Turns the checkpoint of a text model into that of a model of several kinds of input, as far as its text goes."""
    import safetensors.torch

    path = directory / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    safetensors.torch.save_file({name.replace("model.", "language_model.model.", 1): tensor
                                 for name, tensor in tensors.items()}, path, {"format": "pt"})
    path = directory / "config.json"
    text = json.loads(path.read_text())
    outer = {"architectures": [text.pop("architectures")[0].replace("CausalLM", "ConditionalGeneration")],
             "model_type": kind, "text_config": copy.deepcopy(text), "vision_config": {}}
    for key in ("eos_token_id", "tie_word_embeddings", "dtype"):
        outer[key] = outer["text_config"].pop(key)
    path.write_text(json.dumps(outer, indent=1))
