"""generate and logits: the same ids however they are run, streams, JSON, interruptions."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

import harness
from harness import BUNDLED, CONFIG, DEVICE, SOURCE, CliTest

MODES = ("none", "piecewise", "full", "auto")


class GenerateTest(CliTest):
    def ids(self, *arguments):
        result = self.run_encore("generate", "--device", DEVICE, "--json", "--ignore-eos", *arguments)
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
                    run = {step["mode"] for step in output["stats"]["steps"] if step["q"] == 1}
                    self.assertEqual(run, {{"none": "eager", "auto": "full"}.get(mode, mode)})

    def test_drafts_change_no_ids(self):
        repeated = ",".join(str(5 + i % 9) for i in range(40))
        for sampling in (["--temperature", "0"], ["--temperature", "0.8", "--seed", "3"]):
            base = ["--model", self.model, "--prompt-ids", repeated, "--max-tokens", "48", *sampling]
            wanted = self.ids(*base)
            self.assertEqual(wanted["stats"]["drafts"],
                             {"tokens": 0, "right": 0, "speculative_tokens": [], "max_sequences": None})
            for drafts in ("1", "4"):
                with self.subTest(sampling=sampling, drafts=drafts):
                    output = self.ids(*base, "--speculative-tokens", drafts)
                    self.assertEqual(output["ids"], wanted["ids"])
                    self.assertGreater(output["stats"]["drafts"]["tokens"], 0)
                    self.assertIn(1 + int(drafts), {step["q"] for step in output["stats"]["steps"]})

    def test_a_draft_model_changes_no_ids(self):
        for sampling in (["--temperature", "0"], ["--temperature", "0.8", "--seed", "3"]):
            base = ["--model", "stories", "--prompt-ids", "2046,379,260", "--max-tokens", "60", *sampling]
            wanted = self.ids(*base)
            for drafts in ("1", "3"):
                with self.subTest(sampling=sampling, drafts=drafts):
                    output = self.ids(*base, "--speculative-tokens", drafts, "--draft-model", "stories-draft")
                    self.assertEqual(output["ids"], wanted["ids"])
                    guessed = output["stats"]["drafts"]
                    self.assertGreater(guessed["right"], guessed["tokens"] / 2)
        line = self.error_line("generate", "--model", self.model, "--device", DEVICE, "--prompt-ids", "5",
                               "--speculative-tokens", "2", "--draft-model", "stories-draft", code=2)
        self.assertRegex(line, r"--draft-model has a vocabulary of 2048 tokens, and the model one of \d+: take a draft model made")

    def test_steps_choose_among_several_numbers_of_drafts(self):
        base = ["--model", "stories", "--prompt-ids", "2046,379,260", "--max-tokens", "80", "--temperature", "0.8", "--seed", "3"]
        wanted = self.ids(*base)["ids"]
        for source in ([], ["--draft-model", "stories-draft"]):
            with self.subTest(source=source):
                output = self.ids(*base, "--speculative-tokens", "3,1", *source)
                self.assertEqual(output["ids"], wanted)
                self.assertEqual({step["q"] for step in output["stats"]["steps"] if step["q"]}, {1, 2, 4})

    # Which may gain goes by the machine; the start says which are left, and steps have no others.
    def test_the_numbers_of_drafts_are_chosen_at_start_where_none_is_given(self):
        base = ["--model", "stories", "--prompt-ids", "2046,379,260", "--max-tokens", "80", "--temperature", "0.8", "--seed", "3"]
        wanted = self.ids(*base)["ids"]
        for source in (["--draft-model", "stories-draft"], ["--speculative-method", "ngram"], ["--speculative-tokens", "auto"]):
            with self.subTest(source=source):
                result = self.run_encore("generate", "--device", DEVICE, *base, *source, "--json")
                output = json.loads(result.stdout)
                self.assertEqual(output["ids"], wanted)
                drafts = output["stats"]["drafts"]
                chosen = drafts["speculative_tokens"]
                self.assertLessEqual(set(chosen), {1, 2, 3, 4})
                named = ", ".join(map(str, chosen)) + " or none, in batches of up to 1: " if chosen else "none, as they would gain"
                self.assertIn("guesses: " + named, result.stderr)
                self.assertEqual(drafts["max_sequences"], 1 if chosen else None)
                self.assertLessEqual({step["q"] for step in output["stats"]["steps"] if step["q"]}, {1} | {1 + k for k in chosen})
        output = self.ids(*base, "--draft-model", "stories-draft", "--max-batch-size", "4", "--max-num-tokens", "8")
        self.assertLessEqual(set(output["stats"]["drafts"]["speculative_tokens"]), {1})

    def test_numbers_of_drafts_that_are_wrong_are_refused(self):
        for wrong in ("17", "1,2,3,4", "0,2", "many"):
            line = self.error_line("generate", "--model", "stories", "--device", DEVICE, "--speculative-tokens", wrong, code=2)
            self.assertIn("give one number from 1 to 16, up to 3 of them, auto, or 0 for none", line)

    def test_split_ops_and_memory_without_reuse_change_no_ids(self):
        base = ["--model", self.model, "--prompt-ids", "5,6,7,8,9,10,11", "--max-tokens", "12"]
        wanted = self.ids(*base, "--graphs", "none")["ids"]
        for arguments in (["--split-at", "gather_rows,linear"], ["--memory-reuse", "off"]):
            for mode in MODES:
                with self.subTest(arguments=arguments, graphs=mode):
                    self.assertEqual(self.ids(*base, *arguments, "--graphs", mode)["ids"], wanted)

    def test_several_ranks_give_the_ids_of_one(self):
        base = ["generate", "--json", "--ignore-eos", "--model", self.model, "--dtype", "f32", "--prompt-ids", "5,6,7",
                "--max-tokens", "24"]
        if DEVICE == "cuda":
            line = self.error_line(*base, "--device", "cuda", "--tensor-parallel", "64", code=4)
            self.assertIn("--tensor-parallel 64: at most 8 GPUs compute a model together", line)
            return
        outputs = [json.loads(self.run_encore(*base, "--device", "cpu", "--tensor-parallel", ranks).stdout)["ids"]
                   for ranks in ("1", "2", "4")]
        self.assertEqual(outputs[1], outputs[0])
        self.assertEqual(outputs[2], outputs[0])
        line = self.error_line(*base, "--device", "cpu", "--tensor-parallel", "3", code=2)
        self.assertRegex(line, r"--tensor-parallel 3 does not divide the model: .*; take 1, 2, 4$")
        for more in (["--burst-steps", "8"], ["--draft-model", self.model, "--speculative-tokens", "2"]):
            with self.subTest(more=more):
                output = self.run_encore(*base, "--device", "cpu", "--tensor-parallel", "2", *more).stdout
                self.assertEqual(json.loads(output)["ids"], outputs[0])

    def test_what_helps_to_debug(self):
        programs = self.work / "programs"
        result = self.run_encore("generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "5,6", "--stats",
                                 "--max-tokens", "2", "--trace", "sample", "--save-programs", programs, "--verbose")
        self.assertRegex(result.stderr, r"step \d+, full: %\w+ = sample: \d+ to \d+, mean \d+, 0 of 1 not finite")
        self.assertRegex(result.stderr, r"compiled a decode step of 1 sequence: \d+ tables, .* ms")
        self.assertRegex(result.stderr, r"recorded a decode step of 1 sequence: 1 in full, 0 pieces, .* ms")
        self.assertRegex(result.stderr, r"\d+ sizes lowered to \d+ tables in")
        saved = list(programs.iterdir())
        self.assertEqual(len(saved), 1)
        self.assertIn("full step of 1 sequences", saved[0].read_text())
        quiet = self.run_encore("generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "5,6",
                                "--max-tokens", "2")
        self.assertNotIn("compiled a", quiet.stderr)
        error = self.run_encore("generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "5,6",
                                "--trace", "no_such_word", code=2)
        self.assertIn("'no_such_word'", error.stderr)

    def test_the_json_counts_sizes_tables_and_replays(self):
        replays = {}
        for mode in MODES:
            stats = self.ids("--model", self.model, "--prompt-ids", "5,6,7", "--max-tokens", "6", "--graphs", mode)["stats"]
            counted = stats["recordings"]
            shapes = {(step["bucket_tokens"], step["bucket_sequences"], step["q"]) for step in stats["steps"]}
            self.assertGreaterEqual(counted["sizes"], len(shapes))
            self.assertGreater(counted["tables"], counted["sizes"])
            replays[mode] = counted["replays"]
        self.assertEqual(replays["none"], 0)
        self.assertGreater(replays["piecewise"], replays["full"])
        if DEVICE == "cpu":  # elsewhere several steps may be one replay, and a prompt several
            self.assertEqual((replays["full"], replays["auto"]), (6, 6))

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

    def test_a_continuation_keeps_its_first_space(self):
        model = harness.write_checkpoint(self.work / "spm", CONFIG | {"vocab_size": 1400})
        shutil.copy(SOURCE / "tests" / "tokenizers" / "spm" / "tokenizer.json", model)
        base = ["--model", model, "--prompt", "the of", "--max-tokens", "4", "--temperature", "9"]
        spaced = 0
        for seed in range(12):
            output = self.ids(*base, "--seed", seed)
            whole = self.run_encore("detokenize", "--model", model, "--json",
                                    input=json.dumps(output["prompt_ids"] + output["ids"]) + "\n").stdout
            self.assertEqual("the of" + output["text"], json.loads(whole))
            spaced += output["text"].startswith(" ")
        self.assertGreater(spaced, 0)
        echoed = self.run_encore("generate", "--device", DEVICE, "--ignore-eos", *base, "--seed", 11, "--echo").stdout
        self.assertEqual(echoed, "the of" + output["text"] + "\n")

    def test_json_has_the_documented_keys(self):
        output = self.ids("--model", self.model, "--prompt-ids", "[4, 5, 6]", "--max-tokens", "5")
        self.assertEqual(set(output), {"prompt_ids", "ids", "text", "finish", "timings", "stats"})
        self.assertEqual(output["prompt_ids"], [4, 5, 6])
        self.assertIsNone(output["text"])
        self.assertEqual(output["finish"], "length")
        self.assertEqual(set(output["timings"]), {"load_s", "first_token_ms", "total_s", "tokens_per_s"})
        self.assertEqual(set(output["stats"]), {"steps", "drafts", "memory", "recordings"})
        self.assertEqual(sum(step["tokens"] for step in output["stats"]["steps"]), 3 + 4)
        self.assertEqual(set(output["stats"]["steps"][0]),
                         {"mode", "bucket_tokens", "bucket_sequences", "q", "reason", "steps", "tokens", "padding"})

    def test_a_stop_token_ends_the_text_unless_ignored(self):
        base = ["--model", self.model, "--prompt-ids", "9,8,7", "--max-tokens", "12"]
        ids = self.ids(*base)["ids"]
        stopping = harness.write_checkpoint(self.work / "stopping", CONFIG | {"eos_token_id": ids[3]})
        base[1] = stopping
        self.assertEqual(self.ids(*base)["ids"], ids)
        result = json.loads(self.run_encore("generate", "--device", DEVICE, "--json", *base).stdout)
        self.assertEqual(result["finish"], "stop")
        self.assertEqual(result["ids"], ids[:ids.index(ids[3]) + 1])

    def test_without_a_tokenizer_the_ids_are_printed(self):
        base = ["generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "1,2", "--max-tokens", "4",
                "--ignore-eos"]
        plain = self.run_encore(*base)
        self.assertEqual([int(word) for word in plain.stdout.split()], json.loads(self.run_encore(*base, "--json").stdout)["ids"])
        stats = self.run_encore(*base, "--stats").stderr
        for word in ("full", "mixed", "padding", "weights", "arena", "full recordings", "tokens/s"):
            self.assertIn(word, stats)

    def test_an_interrupt_ends_it_cleanly(self):
        process = subprocess.Popen([self.encore, "generate", "--device", DEVICE, "--model", self.model, "--prompt-ids",
                                    "1,2", "--max-tokens", "500000", "--ignore-eos", "--json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while "ready in" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=600)
        self.assertEqual(process.returncode, 130)
        # Between loading and the first step there is nothing to report yet.
        if output:
            self.assertEqual(json.loads(output)["finish"], "interrupted")

    def test_a_closed_pipe_ends_it_quietly(self):
        process = subprocess.Popen([self.encore, "generate", "--device", DEVICE, "--model", self.model, "--prompt-ids",
                                    "1,2", "--max-tokens", "500000", "--ignore-eos"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdout.read(10)
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=600), 141)
        self.assertNotIn("error", errors)


@unittest.skipUnless(BUNDLED.is_dir(), "models/stories is not in this checkout")
class BundledModelTest(CliTest):
    def test_no_flags_at_all_tell_a_story(self):
        result = self.run_encore("generate", "--device", DEVICE)
        self.assertTrue(result.stdout.startswith("Once upon a time"), result.stdout)
        self.assertGreater(len(result.stdout.split()), 60)

    def test_stdout_is_the_text_of_the_json(self):
        base = ["generate", "--device", DEVICE, "--prompt", "Once upon a time", "--max-tokens", "40"]
        output = json.loads(self.run_encore(*base, "--json").stdout)
        self.assertEqual(self.run_encore(*base).stdout, output["text"] + "\n")
        self.assertEqual(self.run_encore(*base, "--echo").stdout, "Once upon a time" + output["text"] + "\n")

    def test_text_arrives_in_pieces(self):
        read, write = os.pipe2(os.O_DIRECT)  # what is written at once is read at once, and nothing more
        process = subprocess.Popen([self.encore, "generate", "--device", DEVICE, "--max-tokens", "200"], stdout=write,
                                   stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(write)
        pieces = []
        while piece := os.read(read, 65536):
            pieces.append(piece)
        os.close(read)
        self.assertEqual(process.wait(), 0)
        self.assertGreater(len(pieces), 1)
        for piece in pieces:
            piece.decode()  # never splits a character

    def test_many_prompts_give_the_texts_of_each_alone(self):
        prompts = self.work / "prompts.jsonl"
        single = ["generate", "--device", DEVICE, "--json"]
        lily = json.loads(self.run_encore(*single, "--prompt", "Lily", "--max-tokens", "1").stdout)["prompt_ids"]
        own = {"id": 7, "prompt": "A fox", "n": 2, "max_tokens": 12, "temperature": 0.8, "seed": 5}
        prompts.write_text("Once upon a time\n\n" + json.dumps(own) + "\n"
                           + json.dumps({"prompt_ids": lily, "stop": ["."], "max_tokens": 60}) + "\n")
        base = ["generate", "--device", DEVICE, "--max-tokens", "20"]
        lines = [json.loads(line) for line in self.run_encore(*base, "--prompts", prompts).stdout.splitlines()]
        self.assertEqual([(line["index"], line["id"], line["number"]) for line in lines],
                         [(0, None, 0), (1, 7, 0), (1, 7, 1), (2, None, 0)])
        alone = [["--prompt", "Once upon a time", "--max-tokens", "20"],
                 ["--prompt", "A fox", "--max-tokens", "12", "--temperature", "0.8", "--seed", "5"],
                 ["--prompt", "A fox", "--max-tokens", "12", "--temperature", "0.8", "--seed", "6"],
                 ["--prompt-ids", ",".join(map(str, lily)), "--max-tokens", "60", "--stop", "."]]
        for line, arguments in zip(lines, alone):
            expected = json.loads(self.run_encore(*single, *arguments).stdout)
            self.assertEqual({key: line[key] for key in ("ids", "text", "finish")},
                             {key: expected[key] for key in ("ids", "text", "finish")})
        self.assertEqual(lines[3]["finish"], "stop")
        self.assertNotIn(".", lines[3]["text"])
        piped = self.run_encore(*base, "--prompts", "-", input=prompts.read_text()).stdout
        self.assertEqual([json.loads(line) for line in piped.splitlines()], lines)

    def test_what_is_piped_in_is_the_prompt(self):
        base = ["generate", "--device", DEVICE, "--max-tokens", "8"]
        self.assertEqual(self.run_encore(*base, "--echo", input="The cat\n").stdout,
                         self.run_encore(*base, "--echo", "--prompt", "The cat").stdout)

    def test_a_prompt_that_cannot_run_is_named_before_anything_is_loaded(self):
        prompts = self.work / "bad.jsonl"
        for text, message in (('a\n{"prompt": "b", "max_tokens": 5000}\n', "bad.jsonl:2: a prompt of"),
                              ('{"prompt_ids": [999999]}', "bad.jsonl:1: token 999999 is outside"),
                              ('{"prompt": "a", "top_k": -2}', "bad.jsonl:1: top_k"), ("", "there is no prompt in it")):
            prompts.write_text(text)
            self.assertIn(message, self.error_line("generate", "--device", DEVICE, "--prompts", prompts, code=2))

    def test_a_prompt_without_room_is_refused(self):
        line = self.error_line("generate", "--device", DEVICE, "--prompt", "word " * 2000, code=2)
        self.assertIn("at most 1024", line)


class LogitsTest(CliTest):
    def test_the_file_has_a_row_a_token_and_agrees_with_generate(self):
        prompt = "5,60,7,100,3"
        path = self.work / "logits.npy"
        self.run_encore("logits", "--device", DEVICE, "--model", self.model, "--ids", prompt, "--out", path)
        rows, shape = harness.read_npy(path)
        self.assertEqual(shape, (5, CONFIG["vocab_size"]))
        first = json.loads(self.run_encore("generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", prompt,
                                           "--max-tokens", "1", "--json").stdout)["ids"][0]
        self.assertEqual(max(range(shape[1]), key=rows[-1].__getitem__), first)
        self.assertEqual(list(self.work.glob("*.partial")), [])

    def test_chunks_give_the_rows_of_one_step(self):
        prompt = ",".join(str(13 * i % 320) for i in range(45))
        base = ["logits", "--device", DEVICE, "--model", self.model, "--ids", prompt, "--out"]
        self.run_encore(*base, self.work / "whole.npy")
        whole, _ = harness.read_npy(self.work / "whole.npy")
        for extra in (["--max-num-tokens", "16"], ["--max-num-tokens", "1"], ["--graphs", "auto"]):
            self.run_encore(*base, self.work / "chunks.npy", *extra)
            chunks, shape = harness.read_npy(self.work / "chunks.npy")
            self.assertEqual(shape, (45, 320))
            for row, expected in zip(chunks, whole):
                self.assertLess(max(abs(a - b) for a, b in zip(row, expected)), 1e-4)

    def test_decode_steps_give_the_rows_of_a_prompt(self):
        prompts = [[7 * i % 320 for i in range(40)], [3, 1, 4], [5 * i % 319 for i in range(17)], [9]]
        ids = self.work / "prompts.txt"
        ids.write_text("".join(f"{prompt}\n" for prompt in prompts))
        base = ["logits", "--device", DEVICE, "--model", self.model, "--ids-file", ids, "--page-size", "16", "--out"]
        self.run_encore(*base, self.work / "prompt-{}.npy")
        self.run_encore(*base, self.work / "decode-{}.npy", "--decode", "--eager-steps", "forbid")
        for number, prompt in enumerate(prompts):
            expected, _ = harness.read_npy(self.work / f"prompt-{number}.npy")
            rows, shape = harness.read_npy(self.work / f"decode-{number}.npy")
            self.assertEqual(shape, (len(prompt), 320))
            for row, wanted in zip(rows, expected):
                self.assertLess(max(abs(a - b) for a, b in zip(row, wanted)), 1e-4)

    @unittest.skipIf(DEVICE == "cpu", "the CPU has one way to run a launch")
    def test_kernels_are_tuned(self):
        cache = self.work / "cache"
        self.run_encore("logits", "--device", DEVICE, "--model", self.model, "--dtype", "bf16", "--ids",
                        ",".join(map(str, range(1, 49))), "--out", self.work / "tuned.npy", "--tuning-cache", cache)
        self.assertTrue([path for path in cache.rglob("*") if path.is_file()], "nothing was measured")

    def test_several_prompts_share_one_load(self):
        ids = self.work / "prompts.txt"
        ids.write_text("1,2,3\n\n[4, 5]\n6\n")
        self.run_encore("logits", "--device", DEVICE, "--model", self.model, "--ids-file", ids,
                        "--out", self.work / "many-{}.npy")
        shapes = [harness.read_npy(self.work / f"many-{i}.npy")[1] for i in range(3)]
        self.assertEqual(shapes, [(3, 320), (2, 320), (1, 320)])
        self.assertFalse(pathlib.Path(self.work / "many-3.npy").exists())


if __name__ == "__main__":
    harness.main()
