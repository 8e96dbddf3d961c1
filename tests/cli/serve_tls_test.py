"""serve over TLS: who gets in, who is cut off, and new certificates while it runs."""

import contextlib
import http.client
import json
import signal
import socket
import ssl
import subprocess
import time

import harness
from harness import CliTest
from server_process import PATIENCE, PROMPT, Server


def make_certificate(folder, name):
    """A certificate of its own for 127.0.0.1, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    return certificate, key


class TlsServer(Server):
    """A Server whose clients trust one certificate, and nothing else."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.trusted = None
        self.version = None

    def context(self):
        context = ssl.create_default_context(cafile=self.trusted)
        if self.version:
            context.minimum_version = context.maximum_version = self.version
        return context

    def http_connection(self):
        return http.client.HTTPSConnection(self.host, self.port, timeout=PATIENCE, context=self.context())

    def socket(self):
        plain = socket.create_connection((self.host, self.port), timeout=PATIENCE)
        return self.context().wrap_socket(plain, server_hostname=self.host)


class ServeTlsTest(CliTest):
    def setUp(self):
        self.first = make_certificate(self.work, "first")
        self.second = make_certificate(self.work, "second")
        self.certificate, self.key = self.work / "server.pem", self.work / "server.key"
        self.keys = self.work / "keys"
        self.install(self.first)

    def install(self, pair):
        self.certificate.write_bytes(pair[0].read_bytes())
        self.key.write_bytes(pair[1].read_bytes())

    def serve(self, *arguments):
        server = TlsServer("--tls-certificate", self.certificate, "--tls-key", self.key, *arguments)
        server.trusted = self.first[0]
        return server

    def test_answers_and_streams_over_every_version_from_1_2_on(self):
        with self.serve() as server:
            self.assertIn("https://127.0.0.1:", server.line)
            for server.version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                text = server.complete(max_tokens=20)["choices"][0]["text"]
                events = list(server.events(prompt=PROMPT, max_tokens=20))
                self.assertEqual("".join(event["choices"][0]["text"] for event in events[:-1]), text)
            server.version = ssl.TLSVersion.TLSv1_1
            with self.assertRaises((ssl.SSLError, ConnectionError)):
                server.complete()
            self.assertEqual(server.end(), 0)

    def test_large_bodies_come_whole(self):
        with self.serve() as server:
            status, _, body = server.request("POST", "/tokenize", {"prompt": "a tale " * 100_000})
            self.assertEqual((status, body["count"] > 100_000), (200, True))

    def test_ends_a_connection_as_tls_does(self):
        with self.serve() as server, server.socket() as connection:
            connection.sendall(b"GET /live HTTP/1.0\r\n\r\n")
            answer = b""
            # A connection that is cut off is an SSLEOFError here.
            while part := connection.recv(4096):
                answer += part
            self.assertTrue(answer.endswith(b'{"status":"live"}'), answer)

    def test_a_client_that_leaves_is_noticed(self):
        with self.serve("--max-seq-len", 512) as server:
            body = json.dumps({"prompt": PROMPT, "max_tokens": 400, "stream": True, "ignore_eos": True}).encode()
            for says_so in (True, False):
                connection = server.socket()
                connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                self.assertIn(b"200 OK", connection.recv(4096))
                before = server.metrics().get('encore_requests_total{end="disconnected"}', 0)
                if says_so:
                    with contextlib.suppress(OSError):
                        connection.unwrap()
                connection.close()
                server.wait_for(lambda now: now.get('encore_requests_total{end="disconnected"}', 0) == before + 1)
            server.wait_until_idle()

    def test_clients_without_tls_and_slow_handshakes_are_cut_off(self):
        with self.serve() as server:
            started = time.monotonic()
            with socket.create_connection((server.host, server.port), timeout=PATIENCE) as silent:
                self.assertNotIn(b"HTTP", server.raw(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"))
                self.assertEqual(silent.recv(1), b"")
            self.assertLess(time.monotonic() - started, 60)
            self.assertEqual(server.request("GET", "/live")[0], 200)

    def test_files_are_read_anew_when_they_change(self):
        self.keys.write_text("first-key\n")
        with self.serve("--api-key-file", self.keys) as server:
            def wait_for(line):
                end = time.monotonic() + PATIENCE
                while not any(line in entry for entry in server.log):
                    self.assertLess(time.monotonic(), end, server.log)
                    time.sleep(0.05)

            def status(key):
                return server.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})[0]

            self.install(self.second)
            wait_for(f"read {self.certificate} anew")
            server.trusted = self.second[0]
            self.keys.write_text("\n")
            wait_for("has no key")
            self.assertEqual((status("first-key"), status("second-key")), (200, 401))
            self.keys.write_text("second-key\n")
            wait_for(f"read {self.keys} anew")
            self.assertEqual((status("first-key"), status("second-key")), (401, 200))
            self.assertEqual(sum("warning" in line for line in server.log), 1, server.log)

    def test_sighup_reads_certificates_and_keys_anew(self):
        self.keys.write_text("first-key\n")
        with self.serve("--api-key-file", self.keys) as server:
            def status(key):
                return server.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})[0]

            def hang_up(line):
                count = sum(line in entry for entry in server.log)
                server.process.send_signal(signal.SIGHUP)
                end = time.monotonic() + PATIENCE
                while sum(line in entry for entry in server.log) == count:
                    self.assertLess(time.monotonic(), end, server.log)
                    time.sleep(0.01)

            self.assertEqual((status("first-key"), status("second-key")), (200, 401))
            with server.socket() as kept:
                self.install(self.second)
                self.keys.write_text("second-key\n")
                hang_up("read the keys and certificates anew")
                with self.assertRaises(ssl.SSLCertVerificationError):
                    status("first-key")
                server.trusted = self.second[0]
                self.assertEqual((status("first-key"), status("second-key")), (401, 200))
                kept.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                self.assertIn(b"200 OK", kept.recv(4096))

            # Files that cannot be used change nothing.
            self.key.write_bytes(self.first[1].read_bytes())
            self.keys.write_text("\n")
            hang_up("--api-key-file")
            self.assertIn("--tls-key", "".join(server.log))
            self.assertEqual((status("first-key"), status("second-key")), (401, 200))
            self.assertEqual(server.end(), 0)


if __name__ == "__main__":
    harness.main()
