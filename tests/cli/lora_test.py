"""Adapters (LoRA) in generate and serve: by name, by path, loaded while it serves, and refused."""

import array
import json
import random

import harness
from harness import BUNDLED, DEVICE, CliTest
from server_process import PROMPT, Server

CONFIG = json.loads((BUNDLED / "config.json").read_text())
HEADS = {"q_proj": CONFIG["num_attention_heads"], "v_proj": CONFIG["num_key_value_heads"]}


def write_adapter(directory, seed, size=0.3, rank=4, **config):
    """As PEFT writes it: q and v of every layer; `size`: of the numbers in B."""
    draw = random.Random(seed)
    header, data = {}, bytearray()

    def add(name, shape, stddev):
        values = array.array("f", [draw.gauss(0, stddev) for _ in range(shape[0] * shape[1])])
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data.extend(values.tobytes())

    for layer in range(CONFIG["num_hidden_layers"]):
        for name, heads in HEADS.items():
            module = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            add(f"{module}.lora_A.weight", [rank, CONFIG["hidden_size"]], CONFIG["hidden_size"] ** -0.5)
            add(f"{module}.lora_B.weight", [heads * CONFIG["head_dim"], rank], size)
    directory.mkdir(parents=True)
    (directory / "adapter_model.safetensors").write_bytes(harness.safetensors_bytes(header, bytes(data)))
    (directory / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": list(HEADS)} | config))
    return directory


class LoraTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.a = write_adapter(cls.work / "a", 1)
        cls.b = write_adapter(cls.work / "b", 2)
        cls.nothing = write_adapter(cls.work / "nothing", 3, size=0)

    def generate(self, *arguments):
        return self.run_encore("generate", "--device", DEVICE, "-p", PROMPT, "--max-tokens", 24, "--ignore-eos", "--json",
                               *arguments)

    def ids(self, *arguments):
        return json.loads(self.generate(*arguments).stdout)["ids"]

    def test_generate_takes_a_name_or_a_path(self):
        base, a = self.ids(), self.ids("--adapter", self.a)
        self.assertNotEqual(a, base)
        self.assertEqual(self.ids("--lora", f"x={self.a}", "--lora", f"y={self.b}", "--adapter", "x"), a)
        self.assertEqual(self.ids("--adapter", self.nothing), base)
        self.assertEqual(self.ids("--lora", f"x={self.a}"), base)
        prompts = self.work / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": PROMPT, "max_tokens": 24, "ignore_eos": True} | more) + "\n"
                                   for more in ({}, {"adapter": str(self.a)}, {"adapter": "y"})))
        lines = self.run_encore("generate", "--device", DEVICE, "--prompts", prompts, "--lora", f"y={self.nothing}").stdout
        found = [json.loads(line)["ids"] for line in lines.splitlines()]
        self.assertEqual(found, [base, a, base])

    def test_what_cannot_be_computed_is_refused_with_the_remedy(self):
        def refused(code, *arguments):
            return self.error_line("generate", "--device", DEVICE, "-p", PROMPT, *arguments, code=code)

        self.assertIn("no such directory", refused(2, "--adapter", "none"))
        dora = write_adapter(self.work / "dora", 1, use_dora=True)
        self.assertIn("merge_and_unload", refused(4, "--adapter", dora))
        large = write_adapter(self.work / "large", 1, rank=24)
        self.assertIn("raise --max-lora-rank to 24", refused(4, "--adapter", large))
        self.assertEqual(len(self.ids("--adapter", large, "--max-lora-rank", 24)), 24)

    def test_inspect_shows_room_for_adapters_only_where_there_is_some(self):
        inspect = ["inspect", "--device", DEVICE, "--after", "trace"]
        self.assertNotIn("lora", self.run_encore(*inspect).stdout)
        self.assertIn("lora_a", self.run_encore(*inspect, "--lora", f"x={self.a}").stdout)

    def test_profile_traces_their_launches(self):
        def kernels(*arguments):
            done = self.run_encore("profile", "--device", "cpu", "--model", "stories", "--graphs", "full", "--batch", 2,
                                   "--context", 8, "--steps", 2, "--json", *arguments)
            traced = json.loads(done.stdout)["modes"][0]["traced"]
            return sum(group["count"] for group in traced["kernels"].values())

        # Two launches more for each product of a layer; behind gate and up one of them applies SiLU, which has its own
        # without adapters.
        self.assertEqual(kernels("--adapters", 2, "--rank", 4), kernels() + 7 * CONFIG["num_hidden_layers"])

    def test_bench_loads_adapters_beside_steps(self):
        done = self.run_encore("bench", "decode", "--device", "cpu", "--model", "stories", "--graphs", "full", "--batch", 2,
                               "--context", 8, "--steps", 8, "--runs", 1, "--json", "--adapters", 2, "--rank", 4, "--loads", 2)
        loads = json.loads(done.stdout)["adapter_loads"]
        self.assertEqual(len(loads["loads"]), 2)
        self.assertGreater(min(load["longest_step_ms"] for load in loads["loads"]), 0)
        self.assertGreaterEqual(loads["longest_step_ms"], loads["step_ms"])

    def test_serve_lists_them_and_answers_by_them(self):
        def text(*arguments):
            return json.loads(self.generate(*arguments).stdout)["text"]

        wanted = {None: text(), "x": text("--adapter", self.a), "y": text("--adapter", self.b)}
        keys = self.work / "admin.keys"
        keys.write_text("secret\n")
        admin = {"Authorization": "Bearer secret"}
        with Server("--lora", f"x={self.a}", "--max-loras", 2, "--max-batch-size", 4, "--admin-key-file", keys,
                    "--max-seq-len", 256) as server:
            def answer(name):
                named = {} if name is None else {"model": name}
                return server.complete(max_tokens=24, ignore_eos=True, **named)["choices"][0]["text"]

            def load(name, path, **more):
                return server.request("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)} | more,
                                      admin)

            for name in (None, "x", "stories:x", None, "x"):
                self.assertEqual(answer(name), wanted["x" if name else None])
            self.assertEqual(server.request("POST", "/v1/completions", {"prompt": "x", "model": "y"})[0], 404)
            self.assertEqual(load("y", self.b)[0], 200)
            self.assertEqual(answer("y"), wanted["y"])
            models = {model["id"]: model["parent"] for model in server.request("GET", "/v1/models")[2]["data"]}
            self.assertEqual(models, {"stories": None, "x": "stories", "y": "stories"})
            # A third one than there are slots for: the one that is used the least makes room.
            self.assertEqual(load("z", self.b)[0], 200)
            for name, same in (("z", "y"), ("x", "x"), ("y", "y"), ("z", "y")):
                self.assertEqual(answer(name), wanted[same])
            server.wait_for(lambda now: (now["encore_adapters"], now["encore_adapters_resident"],
                                         now["encore_adapter_evictions_total"]) == (3, 2, 4))
            self.assertEqual(server.request("POST", "/v1/unload_lora_adapter", {"lora_name": "z"}, admin)[0], 200)
            self.assertEqual(server.request("POST", "/v1/unload_lora_adapter", {"lora_name": "y"}, admin)[0], 200)
            self.assertEqual(server.request("POST", "/v1/completions", {"prompt": "x", "model": "y"})[0], 404)
            # The same name, another adapter: nothing of the old one is found in the prefix cache.
            self.assertEqual(load("x", self.b)[0], 400)
            self.assertEqual(load("x", self.b, load_inplace=True)[0], 200)
            self.assertEqual(answer("x"), wanted["y"])
            self.assertEqual(answer(None), wanted[None])


if __name__ == "__main__":
    harness.main()
