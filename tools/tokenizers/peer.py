#!/usr/bin/env python3
"""Times the `tokenizers` package on a text, line by line, on one thread: the other side of `encore bench tokenize`.

    peer.py TOKENIZER_JSON TEXT REPEATS

Prints a JSON object: version, tokens, and seconds, one figure for each repetition.
"""

import json
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers


def main():
    path, text_path, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
    tokenizer = tokenizers.Tokenizer.from_file(path)
    with open(text_path, encoding="utf-8", newline="\n") as text:
        lines = text.read().split("\n")
    if lines and not lines[-1]:
        lines.pop()
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        num_tokens = 0
        for line in lines:
            num_tokens += len(tokenizer.encode(line, add_special_tokens=False))
        seconds.append(time.perf_counter() - start)
    # The first pass warms up, as Encore's does.
    print(json.dumps({"version": tokenizers.__version__, "tokens": num_tokens, "seconds": seconds[1:]}))


if __name__ == "__main__":
    main()
