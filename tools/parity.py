#!/usr/bin/env python3
"""Compares Encore with transformers, live, on checkpoints that transformers saves with random weights.

    parity.py [cpu|cuda] --encore build/cuda/encore

Part `logits`: RMS error of Encore's bf16 logits over all positions against transformers' float32 run (TF32 off), at most
1.25 times that of transformers' own bf16 run. Part `decode`: the same of the path that serves, one token a step through full
recordings, alone and in a batch of uneven lengths; the error with KV in FP8 is printed beside it. Part `tokens`: 64
greedy tokens in float32 are equal. Part `families`: float32 logits of tiny models of every family, by prefill and by decode
steps, are those of transformers to within 2e-4 of their size (parity_families.py); part `widths`: the same of two layers of
published widths. Part `gguf`: float32 logits of files that
the package gguf writes, in blocks of every kind, are bit for bit those of a directory with the same numbers. Part `quantized`:
checkpoints in FP8 that compressed-tensors writes, against float32 of the numbers that they stand for: in 16-bit activations at most 1.05
times the error of Encore's bf16 run of those numbers, in FP8 activations at most 1.02 times the error of float32 with
activations rounded alike. Part `lora`: adapters that PEFT saves, of three sets of projections and three ranks: RMS error
of Encore's bf16 logits against PEFT's float32, at most 1.25 times that of PEFT's own bf16 run. Part `tokenizers`: ids and
texts equal those of the `tokenizers` package
(tools/tokenizers/cases.py).

On the CPU: small 4-layer relatives of five published models, prompts to 256 tokens, in both spellings of config.json,
one file and shards, f32 and bf16. On CUDA: the published shapes, prompts to 3000 tokens, tokens on 4-layer variants;
decode on models of two layers.

Exit code 0 when all agree, 1 when not, 77 with --skip-without-oracle where PyTorch and transformers are not installed.
"""

import argparse
import gc
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SKIPPED = 77
MAX_RATIO = 1.25
MAX_RATIO_OF_WEIGHTS = 1.05  # in FP8, to weights in bf16
MAX_RATIO_OF_ACTIVATIONS = 1.02  # in FP8, to the same in float32
NUM_GREEDY = 64
MAX_FAMILY_ERROR = 2e-4  # of the logits' size
PARTS = ("logits", "decode", "tokens", "families", "widths", "gguf", "quantized", "lora", "tokenizers")
PROMPTS = {"cpu": (1, 17, 63, 256), "cuda": (1, 17, 512, 3000)}
GREEDY_PROMPTS = {"cpu": (1, 17, 200), "cuda": (1, 17, 512, 3000)}
DECODED = {"cpu": (90, 40, 17, 5, 1), "cuda": (1500, 700, 333, 200, 130, 100, 64, 33, 17, 5, 2, 1)}
START = time.monotonic()


def say(*words):
    print(f"[{time.monotonic() - START:6.1f} s]", *words, flush=True)


def prompts(lengths, vocabulary, seed):
    import torch

    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, vocabulary, (length,), generator=generator) for length in lengths]


class EncoreFailed(Exception):
    pass


class Encore:
    """The binary, with the flags that all calls share."""

    def __init__(self, path, device):
        self.path, self.device = str(path), device

    def run(self, *arguments):
        command = [self.path, *map(str, arguments), "--device", self.device]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if result.returncode != 0:
            raise EncoreFailed(f"{' '.join(command)[:300]}\nexit code {result.returncode}: {result.stderr[-2000:]}")
        return result.stdout

    def logits(self, checkpoint, rows, work, *options):
        """One array [tokens, vocabulary] per prompt, mapped from its file; the model is loaded once."""
        import numpy

        ids = work / "ids.txt"
        ids.write_text("".join(",".join(map(str, row.tolist())) + "\n" for row in rows))
        self.run("logits", "--model", checkpoint, "--ids-file", ids, "--out", work / "logits-{}.npy", *options)
        for number in range(len(rows)):
            yield numpy.load(work / f"logits-{number}.npy", mmap_mode="r")

    def greedy(self, checkpoint, row):
        output = self.run("generate", "--model", checkpoint, "--prompt-ids", ",".join(map(str, row.tolist())),
                          "--max-tokens", NUM_GREEDY, "--ignore-eos", "--json")
        return json.loads(output)["ids"]


