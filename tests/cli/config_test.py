"""Configurations: --config in every dialect, and what `encore config explain` says of them."""

import json
import re

import harness
from harness import DEVICE, CliTest

TRTLLM = """cuda_graph_config:
  enable_padding: true
  max_batch_size: 8
torch_compile_config:
  capture_num_tokens: [4, 8, 16, 32]
  enable_userbuffers: false
  enable_piecewise_cuda_graph: true
max_batch_size: 8
max_num_tokens: 32
"""
SGLANG = """python -m sglang.launch_server \\
  --enable-piecewise-cuda-graph \\
  --piecewise-cuda-graph-tokens 4 8 16 32 \\
  --chunked-prefill-size 32 --cuda-graph-max-bs 8
"""
VLLM = """compilation_config: {cudagraph_mode: FULL_AND_PIECEWISE, cudagraph_capture_sizes: [4, 8, 16, 32]}
max-num-seqs: 8
max-num-batched-tokens: 32
"""
NATIVE = """graphs: full-and-piecewise
token_ladder: [4, 8, 16, 32]
max_batch_size: 8
max_num_tokens: 32
"""

VERBS = ("generate", "chat", "serve", "logits", "tokenize", "detokenize", "inspect", "bench decode", "bench ladder",
         "bench prefill", "bench mixed", "bench serve", "bench speculate", "bench stack", "bench sleep", "bench linear", "bench attention", "bench collectives", "bench sampling",
         "bench tokenize", "profile", "sim", "tune", "graphs", "bisect", "config explain", "doctor", "litmus")


