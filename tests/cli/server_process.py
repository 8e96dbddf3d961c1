"""A running `encore serve` and the requests that tests make of it. Standard library only."""

import contextlib
import http.client
import json
import pathlib
import queue
import random
import signal
import socket
import subprocess
import threading
import time

from harness import DEVICE, ENCORE, with_feature

PROMPT = "Once upon a time"

# Seconds, for whatever a test waits: no more than a second where all is well, minutes under a sanitizer.
PATIENCE = 600


def free_port():
    """A port that nobody has, and that the system gives to nobody who asks for any: not to other suites' servers and clients."""
    first_given = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(1025, max(first_given, 20_000))
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Server:
    """encore serve on a free port of this machine, until the end of its `with`."""

    def __init__(self, *arguments):
        port = [] if "--port" in arguments else ["--port", "0"]
        command = [ENCORE, *with_feature(["serve", "--device", DEVICE, *port, *arguments])]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log = []
        lines = queue.Queue()
        threading.Thread(target=lambda: lines.put(self.process.stdout.readline()), daemon=True).start()
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()
        self.line = lines.get(timeout=PATIENCE)
        assert self.line.startswith("serving "), (self.line, self.log)
        self.host, port = self.line.split("//")[1].strip().rsplit(":", 1)
        self.port = int(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def end(self, number=signal.SIGTERM):
        """Signals, and returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def http_connection(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

    @contextlib.contextmanager
    def connection(self):
        connection = self.http_connection()
        try:
            yield connection
        finally:
            connection.close()

    def request(self, method, path, body=None, headers=None):
        """Status, headers and parsed body of one request."""
        with self.connection() as connection:
            data = json.dumps(body) if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            content = response.read()
            is_json = response.headers.get("Content-Type", "").startswith("application/json")
            return response.status, response.headers, json.loads(content) if is_json and content else content.decode()

    def complete(self, **parameters):
        status, _, body = self.request("POST", "/v1/completions", {"prompt": PROMPT, "temperature": 0} | parameters)
        assert status == 200, body
        return body

    def events(self, path="/v1/completions", **parameters):
        """The events of a stream, as they come; the last is "[DONE]"."""
        with self.connection() as connection:
            connection.request("POST", path, json.dumps({"temperature": 0, "stream": True} | parameters))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            for line in response:
                if line == b"\n":
                    continue
                assert line.startswith(b"data: "), line
                data = line[len(b"data: "):].decode().strip()
                yield data if data == "[DONE]" else json.loads(data)

    def typed_events(self, path, **parameters):
        """The events of a stream whose events have types, as the data names them too."""
        with self.connection() as connection:
            connection.request("POST", path, json.dumps({"stream": True} | parameters))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            for event in response.read().decode().rstrip("\n").split("\n\n"):
                kind, data = event.split("\n")
                data = json.loads(data.removeprefix("data: "))
                assert kind == f"event: {data['type']}", event
                yield data

    def raw(self, content):
        """What comes back for these bytes until the server closes."""
        with socket.create_connection((self.host, self.port), timeout=PATIENCE) as connection:
            connection.sendall(content)
            received = b""
            while part := connection.recv(65536):
                received += part
            return received

    def metrics(self, headers=None):
        status, _, text = self.request("GET", "/metrics", headers=headers)
        assert status == 200, text
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def wait_for_line(self, text):
        """Waits until a line on stderr has this text."""
        end = time.monotonic() + PATIENCE
        while not any(text in line for line in self.log):
            assert time.monotonic() < end, self.log
            time.sleep(0.01)

    def wait_for(self, what):
        """Waits until `what`, given the metrics, is true."""
        end = time.monotonic() + PATIENCE
        while not what(now := self.metrics()):
            assert time.monotonic() < end, now
            time.sleep(0.01)
        return now

    def wait_until_idle(self):
        return self.wait_for(lambda now: now["encore_kv_pages_free"] == now["encore_kv_pages"] and
                             now["encore_sequences_running"] + now["encore_sequences_waiting"] == 0)
