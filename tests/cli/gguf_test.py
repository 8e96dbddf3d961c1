"""GGUF files: the bundled model written as one runs as its directory does. Standard library only."""

import json
import struct

import harness
from harness import BUNDLED, DEVICE, CliTest
from server_process import Server

F32, F16, Q8_0, Q2_K, BF16 = 0, 1, 8, 10, 30
U32, I32, FLOAT, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9

NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    if kind == STRING:
        return text(content)
    if kind == ARRAY:
        inner, items = content
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, item) for item in items)
    return struct.pack({U32: "<I", I32: "<i", FLOAT: "<f", BOOL: "<?"}[kind], content)


def gguf(keys, tensors):
    """A file with these {name: (type, value)} and {name: (dims, type, bytes)}."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for name, (kind, content) in keys.items():
        head += text(name) + struct.pack("<I", kind) + value(kind, content)
    data = b""
    for name, (dims, kind, content) in tensors.items():
        head += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", dim) for dim in dims)
        head += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    return head + bytes(-len(head) % 32) + data


def read_safetensors(path):
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    for name, row in header.items():
        if name != "__metadata__":
            first, last = row["data_offsets"]
            yield name, row["dtype"], row["shape"], content[8 + length + first:8 + length + last]


def gguf_name(name):
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in whole:
        return whole[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def in_pairs(content, shape, heads):
    """Rows as llama.cpp's conversion orders those of q and k."""
    size = len(content) // shape[0]
    rows = [content[i * size:(i + 1) * size] for i in range(shape[0])]
    half = shape[0] // heads // 2
    return b"".join(rows[head * 2 * half + part * half + i] for head in range(heads) for i in range(half) for part in (0, 1))


def bundled_tensors():
    config = json.loads((BUNDLED / "config.json").read_text())
    tensors = {}
    for name, dtype, shape, content in read_safetensors(BUNDLED / "model.safetensors"):
        assert dtype == "BF16", dtype
        if ".q_proj." in name:
            content = in_pairs(content, shape, config["num_attention_heads"])
        if ".k_proj." in name:
            content = in_pairs(content, shape, config["num_key_value_heads"])
        tensors[gguf_name(name)] = (shape[::-1], BF16, content)
    return tensors


