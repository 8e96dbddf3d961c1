"""Bad flags and bad checkpoints: one line on stderr with the remedy, and the documented exit code."""

import json
import os
import pathlib
import struct
import subprocess

import harness
from harness import CONFIG, DEVICE, CliTest, safetensors_bytes
from server_process import Server


class UsageTest(CliTest):
    def test_a_bad_flag_names_the_help(self):
        for arguments in (["generate", "--grphs", "none"], ["generate", "--graphs", "fast"], ["bench"], ["logits"],
                          ["generate", "--max-tokens", "0"], ["generate", "--page-size", "20"],
                          ["generate", "--prompt", "a", "--prompt-ids", "1"]):
            with self.subTest(arguments):
                self.assertIn("--help", self.error_line(*arguments, code=2))

    def test_an_unknown_verb_lists_the_verbs(self):
        self.assertIn("there are generate, chat, serve, pull, logits", self.error_line("genrate", code=2))

    def test_an_unknown_inner_verb_lists_the_inner_verbs(self):
        line = self.error_line("bench", "foo", code=2)
        self.assertIn("no verb 'bench foo'; there are bench decode", line)

    def test_an_empty_value_is_not_the_default(self):
        for flag in ("--prompt", "--prompt-ids", "--model", "--step-log", "--decode-ladder", "--stop"):
            line = self.error_line("generate", "--device", DEVICE, flag, "", code=2)
            self.assertIn(f"{flag}: its value is empty; leave the option out for its default", line)
        self.assertIn("--model", self.error_line("tokenize", "--model", "", code=2))
        self.assertIn("piped in", self.error_line("generate", "--device", DEVICE, code=2, input=""))

    def test_a_file_without_an_end_is_refused(self):
        with open("/dev/zero", "rb") as zero:
            line = self.error_line("tokenize", code=2, stdin=zero)
        self.assertIn("line 1 has no end within 256 MiB", line)
        base = ["logits", "--model", self.model, "--device", DEVICE, "--out", self.work / "endless.npy", "--ids-file"]
        self.assertIn("/dev/zero: is not text", self.error_line(*base, "/dev/zero", code=2))
        self.assertIn("Is a directory", self.error_line(*base, self.work, code=2))
        keys = self.error_line("serve", "--device", DEVICE, "--port", 0, "--api-key-file", "/dev/zero", code=2)
        self.assertIn("--api-key-file /dev/zero: is not text", keys)

    def test_options_that_would_be_passed_over_are_refused(self):
        log = self.work / "steps.jsonl"
        log.write_text('{"context_tokens": 0, "generation_requests": 1}\n')
        for arguments, says in ((["graphs", "--log", log, "--replays", "3"], "--measure"),
                                (["graphs", "--coverage", "--html", self.work / "page.html"], "--log"),
                                (["graphs", "--eligibility", "--log", log], "--eligibility"),
                                (["graphs", "--measure", "--coverage"], "--measure"),
                                (["logits", "--ids", "1", "--out", self.work / "x.npy", "--max-batch-size", "2"],
                                 "--max-batch-size")):
            with self.subTest(arguments):
                self.assertIn(says, self.error_line(*arguments, code=2))
        note = self.run_encore("generate", "--model", self.model, "--device", DEVICE, "--prompt-ids", "1", "--max-tokens", "1",
                               "--top-k", "5").stderr
        self.assertIn("no effect at --temperature 0", note)

    def test_no_verb_prints_the_help(self):
        self.assertIn("Exit codes", self.run_encore(code=2).stderr)
        self.assertIn("Exit codes", self.run_encore("--help").stdout)
        self.assertRegex(self.run_encore("--version").stdout, r"^encore \d+\.\d+\.\d+\ncommit ")

    def test_a_model_that_is_not_there_says_what_could_be(self):
        line = self.error_line("generate", "--model", self.work / "nowhere", "--device", DEVICE, code=2)
        self.assertIn("checkpoint", line)
        line = self.error_line("generate", "--model", "synthetic:llama-9", "--device", DEVICE, code=2)
        self.assertIn("llama-3.1-8b", line)

    def test_a_shape_is_read_from_a_file_of_the_working_directory(self):
        (self.work / "config.json").write_text(json.dumps(CONFIG))
        self.run_encore("graphs", "--estimate", "--model", "synthetic:config.json", cwd=self.work)

    def test_a_directory_without_a_config_is_not_a_model(self):
        (self.work / "empty").mkdir()
        self.assertIn("config.json", self.error_line("generate", "--model", self.work / "empty", "--device", DEVICE, code=3))

    def test_prompts_that_cannot_run_are_refused_before_loading(self):
        base = ["generate", "--model", self.model, "--device", DEVICE]
        self.assertIn("--prompt-ids", self.error_line(*base, "--prompt", "Hello", code=2))
        self.assertIn("'x'", self.error_line(*base, "--prompt-ids", "1,x", code=2))
        self.assertIn("vocabulary of 320", self.error_line(*base, "--prompt-ids", "1,320", code=2))
        self.assertIn("at most 1000000", self.error_line(*base, "--prompt-ids", "1", "--max-tokens", "1000000", code=2))
        self.assertIn("raise it to 33", self.error_line(*base, "--prompt-ids", "1", "--max-tokens", "32",
                                                        "--kv-tokens", "16", code=2))
        self.assertIn("--max-seq-len", self.error_line(*base, "--prompt-ids", "1", "--max-tokens", "32",
                                                       "--max-seq-len", "16", code=2))
        self.assertIn("top_p", self.error_line(*base, "--prompt-ids", "1", "--top-p", "1.5", code=2))
        self.assertIn("is too large", self.error_line(*base, "--seed", "9" * 30, code=2))
        for value, message in (("-1", "temperature is at least 0, not -1"),
                               ("1e300", "--temperature: 1e300 is too large"), ("x", "not 'x'")):
            self.assertIn(message, self.error_line(*base, "--temperature", value, code=2))

    def test_a_pool_that_the_reserve_forbids_is_an_error(self):
        base = ["generate", "--model", self.model, "--device", DEVICE, "--prompt-ids", "1", "--max-tokens", "2"]
        for tokens, reserve, message in ((64, "100%", "no memory is left for KV"),
                                         (1 << 30, "1%", "--kv-tokens 1073741824 do not fit beside")):
            result = self.run_encore(*base, "--kv-tokens", tokens, "--memory-reserve", reserve, code=6)
            self.assertIn(message, result.stderr.splitlines()[-1])

    def test_a_decode_step_has_room_for_all_sequences(self):
        line = self.error_line("generate", "--model", self.model, "--device", DEVICE, "--prompt-ids", "1,2,3",
                               "--max-tokens", "4", "--max-batch-size", "64", "--max-num-tokens", "8",
                               "--decode-ladder", "64", "--above-ladder", "eager", code=2)
        self.assertIn("raise the first to 64", line)
        self.run_encore("generate", "--model", self.model, "--device", DEVICE, "--prompt-ids", "1,2,3",
                        "--max-tokens", "4", "--max-batch-size", "64", "--max-num-tokens", "8",
                        "--decode-ladder", "1,2,64")

    def test_several_prompts_need_several_files(self):
        ids = self.work / "two.txt"
        ids.write_text("1,2\n3\n")
        line = self.error_line("logits", "--model", self.model, "--device", DEVICE, "--ids-file", ids,
                               "--out", self.work / "one.npy", code=2)
        self.assertIn("{}", line)

    def test_an_unwritable_file_is_named(self):
        path = self.work / "no" / "such" / "folder.npy"
        result = self.run_encore("logits", "--model", self.model, "--device", DEVICE, "--ids", "1", "--out", path, code=2)
        self.assertIn(str(path), result.stderr.splitlines()[-1])

    def test_what_is_no_regular_file_is_written_in_place(self):
        base = ["logits", "--model", self.model, "--device", DEVICE, "--ids", "1,2", "--out"]
        plain = self.work / "plain.npy"
        self.run_encore(*base, plain)
        target, link, fifo = (self.work / name for name in ("target.npy", "link.npy", "fifo"))
        target.write_text("old")
        link.symlink_to(target)
        self.run_encore(*base, link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(target.read_bytes(), plain.read_bytes())
        os.mkfifo(fifo)
        with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE) as reader:
            self.run_encore(*base, fifo)
            self.assertEqual(reader.communicate()[0], plain.read_bytes())
        self.assertTrue(fifo.is_fifo())
        self.assertIn("No space left", self.run_encore(*base, "/dev/full", code=2).stderr.splitlines()[-1])
        self.assertTrue(pathlib.Path("/dev/full").is_char_device())
        self.assertEqual(sorted(self.work.glob("*.partial")), [])

    def test_inspect_lists_the_passes(self):
        base = ["inspect", "--model", self.model]
        self.assertIn("merge_linears", self.error_line(*base, "--after", "fuse_everything", code=2))
        self.assertIn("switched off", self.error_line(*base, "--disable-pass", "nothing", code=2))


