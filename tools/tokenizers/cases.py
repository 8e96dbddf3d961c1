#!/usr/bin/env python3
"""Compares Encore's tokenizer with the `tokenizers` package, line by line.

    cases.py WORK [--vocabularies DIR] [--lines N]   trains three vocabularies, writes lines and expected results to WORK
    cases.py WORK --compare ENCORE                   runs `encore tokenize` and `detokenize` over them; 1 on any difference
    cases.py tests/tokenizers --golden               writes the small vocabularies and cases of the unit tests

DIR holds further vocabularies, each a folder with tokenizer.json. Lines travel as JSON strings, so that they may hold
line ends. Needs the packages `tokenizers` and `transformers`.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")

from tokenizers import Tokenizer

import texts
import vocabularies

TRAINING_LINES = 12_000
VOCABULARY_SIZE = 6_000
CHUNK = 10_000  # lines at a time, to bound memory
VARIANT_LINES = 4_000  # lines for each variant: other components in one of the vocabularies
MAX_REPORTED = 5
GOLDEN_LINES = 250
GOLDEN_SOUP_LINES = 50
GOLDEN_VOCABULARY_SIZE = 1_400


def dumps(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_lines(path, seed, count, special_tokens):
    """Twice `count` lines: of text, and of random code points."""
    source = texts.TextSource(seed=seed, special_tokens=special_tokens)
    with open(path, "w", encoding="utf-8") as out:
        for _ in range(count):
            out.write(dumps(source.line()) + "\n" + dumps(source.soup()) + "\n")


def load(path):
    """The package's tokenizer, with what transformers makes of the tokenizer_config.json beside it."""
    config = path.with_name("tokenizer_config.json")
    if not config.exists():
        return Tokenizer.from_file(str(path))
    from transformers import AddedToken, PreTrainedTokenizerFast
    settings = json.loads(config.read_text(encoding="utf-8"))
    # from_pretrained would leave out add_bos_token and add_eos_token; what it makes of this key is made here.
    added = {int(number): AddedToken(**token) for number, token in settings.pop("added_tokens_decoder", {}).items()}
    return PreTrainedTokenizerFast(tokenizer_file=str(path), added_tokens_decoder=added, **settings).backend_tokenizer


