"""Bad flags and bad checkpoints: one line on stderr with the remedy, and the documented exit code."""

import json
import struct

import harness
from harness import CONFIG, CliTest, safetensors_bytes


class UsageTest(CliTest):
    def test_a_bad_flag_names_the_help(self):
        for arguments in (["generate", "--grphs", "none"], ["generate", "--graphs", "fast"], ["bench"], ["logits"],
                          ["generate", "--max-tokens", "0"], ["generate", "--page-size", "20"],
                          ["generate", "--prompt", "a", "--prompt-ids", "1"]):
            with self.subTest(arguments):
                self.assertIn("--help", self.error_line(*arguments, code=2))

    def test_an_unknown_verb_lists_the_verbs(self):
        self.assertIn("generate, logits", self.error_line("genrate", code=2))

    def test_no_verb_prints_the_help(self):
        self.assertIn("Exit codes", self.run_encore(code=2).stderr)
        self.assertIn("Exit codes", self.run_encore("--help").stdout)
        self.assertRegex(self.run_encore("--version").stdout, r"^encore \d+\.\d+\.\d+\n$")

    def test_a_model_that_is_not_there_says_what_could_be(self):
        line = self.error_line("generate", "--model", self.work / "nowhere", "--device", "cpu", code=2)
        self.assertIn("checkpoint", line)
        line = self.error_line("generate", "--model", "synthetic:llama-9", "--device", "cpu", code=2)
        self.assertIn("llama-3.1-8b", line)

    def test_a_directory_without_a_config_is_not_a_model(self):
        (self.work / "empty").mkdir()
        self.assertIn("config.json", self.error_line("generate", "--model", self.work / "empty", "--device", "cpu", code=3))

    def test_prompts_that_cannot_run_are_refused_before_loading(self):
        base = ["generate", "--model", self.model, "--device", "cpu"]
        self.assertIn("--prompt-ids", self.error_line(*base, "--prompt", "Hello", code=2))
        self.assertIn("'x'", self.error_line(*base, "--prompt-ids", "1,x", code=2))
        self.assertIn("vocabulary of 320", self.error_line(*base, "--prompt-ids", "1,320", code=2))
        self.assertIn("at most 1000000", self.error_line(*base, "--prompt-ids", "1", "--max-tokens", "1000000", code=2))
        self.assertIn("raise it to 33", self.error_line(*base, "--prompt-ids", "1", "--max-tokens", "32",
                                                        "--kv-tokens", "16", code=2))
        self.assertIn("--max-seq-len", self.error_line(*base, "--prompt-ids", "1", "--max-tokens", "32",
                                                       "--max-seq-len", "16", code=2))
        self.assertIn("top_p", self.error_line(*base, "--prompt-ids", "1", "--top-p", "1.5", code=2))

    def test_several_prompts_need_several_files(self):
        ids = self.work / "two.txt"
        ids.write_text("1,2\n3\n")
        line = self.error_line("logits", "--model", self.model, "--device", "cpu", "--ids-file", ids,
                               "--out", self.work / "one.npy", code=2)
        self.assertIn("{}", line)

    def test_an_unwritable_file_is_named(self):
        path = self.work / "no" / "such" / "folder.npy"
        result = self.run_encore("logits", "--model", self.model, "--device", "cpu", "--ids", "1", "--out", path, code=2)
        self.assertIn(str(path), result.stderr.splitlines()[-1])

    def test_inspect_lists_the_passes(self):
        base = ["inspect", "--model", self.model]
        self.assertIn("merge_linears", self.error_line(*base, "--after", "fuse_everything", code=2))
        self.assertIn("switched off", self.error_line(*base, "--disable-pass", "nothing", code=2))


class MalformedCheckpointTest(CliTest):
    def setUp(self):
        self.header, self.data = harness.random_checkpoint(CONFIG)

    def refused(self, content=None, config=CONFIG, says="", code=3):
        directory = harness.write_checkpoint(self.work / self.id().rsplit(".", 1)[-1], config, content)
        line = self.error_line("generate", "--model", directory, "--device", "cpu", "--prompt-ids", "1,2", code=code)
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
        self.error_line("generate", "--model", directory, "--device", "cpu", "--prompt-ids", "1", code=3)


if __name__ == "__main__":
    harness.main()
