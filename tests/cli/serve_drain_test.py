"""serve: how a server ends while others still send to it."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

import harness
from harness import SOURCE, CliTest
from server_process import PATIENCE, Server, free_port

HAPROXY = """
global
    maxconn 500
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen statistics
    bind 127.0.0.1:{statistics}
    stats enable
    stats uri /
frontend front
    bind 127.0.0.1:{front}
    default_backend servers
backend servers
    balance roundrobin
    option httpchk GET /health
    http-check expect status 200
    default-server inter 100ms fall 1 rise 1
    server one 127.0.0.1:{one} check
    server two 127.0.0.1:{two} check
"""


class DrainTest(CliTest):
    def script(self, token_ms, text="It rains, and it goes on to rain for quite a while."):
        path = self.work / f"script{token_ms}.json"
        path.write_text(json.dumps({"token_ms": token_ms, "answers": [{"text": text}]}))
        return f"scripted:{path}"

    def refused(self, server, method, path, body=None):
        status, headers, answer = server.request(method, path, body)
        self.assertEqual((status, headers["Connection"]), (503, "close"), answer)
        self.assertGreater(int(headers["Retry-After"]), 0)

    def test_while_requests_are_finished_new_ones_are_refused_at_an_open_port(self):
        # The answer in hand ends only as its client leaves.
        with Server("--model", self.script(3_600_000), "--drain-timeout", PATIENCE) as server:
            events = server.events(prompt="Hello", max_tokens=40, ignore_eos=True)
            next(events)
            idle = server.http_connection()
            idle.request("GET", "/live")
            idle.getresponse().read()
            server.process.send_signal(signal.SIGTERM)
            server.wait_for_line("finishing the requests in hand")
            self.refused(server, "GET", "/health")
            self.refused(server, "POST", "/v1/completions", {"prompt": "Hello"})
            status, headers, _ = server.request("GET", "/live")
            self.assertEqual((status, headers["Connection"]), (200, "close"))
            # A connection that a proxy keeps for later is answered too, and only then closed.
            idle.request("POST", "/v1/completions", json.dumps({"prompt": "Hello"}))
            answer = idle.getresponse()
            self.assertEqual((answer.status, answer.headers["Connection"]), (503, "close"))
            answer.read()
            idle.close()
            events.close()
            self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_the_port_stays_open_for_the_delay_though_nothing_is_in_hand(self):
        with Server("--model", self.script(0), "--drain-delay", 2) as server:
            start = time.monotonic()
            self.assertEqual(server.end(), 0)
            self.assertGreaterEqual(time.monotonic() - start, 2)
        with Server("--model", self.script(0), "--drain-delay", 86400) as server:
            server.process.send_signal(signal.SIGTERM)
            server.wait_for_line("finishing the requests in hand")
            self.refused(server, "GET", "/health")
        with Server("--model", self.script(0), "--drain-delay", 86400) as server:
            self.assertEqual(server.end(signal.SIGINT), 0)  # a person waits for no proxies

    def test_a_second_signal_ends_the_delay(self):
        with Server("--model", self.script(0), "--drain-delay", 86400) as server:
            server.process.send_signal(signal.SIGTERM)
            server.wait_for_line("finishing the requests in hand")
            self.assertNotEqual(server.end(), 0)

    def test_who_started_it_is_told_that_it_is_ready_and_that_it_ends(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
            path = str(self.work / "notify")
            supervisor.bind(path)
            supervisor.settimeout(PATIENCE)
            os.environ["NOTIFY_SOCKET"] = path
            try:
                with Server("--model", self.script(0)) as server:
                    self.assertTrue(supervisor.recv(4096).startswith(b"READY=1\nSTATUS=serving scripted at http://"))
                    server.process.send_signal(signal.SIGTERM)
                    self.assertTrue(supervisor.recv(4096).startswith(b"STOPPING=1\n"))
                    self.assertEqual(server.process.wait(PATIENCE), 0)
            finally:
                del os.environ["NOTIFY_SOCKET"]

    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_the_unit_is_sound_and_gives_the_process_little(self):
        unit = SOURCE / "examples" / "operation" / "encore.service"
        checked = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", unit],
                                 capture_output=True, text=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stdout[-300:] + checked.stderr)

    @unittest.skipUnless(shutil.which("haproxy"), "no haproxy")
    def test_two_servers_behind_a_proxy_are_restarted_without_an_error(self):
        front, one, two, statistics = free_port(), free_port(), free_port(), free_port()
        config = self.work / "haproxy.cfg"
        config.write_text(HAPROXY.format(front=front, one=one, two=two, statistics=statistics))
        serve = lambda port: Server("--model", self.script(1, "Yes."), "--drain-delay", 5, "--port", port)
        servers = [serve(one), serve(two)]
        proxy = subprocess.Popen(["haproxy", "-f", config, "-db"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        failures, answered, is_over = [], [0], threading.Event()
        body = json.dumps({"prompt": "Is it raining?", "max_tokens": 8}).encode()

        def ask():
            while not is_over.is_set() or answered[0] < 1000:
                try:
                    request = urllib.request.Request(f"http://127.0.0.1:{front}/v1/completions", body)
                    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                        json.load(answer)
                    answered[0] += 1
                except urllib.error.HTTPError as error:
                    if error.code != 503:
                        failures.append(repr(error))
                        return
                    error.close()
                    time.sleep(0.05)  # as clients do, when they are asked to come again
                except Exception as error:  # a connection that failed
                    failures.append(repr(error))
                    return

        try:
            self.wait_for_proxy(statistics)
            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for place, port in enumerate((one, two)):
                self.assertEqual(servers[place].end(), 0)
                servers[place].__exit__()
                servers[place] = serve(port)
                self.wait_for_proxy(statistics)
            is_over.set()
            for thread in threads:
                thread.join()
        finally:
            is_over.set()
            proxy.kill()
            proxy.wait()
            for server in servers:
                server.__exit__()
        self.assertEqual(failures, [])
        self.assertGreaterEqual(answered[0], 1000)

    def wait_for_proxy(self, port):
        """Until it knows that both servers take requests."""
        for _ in range(600):
            with contextlib.suppress(OSError, http.client.HTTPException):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/;csv", timeout=5) as answer:
                    rows = [line.split(",") for line in answer.read().decode().splitlines()]
                states = [row[17] for row in rows if row[0] == "servers" and row[1] in ("one", "two")]
                if states == ["UP", "UP"]:
                    return
            time.sleep(0.1)
        self.fail("haproxy does not see both servers")


if __name__ == "__main__":
    harness.main()
