#!/usr/bin/env python3
"""Holds `encore serve` to what it must bear: one client process with epoll, on this machine's loopback only.

  streams      many slow streams at once, each letter of them checked; the server's processor time and memory
  overload     an open loop at a multiple of the plateau, which is measured first: refusals and goodput
  disconnects  clients that leave at random moments; pages and sequences come back
  drain        SIGTERM under load: every stream gets its end, and the exit code is 0
  restarts     kill -9 under load, and a new start on the same port

Each starts servers of its own, ends by itself, prints one JSON object, and has the exit code 1 where something was lost.
The first two answer from a script, so that no model is measured. Standard library only.

  tools/serve_stress.py streams --encore build/cpu/encore --streams 10000
"""

import argparse
import collections
import contextlib
import http.client
import json
import os
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

from serve_load import percentile

PATH = "/v1/completions"
DRAIN_S = 600  # longer than the streams take on any machine
TEXT = "The cat sat on the mat, and the dog ran home. " * 3


class Server:
    """encore serve until the end of its `with`."""

    def __init__(self, options, *arguments, port=0):
        command = [options.encore, "serve", "--device", options.device, "--port", port, *arguments]
        start_s = time.perf_counter()
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        self.load_s = time.perf_counter() - start_s
        if not line.startswith("serving "):
            self.log.seek(0)
            sys.exit(f"serve_stress: `{' '.join(map(str, command))}` does not serve: {self.log.read().strip()}")
        host, port = line.split("//")[1].strip().rsplit(":", 1)
        self.address = host, int(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def get(self, path):
        """Status and text."""
        with contextlib.closing(http.client.HTTPConnection(*self.address, timeout=60)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def metrics(self):
        lines = (line.rsplit(" ", 1) for line in self.get("/metrics")[1].splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def cpu_s(self):
        """Processor time so far, of all threads."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_kb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


@contextlib.contextmanager
def script(token_ms):
    """A script that says TEXT at this pace, as a --model."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump({"token_ms": token_ms, "answers": [{"text": TEXT}]}, file)
        yield f"scripted:{path}"


def request_bytes(address, body, keeps=False):
    data = json.dumps(body).encode()
    return (f"POST {PATH} HTTP/1.1\r\nHost: {address[0]}\r\nContent-Type: application/json\r\n"
            f"Connection: {'keep-alive' if keeps else 'close'}\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data


class Client:
    """A connection, non-blocking once it is there, and what came on it."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.data = bytearray()
        self.is_open = True

    def read(self):
        """What is there now. False once the server has closed."""
        try:
            part = self.socket.recv(1 << 16)
        except BlockingIOError:
            return True
        except ConnectionError:
            part = b""
        self.data += part
        self.is_open = bool(part)
        return self.is_open

    def close(self):
        self.is_open = False
        self.socket.close()

    def events(self):
        """Of a whole stream; the last is "[DONE]"."""
        lines = [line[6:] for line in self.data.decode().split("\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


class Poll:
    """epoll over clients."""

    def __init__(self):
        self.epoll = select.epoll()
        self.clients = {}

    def add(self, client):
        self.clients[client.socket.fileno()] = client
        self.epoll.register(client.socket.fileno(), select.EPOLLIN)

    def drop(self, client):
        number = client.socket.fileno()
        self.epoll.unregister(number)
        del self.clients[number]
        client.close()

    def ready(self, timeout_s):
        return [self.clients[number] for number, _ in self.epoll.poll(max(timeout_s, 0))]

    def read_all(self, timeout_s, on_data=lambda client: None):
        """Reads what comes within this time."""
        end = time.perf_counter() + timeout_s
        while self.clients and (left := end - time.perf_counter()) > 0:
            for client in self.ready(left):
                if not client.read():
                    self.drop(client)
                else:
                    on_data(client)


def whole(client, num_tokens):
    """The text of a stream, or None where it is not one of so many tokens up to its end."""
    events = client.events()
    if not events or events[-1] != "[DONE]" or "error" in events[-2]:
        return None
    usage = events[-2]["usage"]["completion_tokens"]
    return "".join(event["choices"][0]["text"] for event in events[:-2]) if usage == num_tokens else None


def streaming(num_tokens):
    return {"prompt": "Once", "max_tokens": num_tokens, "ignore_eos": True, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}


def bucket_of(before, after, name, share):
    """The upper end of the bucket of a histogram below which this share of the new values lies."""
    prefix = name + '_bucket{le="'
    counts = {key[len(prefix):-2]: after[key] - before.get(key, 0) for key in after if key.startswith(prefix)}
    bounds = sorted(counts, key=lambda bound: float(bound.replace("+Inf", "inf")))
    return next(bound for bound in bounds if counts[bound] >= share * counts["+Inf"])


def streams(options):
    with script(options.token_ms) as model, Server(options, "--model", model, "--max-queue", options.streams) as server:
        server.get("/health")
        before_kb = server.resident_kb()
        poll = Poll()
        clients = []
        gaps_ms = []
        last = {}

        def on_data(client):
            now = time.perf_counter()
            if client in last:
                gaps_ms.append((now - last[client]) * 1e3)
            last[client] = now

        request = request_bytes(server.address, streaming(options.tokens))
        # Spread over one token's time, a few times over, as nobody's clients all begin at once.
        interval_s = options.ramp_s / options.streams
        start = time.perf_counter()
        for i in range(options.streams):
            clients.append(Client(server.address))
            clients[-1].socket.send(request)
            poll.add(clients[-1])
            poll.read_all(start + (i + 1) * interval_s - time.perf_counter(), on_data)
        gaps_ms.clear()
        cpu_s, start, metrics = server.cpu_s(), time.perf_counter(), server.metrics()
        own_s = time.process_time()
        steady_s = options.tokens * options.token_ms / 1e3 - options.ramp_s - 2
        poll.read_all(steady_s, on_data)
        wall_s = time.perf_counter() - start
        own_s = time.process_time() - own_s
        cpu_s = server.cpu_s() - cpu_s
        after = server.metrics()
        kb = (server.resident_kb() - before_kb) / options.streams
        steady_ms = list(gaps_ms)
        open_streams = len(poll.clients)
        poll.read_all(options.ramp_s + 30)
        texts = collections.Counter(whole(client, options.tokens) for client in clients)
    num_lost = texts.pop(None, 0)
    is_right = len(texts) == 1 and next(iter(texts)).startswith(TEXT[:40])
    result = {"streams": options.streams, "open_in_the_window": open_streams, "window_s": round(wall_s, 1), "lost": num_lost,
              "texts": len(texts), "server_cores": round(cpu_s / wall_s, 3), "client_cores": round(own_s / wall_s, 3),
              "resident_kb_a_stream": round(kb, 2),
              "collect_to_send_p99_s_at_most": bucket_of(metrics, after, "encore_delivery_seconds", 0.99),
              "collect_to_send_mean_ms": round(1e3 * (after["encore_delivery_seconds_sum"] - metrics["encore_delivery_seconds_sum"]) /
                                               (after["encore_delivery_seconds_count"] - metrics["encore_delivery_seconds_count"]), 3),
              "between_tokens_p50_ms": round(percentile(steady_ms, 0.5), 1),
              "between_tokens_p99_ms": round(percentile(steady_ms, 0.99), 1)}
    return result, num_lost == 0 and is_right


class Exchange(Client):
    """A connection that is kept, with one request at a time in an open loop."""

    def begin(self, request, due):
        self.data.clear()
        self.due = due
        self.socket.send(request)

    def answer(self):
        """The status and the body once all of it is there."""
        head, found, body = bytes(self.data).partition(b"\r\n\r\n")
        if not found:
            return None
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return (int(head.split(b" ")[1]), body) if len(body) == length else None


def open_loop(server, request, rate, duration_s, most):
    """Requests at a rate whatever becomes of them: statuses with times in ms from when each was due, how many of them came
    within the duration with 200, and how many were not sent as `most` connections were busy."""
    poll = Poll()
    idle = collections.deque()  # the one that waits longest is used first, so that the server closes none
    seen = []
    num_late = 0
    start = time.perf_counter()
    num_sent = 0
    num_busy = 0

    def read(timeout_s):
        nonlocal num_busy
        for client in poll.ready(timeout_s):
            if not client.read():
                poll.drop(client)
                if client in idle:
                    idle.remove(client)
                else:
                    seen.append((0, 0))
                    num_busy -= 1
            elif (answer := client.answer()) is not None:
                seen.append((answer[0], (time.perf_counter() - client.due) * 1e3))
                idle.append(client)
                num_busy -= 1

    while (now := time.perf_counter()) < start + duration_s:
        while start + num_sent / rate <= now:
            due = start + num_sent / rate
            num_sent += 1
            if not idle and len(poll.clients) >= most:
                num_late += 1
                continue
            client = idle.popleft() if idle else Exchange(server.address)
            if client.socket.fileno() not in poll.clients:
                poll.add(client)
            client.begin(request, due)
            num_busy += 1
        read(min(0.05, start + num_sent / rate - time.perf_counter()))
    num_good = sum(status == 200 for status, _ in seen)
    end = time.perf_counter() + 10
    while num_busy > 0 and time.perf_counter() < end:
        read(0.1)
    return seen, num_good, num_late


def plateau(server, request, width, duration_s):
    """Answers a second where `width` clients each ask again at once."""
    poll = Poll()
    num_done = 0
    for _ in range(width):
        client = Exchange(server.address)
        client.begin(request, 0)
        poll.add(client)
    start = time.perf_counter()
    while time.perf_counter() < start + duration_s:
        for client in poll.ready(0.1):
            client.read()
            if (answer := client.answer()) is not None:
                num_done += answer[0] == 200
                client.begin(request, 0)
    for client in list(poll.clients.values()):
        poll.drop(client)
    return num_done / (time.perf_counter() - start)


def overload(options):
    width = options.capacity
    with script(options.token_ms) as model, Server(options, "--model", model, "--max-batch-size", width // 2, "--max-queue",
                                                   width - width // 2) as server:
        body = {"prompt": "Once", "max_tokens": options.tokens, "ignore_eos": True}
        request = request_bytes(server.address, body, keeps=True)
        best = plateau(server, request, width, options.plateau_s)
        time.sleep(1)
        cpu_s, own_s = server.cpu_s(), time.process_time()
        seen, num_good, num_late = open_loop(server, request, options.times * best, options.duration_s, 4 * width)
        cpu_s, own_s = server.cpu_s() - cpu_s, time.process_time() - own_s
    refused_ms = [ms for status, ms in seen if status == 429]
    others = sum(status not in (200, 429) for status, _ in seen)
    result = {"plateau_per_s": round(best, 1), "offered_per_s": round(options.times * best, 1), "duration_s": options.duration_s,
              "answers": len(seen), "other_statuses": others, "not_sent": num_late,
              "goodput_of_plateau": round(num_good / options.duration_s / best, 4), "refused_p50_ms": round(percentile(refused_ms, 0.5), 2),
              "refused_p99_ms": round(percentile(refused_ms, 0.99), 2), "server_cores": round(cpu_s / options.duration_s, 3),
              "client_cores": round(own_s / options.duration_s, 3)}
    return result, others == 0


def wait_until_idle(server, start):
    """Seconds from `start` until no sequence is left and all pages are free."""
    while True:
        now = server.metrics()
        if (now["encore_kv_pages_free"] == now["encore_kv_pages"] and
                now["encore_sequences_running"] + now["encore_sequences_waiting"] == 0):
            return time.perf_counter() - start
        if time.perf_counter() > start + 60:
            return None


def disconnects(options):
    """Each client leaves within `most_ms` of its connection, which may be before, in or after its answer."""
    rng = random.Random(1)
    idle_s = []
    with Server(options, "--max-batch-size", 64, "--max-queue", options.width) as server:
        request = request_bytes(server.address, streaming(500))
        left = options.disconnects
        while left > 0:
            poll = Poll()
            clients = []
            for _ in range(min(options.width, left)):
                client = Client(server.address)
                # One in ten leaves in the middle of its request.
                client.socket.send(request if rng.random() < 0.9 else request[:rng.randrange(1, len(request))])
                poll.add(client)
                clients.append((time.perf_counter() + rng.uniform(0, options.most_ms / 1e3), client))
            clients.sort(key=lambda entry: entry[0])
            for due, client in clients:
                poll.read_all(due - time.perf_counter())
                if client.is_open:
                    poll.drop(client)
            left -= len(clients)
            idle_s.append(wait_until_idle(server, time.perf_counter()))
            if idle_s[-1] is None:
                break
        status = server.get("/health")[0]
        # The server may have been seen idle in front of requests that it had not read.
        end, now = time.perf_counter() + 60, server.metrics()
        while now["encore_kv_pages_free"] < now["encore_kv_pages"] and time.perf_counter() < end:
            now = server.metrics()
    result = {"disconnects": options.disconnects - left, "seen_by_the_server": now.get('encore_requests_total{end="disconnected"}', 0),
              "finished": now.get('encore_requests_total{end="finished"}', 0), "rounds": len(idle_s),
              "pages_lost": now["encore_kv_pages"] - now["encore_kv_pages_free"]}
    is_idle = None not in idle_s
    if is_idle:
        result |= {"idle_after_p50_ms": round(percentile(idle_s, 0.5) * 1e3, 1), "idle_after_most_ms": round(max(idle_s) * 1e3, 1)}
    return result, is_idle and status == 200


def loaded(server, num_streams, num_tokens):
    """Streams that have begun."""
    poll = Poll()
    clients = []
    for _ in range(num_streams):
        clients.append(Client(server.address))
        clients[-1].socket.send(request_bytes(server.address, streaming(num_tokens)))
        poll.add(clients[-1])
    while any(b"data: " not in client.data for client in clients[:8]):
        poll.read_all(0.01)
    return poll, clients


def drain(options):
    num_whole = 0
    codes = []
    for _ in range(options.rounds):
        with Server(options, "--max-queue", options.streams, "--drain-timeout", DRAIN_S) as server:
            poll, clients = loaded(server, options.streams, options.tokens)
            # What the server has not read by then it refuses.
            while sum(value for name, value in server.metrics().items() if name.startswith("encore_sequences_")) < options.streams:
                pass
            server.process.send_signal(signal.SIGTERM)
            poll.read_all(DRAIN_S)
            num_whole += sum(whole(client, options.tokens) is not None for client in clients)
            codes.append(server.process.wait(60))
    lost = options.rounds * options.streams - num_whole
    return {"rounds": options.rounds, "streams": options.streams, "lost": lost, "exit_codes": sorted(set(codes))}, \
        lost == 0 and set(codes) == {0}


def quiet_port(rng=random.Random()):
    """A free port that the system hands to nobody by itself, so that it is still free after a restart."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        lowest = int(file.read().split()[0])
    while True:
        port = rng.randrange(1024, lowest)
        with socket.socket() as candidate, contextlib.suppress(OSError):
            candidate.bind(("127.0.0.1", port))
            return port


def restarts(options):
    port = quiet_port()
    with Server(options, port=port) as server:
        first_s = server.load_s
    ready_s = []
    for _ in range(options.rounds):
        start = time.perf_counter()
        with Server(options, port=port) as server:
            while server.get("/health")[0] != 200:
                time.sleep(0.001)
            ready_s.append(time.perf_counter() - start)
            loaded(server, 8, 500)
            server.process.send_signal(signal.SIGKILL)
    result = {"restarts": len(ready_s), "first_load_s": round(first_s, 2), "ready_p50_s": round(percentile(ready_s, 0.5), 2),
              "ready_most_s": round(max(ready_s), 2)}
    return result, max(ready_s) < first_s + 2


# What each takes, with its default.
COMMANDS = {
    streams: {"streams": 10_000, "tokens": 45, "token_ms": 1000, "ramp_s": 15.0},
    overload: {"capacity": 64, "tokens": 25, "token_ms": 20, "times": 10.0, "plateau_s": 15.0, "duration_s": 300.0},
    disconnects: {"disconnects": 10_000, "width": 250, "most_ms": 400.0},
    drain: {"rounds": 5, "streams": 200, "tokens": 100},
    restarts: {"rounds": 50},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for function, defaults in COMMANDS.items():
        verb = verbs.add_parser(function.__name__)
        verb.add_argument("--encore", default="build/cuda/encore", help="the executable (default: %(default)s)")
        verb.add_argument("--device", default="cpu", help="of the bundled model (default: %(default)s)")
        for name, value in defaults.items():
            verb.add_argument("--" + name.replace("_", "-"), type=type(value), default=value, help="default: %(default)s")
        verb.set_defaults(function=function)
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    result, is_well = options.function(options)
    print(json.dumps({"command": options.verb, **result}))
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
