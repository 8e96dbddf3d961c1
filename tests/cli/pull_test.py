"""pull, and models by name: against a stand-in for the hub, over HTTPS."""

import hashlib
import http.server
import json
import os
import ssl
import subprocess
import threading
import urllib.parse

import harness
from harness import BUNDLED, DEVICE, CliTest
from server_process import Server

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "some-org/Stories.v1"


def git_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub(http.server.ThreadingHTTPServer):
    """What the hub answers of one model, whose large files lie on another host."""

    def __init__(self, certificate, cdn=None):
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.files = {}
        self.cdn = cdn
        self.cut_at = None        # of the next file, where its answer breaks off
        self.requests = []        # (path, range, authorization)
        self.lies = False
        self.wants_token = None
        self.daemon_threads = True
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"https://localhost:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        pass  # a client that leaves is part of the tests

    def listing(self):
        siblings = []
        for name, content in self.files.items():
            row = {"rfilename": name, "size": len(content), "blobId": git_hash(content)}
            if name.endswith(".safetensors"):
                digest = hashlib.sha256(b"something else" if self.lies else content).hexdigest()
                row["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
            siblings.append(row)
        return json.dumps({"id": NAME, "sha": COMMIT, "siblings": siblings}).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        hub = self.server
        path = urllib.parse.urlsplit(self.path).path
        hub.requests.append((path, self.headers["Range"], self.headers["Authorization"]))
        if hub.wants_token and self.headers["Authorization"] != f"Bearer {hub.wants_token}":
            return self.answer(401, b"{}")
        if path == f"/api/models/{NAME}/revision/main":
            return self.answer(200, hub.listing())
        prefix = f"/{NAME}/resolve/{COMMIT}/"
        name = path.removeprefix(prefix) if path.startswith(prefix) else path.removeprefix("/cdn/") if path.startswith("/cdn/") else None
        if name not in hub.files:
            return self.answer(404, b"{}")
        if hub.cdn and name.endswith(".safetensors"):
            self.send_response(302)
            self.send_header("Location", f"{hub.cdn.url}/cdn/{name}?signature=x")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        content = hub.files[name]
        first = int(self.headers["Range"].removeprefix("bytes=").rstrip("-")) if self.headers["Range"] else 0
        return self.answer(206 if first else 200, content[first:], hub.cut_at if name.endswith(".safetensors") else None)

    def answer(self, status, content, cut_at=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if cut_at is not None:
            self.server.cut_at = None
            self.wfile.write(content[:cut_at])
            self.close_connection = True
            return
        self.wfile.write(content)


class PullTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.certificate = [str(cls.work / name) for name in ("certificate.pem", "key.pem")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", cls.certificate[1],
                        "-out", cls.certificate[0]], check=True, capture_output=True)

    def setUp(self):
        self.cdn = Hub(self.certificate)
        self.hub = Hub(self.certificate, self.cdn)
        files = {file.name: file.read_bytes() for file in BUNDLED.iterdir()}
        files["pytorch_model.bin"] = b"not wanted"
        files["original/config.json"] = b"not wanted"
        self.hub.files = self.cdn.files = files
        self.cache = self.work / self.id().rsplit(".", 1)[-1]
        self.folder = self.cache / "models--some-org--Stories.v1"

    def tearDown(self):
        for hub in (self.hub, self.cdn):
            hub.shutdown()
            hub.server_close()

    def environment(self, **more):
        return os.environ | {"HF_ENDPOINT": self.hub.url, "HF_HUB_CACHE": str(self.cache), "SSL_CERT_FILE": self.certificate[0]} | more

    def pull(self, code=0, **environment):
        return self.run_encore("pull", NAME, code=code, env=self.environment(**environment))

    def test_a_model_is_fetched_and_runs_by_its_name(self):
        snapshot = self.folder / "snapshots" / COMMIT
        self.assertEqual(self.pull().stdout, f"{snapshot}\n")
        self.assertEqual((self.folder / "refs" / "main").read_text(), COMMIT)
        self.assertEqual(sorted(file.name for file in snapshot.iterdir()), sorted(file.name for file in BUNDLED.iterdir()))
        weights = snapshot / "model.safetensors"
        self.assertEqual(os.readlink(weights), "../../blobs/" + hashlib.sha256(weights.read_bytes()).hexdigest())
        arguments = ["generate", "--device", DEVICE, "--max-tokens", "10", "--model"]
        text = self.run_encore(*arguments, NAME, env=self.environment()).stdout
        self.assertEqual(text, self.run_encore(*arguments, BUNDLED).stdout)
        os.environ["HF_HUB_CACHE"] = str(self.cache)
        try:
            with Server("--model", NAME) as server:
                self.assertEqual(server.request("GET", "/v1/models")[2]["data"][0]["id"], NAME)
        finally:
            del os.environ["HF_HUB_CACHE"]
        # What is there is not fetched again.
        count = len(self.hub.requests)
        self.pull()
        self.assertEqual(len(self.hub.requests), count + 1)

    def test_what_broke_off_goes_on(self):
        size = len(self.hub.files["model.safetensors"])
        self.cdn.cut_at = size // 2
        self.pull()
        ranges = [bytes_ for path, bytes_, _ in self.cdn.requests if path.endswith("model.safetensors")]
        self.assertEqual(len(ranges), 2)
        self.assertIsNone(ranges[0])
        self.assertLessEqual(int(ranges[1].removeprefix("bytes=").rstrip("-")), size // 2)
        self.assertGreater(int(ranges[1].removeprefix("bytes=").rstrip("-")), 0)

    def test_a_later_run_goes_on_where_an_earlier_one_was_killed(self):
        weights = self.hub.files["model.safetensors"]
        blobs = self.folder / "blobs"
        blobs.mkdir(parents=True)
        (blobs / (hashlib.sha256(weights).hexdigest() + ".incomplete")).write_bytes(weights[:1000])
        self.pull()
        self.assertEqual([bytes_ for path, bytes_, _ in self.cdn.requests], ["bytes=1000-"])
        self.assertEqual((self.folder / "snapshots" / COMMIT / "model.safetensors").read_bytes(), weights)

    def test_a_wrong_hash_is_refused(self):
        self.hub.lies = True
        line = self.pull(code=3).stderr.splitlines()[-1]
        self.assertRegex(line, r"model\.safetensors: its sha256 is [0-9a-f]{64}, and the hub says")
        self.assertEqual(list(self.folder.glob("blobs/*.incomplete")), [])
        self.assertFalse((self.folder / "refs" / "main").exists())

    def test_a_token_goes_to_the_hub_alone(self):
        self.hub.wants_token = "hf_secret"
        self.assertIn("HF_TOKEN", self.pull(code=3).stderr)
        self.pull(HF_TOKEN="hf_secret")
        self.assertEqual({token for *_, token in self.cdn.requests}, {None})
        self.assertIn("Bearer hf_secret", {token for *_, token in self.hub.requests})

    def test_a_certificate_that_nobody_trusts_ends_it(self):
        environment = self.environment()
        del environment["SSL_CERT_FILE"]
        self.assertIn("TLS", self.run_encore("pull", NAME, code=3, env=environment).stderr)
        self.assertEqual(self.hub.requests, [])

    def test_without_a_network_the_command_that_fetches_it_elsewhere_is_named(self):
        for endpoint in ("https://localhost:1", "https://hub.invalid"):
            line = self.pull(code=3, HF_ENDPOINT=endpoint).stderr.splitlines()[-1]
            self.assertIn("`hf download some-org/Stories.v1 --local-dir Stories.v1`", line)
        line = self.error_line("generate", "--device", DEVICE, "--model", NAME, code=3, env=self.environment())
        self.assertIn(f"`encore pull {NAME}`", line)

    def test_an_unknown_model_and_a_bad_name_are_told_apart(self):
        result = self.run_encore("pull", "some-org/other", code=3, env=self.environment())
        self.assertIn("has no model some-org/other", result.stderr)
        for name in ("stories", "../x", "a/b/c"):
            self.assertIn("ORG/NAME", self.error_line("pull", name, code=2))

    def test_a_directory_of_that_name_wins(self):
        (self.work / "some-org").mkdir(exist_ok=True)
        link = self.work / NAME
        link.symlink_to(BUNDLED)
        try:
            arguments = ["generate", "--device", DEVICE, "--max-tokens", "5", "--model", NAME]
            self.run_encore(*arguments, cwd=self.work, env=self.environment())
        finally:
            link.unlink()


if __name__ == "__main__":
    harness.main()