def run_model(model, row):
    import torch

    with torch.inference_mode():
        return model(row[None].to(model.device), use_cache=False).logits[0]


def squares_to(reference, other):
    """Sum of the squares of the difference, over all elements, in pieces that fit beside the rest."""
    import numpy
    import torch

    total = 0.0
    for first in range(0, len(reference), 256):
        piece = other[first:first + 256]
        if isinstance(piece, numpy.ndarray):
            piece = torch.from_numpy(numpy.array(piece))
        difference = piece.to(reference.device).double() - reference[first:first + 256].double()
        total += float((difference * difference).sum())
    return total


def rms_to(reference, other):
    return (squares_to(reference, other) / reference.numel()) ** 0.5


def pooled_rms(pairs):
    """The same over the elements of several pairs."""
    return (sum(squares_to(*pair) for pair in pairs) / sum(reference.numel() for reference, _ in pairs)) ** 0.5


def free_memory():
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def run_transformers(name, number, config, lengths, options, work):
    """A checkpoint in bf16, prompts, and transformers' bf16 and float32 logits of them."""
    import torch

    import parity_models as models

    model = models.random_model(config, torch.bfloat16, options.device, seed=number)
    checkpoint = models.save(model, work / "bf16", sharded=number % 2 == 0, classic=number % 3 == 0)
    rows = prompts(lengths, config.vocab_size, seed=number)
    say(name, f"saved {sum(f.stat().st_size for f in checkpoint.iterdir()) / 1e9:.2f} GB")
    own = [run_model(model, row) for row in rows]
    # The yardstick adds as plainly as can be.
    model.set_attn_implementation("eager")
    model = model.float()
    references = [run_model(model, row) for row in rows]
    del model
    free_memory()
    say(name, "transformers has run in bf16 and float32")
    return checkpoint, rows, own, references


def compare_logits(name, number, encore, options, work):
    """Rows of the table for one model: a checkpoint in bf16, its bf16 and float32 runs, and Encore's."""
    import parity_models as models

    config = models.configure(name, models.FULL if options.device == "cuda" else models.SMALL)
    checkpoint, rows, own, references = run_transformers(name, number, config, PROMPTS[options.device], options, work)
    results = []
    for row, own_logits, reference, ours in zip(rows, own, references, encore.logits(checkpoint, rows, work)):
        if ours.shape != tuple(reference.shape):
            raise EncoreFailed(f"logits of shape {ours.shape}, expected {tuple(reference.shape)}")
        theirs_error, our_error = rms_to(reference, own_logits), rms_to(reference, ours)
        results.append({"model": name, "prompt": len(row), "rms_encore": our_error, "rms_transformers_bf16": theirs_error,
                        "rms_logits": float(reference.double().pow(2).mean().sqrt()),
                        "ratio": our_error / theirs_error, "passed": our_error <= MAX_RATIO * theirs_error})
    say(name, "encore has run")
    return results


def compare_decode(name, number, encore, options, work):
    """Rows of the table for one model: the tokens that the longest prompt takes alone, and all that take steps together;
    with KV as it is computed, which has to pass, and with KV in FP8."""
    import parity_models as models

    config = models.configure(name, models.DECODED[options.device])
    lengths = DECODED[options.device]
    checkpoint, rows, own, references = run_transformers(name, number, config, lengths, options, work)
    alone = lengths[0] - lengths[1]  # steps before the second prompt joins
    results = []
    for kv in ("bf16", "fp8"):
        ours = list(encore.logits(checkpoint, rows, work, "--decode", "--eager-steps", "forbid", "--kv-dtype", kv))
        for what in ("alone", "batch"):
            def part(logits, what=what):
                return [logits[0][:alone]] if what == "alone" else [logits[0][alone:], *logits[1:]]

            theirs_error = pooled_rms(list(zip(part(references), part(own))))
            our_error = pooled_rms(list(zip(part(references), part(ours))))
            results.append({"model": name, "steps": what, "kv": kv, "rms_encore": our_error,
                            "rms_transformers_bf16": theirs_error, "ratio": our_error / theirs_error,
                            "passed": kv == "fp8" or our_error <= MAX_RATIO * theirs_error})
    say(name, "encore has run")
    return results


