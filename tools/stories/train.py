#!/usr/bin/env python3
"""Trains the bundled models: corpus, tokenizer, main model, draft, Hugging Face checkpoints. See README.md.

The corpus comes from grammar.py, so a seed and the options below are all that goes in.
"""

import argparse
import json
import math
import multiprocessing
import os
import pathlib
import time
from dataclasses import dataclass

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS repeats itself bit for bit only with this

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn

import grammar

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
# The split of Llama 3's tokenizer, so that a reader of that family's files reads this one.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HELD_OUT_SEED_OFFSET = 1_000_000  # held-out stories come from another seed
CHUNK = 2000  # stories a process writes at a time


@dataclass(frozen=True)
class Config:
    """Shape of a Llama model, named as in config.json."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int = 64
    vocab_size: int = 2048
    max_position_embeddings: int = 1024
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0


MAIN = Config(hidden_size=256, intermediate_size=576, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2)
DRAFT = Config(hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)


# The model: parameter names are those of Hugging Face's LlamaForCausalLM, so that state_dict() is the checkpoint.


class RmsNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps)


def rotate(x, cos, sin):
    """Rotary embedding of halves. Shapes: x [rows, heads, tokens, head_dim], cos and sin [tokens, head_dim]."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.hidden_size, c.num_attention_heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.num_attention_heads * c.head_dim, c.hidden_size, bias=False)

    def forward(self, x, cos, sin):
        rows, tokens, _ = x.shape
        q, k, v = (proj(x).view(rows, tokens, -1, self.c.head_dim).transpose(1, 2)
                   for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        group = self.c.num_attention_heads // self.c.num_key_value_heads
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(rows, tokens, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = Mlp(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Token ids [rows, tokens] to logits [rows, tokens, vocab_size]; the head is the embedding."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.model.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.model.norm = RmsNorm(c.hidden_size, c.rms_norm_eps)
        frequencies = c.rope_theta ** (-torch.arange(0, c.head_dim, 2).float() / c.head_dim)
        angles = torch.outer(torch.arange(c.max_position_embeddings).float(), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * c.num_hidden_layers) if deep else 1))

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


# The corpus and the tokenizer.


def _write_chunk(job):
    seed, first, count = job
    return [grammar.make_story(seed, index) for index in range(first, first + count)]


def write_corpus(seed, count, processes):
    """Returns `count` stories of `seed`, the same whatever the number of processes."""
    jobs = [(seed, first, min(CHUNK, count - first)) for first in range(0, count, CHUNK)]
    with multiprocessing.Pool(processes) as pool:
        return [story for chunk in pool.imap(_write_chunk, jobs) for story in chunk]


def train_tokenizer(stories, vocab_size):
    """Byte-level BPE over all 256 bytes; the two special tokens have the last two ids; encoding puts BOS in front."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - 2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(stories, trainer)
    tokenizer.add_special_tokens([AddedToken(BOS, special=True, normalized=False),
                                  AddedToken(EOS, special=True, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS}:1 $B:1", special_tokens=[(BOS, tokenizer.token_to_id(BOS))])
    assert tokenizer.get_vocab_size() == vocab_size, "the corpus is too small for the vocabulary"
    return tokenizer


def pack_rows(tokenizer, stories, row_tokens):
    """Encodes stories into rows that each start with a story. Shapes: [rows, row_tokens + 1], the last story cut off."""
    eos, rows, row = tokenizer.token_to_id(EOS), [], []
    for first in range(0, len(stories), 10 * CHUNK):
        for encoding in tokenizer.encode_batch_fast(stories[first : first + 10 * CHUNK]):
            row += encoding.ids
            row.append(eos)
            if len(row) > row_tokens:
                rows.append(np.array(row[: row_tokens + 1], dtype=np.int16))
                row = []
    return torch.from_numpy(np.stack(rows))


# Training.


def next_token_loss(logits, ids):
    return F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())


def distill_loss(logits, ids, teacher_logits):
    """Half the stories, half the main model's opinion of them (KL divergence): what a draft is judged by."""
    student = F.log_softmax(logits.float(), dim=-1).flatten(0, 1)
    teacher = F.log_softmax(teacher_logits.float(), dim=-1).flatten(0, 1)
    return 0.5 * next_token_loss(logits, ids) + 0.5 * F.kl_div(student, teacher, log_target=True, reduction="batchmean")


def train(config, rows, steps, peak_lr, args, device, teacher=None):
    """Trains a model of `config` on `rows`, from the argument seed; with a teacher, on its logits too."""
    torch.manual_seed(args.seed)
    model = Llama(config).to(device)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=peak_lr, betas=(0.9, 0.95), fused=device.type == "cuda")
    warmup = max(1, min(200, steps // 10))

    def loss_of(ids):
        logits = model(ids[:, :-1])
        if teacher is None:
            return next_token_loss(logits, ids[:, 1:])
        with torch.no_grad():
            teacher_logits = teacher(ids[:, :-1])
        return distill_loss(logits, ids[:, 1:], teacher_logits)

    step_loss = torch.compile(loss_of) if args.compile else loss_of
    order = np.random.default_rng(args.seed)
    batches = iter(())
    started = time.time()
    for step in range(steps):
        ids = next(batches, None)
        if ids is None:
            shuffled = torch.from_numpy(order.permutation(len(rows)))
            batches = iter(shuffled[: len(rows) // args.batch_rows * args.batch_rows].split(args.batch_rows))
            ids = next(batches)
        ids = rows[ids.to(rows.device)].long()
        rate = (step + 1) / warmup if step < warmup else 0.5 + 0.5 * math.cos(math.pi * (step - warmup) / (steps - warmup))
        for group in optimizer.param_groups:
            group["lr"] = peak_lr * max(rate, 0.01)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = step_loss(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 250 == 0 or step == steps - 1:
            print(f"  step {step} loss {loss.item():.4f} after {time.time() - started:.0f} s", flush=True)
    model.load_state_dict({name: t.bfloat16().float() for name, t in model.state_dict().items()})  # as it will be saved
    return model.eval()


# Evaluation and saving.


@torch.no_grad()
def held_out_loss(model, rows, batch_rows):
    losses = [next_token_loss(model(ids[:, :-1].long()), ids[:, 1:].long()).item() for ids in rows.split(batch_rows)]
    return sum(losses) / len(losses)


@torch.no_grad()
def greedy(model, ids, num_tokens):
    """Continues every row of `ids` by `num_tokens` most likely tokens."""
    for _ in range(num_tokens):
        ids = torch.cat((ids, model(ids)[:, -1:].argmax(-1)), dim=1)
    return ids


@torch.no_grad()
def agreement_and_ties(main, draft, text, num_prompt_tokens, tie=0.1):
    """Of the main model's greedy `text` after the prompt: the share of tokens that the draft, given the same text before, would
    have picked, and the share that leads the second best token by less than `tie` nats (rounding may turn these)."""
    guesses = draft(text[:, :-1]).argmax(-1)
    best = main(text[:, :-1]).float().topk(2).values
    agree, near = guesses == text[:, 1:], best[..., 0] - best[..., 1] < tie
    return tuple(share[:, num_prompt_tokens - 1 :].float().mean().item() for share in (agree, near))


def save_checkpoint(model, tokenizer, folder):
    """Writes a folder that transformers' LlamaForCausalLM and AutoTokenizer load."""
    folder.mkdir(parents=True, exist_ok=True)
    c = model.c
    bos, eos = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "attention_bias": False,
        "mlp_bias": False, "attention_dropout": 0.0, "initializer_range": 0.02, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "use_cache": True, "rope_scaling": None, "bos_token_id": bos, "eos_token_id": eos, **vars(c),
    }
    files = {
        "config.json": config,
        "generation_config.json": {"bos_token_id": bos, "eos_token_id": eos, "do_sample": False},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS,
            "clean_up_tokenization_spaces": False, "model_max_length": c.max_position_embeddings,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    tokenizer.save(str(folder / "tokenizer.json"))
    weights = {name: t.bfloat16().contiguous() for name, t in model.state_dict().items()}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{folder}: {sum(t.numel() for t in weights.values())} parameters, {size} bytes")


PROMPTS = ["Once upon a time", "One day, a little fox named Pip", "There was a little girl named Zorla", "Long ago, in the forest,",
           "The little dragon Zog", "Alice was a clever girl who loved to bake."]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stories", type=int, default=500_000, help="stories in the corpus")
    parser.add_argument("--steps", type=int, default=8000, help="training steps of the main model")
    parser.add_argument("--draft-steps", type=int, default=4000, help="training steps of the draft")
    parser.add_argument("--batch-rows", type=int, default=64, help="rows of --row-tokens tokens in a batch")
    parser.add_argument("--row-tokens", type=int, default=1024)
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="processes that write the corpus")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True, help="use torch.compile")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "models")
    args = parser.parse_args()

    started = time.time()
    stories = write_corpus(args.seed, args.stories, args.processes)
    held_out = write_corpus(args.seed + HELD_OUT_SEED_OFFSET, 1000, args.processes)
    seen = set(stories)
    print(f"corpus: {len(seen)} distinct stories of {len(stories)}, {sum(map(len, stories)) / 1e6:.0f} MB, "
          f"{sum(s in seen for s in held_out)} of {len(held_out)} held-out stories in it, {time.time() - started:.0f} s", flush=True)
    tokenizer = train_tokenizer(stories[:40_000], MAIN.vocab_size)
    rows = pack_rows(tokenizer, stories, args.row_tokens)
    held_out_rows = pack_rows(tokenizer, held_out, args.row_tokens)
    print(f"tokens: {rows.numel() / 1e6:.0f} million in {len(rows)} rows, "
          f"{sum(len(e.ids) for e in tokenizer.encode_batch(held_out)) / len(held_out):.0f} a story, "
          f"{time.time() - started:.0f} s", flush=True)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("high")
    rows, held_out_rows = rows.to(device), held_out_rows.to(device)
    print("main", flush=True)
    model = train(MAIN, rows, args.steps, 3e-3, args, device)
    save_checkpoint(model, tokenizer, args.out / "stories")
    print("draft", flush=True)
    draft = train(DRAFT, rows, args.draft_steps, 5e-3, args, device, teacher=model)
    save_checkpoint(draft, tokenizer, args.out / "stories-draft")
    print(f"trained after {time.time() - started:.0f} s", flush=True)

    for name, one in (("main", model), ("draft", draft)):
        print(f"{name}: loss {held_out_loss(one, held_out_rows, args.batch_rows):.4f} nats a token on held-out stories")
    prompts = torch.tensor([e.ids[:12] for e in tokenizer.encode_batch(held_out[:128])], device=device)
    text = greedy(model, prompts, 200)
    agreement, ties = agreement_and_ties(model, draft, text, prompts.shape[1])
    print(f"draft picks the main model's greedy token {100 * agreement:.1f}% of the time")
    print(f"greedy tokens that lead by less than 0.1 nats: {100 * ties:.2f}%")
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer.encode(prompt).ids], device=device)
        print(f"--- {prompt}\n{tokenizer.decode(greedy(model, ids, 250)[0].tolist(), skip_special_tokens=False)}", flush=True)


if __name__ == "__main__":
    main()