class MalformedCheckpointTest(CliTest):
    def setUp(self):
        self.header, self.data = harness.random_checkpoint(CONFIG)

    def refused(self, content=None, config=CONFIG, says="", code=3):
        directory = harness.write_checkpoint(self.work / self.id().rsplit(".", 1)[-1], config, content)
        line = self.error_line("generate", "--model", directory, "--device", DEVICE, "--prompt-ids", "1,2", code=code)
        self.assertIn(says, line)

    def test_a_truncated_file(self):
        self.refused(safetensors_bytes(self.header, self.data)[:-100])

    def test_a_file_shorter_than_its_header(self):
        self.refused(safetensors_bytes(self.header, self.data)[:200])

    def test_a_huge_header(self):
        self.refused(struct.pack("<Q", 1 << 62) + b"{}", says="header")

    def test_a_header_that_is_no_json(self):
        self.refused(struct.pack("<Q", 8) + b"\xff\xfe{{{{{{")

    def test_overlapping_offsets(self):
        self.header["model.norm.weight"]["data_offsets"] = [0, 512]
        self.refused(safetensors_bytes(self.header, self.data))

    def test_a_missing_tensor(self):
        self.header["model.layers.1.mlp.up_proj.other"] = self.header.pop("model.layers.1.mlp.up_proj.weight")
        self.refused(safetensors_bytes(self.header, self.data), says="model.layers.1.mlp.up_proj.weight")

    def test_a_wrong_shape(self):
        self.header["model.layers.0.self_attn.k_proj.weight"]["shape"] = [64, 256]
        self.refused(safetensors_bytes(self.header, self.data), says="model.layers.0.self_attn.k_proj.weight")

    def test_a_config_that_lies(self):
        self.refused(config=CONFIG | {"num_attention_heads": 3}, says="num_attention_heads")
        self.refused(config=CONFIG | {"hidden_size": -1}, says="hidden_size")

    def test_an_unknown_architecture_is_unsupported(self):
        self.refused(config=CONFIG | {"architectures": ["MambaForCausalLM"], "model_type": "mamba"}, says="mamba", code=4)

    def test_a_path_in_the_index(self):
        directory = self.work / "index"
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(CONFIG))
        index = {"weight_map": {name: "../../etc/model.safetensors" for name in self.header}}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
        self.error_line("generate", "--model", directory, "--device", DEVICE, "--prompt-ids", "1", code=3)


