"""Streams one text, then generates several at once: stream.py [MODEL [PROMPT]]

ENCORE_LIBRARY=~/encore/lib/libencore.so python3 stream.py
"""

import sys

import encore

MODEL = sys.argv[1] if len(sys.argv) > 1 else "stories"
PROMPT = sys.argv[2] if len(sys.argv) > 2 else "Once upon a time"


def main():
    with encore.Engine(model=MODEL, max_batch_size=8) as engine:
        print(PROMPT, end="")
        for update in engine.submit(PROMPT, max_tokens=60):
            print(update.text, end="", flush=True)
        print()

        # They run together, and the prompt is computed once.
        requests = [engine.submit(PROMPT, max_tokens=20, temperature=0.8, seed=seed, stop=["."]) for seed in range(4)]
        for request in requests:
            print("-", request.wait().text)

        engine.drain()
        statistics = engine.statistics()
        print(f"{statistics.generated_tokens} tokens in {statistics.num_steps} steps", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except encore.Error as error:
        sys.exit(f"stream.py: {error}")