def greedy_with_gaps(model, row):
    """Greedy tokens, and how far the runner-up's logit was below the winner's at each."""
    import torch

    with torch.inference_mode():
        output = model.generate(row[None].to(model.device), attention_mask=torch.ones(1, len(row), device=model.device),
                                do_sample=False, max_new_tokens=NUM_GREEDY, min_new_tokens=NUM_GREEDY, eos_token_id=None,
                                pad_token_id=0, return_dict_in_generate=True, output_logits=True)
    best = torch.stack([step[0] for step in output.logits]).topk(2).values
    return output.sequences[0, len(row):].tolist(), (best[:, 0] - best[:, 1]).tolist()


def compare_tokens(name, number, encore, options, work):
    """Rows of the table for one 4-layer model in float32."""
    import torch

    import parity_models as models

    table = models.FULL if options.device == "cuda" else models.SMALL
    config = models.configure(name, table, layers=models.LAYERS_OF_VARIANTS)
    model = models.random_model(config, torch.float32, options.device, seed=100 + number)
    checkpoint = models.save(model, work / "f32", sharded=number % 2 == 1, classic=number % 3 != 0)
    rows = prompts(GREEDY_PROMPTS[options.device], config.vocab_size, seed=100 + number)
    model.set_attn_implementation("eager")
    expected = [greedy_with_gaps(model, row) for row in rows]
    del model
    free_memory()
    results = []
    for row, (tokens, gaps) in zip(rows, expected):
        ours = encore.greedy(checkpoint, row)
        equal = next((i for i, pair in enumerate(zip(tokens, ours)) if pair[0] != pair[1]), min(len(tokens), len(ours)))
        results.append({"model": name, "prompt": len(row), "equal_tokens": equal, "distinct_tokens": len(set(tokens)),
                        "smallest_gap": min(gaps), "gap_at_difference": gaps[equal] if equal < NUM_GREEDY else None,
                        "passed": tokens == ours and len(ours) == NUM_GREEDY})
    say(name, "tokens compared")
    return results


def compare_family(name, number, encore, options, work):
    """Rows of the table for one family: every token's logits by prefill in short chunks, and by decode steps."""
    import torch

    import parity_families
    import parity_models as models
    import parity_quantized

    family = (parity_families.families() | parity_families.widths())[name]
    model = models.random_model(family.config, torch.float32, "cpu", seed=200 + number)
    checkpoint = models.save(model, work / "f32", sharded=False, classic=False)
    if family.nested:
        parity_families.nest(checkpoint, family.nested)
    if family.fp8:
        model = models.load(parity_quantized.store(checkpoint, family.fp8))
    rows = prompts(family.lengths, family.config.vocab_size, seed=200 + number)
    model.set_attn_implementation("eager")
    references = [run_model(model, row) for row in rows]
    results = []
    for what, flags in (("prefill", ("--max-num-tokens", 64)), ("decode", ("--decode", "--eager-steps", "forbid"))):
        ours = list(encore.logits(checkpoint, rows, work, "--dtype", "f32", *flags, *family.options))
        size = (sum(float(r.double().pow(2).sum()) for r in references) / sum(r.numel() for r in references)) ** 0.5
        error = pooled_rms(list(zip(references, ours))) / size
        results.append({"model": name, "steps": what, "relative_error": error, "rms_logits": size,
                        "passed": error <= MAX_FAMILY_ERROR})
    say(name, "compared")
    return results