def bundled_keys():
    config = json.loads((BUNDLED / "config.json").read_text())
    tokenizer = json.loads((BUNDLED / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"] | {row["content"]: row["id"] for row in tokenizer["added_tokens"]}
    tokens = sorted(ids, key=ids.get)
    special = {row["content"] for row in tokenizer["added_tokens"]}
    return {
        "general.architecture": (STRING, "llama"), "llama.block_count": (U32, config["num_hidden_layers"]),
        "llama.context_length": (U32, config["max_position_embeddings"]), "llama.embedding_length": (U32, config["hidden_size"]),
        "llama.feed_forward_length": (U32, config["intermediate_size"]),
        "llama.attention.head_count": (U32, config["num_attention_heads"]),
        "llama.attention.head_count_kv": (U32, config["num_key_value_heads"]),
        "llama.attention.layer_norm_rms_epsilon": (FLOAT, config["rms_norm_eps"]),
        "llama.rope.freq_base": (FLOAT, config["rope_theta"]), "llama.rope.dimension_count": (U32, config["head_dim"]),
        "tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "llama-bpe"),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)),
        "tokenizer.ggml.token_type": (ARRAY, (I32, [3 if token in special else 1 for token in tokens])),
        "tokenizer.ggml.merges": (ARRAY, (STRING, [" ".join(pair) for pair in tokenizer["model"]["merges"]])),
        "tokenizer.ggml.bos_token_id": (U32, config["bos_token_id"]), "tokenizer.ggml.eos_token_id": (U32, config["eos_token_id"]),
        "tokenizer.chat_template": (STRING, (BUNDLED / "chat_template.jinja").read_text()),
    }


class GgufTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.keys, cls.tensors = bundled_keys(), bundled_tensors()
        cls.file = cls.work / "Stories.BF16.gguf"
        cls.file.write_bytes(gguf(cls.keys, cls.tensors))

    def write(self, name, keys=(), tensors=()):
        path = self.work / name
        path.write_bytes(gguf(self.keys | dict(keys), self.tensors | dict(tensors)))
        return path

    def generate(self, model, *arguments):
        return json.loads(self.run_encore("generate", "--model", model, "--device", DEVICE, "--prompt", "Lily's 12 dogs\nran  and",
                                          "--max-tokens", "60", "--json", *arguments).stdout)

    def test_it_runs_as_the_directory_that_it_was_made_of(self):
        ours, theirs = self.generate(self.file), self.generate(BUNDLED)
        for key in ("prompt_ids", "ids", "text"):
            self.assertEqual(ours[key], theirs[key])
        out = self.work / "logits.npy", self.work / "expected.npy"
        for model, path in zip((self.file, BUNDLED), out):
            self.run_encore("logits", "--model", model, "--device", DEVICE, "--ids", "2046,5,300,77", "--out", path)
        self.assertEqual(out[0].read_bytes(), out[1].read_bytes())

    def test_its_weights_are_quantized_as_a_directorys_are(self):
        ours, theirs = (self.generate(model, "--quantize", "fp8") for model in (self.file, BUNDLED))
        self.assertEqual(ours["ids"], theirs["ids"])

    def test_it_is_served_with_its_template_under_its_name(self):
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "temperature": 0}
        answers = []
        for model in (self.file, BUNDLED):
            with Server("--model", model) as server:
                answers.append(server.request("POST", "/v1/chat/completions", body)[2])
        self.assertEqual(answers[0]["choices"], answers[1]["choices"])
        self.assertEqual(answers[0]["model"], "Stories.BF16")

    def test_blocks_are_widened_and_what_that_costs_is_said(self):
        # Blocks whose numbers bf16 holds: a scale of 2**-10 and whole numbers.
        dims, _, content = self.tensors["blk.0.ffn_up.weight"]
        count = len(content) // 2
        numbers = [(7 * i) % 255 - 127 for i in range(count)]
        blocks = b"".join(struct.pack("<H", 0x1400) + struct.pack("<32b", *numbers[i:i + 32]) for i in range(0, count, 32))
        plain = b"".join(struct.pack("<I", struct.unpack("<I", struct.pack("<f", number / 1024))[0])[2:] for number in numbers)
        packed = self.write("packed.gguf", tensors={"blk.0.ffn_up.weight": (dims, Q8_0, blocks)})
        whole = self.write("whole.gguf", tensors={"blk.0.ffn_up.weight": (dims, BF16, plain)})
        self.assertEqual(self.generate(packed)["ids"], self.generate(whole)["ids"])
        lines = self.run_encore("generate", "--model", packed, "--device", DEVICE, "--max-tokens", "1").stderr
        self.assertRegex(lines, r"weights of [\d.]+ MB in BF16, Q8_0 are widened to [\d.]+ MB in bf16")

    def test_a_split_file_is_read_from_its_first(self):
        names = list(self.tensors)
        halves = [names[:len(names) // 2], names[len(names) // 2:]]
        for number, part in enumerate(halves):
            keys = (self.keys if number == 0 else {}) | {"split.no": (U32, number), "split.count": (U32, 2)}
            path = self.work / f"parts-{number + 1:05}-of-00002.gguf"
            path.write_bytes(gguf(keys, {name: self.tensors[name] for name in part}))
        self.assertEqual(self.generate(self.work / "parts-00001-of-00002.gguf")["ids"], self.generate(BUNDLED)["ids"])

    def test_what_cannot_be_read_is_named(self):
        dims, _, content = self.tensors["blk.1.ffn_up.weight"]
        cases = (({"general.architecture": (STRING, "mamba")}, {}, "'mamba' is not supported|\"mamba\" is not supported", 4),
                 ({"llama.block_count": (STRING, "five")}, {}, "key 'llama.block_count' is not an integer", 3),
                 ({"llama.expert_count": (U32, 8)}, {}, "key 'llama.expert_count'", 4),
                 ({"tokenizer.ggml.pre": (STRING, "other")}, {}, "key 'tokenizer.ggml.pre': \"other\" is not known", 4),
                 ({"tokenizer.ggml.eos_token_id": (U32, 99999)}, {}, "key 'tokenizer.ggml.eos_token_id'|eos_token_id", 3),
                 ({}, {"blk.1.ffn_up.weight": ([256, 576], Q2_K, bytes(84 * 576))}, r"\"blk.1.ffn_up.weight\" is in Q2_K", 4),
                 ({}, {"blk.1.ffn_up.weight": ([256, 64], BF16, content[:2 * 256 * 64])}, "have 640 rows together, 1152 are wanted", 3))
        for number, (keys, tensors, says, code) in enumerate(cases):
            path = self.write(f"case{number}.gguf", keys, tensors)
            result = self.run_encore("generate", "--model", path, "--device", DEVICE, "--prompt", "Hello", code=code)
            self.assertRegex(result.stderr.splitlines()[-1], says)
        folder = self.work / "folder"
        folder.mkdir()
        (folder / "model.gguf").symlink_to(self.file)
        self.assertIn("give --model the file model.gguf itself",
                      self.error_line("generate", "--model", folder, "--device", DEVICE, code=3))


if __name__ == "__main__":
    harness.main()
