"""The command line as people type it: mistakes get the right answer, and shells and man know every option."""

import os
import re
import shutil
import subprocess
import unittest

import harness
from harness import BUNDLED, DEVICE, CliTest


class MistypedTest(CliTest):
    def test_every_mistake_is_answered_with_what_was_meant(self):
        for line, says in (
                ("genrate --prompt Hello", "no verb 'genrate': did you mean generate?"),
                ("bench decod", "no verb 'bench decod': did you mean bench decode?"),
                ("config explian x", "did you mean config explain?"),
                ("--hlep", "did you mean --help?"),
                ("chat --modle stories", "encore chat has no --modle: did you mean --model?"),
                ("generate --temprature 0", "did you mean --temperature?"),
                ("generate --max-token 5", "did you mean --max-tokens?"),
                ("generate --max-tokens=5 --topk=5", "did you mean --top-k?"),
                ("serve --decode-lader 1,2", "did you mean --decode-ladder?"),
                ("serve --max-batch 4", "did you mean --max-batch-size?"),
                ("serve --max-model-len 4096", "vLLM's --max-model-len is --max-seq-len here"),
                ("serve --max-num-seqs 64", "vLLM's --max-num-seqs is --max-batch-size here"),
                ("serve --gpu-memory-utilization 0.9", "vLLM's --gpu-memory-utilization is --memory-reserve here"),
                ("serve --tensor-parallel-size 2", "--tensor-parallel-size is --tensor-parallel here"),
                ("serve --pipeline-parallel-size 2", "--pipeline-parallel-size is not needed or not there: "),
                ("serve --enable-auto-tool-choice", "found from the model's chat template"),
                ("serve --context-length 4096", "SGLang's --context-length is --max-seq-len here"),
                ("serve --mem-fraction-static 0.8", "SGLang's --mem-fraction-static is --memory-reserve here"),
                ("serve --ctx-size 4096", "llama-server's --ctx-size is --max-seq-len here"),
                ("serve -ngl 99", "a model lies on its device as a whole"),
                ("serve --kv_cache_free_gpu_memory_fraction 0.5", "is --free-gpu-memory-fraction here"),
                ("generate --port 8000", "it is an option of other verbs"),
                ("serve stories", "encore serve takes no 'stories' there")):
            with self.subTest(line):
                self.assertIn(says, self.error_line(*line.split(), code=2))

    def test_words_of_other_programs_mean_what_they_mean_there(self):
        text = self.run_encore("generate", "--device", DEVICE, "--prompt", "One day", "--max-tokens", "8").stdout
        for line in (["-p", "One day"], ["One day"], ["-m", BUNDLED, "-p", "One day"]):
            self.assertEqual(self.run_encore("generate", "--device", DEVICE, "--max-tokens", "8", *line).stdout, text)
        version = self.run_encore("--version").stdout
        for line in (["-V"], ["version"]):
            self.assertEqual(self.run_encore(*line).stdout, version)
        self.assertEqual(self.run_encore("help").stdout, self.run_encore("--help").stdout)
        self.assertEqual(self.run_encore("help", "bench", "decode").stdout, self.run_encore("bench", "decode", "--help").stdout)
        for dtype in ("float32", "float", "fp32", "auto", "bfloat16"):
            self.run_encore("generate", "--device", DEVICE, "--dtype", dtype, "--max-tokens", "1")
        self.assertIn("f16", self.error_line("generate", "--dtype", "int8", code=2))


class ShellTest(CliTest):
    def test_help_fits_the_terminal(self):
        for columns in (80, 100):
            for line in (["--help"], ["serve", "--help"], ["serve", "--help-all"], ["generate", "--help"], ["chat", "--help"],
                         ["config", "explain", "--help"]):
                text = self.run_encore(*line, env=os.environ | {"COLUMNS": str(columns)}).stdout
                self.assertLessEqual(max(map(len, text.splitlines())), columns, (line, max(text.splitlines(), key=len)))

    def complete(self, script, line):
        words = line.split(" ")
        program = (f"source {script}; COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; _encore; "
                   "printf '%s\\n' \"${COMPREPLY[@]}\"")
        return subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout.split()

    def test_help_of_a_verb_has_no_examples_of_others(self):
        of_all = self.run_encore("--help").stdout
        self.assertIn("encore generate --prompt", of_all)
        for verb in ("tokenize", "detokenize", "doctor", "config", "bench", "man"):
            self.assertNotIn("encore generate", self.run_encore(verb, "--help").stdout, verb)

    def test_help_and_a_verb_read_a_default_from_one_place(self):
        """Options of the table have src/setup/defaults_test.cc; a verb's own say numbers by their constants, or as CLI11 reads them."""
        for source in sorted((harness.SOURCE / "src" / "cli").glob("*.cc")):
            self.assertEqual(re.findall(r'.*[Dd]efault:? [0-9].*', source.read_text()), [], source.name)
        for verb, says in (("bench decode", "5, on the CPU 3"), ("bench ladder", "7, on the CPU 3"), ("bench speculate", "3")):
            text = " ".join(self.run_encore(*verb.split(), "--help-all").stdout.split())
            self.assertIn(f"Runs, of which the median counts. Default: {says}", text)

    def test_bash_completes_verbs_options_and_values(self):
        script = self.work / "encore.bash"
        script.write_text(self.run_encore("completion", "bash").stdout)
        self.assertEqual(self.complete(script, "encore gen"), ["generate"])
        self.assertEqual(self.complete(script, "encore bench dec"), ["decode"])
        self.assertEqual(self.complete(script, "encore serve --max-b"), ["--max-batch-size"])
        self.assertEqual(self.complete(script, "encore serve --log-format "), ["text", "json"])
        self.assertIn("--top-k", self.complete(script, "encore generate --prompt x --top"))
        self.assertEqual(self.complete(script, "encore completion b"), [])

    def test_zsh_and_fish_can_read_theirs(self):
        for shell, arguments in (("zsh", ["-n"]), ("fish", ["--no-execute"])):
            script = self.work / f"encore.{shell}"
            script.write_text(self.run_encore("completion", shell).stdout)
            self.assertIn("max-batch-size", script.read_text())
            if found := shutil.which(shell):
                checked = subprocess.run([found, *arguments, script], capture_output=True, text=True, check=False)
                self.assertEqual((checked.returncode, checked.stderr), (0, ""))
        self.assertIn("bash", self.error_line("completion", "tcsh", code=2))

    def test_the_manual_page_has_every_verb_and_option(self):
        page = self.run_encore("man").stdout
        for word in ("encore bench decode", r"\-\-max\-batch\-size", r"\-\-drain\-delay"):
            self.assertIn(word, page)

    @unittest.skipUnless(shutil.which("man") and shutil.which("groff"), "no man")
    def test_man_shows_it_without_a_warning(self):
        path = self.work / "encore.1"
        path.write_text(self.run_encore("man").stdout)
        shown = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True, check=False,
                               env=os.environ | {"MANPAGER": "cat", "MANWIDTH": "100"})
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertIn("--max-batch-size", shown.stdout)


if __name__ == "__main__":
    harness.main()