# Command lines as other engines' documents have them.
PUBLISHED = (
    ("vllm serve Qwen/Qwen3-8B --enable-reasoning --reasoning-parser deepseek_r1", 0, "found from the model's chat template"),
    ("vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-auto-tool-choice --tool-call-parser llama3_json \\\n"
     "  --chat-template examples/tool_chat_template_llama3.1_json.jinja", 0, "line 1: tool_call_parser: found from"),
    ("python -m vllm.entrypoints.openai.api_server --model NousResearch/Meta-Llama-3-8B-Instruct --dtype auto \\\n"
     "  --api-key token-abc123", 0, "model: NousResearch/Meta-Llama-3-8B-Instruct"),
    ("CUDA_VISIBLE_DEVICES=0,1 VLLM_USE_V1=1 vllm serve meta-llama/Llama-3.3-70B-Instruct --tensor-parallel-size 2 \\\n"
     "  --max-model-len 8192 --gpu-memory-utilization 0.95 --swap-space 16 --disable-log-requests --seed 42", 4,
     "CUDA_VISIBLE_DEVICES: an environment variable that holds here too"),
    ("uv run vllm serve Qwen/Qwen2.5-7B-Instruct --quantization awq --load-format safetensors --trust-remote-code", 4, "quantization"),
    ("python3 -m sglang.launch_server --model-path meta-llama/Meta-Llama-3.1-8B-Instruct --host 0.0.0.0 --port 30000", 0, "port: 30000"),
    ("python -m sglang.launch_server --model-path Qwen/Qwen2.5-7B-Instruct --tool-call-parser qwen25 --mem-fraction-static 0.8 \\\n"
     "  --tp 1 --log-level info --enable-metrics", 0, "tool_call_parser: found from"),
    ("python3 -m sglang.launch_server --model meta-llama/Llama-3.1-8B-Instruct --speculative-algorithm EAGLE3 \\\n"
     "  --speculative-draft-model-path x/y --speculative-num-steps 3 --speculative-eagle-topk 4 --cuda-graph-max-bs 2", 4,
     "drafts are looked up in the sequence itself"),
    ("llama-server -hf ggml-org/gemma-3-1b-it-GGUF", 0, "model: ggml-org/gemma-3-1b-it-GGUF"),
    ("llama-server -m models/7B/model.gguf -c 16384 -np 4 -ngl 99 -fa on --jinja --host 0.0.0.0 --port 8080 -cb", 0, "max_seq_len: 4096"),
    ('trtllm-serve "TinyLlama/TinyLlama-1.1B-Chat-v1.0" --host localhost --port 8000 --backend pytorch', 0,
     "model: TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
    ("trtllm-bench --model meta-llama/Llama-3.1-8B throughput --dataset /tmp/synthetic_128_128.txt --backend pytorch \\\n"
     "  --tp 1 --max_batch_size 512 --no_such_flag 3", 0, "no_such_flag"),
)


class ConfigTest(CliTest):
    def test_published_command_lines_of_other_engines_are_explained(self):
        for line, code, says in PUBLISHED:
            with self.subTest(line):
                self.assertIn(says, self.run_encore("config", "explain", self.write(line), code=code).stdout)

    def test_an_unknown_key_is_listed_with_its_line_and_left_out(self):
        path = self.write("vllm serve m --max-num-seqs 64 \\\n --max-num-seq 3 --no-such-flag x\n")
        text = self.run_encore("config", "explain", path).stdout
        self.assertRegex(text, r"Unknown, and left out\n# +line 2: max_num_seq; did you mean 'max_num_seqs'\?\n# +line 2: no_such_flag\n")
        output = json.loads(self.run_encore("config", "explain", "--json", path).stdout)
        self.assertEqual(output["unknown"], [{"line": 2, "key": "max_num_seq"}, {"line": 2, "key": "no_such_flag"}])

    def test_what_runs_refuses_only_what_would_change_answers(self):
        base = ["generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "1", "--max-tokens", "1", "--config"]
        lines = self.run_encore(*base, self.write("vllm serve --pipeline-parallel-size 2 --no-such-flag 1 --tool-call-parser x\n")).stderr
        self.assertIn("pipeline_parallel_size is left out: devices have a share of each layer", lines)
        self.assertIn("no_such_flag is left out: no such key is known", lines)
        for line in ("vllm serve --quantization awq", "vllm serve --tokenizer other", "vllm serve --runner pooling",
                     "python -m sglang.launch_server --is-embedding", "llama-server --temp 0.2"):
            self.assertIn("answers would mean something else", self.error_line(*base, self.write(line), code=4))

    def write(self, text, name="config.yml"):
        path = self.work / name
        path.write_text(text)
        return path

    def generate(self, text, *arguments):
        path = self.write(text)
        output = self.run_encore("generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "1,2,3,4,5",
                                 "--max-tokens", "4", "--json", "--config", path, *arguments).stdout
        return json.loads(output)

    def steps(self, output):
        return [(row["mode"], row["bucket_tokens"], row["reason"]) for row in output["stats"]["steps"]]

    def test_every_dialect_runs_alike(self):
        outputs = [self.generate(text) for text in (NATIVE, TRTLLM, SGLANG, VLLM)]
        for output in outputs:
            self.assertEqual(output["ids"], outputs[0]["ids"])
            self.assertIn("piecewise", {mode for mode, _, _ in self.steps(output)})
            self.assertIn("full", {mode for mode, _, _ in self.steps(output)})
            self.assertTrue({8} <= {tokens for _, tokens, _ in self.steps(output)}, self.steps(output))

    def test_flags_win_over_the_file(self):
        steps = self.steps(self.generate(NATIVE, "--graphs", "none"))
        self.assertEqual({mode for mode, _, _ in steps}, {"eager"})
        steps = self.steps(self.generate("graphs: none\n"))
        self.assertEqual({mode for mode, _, _ in steps}, {"eager"})

    def test_full_decode_only_counts_mixed_steps_as_policy(self):
        steps = self.steps(self.generate("graphs: full-decode-only\n"))
        self.assertIn(("eager", "policy"), {(mode, reason) for mode, _, reason in steps})
        self.assertIn("full", {mode for mode, _, _ in steps})

    def test_padding_off_replays_exact_sizes_only(self):
        off = NATIVE + "padding: off\ndecode_ladder: [2, 4]\n"
        steps = self.steps(self.generate(off))
        self.assertIn(("eager", "no_exact_size"), {(mode, reason) for mode, _, reason in steps})
        steps = self.steps(self.generate(off, "--padding", "on"))
        self.assertNotIn("eager", {mode for mode, _, _ in steps})

    def test_bench_takes_a_file(self):
        path = self.write("graphs: piecewise\n")
        output = json.loads(self.run_encore("bench", "decode", "--device", DEVICE, "--model", self.model, "--context", "8",
                                            "--runs", "1", "--steps", "2", "--warmup-tokens", "1", "--json",
                                            "--config", path).stdout)
        self.assertEqual([row["mode"] for row in output["modes"]], ["piecewise"])

    def test_every_verb_of_a_model_takes_a_file(self):
        path = self.write(NATIVE + f"model: {self.model}\ndevice: {DEVICE}\nstep_log: {self.work / 'log.jsonl'}\n")
        self.run_encore("generate", "--prompt-ids", "1,2,3", "--max-tokens", "2", "--config", path)
        for arguments in (["logits", "--ids", "1,2,3", "--out", self.work / "l.npy"], ["inspect"],
                          ["tune", self.work / "log.jsonl", "--budget", "2"], ["graphs", "--coverage"]):
            with self.subTest(arguments[0]):
                result = self.run_encore(*arguments, "--config", path)
                self.assertIn(f"{path}:7: step_log has no effect on `encore {arguments[0]}`", result.stderr)
        coverage = json.loads(self.run_encore("graphs", "--coverage", "--json", "--config", path).stdout)["coverage"]
        self.assertEqual((coverage["limits"]["max_batch_size"], coverage["limits"]["max_num_tokens"]), (8, 32))

    def test_the_policies_of_recordings_are_options(self):
        steps = self.steps(self.generate("eager_steps: forbid\nrecording_errors: drop\nrecord_order: ascending\n"
                                         "memory_reserve: 1%\ngraphs_debug: on\n"))
        self.assertNotIn("eager", {mode for mode, _, _ in steps})
        path = self.write("graphs: none\neager_steps: forbid\n")
        result = self.run_encore("generate", "--device", DEVICE, "--model", self.model, "--config", path, code=2)
        self.assertIn("--eager-steps forbid: ", result.stderr.splitlines()[-1])

    def test_a_ladder_recorded_on_demand_is_an_option(self):
        steps = self.steps(self.generate("decode_ladder: lru:2\nmax_batch_size: 4\n"))
        self.assertIn(("full", 1, ""), steps)
        self.assertIn("lru:2 is for decode steps",
                      self.error_line("config", "explain", self.write("token_ladder: lru:2\n"), code=2))

    def test_explain_derives_what_is_covered(self):
        path = self.write(NATIVE + "decode_ladder: [1, 2]\n")
        derived = json.loads(self.run_encore("config", "explain", path, "--json").stdout)["derived"]
        self.assertEqual((derived["limits"]["max_batch_size"], derived["share"]), (2, 1))
        text = self.run_encore("config", "explain", self.write(VLLM + "max-cudagraph-capture-size: 32\n")).stdout
        self.assertIn("above_ladder: eager", text)
        self.assertIn("# Derived\n#   steps of up to 8 sequences and 32 tokens\n", text)
        empty = json.loads(self.run_encore("config", "explain", self.write(""), "--json").stdout)
        self.assertIsNone(empty["derived"])

    def test_mistakes_name_the_file_and_the_line(self):
        for text, line, message in (("graphs: none\nmax_bach_size: 1\n", 2, "max_batch_size"),
                                    ("\ngraphs: fast\n", 2, "full-decode-only"), ("a: [1\n", 2, "YAML"),
                                    ("max_num_tokens: 0\n", 1, "1 to 65536"), ("--graphs none --x 1", 1, "'x'")):
            with self.subTest(text):
                path = self.write(text)
                for arguments in (["config", "explain", path], ["generate", "--device", DEVICE, "--config", path]):
                    error = self.error_line(*arguments, code=2)
                    self.assertIn(f"{path}:{line}: ", error)
                    self.assertIn(message, error)
        self.assertIn("cannot be read", self.error_line("config", "explain", self.work / "no.yml", code=2))

    def test_what_is_not_there_is_refused_by_name(self):
        path = self.write(TRTLLM + "tokenizer: other\n")
        error = self.error_line("generate", "--device", DEVICE, "--config", path, code=4)
        self.assertIn(f"{path}:10: tokenizer: ", error)
        for arguments in ([], ["--json"]):
            result = self.run_encore("config", "explain", path, *arguments, code=4)
            self.assertIn("a model's tokenizer lies beside its weights", result.stdout)
            self.assertIn(f"{path}:10: tokenizer: ", result.stderr)

    def test_a_file_of_options_names_no_other(self):
        options = self.write("extra_llm_api_options: options.yml\nmax_batch_size: 8\n", "options.yml")
        command = self.write("trtllm-serve m --extra_llm_api_options options.yml\n", "command.txt")
        self.assertIn(f"{options}:1: extra_llm_api_options", self.error_line("config", "explain", command, code=2))

    def test_explain_says_which_steps_have_no_recordings(self):
        for graphs, uniform, mixed in (("none", "no size is recorded", "no size is recorded"),
                                       ("full-decode-only", "4 sizes up to 8", "no size is recorded"),
                                       ("full-and-piecewise", "4 sizes up to 8", "4 sizes up to 32")):
            path = self.write(NATIVE.replace("full-and-piecewise", graphs))
            self.assertIn(f"#   uniform steps: {uniform}; mixed steps: {mixed}\n",
                          self.run_encore("config", "explain", path).stdout)

    def test_explain_prints_a_file_that_means_the_same(self):
        for text in (NATIVE, TRTLLM, SGLANG, VLLM):
            first = json.loads(self.run_encore("config", "explain", self.write(text), "--json").stdout)
            native = self.write(self.run_encore("config", "explain", self.write(text)).stdout, "native.yml")
            second = json.loads(self.run_encore("config", "explain", native, "--json").stdout)
            self.assertEqual(second["dialect"], "native")
            self.assertEqual({key: row["value"] for key, row in second["options"].items()},
                             {key: row["value"] for key, row in first["options"].items()})

    def test_explain_says_where_values_come_from(self):
        output = json.loads(self.run_encore("config", "explain", self.write(VLLM), "--json").stdout)
        self.assertEqual(output["dialect"], "vllm")
        self.assertEqual(output["options"]["graphs"]["line"], 1)
        self.assertTrue(output["options"]["page_size"]["default"])
        self.assertEqual(output["options"]["token_ladder"]["value"], "4,8,16,32")
        empty = self.write("")
        output = json.loads(self.run_encore("config", "explain", empty, "--dialect", "sglang", "--json").stdout)
        self.assertEqual(output["options"]["graphs"]["value"], "full-decode-only")

    def test_the_help_lists_every_option(self):
        text = self.run_encore("config", "explain", "--help").stdout
        for word in ("max_num_tokens", "1 to 65536", "decode_ladder", "free_gpu_memory_fraction"):
            self.assertIn(word, text)

    def test_the_help_says_which_gpus_have_numbers(self):
        self.assertIn("CUDA_VISIBLE_DEVICES", self.run_encore("generate", "--help").stdout)

    def test_help_shows_ten_options_and_help_all_the_rest(self):
        for verb in VERBS:
            with self.subTest(verb):
                first = re.findall(r"^  (?:-[mp],)?(-n|--[a-z-]+)", self.run_encore(*verb.split(), "--help").stdout, re.MULTILINE)
                self.assertLessEqual(len(first), 11)  # and --help-all
        for verb in ("generate", "chat", "serve"):
            with self.subTest(verb):
                first = re.findall(r"^  (?:-[mp],)?(--[a-z-]+)", self.run_encore(verb, "--help").stdout, re.MULTILINE)
                text = self.run_encore(verb, "--help-all").stdout
                every = re.findall(r"^  (?:-[mp],)?(-n|--[a-z-]+)", text, re.MULTILINE)
                first.remove("--help-all")
                self.assertLessEqual({"--model", "--device", "--config"}, set(first))
                self.assertEqual(set(first) - set(every), set())
                self.assertIn("--token-ladder", set(every) - set(first))
                self.assertEqual(len(every), len(set(every)))
                self.assertIn(f"`encore {verb} --help-all` shows {len(every) - len(first) - 1} more options",
                              " ".join(self.run_encore(verb, "--help").stdout.split()))
                self.assertIn("\nLadders: the sizes of steps that are recorded", text)

    def test_a_key_of_another_verb_is_named_and_its_flag_refused(self):
        path = self.write("port: 1234\n")
        result = self.run_encore("generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "1",
                                 "--max-tokens", "1", "--config", path)
        self.assertIn(f"{path}:1: port has no effect on `encore generate`", result.stderr)
        self.assertIn("--port", self.error_line("generate", "--port", "1234", code=2))
        for verb in ("inspect", "sim", "graphs"):  # which give no memory to KV
            self.assertIn("--memory-reserve", self.error_line(verb, "--memory-reserve", "1GiB", code=2))


if __name__ == "__main__":
    harness.main()
