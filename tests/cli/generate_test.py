"""generate and logits: the same ids however they are walked, streams, JSON, interruptions."""

import json
import os
import pathlib
import signal
import subprocess
import unittest

import harness
from harness import BUNDLED, CONFIG, CliTest

MODES = ("none", "piecewise", "full", "auto")


class GenerateTest(CliTest):
    def ids(self, *arguments):
        result = self.run_encore("generate", "--device", "cpu", "--json", "--ignore-eos", *arguments)
        return json.loads(result.stdout)

    def test_every_mode_gives_the_same_ids(self):
        config = self.work / "synthetic" / "config.json"
        config.parent.mkdir()
        config.write_text(json.dumps(CONFIG | {"torch_dtype": "bfloat16"}))
        long_prompt = ",".join(str(7 * i % 320) for i in range(75))
        cases = [("synthetic", ["--model", f"synthetic:{config}", "--prompt-ids", "5,6,7,8,9,10,11"]),
                 ("one token", ["--model", self.model, "--prompt-ids", "3"]),
                 ("sampled", ["--model", self.model, "--prompt-ids", "3,4,5", "--temperature", "0.9", "--top-k", "50",
                              "--top-p", "0.95", "--min-p", "0.01", "--seed", "7"]),
                 ("in chunks", ["--model", self.model, "--prompt-ids", long_prompt, "--max-num-tokens", "16"]),
                 ("in a larger batch", ["--model", self.model, "--prompt-ids", "1,2", "--max-batch-size", "8"])]
        for name, arguments in cases:
            outputs = [self.ids(*arguments, "--graphs", mode, "--max-tokens", "24") for mode in MODES]
            for mode, output in zip(MODES, outputs):
                with self.subTest(case=name, graphs=mode):
                    self.assertEqual(output["ids"], outputs[0]["ids"])
                    self.assertEqual(len(output["ids"]), 24)
                    walked = {step["mode"] for step in output["stats"]["steps"] if step["q"] == 1}
                    self.assertEqual(walked, {{"none": "eager", "auto": "full"}.get(mode, mode)})

    def test_kv_in_fp8_gives_the_same_ids_in_every_mode(self):
        base = ["--model", self.model, "--prompt-ids", "5,6,7,8,9,10,11", "--max-tokens", "16", "--kv-dtype", "fp8"]
        outputs = [self.ids(*base, "--graphs", mode) for mode in MODES]
        self.assertEqual([output["ids"] for output in outputs], [outputs[0]["ids"]] * len(MODES))

    def test_chunks_and_page_sizes_do_not_change_greedy_ids(self):
        prompt = ",".join(str(11 * i % 320) for i in range(100))
        base = ["--model", self.model, "--prompt-ids", prompt, "--max-tokens", "8"]
        whole = self.ids(*base)["ids"]
        self.assertEqual(self.ids(*base, "--max-num-tokens", "24")["ids"], whole)
        self.assertEqual(self.ids(*base, "--page-size", "16")["ids"], whole)

    def test_json_has_the_documented_keys(self):
        output = self.ids("--model", self.model, "--prompt-ids", "[4, 5, 6]", "--max-tokens", "5")
        self.assertEqual(set(output), {"prompt_ids", "ids", "text", "finish", "timings", "stats"})
        self.assertEqual(output["prompt_ids"], [4, 5, 6])
        self.assertIsNone(output["text"])
        self.assertEqual(output["finish"], "length")
        self.assertEqual(set(output["timings"]), {"load_s", "first_token_ms", "total_s", "tokens_per_s"})
        self.assertEqual(set(output["stats"]), {"steps", "memory", "recordings"})
        self.assertEqual(sum(step["tokens"] for step in output["stats"]["steps"]), 3 + 4)
        self.assertEqual(set(output["stats"]["steps"][0]),
                         {"mode", "bucket_tokens", "bucket_sequences", "q", "reason", "steps", "tokens", "padding"})

    def test_a_stop_token_ends_the_text_unless_ignored(self):
        base = ["--model", self.model, "--prompt-ids", "9,8,7", "--max-tokens", "12"]
        ids = self.ids(*base)["ids"]
        stopping = harness.write_checkpoint(self.work / "stopping", CONFIG | {"eos_token_id": ids[3]})
        base[1] = stopping
        self.assertEqual(self.ids(*base)["ids"], ids)
        result = json.loads(self.run_encore("generate", "--device", "cpu", "--json", *base).stdout)
        self.assertEqual(result["finish"], "stop")
        self.assertEqual(result["ids"], ids[:ids.index(ids[3]) + 1])

    def test_without_a_tokenizer_the_ids_are_printed(self):
        base = ["generate", "--device", "cpu", "--model", self.model, "--prompt-ids", "1,2", "--max-tokens", "4",
                "--ignore-eos"]
        plain = self.run_encore(*base)
        self.assertEqual([int(word) for word in plain.stdout.split()], json.loads(self.run_encore(*base, "--json").stdout)["ids"])
        stats = self.run_encore(*base, "--stats").stderr
        for word in ("full", "piecewise", "padding", "weights", "arena", "full recordings", "tokens/s"):
            self.assertIn(word, stats)

    def test_an_interrupt_ends_it_cleanly(self):
        process = subprocess.Popen([self.encore, "generate", "--device", "cpu", "--model", self.model, "--prompt-ids",
                                    "1,2", "--max-tokens", "500000", "--ignore-eos", "--json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while "ready in" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        # Between loading and the first step there is nothing to report yet.
        if output:
            self.assertEqual(json.loads(output)["finish"], "interrupted")

    def test_a_closed_pipe_ends_it_quietly(self):
        process = subprocess.Popen([self.encore, "generate", "--device", "cpu", "--model", self.model, "--prompt-ids",
                                    "1,2", "--max-tokens", "500000", "--ignore-eos"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=60), 141)
        self.assertNotIn("error", errors)


@unittest.skipUnless(BUNDLED.is_dir(), "models/stories is not in this checkout")
class BundledModelTest(CliTest):
    def test_no_flags_at_all_tell_a_story(self):
        result = self.run_encore("generate", "--device", "cpu")
        self.assertTrue(result.stdout.startswith("Once upon a time"), result.stdout)
        self.assertGreater(len(result.stdout.split()), 60)

    def test_stdout_is_the_text_of_the_json(self):
        base = ["generate", "--device", "cpu", "--prompt", "Once upon a time", "--max-tokens", "40"]
        output = json.loads(self.run_encore(*base, "--json").stdout)
        self.assertEqual(self.run_encore(*base).stdout, output["text"] + "\n")
        self.assertEqual(self.run_encore(*base, "--echo").stdout, "Once upon a time" + output["text"] + "\n")

    def test_text_arrives_in_pieces(self):
        read, write = os.pipe()
        process = subprocess.Popen([self.encore, "generate", "--device", "cpu", "--max-tokens", "200"], stdout=write,
                                   stderr=subprocess.DEVNULL)
        os.close(write)
        pieces = []
        while piece := os.read(read, 65536):
            pieces.append(piece)
        os.close(read)
        self.assertEqual(process.wait(), 0)
        self.assertGreater(len(pieces), 1)
        for piece in pieces:
            piece.decode()  # never splits a character

    def test_a_prompt_without_room_is_refused(self):
        line = self.error_line("generate", "--device", "cpu", "--prompt", "word " * 2000, code=2)
        self.assertIn("at most 1024", line)


class LogitsTest(CliTest):
    def test_the_file_has_a_row_a_token_and_agrees_with_generate(self):
        prompt = "5,60,7,100,3"
        path = self.work / "logits.npy"
        self.run_encore("logits", "--device", "cpu", "--model", self.model, "--ids", prompt, "--out", path)
        rows, shape = harness.read_npy(path)
        self.assertEqual(shape, (5, CONFIG["vocab_size"]))
        first = json.loads(self.run_encore("generate", "--device", "cpu", "--model", self.model, "--prompt-ids", prompt,
                                           "--max-tokens", "1", "--json").stdout)["ids"][0]
        self.assertEqual(max(range(shape[1]), key=rows[-1].__getitem__), first)
        self.assertEqual(list(self.work.glob("*.partial")), [])

    def test_chunks_give_the_rows_of_one_step(self):
        prompt = ",".join(str(13 * i % 320) for i in range(45))
        base = ["logits", "--device", "cpu", "--model", self.model, "--ids", prompt, "--out"]
        self.run_encore(*base, self.work / "whole.npy")
        whole, _ = harness.read_npy(self.work / "whole.npy")
        for extra in (["--max-num-tokens", "16"], ["--max-num-tokens", "1"], ["--graphs", "auto"]):
            self.run_encore(*base, self.work / "chunks.npy", *extra)
            chunks, shape = harness.read_npy(self.work / "chunks.npy")
            self.assertEqual(shape, (45, 320))
            for row, expected in zip(chunks, whole):
                self.assertLess(max(abs(a - b) for a, b in zip(row, expected)), 1e-4)

    def test_several_prompts_share_one_load(self):
        ids = self.work / "prompts.txt"
        ids.write_text("1,2,3\n\n[4, 5]\n6\n")
        self.run_encore("logits", "--device", "cpu", "--model", self.model, "--ids-file", ids,
                        "--out", self.work / "many-{}.npy")
        shapes = [harness.read_npy(self.work / f"many-{i}.npy")[1] for i in range(3)]
        self.assertEqual(shapes, [(3, 320), (2, 320), (1, 320)])
        self.assertFalse(pathlib.Path(self.work / "many-3.npy").exists())


if __name__ == "__main__":
    harness.main()
