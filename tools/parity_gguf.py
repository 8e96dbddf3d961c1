"""GGUF files as the package gguf writes them, for parity.py: Encore's logits of one are those of a directory with the numbers
that the file stands for, bit for bit."""

import math
import pathlib

import numpy
import torch

import gguf
from gguf import GGMLQuantizationType as Kind
from gguf import quants

# Tensors take these by turns, where a row has whole blocks of it.
KINDS = (Kind.Q8_0, Kind.Q4_K, Kind.Q4_0, Kind.Q5_K, Kind.Q4_1, Kind.Q6_K, Kind.Q5_0, Kind.BF16, Kind.Q5_1, Kind.F16, Kind.F32)
SPREAD = 0.1  # of blocks that are drawn
PARTS = 3  # that a model is split into


def drawn_blocks(kind, rows, columns, generator):
    """The package cannot make blocks of this kind of numbers, so any blocks, with scales that make the numbers small."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (rows, columns // elements, size), dtype=numpy.uint8)

    def put(at, scale):
        blocks[:, :, at:at + 2] = numpy.full(blocks.shape[:2], scale, numpy.float16)[..., None].view(numpy.uint8)

    if kind is Kind.Q6_K:
        put(size - 2, SPREAD / 1024)
    else:
        most = 16 if kind is Kind.Q4_K else 32
        put(0, SPREAD / (16 * most))
        put(2, SPREAD / 32)
    return blocks.reshape(rows, -1)


def stored(values, kind, generator):
    """A tensor's bytes in a file, and the numbers that they stand for."""
    if kind in (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K):
        data = drawn_blocks(kind, *values.shape, generator)
    else:
        data = quants.quantize(values, kind)
    return data, quants.dequantize(data, kind).reshape(values.shape)


def in_pairs(rows, heads):
    """Rows of q or k as llama.cpp keeps those of Llama: neighbours are rotated together."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def in_halves(rows, heads):
    return rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def rope_divisors(rope, head_dim):
    """What Llama 3 divides each frequency by."""
    original, low, high = (rope[key] for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    divisors = []
    for i in range(head_dim // 2):
        turns = original * rope["rope_theta"] ** (-2 * i / head_dim) / (2 * math.pi)
        smooth = min(max((turns - low) / (high - low), 0), 1)
        divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return numpy.array(divisors, numpy.float32)


def add_keys(writer, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)


def kind_for(number, tensor):
    if tensor.ndim == 1:
        return Kind.F32
    turns = KINDS[number % len(KINDS):] + KINDS
    return next(kind for kind in turns if tensor.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0)


@torch.no_grad()
def write(model, path, seed):
    """Writes a float32 model, and gives it the numbers that were written; the first of the files, and the kinds in them."""
    config = model.config
    architecture = config.model_type
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=-(-len(list(model.parameters())) // PARTS))
    add_keys(writer, config)
    names = gguf.get_tensor_name_map(next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture),
                                     config.num_hidden_layers)
    generator = numpy.random.default_rng(seed)
    kinds = set()
    for number, (name, parameter) in enumerate(model.named_parameters()):
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2], 0)
        heads *= architecture == "llama"
        values = parameter.numpy()
        kind = kind_for(number, values)
        kinds.add(kind.name)
        data, numbers = stored(in_pairs(values, heads) if heads else values, kind, generator)
        parameter.copy_(torch.from_numpy(in_halves(numbers, heads) if heads else numbers))
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), data, raw_dtype=kind)
    if config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(config.rope_parameters, config.head_dim))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return min(pathlib.Path(path).parent.glob(f"{pathlib.Path(path).stem}-00001-of-*.gguf")), sorted(kinds)