class DegradedModelTest(CliTest):
    """Directories that serve less than a user may expect: each says so at start, in one line."""

    def directory(self, name, without=(), config=None, **files):
        made = self.work / name
        made.mkdir()
        for file in harness.BUNDLED.iterdir():
            if file.name not in without and file.name not in files:
                (made / file.name).symlink_to(file)
        for file, text in files.items():
            (made / file).write_text(text)
        if config:
            content = json.loads((harness.BUNDLED / "config.json").read_text()) | config
            (made / "config.json").unlink()
            (made / "config.json").write_text(json.dumps(content))
        return made

    def warnings(self, lines):
        return [line for line in lines if "warning" in line]

    def test_a_server_says_what_its_clients_will_miss(self):
        template = ("chat_template.jinja", "tokenizer_config.json")
        for name, made, says in (
                ("no_tokenizer", {"without": ("tokenizer.json",)}, "no tokenizer.json, so prompts and answers are token ids"),
                ("sentencepiece", {"without": ("tokenizer.json",), "tokenizer.model": "x"}, "tokenizer.model is not read"),
                ("no_template", {"without": template}, "no chat template"),
                ("empty_template", {"chat_template.jinja": "\n"}, "shows nothing of what a user says"),
                ("broken_template", {"chat_template.jinja": "{{ messages[0].content | nofilter }}"}, "no filter named 'nofilter'")):
            with self.subTest(name):
                with Server("--model", self.directory(name, **made)) as server:
                    pass
                lines = self.warnings(server.log)
                self.assertEqual(len(lines), 1, server.log)
                self.assertIn(says, lines[0])
        with Server() as server:
            pass
        self.assertEqual(self.warnings(server.log), [])

    def test_generate_says_why_it_prints_numbers(self):
        made = self.directory("numbers", without=("tokenizer.json",))
        result = self.run_encore("generate", "--model", made, "--device", DEVICE, "--max-tokens", "3")
        self.assertRegex(result.stdout, r"^[\d ]+\n$")
        self.assertIn("no tokenizer.json", result.stderr)

    def test_sequences_may_be_longer_than_a_window(self):
        made = self.directory("window", config={"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 16})
        ids = ",".join(str(3 + i % 40) for i in range(40))
        result = self.run_encore("generate", "--model", made, "--device", DEVICE, "--prompt-ids", ids, "--max-tokens", "9", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_folder_that_cannot_be_read_is_no_missing_file(self):
        loop = self.work / "loop"
        loop.symlink_to("loop")
        self.assertIn("Too many levels", self.error_line("generate", "--model", loop, "--device", DEVICE, code=2))
        made = self.directory("unreadable", without=("config.json",))
        (made / "config.json").symlink_to("config.json")
        self.assertIn("Too many levels", self.error_line("generate", "--model", made, "--device", DEVICE, code=3))


if __name__ == "__main__":
    harness.main()