def compare_quantized(name, number, encore, options, work):
    """Rows of the table for one model, a checkpoint for each strategy of scales."""
    import torch

    import parity_models as models
    import parity_quantized as quantized

    if importlib.util.find_spec("compressed_tensors") is None:
        say(name, "skipped in FP8: compressed-tensors is not installed beside transformers")
        return []

    config = models.configure(name, models.FULL if options.device == "cuda" else models.SMALL, layers=2)
    rows = prompts([n for n in PROMPTS[options.device] if n > 32], config.vocab_size, seed=number)
    results = []
    for strategy in quantized.STRATEGIES:
        stored = models.random_model(config, torch.bfloat16, options.device, seed=number)
        largest_inputs = None
        if strategy == "tensor":
            with quantized.Inputs(stored) as inputs:
                for row in rows:
                    run_model(stored, row)
            largest_inputs = inputs.largest
        checkpoint = quantized.save(stored, strategy, work / strategy, largest_inputs)
        del stored
        model = models.random_model(config, torch.bfloat16, options.device, seed=number).float()
        model.set_attn_implementation("eager")
        quantized.restore(model, checkpoint)
        floats = models.save(model, work / f"{strategy}-f32", sharded=False, classic=False)
        references = [run_model(model, row) for row in rows]
        with quantized.Fp8Activations(model):
            rounded = [run_model(model, row) for row in rows]
        if largest_inputs is not None:
            with quantized.Fp8Activations(model, checkpoint):
                by_static = [run_model(model, row) for row in rows]
        del model
        free_memory()

        def error_of(run):
            return pooled_rms(list(zip(references, run)))

        def error_of_encore(folder, *flags):
            return error_of(list(encore.logits(folder, rows, work, "--dtype", "bf16", *flags)))

        bf16 = error_of_encore(floats)
        yardsticks = [("16-bit", bf16, MAX_RATIO_OF_WEIGHTS), ("fp8", error_of(rounded), MAX_RATIO_OF_ACTIVATIONS)]
        if largest_inputs is not None:
            yardsticks.append(("static", error_of(by_static), MAX_RATIO_OF_ACTIVATIONS))
        for activations, yardstick, most in yardsticks:
            error = error_of_encore(checkpoint, "--activations", activations)
            results.append({"model": name, "scales": strategy, "activations": activations, "rms_encore": error,
                            "rms_yardstick": yardstick, "ratio": error / yardstick, "passed": error <= most * yardstick})
        shutil.rmtree(floats)
        shutil.rmtree(checkpoint)
    say(name, "compared in FP8")
    return results


def compare_gguf(name, number, encore, options, work):
    """The row of the table for one model: its file in GGUF, and a directory with the same numbers."""
    import numpy
    import torch

    import parity_models as models

    if importlib.util.find_spec("gguf") is None:
        say(name, "skipped in GGUF: the package gguf is not installed beside transformers")
        return []
    import parity_gguf

    model = models.random_model(models.configure(name, models.DECODED["cpu"]), torch.float32, "cpu", seed=300 + number)
    file, kinds = parity_gguf.write(model, work / "model.gguf", seed=number)
    directory = models.save(model, work / "f32", sharded=False, classic=False)
    rows = prompts((1, 40), model.config.vocab_size, seed=number)
    ours = list(encore.logits(file, rows, work, "--dtype", "f32"))
    ours = [numpy.array(logits) for logits in ours]  # the next run writes the same files
    pairs = list(zip(ours, encore.logits(directory, rows, work, "--dtype", "f32")))
    difference = max(float(abs(a - b).max()) for a, b in pairs)
    say(name, "compared in GGUF")
    return [{"model": name, "kinds": kinds, "largest_difference": difference,
             "passed": all(numpy.array_equal(a, b) for a, b in pairs)}]


def compare_lora(name, number, encore, options, work):
    """Rows of the table for one model, an adapter for each set of projections and each rank."""
    import torch

    import parity_models as models

    if importlib.util.find_spec("peft") is None:
        say(name, "skipped with adapters: peft is not installed beside transformers")
        return []
    import parity_lora as lora

    config = models.configure(name, models.FULL if options.device == "cuda" else models.SMALL, layers=2)
    model = models.random_model(config, torch.bfloat16, options.device, seed=300 + number)
    checkpoint = models.save(model, work / "bf16", sharded=False, classic=False)
    adapters = {}
    for targets in lora.TARGETS:
        for rank, is_rank_stabilized in lora.RANKS:
            adapters[targets, rank] = work / f"{targets}-{rank}"
            lora.save(model, targets, rank, is_rank_stabilized, 7 * rank + number, adapters[targets, rank])
    rows = prompts([n for n in PROMPTS[options.device] if n > 1], config.vocab_size, seed=300 + number)

    def run(key):
        with lora.Adapted(model, adapters[key]) as adapted:
            return [run_model(adapted, row) for row in rows]

    own = {key: run(key) for key in adapters}
    model.set_attn_implementation("eager")
    model = model.float()
    base = [run_model(model, row) for row in rows]
    results = []
    for (targets, rank), adapter in adapters.items():
        references = run((targets, rank))
        ours = list(encore.logits(checkpoint, rows, work, "--adapter", adapter, "--max-lora-rank", 64))
        theirs_error = pooled_rms(list(zip(references, own[targets, rank])))
        our_error = pooled_rms(list(zip(references, ours)))
        results.append({"model": name, "targets": targets, "rank": rank, "rms_encore": our_error,
                        "rms_peft_bf16": theirs_error, "rms_effect": pooled_rms(list(zip(references, base))),
                        "ratio": our_error / theirs_error, "passed": our_error <= MAX_RATIO * theirs_error})
    say(name, "compared with adapters")
    return results