def expect(name, path, work, lines_name):
    """Writes what the package makes of the lines with one vocabulary."""
    tokenizer = load(path)
    directory = work / name
    directory.mkdir(parents=True, exist_ok=True)
    if path.parent != directory:
        shutil.copytree(path.parent, directory, dirs_exist_ok=True)
    draw = random.Random(3)
    with open(work / lines_name, encoding="utf-8") as source:
        lines = [json.loads(line) for line in source]
    with open(directory / "ids.jsonl", "w") as ids_out, \
            open(directory / "text.jsonl", "w", encoding="utf-8") as text_out, \
            open(directory / "text_special.jsonl", "w", encoding="utf-8") as special_out:
        for start in range(0, len(lines), CHUNK):
            ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(lines[start:start + CHUNK])]
            # Ids in an order that no text has: characters cut short, bytes without a head.
            ids += [draw.choices(range(tokenizer.get_vocab_size()), k=draw.randint(1, 12)) for _ in range(CHUNK // 20)]
            ids += [draw.choices(range(300), k=draw.randint(1, 9)) for _ in range(CHUNK // 20)]
            ids_out.writelines(dumps(row) + "\n" for row in ids)
            for out, skip in ((text_out, True), (special_out, False)):
                out.writelines(dumps(text) + "\n" for text in tokenizer.decode_batch(ids, skip_special_tokens=skip))


def draw_training_lines():
    source = texts.TextSource(seed=1)
    return [source.line() for _ in range(TRAINING_LINES)]


def special_texts():
    special = [token for group in vocabularies.SPECIAL.values() for token in group]
    return special + [token.content for token in vocabularies.ADDED] + ["cafe\u0301", "words", "<|assistant|>"]


def write_golden(directory):
    training_lines = draw_training_lines()
    source = texts.TextSource(seed=5, special_tokens=special_texts())
    lines = [source.line()[:120] for _ in range(GOLDEN_LINES)] + [source.soup() for _ in range(GOLDEN_SOUP_LINES)]
    for name, train in vocabularies.STYLES.items():
        path = vocabularies.write(train(training_lines, GOLDEN_VOCABULARY_SIZE), directory / name)
        tokenizer = Tokenizer.from_file(str(path))
        with open(directory / name / "cases.jsonl", "w", encoding="utf-8") as out:
            for line in lines:
                ids = tokenizer.encode(line).ids
                out.write(dumps({"text": line, "ids": ids, "decoded": tokenizer.decode(ids)}) + "\n")


def generate(work, directory, count):
    start = time.monotonic()
    work.mkdir(parents=True, exist_ok=True)
    training_lines = draw_training_lines()
    paths = {}
    for name, train in vocabularies.STYLES.items():
        paths[name] = vocabularies.write(train(training_lines, VOCABULARY_SIZE), work / name)
    if directory is None:
        print("skipped: further vocabularies (no --vocabularies)")
    elif not directory.is_dir():
        print(f"skipped: further vocabularies ({directory} does not exist)")
    else:
        paths |= {path.parent.name: path for path in sorted(directory.glob("*/tokenizer.json"))}
    special = special_texts()
    write_lines(work / "lines.jsonl", 2, count, special)
    write_lines(work / "variant_lines.jsonl", 4, min(count, VARIANT_LINES), special)
    for name, path in paths.items():
        expect(name, path, work, "lines.jsonl")
    for name, base, changes in vocabularies.VARIANTS:
        description = json.loads(paths[base].read_text(encoding="utf-8"))
        expect(name, vocabularies.write(vocabularies.vary(description, changes), work / name), work, "variant_lines.jsonl")
    for name, base, config in vocabularies.CONFIGS:
        path = vocabularies.write(json.loads(paths[base].read_text(encoding="utf-8")), work / name)
        path.with_name("tokenizer_config.json").write_text(json.dumps(config))
        expect(name, path, work, "variant_lines.jsonl")
    cases = ({name: "lines.jsonl" for name in paths} |
             {row[0]: "variant_lines.jsonl" for row in vocabularies.VARIANTS + vocabularies.CONFIGS})
    (work / "cases.json").write_text(json.dumps(cases))
    print(f"generated cases for {', '.join(cases)} in {time.monotonic() - start:.0f} s")


def differences(name, verb, arguments, lines_path, expected_path, encore, model):
    """Runs one verb and reports how its lines differ from the expected ones."""
    command = [encore, verb, "--model", str(model), *arguments]
    start = time.monotonic()
    with open(lines_path, "rb") as lines:
        result = subprocess.run(command, stdin=lines, stdout=subprocess.PIPE, check=False)
    seconds = time.monotonic() - start
    got = result.stdout.decode("utf-8").split("\n")[:-1]
    with open(expected_path, encoding="utf-8") as expected_file:
        expected = expected_file.read().split("\n")[:-1]
    if verb == "tokenize":
        expected = expected_for_lines(expected)
    num_different = abs(len(got) - len(expected))
    if result.returncode != 0 or num_different:
        print(f"{name}: {verb} gave {len(got)} lines for {len(expected)}, exit code {result.returncode}")
    with open(lines_path, encoding="utf-8") as lines:
        for number, (line, want, have) in enumerate(zip(lines, expected, got), 1):
            if want == have or json.loads(want) == json.loads(have):
                continue
            num_different += 1
            if num_different <= MAX_REPORTED:
                print(f"{name}: {verb} {' '.join(arguments)}: line {number}: {line.rstrip()}\n"
                      f"  expected {want}\n  got      {have}")
    print(f"{name}: {' '.join([verb, *arguments])}: {num_different} of {len(expected)} lines differ ({seconds:.1f} s)")
    return num_different + (result.returncode != 0)


def expected_for_lines(ids):
    """The ids of real lines, without the random ones behind each chunk."""
    rows = []
    block = CHUNK + 2 * (CHUNK // 20)
    extra = 2 * (CHUNK // 20)
    for start in range(0, len(ids), block):
        rows += ids[start:start + block][:-extra]
    return rows


def compare(work, encore):
    total = 0
    for name, lines in json.loads((work / "cases.json").read_text()).items():
        model = work / name
        total += differences(name, "tokenize", ["--json"], work / lines, model / "ids.jsonl", encore, model)
        for arguments, expected in ((["--json"], "text.jsonl"), (["--json", "--special"], "text_special.jsonl")):
            total += differences(name, "detokenize", arguments, model / "ids.jsonl", model / expected, encore, model)
    print("tokenizer parity: " + ("no difference" if total == 0 else f"{total} differences"))
    return 0 if total == 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path, help="folder for cases and results")
    parser.add_argument("--vocabularies", type=pathlib.Path, help="folder of further vocabularies")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--compare", metavar="ENCORE", help="path of the encore binary to compare with the cases")
    parser.add_argument("--golden", action="store_true", help="write the small cases of the unit tests to WORK")
    arguments = parser.parse_args()
    if arguments.golden:
        write_golden(arguments.work)
        return 0
    if arguments.compare:
        return compare(arguments.work, arguments.compare)
    generate(arguments.work, arguments.vocabularies, arguments.lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
