"""Runs the encore binary for tests and writes tiny checkpoints. Standard library only.

A suite takes --encore PATH and --device cpu or cuda; on cuda it exits with 77 where no GPU can run.
"""

import array
import ast
import functools
import json
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUNDLED = SOURCE / "models" / "stories"

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 192, "vocab_size": 320,
    "max_position_embeddings": 1_000_000, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "hidden_act": "silu", "torch_dtype": "float32", "eos_token_id": 2, "bos_token_id": 1,
}


SKIPPED = 77  # CTest's SKIP_RETURN_CODE


def taken_from_command_line(flag, default=None):
    """The flag's value, taken off the command line, so that unittest sees the rest."""
    if flag not in sys.argv:
        return default
    place = sys.argv.index(flag)
    value = sys.argv[place + 1]
    del sys.argv[place:place + 2]
    return value


ENCORE = taken_from_command_line("--encore")
DEVICE = taken_from_command_line("--device", "cpu")  # what the suite's runs are given


# What every model of these suites is given besides (./dev test --with FEATURE).
FEATURE_FLAGS = {"": [], "ranks=2": ["--tensor-parallel", "2"], "speculation": ["--speculative-tokens", "3"],
                 "fp8": ["--quantize", "fp8"], "adapter": ["--max-loras", "1"]}[os.environ.get("ENCORE_TEST_WITH", "")]


def with_feature(arguments):
    """The arguments of encore with the flags of the feature, where the verb runs a model and they are not given."""
    arguments = list(map(str, arguments))
    wants = arguments and arguments[0] in ("generate", "serve") and not {*FEATURE_FLAGS[:1]} & {*arguments}
    return arguments + FEATURE_FLAGS if wants else arguments


def cpu_only(why):
    """For a test of what other devices do differently."""
    return unittest.skipIf(DEVICE != "cpu", why)


def tensor_shapes(config):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden],
              "lm_head.weight": [config["vocab_size"], hidden], "model.norm.weight": [hidden]}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "self_attn.q_proj.weight": [queries, hidden], prefix + "self_attn.k_proj.weight": [keys, hidden],
            prefix + "self_attn.v_proj.weight": [keys, hidden], prefix + "self_attn.o_proj.weight": [hidden, queries],
            prefix + "mlp.gate_proj.weight": [inner, hidden], prefix + "mlp.up_proj.weight": [inner, hidden],
            prefix + "mlp.down_proj.weight": [hidden, inner], prefix + "input_layernorm.weight": [hidden],
            prefix + "post_attention_layernorm.weight": [hidden]}
    return shapes


@functools.cache
def normal_numbers(count):
    """Drawn once a suite: that takes longer than most runs of encore."""
    draw = random.Random(1)
    return array.array("f", [draw.gauss(0, 0.1) for _ in range(count)])


def random_checkpoint(config):
    """The header and the data of a safetensors file with random f32 weights."""
    shapes = tensor_shapes(config)
    numbers, used = normal_numbers(sum(math.prod(shape) for shape in shapes.values())), 0
    header, data = {}, bytearray()
    for name, shape in shapes.items():
        count = math.prod(shape)
        if len(shape) == 1:  # of a norm
            values = array.array("f", [1.0]) * count
        else:
            values, used = numbers[used:used + count], used + count
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += values.tobytes()
    return header, bytes(data)


def safetensors_bytes(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write_checkpoint(directory, config=CONFIG, content=None):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "model.safetensors").write_bytes(content or safetensors_bytes(*random_checkpoint(config)))
    return directory


BROWSER = shutil.which("chromium")
BROWSER_FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
                 "--disable-background-networking", "--disable-component-update"]


def drawn(page):
    """What a browser makes of a page that a verb wrote: its elements as text. Skips the test where there is no browser."""
    text = page.read_text()
    assert re.search(r"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';", text)
    if BROWSER is None:
        raise unittest.SkipTest("no chromium, which would draw the page")
    with tempfile.TemporaryDirectory() as profile:
        result = subprocess.run([BROWSER, *BROWSER_FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300)
    elements = re.search("<main>.*</main>", result.stdout, re.DOTALL).group()
    assert "could not be drawn" not in elements, elements[-300:]
    for no_number in ("NaN", "Infinity", "undefined"):
        assert no_number not in elements, elements[max(0, elements.index(no_number) - 200):][:300]
    return elements


def read_npy(path):
    """Shape and rows of a float32 matrix."""
    content = path.read_bytes()
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:8]
    length = struct.unpack("<H", content[8:10])[0]
    header = content[10:10 + length].decode()
    assert (10 + length) % 64 == 0 and header.endswith("\n")
    fields = ast.literal_eval(header)
    assert fields["descr"] == "<f4" and not fields["fortran_order"], fields
    rows, columns = fields["shape"]
    values = array.array("f")
    values.frombytes(content[10 + length:])
    assert len(values) == rows * columns, (len(values), fields)
    return [values[row * columns:(row + 1) * columns] for row in range(rows)], (rows, columns)


class CliTest(unittest.TestCase):
    """A test with a folder of its own and a checkpoint in it."""

    encore = ENCORE
    model = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="encore-cli-")
        cls.work = pathlib.Path(cls.folder.name)
        cls.model = write_checkpoint(cls.work / "tiny")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_encore(self, *arguments, code=0, **options):
        command = [self.encore, *with_feature(arguments)]
        if not {"input", "stdin"} & options.keys():
            options["stdin"] = subprocess.DEVNULL
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, **options)
        self.assertEqual(result.returncode, code, f"{' '.join(command)}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}")
        return result

    def error_line(self, *arguments, code, **options):
        """The one line of an error: nothing on stdout, and a message of the kind that the exit code says."""
        kind = {2: "usage", 3: "model", 4: "unsupported", 5: "compile", 6: "memory", 7: "device"}[code]
        result = self.run_encore(*arguments, code=code, **options)
        self.assertEqual(result.stdout, "")
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith(f"encore: error ({kind}): "), lines[0])
        return lines[0]


def main():
    if DEVICE == "cuda":
        doctor = json.loads(subprocess.run([ENCORE, "doctor", "--json"], capture_output=True, check=True).stdout)
        if doctor["cuda"] is None:
            print("skipped:", doctor["cuda_problem"])
            sys.exit(SKIPPED)
    unittest.main(module="__main__")