def compare_tokenizers(options, work):
    script = ROOT / "tools" / "tokenizers" / "cases.py"
    vocabularies = ROOT.parent / "shared" / "tokenizers"
    subprocess.run([sys.executable, script, work, "--vocabularies", vocabularies, "--lines", str(options.lines)], check=True)
    result = subprocess.run([sys.executable, script, work, "--compare", options.encore], check=False)
    return [{"passed": result.returncode == 0}]


def print_table(title, header, rows):
    cells = [header] + rows
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    print(f"\n{title}")
    for row in cells:
        print("  " + "  ".join(cell.rjust(width) if i else cell.ljust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))).rstrip())


def print_results(results):
    def verdict(row):
        return "ok" if row["passed"] else "FAILED"

    if rows := results.get("logits"):
        print_table("Logits in bf16: RMS error against float32",
                    ["model", "prompt", "encore", "transformers", "ratio", "RMS of logits", ""],
                    [[row["model"], str(row["prompt"]), f"{row['rms_encore']:.3e}", f"{row['rms_transformers_bf16']:.3e}",
                      f"{row['ratio']:.3f}", f"{row['rms_logits']:.3f}", verdict(row)] for row in rows])
    if rows := results.get("decode"):
        print_table("Logits of decode steps: RMS error against float32; KV in fp8 has no bar",
                    ["model", "steps", "KV", "encore", "transformers bf16", "ratio", ""],
                    [[row["model"], row["steps"], row["kv"], f"{row['rms_encore']:.3e}",
                      f"{row['rms_transformers_bf16']:.3e}", f"{row['ratio']:.3f}",
                      verdict(row) if row["kv"] == "bf16" else ""] for row in rows])
    if rows := results.get("tokens"):
        print_table(f"Greedy tokens in float32, {NUM_GREEDY} of them",
                    ["model", "prompt", "equal", "distinct", "smallest gap", ""],
                    [[row["model"], str(row["prompt"]), str(row["equal_tokens"]), str(row["distinct_tokens"]),
                      f"{row['smallest_gap']:.1e}",
                      verdict(row) if row["passed"] else f"FAILED (gap there {row['gap_at_difference']})"] for row in rows])
    for part, what in (("families", "tiny models"), ("widths", "models of published widths")):
        rows = results.get(part, [])
        if not rows:
            continue
        print_table(f"Logits of {what} in float32: RMS error over RMS of logits",
                    ["model", "steps", "error", "RMS of logits", ""],
                    [[row["model"], row["steps"], f"{row['relative_error']:.1e}", f"{row['rms_logits']:.3f}", verdict(row)]
                     for row in rows])
    if rows := results.get("quantized"):
        print_table("Logits in bf16 of checkpoints in FP8: RMS error against float32 of the same numbers",
                    ["model", "scales", "activations", "encore", "yardstick", "ratio", ""],
                    [[row["model"], row["scales"], row["activations"], f"{row['rms_encore']:.3e}",
                      f"{row['rms_yardstick']:.3e}", f"{row['ratio']:.3f}", verdict(row)] for row in rows])
    if rows := results.get("gguf"):
        print_table("Logits in float32 of a GGUF file against a directory of its numbers: largest difference",
                    ["model", "difference", "", "kinds of blocks"],
                    [[row["model"], f"{row['largest_difference']:.1e}", verdict(row), " ".join(row["kinds"])] for row in rows])
    if rows := results.get("lora"):
        print_table("Logits in bf16 with adapters: RMS error against PEFT in float32",
                    ["model", "targets", "rank", "encore", "PEFT bf16", "ratio", "RMS of the adapter's effect", ""],
                    [[row["model"], row["targets"], str(row["rank"]), f"{row['rms_encore']:.3e}",
                      f"{row['rms_peft_bf16']:.3e}", f"{row['ratio']:.3f}", f"{row['rms_effect']:.3e}", verdict(row)]
                     for row in rows])
    for row in results["failures"]:
        print(f"\n{row['model']}, {row['part']}: FAILED, see above")
    for row in results.get("tokenizers", []):
        print(f"\nTokenizers: {verdict(row)}")


