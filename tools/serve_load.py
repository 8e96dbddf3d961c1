#!/usr/bin/env python3
"""What a server costs: streams of `encore serve` beside the same requests of `encore bench serve`, by turns.

Each round starts both anew. Each stream is a connection of its own, all sent at once; prompts are random token ids, and
every answer has its full length. One thread reads the events as they come. Standard library only.

  tools/serve_load.py --encore build/cuda/encore --model synthetic:llama-3.1-8b --streams 256
"""

import argparse
import json
import random
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import time


class Stream:
    """One completion that is streamed."""

    def __init__(self, address, body):
        self.socket = socket.create_connection(address, timeout=60)
        data = json.dumps(body).encode()
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                            b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (address[0].encode(), len(data), data))
        self.socket.setblocking(False)
        self.tail = b""
        self.num_bytes = 0
        self.first_s = None

    def read(self, now_s):
        """False once the server has closed."""
        part = self.socket.recv(1 << 16)
        if part and self.first_s is None and b"data: " in self.tail + part:
            self.first_s = now_s
        self.num_bytes += len(part)
        self.tail = (self.tail + part)[-4096:]
        return bool(part)

    def num_tokens(self):
        """What the last event of the stream says. Errors: ValueError for an answer that is no whole stream."""
        events = [line for line in self.tail.decode().split("\n") if line.startswith("data: ")]
        if len(events) < 2 or events[-1] != "data: [DONE]":
            raise ValueError(f"a stream ends with {self.tail[-500:]!r}")
        return json.loads(events[-2].removeprefix("data: "))["usage"]["completion_tokens"]


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def stream_all(address, options, seed):
    """Tokens a second over all streams, and the times to their first events in ms."""
    rng = random.Random(seed)
    start_s = time.perf_counter()
    selector = selectors.DefaultSelector()
    streams = []
    for _ in range(options.streams):
        prompt = [rng.randrange(1000) for _ in range(options.input_tokens)]
        streams.append(Stream(address, {"prompt": prompt, "max_tokens": options.output_tokens, "temperature": 0,
                                        "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}))
        selector.register(streams[-1].socket, selectors.EVENT_READ, streams[-1])
    num_open = len(streams)
    while num_open > 0:
        for key, _ in selector.select():
            if not key.data.read(time.perf_counter()):
                selector.unregister(key.fileobj)
                num_open -= 1
    wall_s = time.perf_counter() - start_s
    num_tokens = sum(stream.num_tokens() for stream in streams)
    assert num_tokens == options.streams * options.output_tokens, num_tokens
    return num_tokens / wall_s, [(stream.first_s - start_s) * 1e3 for stream in streams]


def in_process(options):
    """Tokens a second of the same requests without a server."""
    command = [options.encore, "bench", "serve", "--device", options.device, "--model", options.model, "--requests", options.streams,
               "--input-tokens", options.input_tokens, "--output-tokens", options.output_tokens, "--step-times", "off", "--json"]
    output = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return json.loads(output)["output_tokens_per_s"]


def through_http(options, seed):
    """Tokens a second through a new server, and the times to first events in ms."""
    command = [options.encore, "serve", "--device", options.device, "--model", options.model, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = server.stdout.readline()
        if not line.startswith("serving "):
            sys.exit(f"serve_load: `{' '.join(command)}` does not serve; run it by hand to see why")
        host, port = line.split("//")[1].strip().rsplit(":", 1)
        return stream_all((host, int(port)), options, seed)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encore", default="build/cuda/encore", help="the executable (default: %(default)s)")
    parser.add_argument("--device", default="auto", help="as for `encore serve` (default: %(default)s)")
    parser.add_argument("--model", default="stories", help="as for `encore serve` (default: %(default)s)")
    parser.add_argument("--streams", type=int, default=256, help="at one time (default: %(default)s)")
    parser.add_argument("--input-tokens", type=int, default=128, help="of each prompt (default: %(default)s)")
    parser.add_argument("--output-tokens", type=int, default=256, help="of each answer (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of each kind (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    plain = []
    served = []
    first_ms = []
    for seed in range(options.rounds):
        plain.append(in_process(options))
        rate, times = through_http(options, seed)
        served.append(rate)
        first_ms += times
    result = {"in_process": plain, "through_http": served,
              "ratio": statistics.median(served) / statistics.median(plain),
              "first_event_p50_ms": percentile(first_ms, 0.5), "first_event_p99_ms": percentile(first_ms, 0.99)}
    if options.json:
        print(json.dumps(result))
        return
    print(f"{options.streams} streams of {options.input_tokens} tokens in, {options.output_tokens} out, tokens/s:")
    print("  in the process  " + "  ".join(f"{rate:.0f}" for rate in plain))
    print("  through HTTP    " + "  ".join(f"{rate:.0f}" for rate in served))
    print(f"  through HTTP over in the process, medians: {result['ratio']:.3f}; first events p50 {result['first_event_p50_ms']:.0f} ms, "
          f"p99 {result['first_event_p99_ms']:.0f} ms")


if __name__ == "__main__":
    main()