def work_directory(options):
    if options.work_dir:
        options.work_dir.mkdir(parents=True, exist_ok=True)
        return tempfile.mkdtemp(prefix="encore-parity-", dir=options.work_dir)
    memory = pathlib.Path("/dev/shm")
    # Checkpoints of full size are written and read once: memory is the fastest place for that.
    roomy = options.device == "cuda" and memory.is_dir() and shutil.disk_usage(memory).free > 48e9
    return tempfile.mkdtemp(prefix="encore-parity-", dir=memory if roomy else None)


def compare(options, work):
    import torch

    if options.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    sys.path.insert(0, str(ROOT / "tools"))
    import parity_families
    import parity_models as models

    encore = Encore(options.encore, options.device)
    results = {part: [] for part in options.parts} | {"failures": []}
    compared = {"logits": (compare_logits, models.FULL), "decode": (compare_decode, models.DECODED[options.device]),
                "tokens": (compare_tokens, models.FULL), "families": (compare_family, parity_families.families()),
                "widths": (compare_family, parity_families.widths()),
                "gguf": (compare_gguf, ("Llama-3.1-8B", "Qwen2.5-0.5B", "Qwen3-14B")),
                "quantized": (compare_quantized, ("Llama-3.1-8B", "Qwen3-0.6B")),
                "lora": (compare_lora, ("Llama-3.1-8B", "Qwen2.5-0.5B"))}
    for part in options.parts:
        function, names = compared.get(part, (None, ()))
        for number, name in enumerate(names):
            if not options.model or name in options.model:
                folder = work / f"{part}-{number}"
                folder.mkdir()
                try:
                    results[part] += function(name, number, encore, options, folder)
                except EncoreFailed as failure:  # the other models still have something to say
                    say(name, part, "FAILED:", failure)
                    results["failures"].append({"model": name, "part": part, "what": str(failure), "passed": False})
                shutil.rmtree(folder)
                free_memory()
    if "tokenizers" in options.parts:
        results["tokenizers"] += compare_tokenizers(options, work / "tokenizers")
    return results


def find_oracle(options):
    """Runs this again with the Python that ./dev set up, when this one lacks the packages."""
    if all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        return
    oracle = ROOT / ".deps" / "oracle" / "bin" / "python"
    if oracle.exists() and os.path.realpath(sys.prefix) != os.path.realpath(oracle.parents[1]):
        os.execv(oracle, [str(oracle), *sys.argv])
    message = "PyTorch and transformers are not installed: `./dev parity` sets them up in .deps/oracle"
    if options.skip_without_oracle:
        print("skipped:", message)
        sys.exit(SKIPPED)
    raise SystemExit(message)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device_name", metavar="cpu|cuda", nargs="?", choices=("cpu", "cuda"), help="default: cpu")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="the same as an option")
    parser.add_argument("--encore", required=True, type=pathlib.Path, help="the encore binary")
    parser.add_argument("--part", dest="parts", action="append", choices=PARTS,
                        help="default: logits, decode, tokens, families and gguf; on CUDA, widths too")
    parser.add_argument("--model", action="append", help="only this model, such as Qwen3-0.6B")
    parser.add_argument("--lines", type=int, default=100_000, help="lines of the part tokenizers")
    parser.add_argument("--work-dir", type=pathlib.Path, help="where checkpoints are written for a while")
    parser.add_argument("--json", type=pathlib.Path, help="where results go; default: build/parity-DEVICE.json")
    parser.add_argument("--skip-without-oracle", action="store_true", help="exit with 77 where transformers is missing")
    options = parser.parse_args()
    options.device = options.device or options.device_name or "cpu"
    usual = ["logits", "decode", "tokens", "families", "gguf"] + (["widths"] if options.device == "cuda" else [])
    options.parts = options.parts or usual
    options.encore = options.encore.resolve()
    find_oracle(options)

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    work = pathlib.Path(work_directory(options))
    try:
        results = compare(options, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print_results(results)
    passed = all(row["passed"] for rows in results.values() for row in rows)
    path = options.json or ROOT / "build" / f"parity-{options.device}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"device": options.device, "seconds": time.monotonic() - START, "passed": passed} | results,
                               indent=1))
    print(f"\nparity on {options.device}: {'all agree' if passed else 'NOT all agree'}, "
          f"{time.monotonic() - START:.0f} s, {path}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
