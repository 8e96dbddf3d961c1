"""The installed library works outside the tree, wherever it is moved to: C++, C and Python programs build and run
against it, and generate what `encore generate` does."""

import json
import os
import pathlib
import subprocess
import sys

import harness
from harness import ENCORE, SOURCE, CliTest
from lora_test import write_adapter

EXAMPLES = SOURCE / "examples" / "library"
PROMPT = "Once upon a time"


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=600,
                            **options)
    assert result.returncode == 0, f"{command}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result


class LibraryTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        built, cls.prefix = cls.work / "built", cls.work / "elsewhere" / "encore"
        run("cmake", "--install", pathlib.Path(ENCORE).parent, "--prefix", built)
        cls.prefix.parent.mkdir()
        built.rename(cls.prefix)
        cls.library = cls.prefix / "lib" / "libencore.so"
        sys.path.insert(0, str(EXAMPLES))
        cls.examples = cls.work / "examples"
        run("cmake", "-S", EXAMPLES, "-B", cls.examples, f"-DCMAKE_PREFIX_PATH={cls.prefix}", cwd="/")
        run("cmake", "--build", cls.examples)

    def generate(self, max_tokens):
        return json.loads(self.run_encore("generate", "--device", "cpu", "--prompt", PROMPT, "--max-tokens", max_tokens,
                                          "--json").stdout)

    def check_stream(self, result):
        """One text, then four that end before their first full stop."""
        story = PROMPT + self.generate(60)["text"] + "\n"
        self.assertTrue(result.stdout.startswith(story), result.stdout)
        others = result.stdout.removeprefix(story).splitlines()
        self.assertEqual(len([line for line in others if line.startswith("- ")]), 4, result.stdout)
        self.assertNotIn(".", "".join(others))
        self.assertRegex(result.stderr, r"^\d+ tokens in \d+ steps\n$")

    def test_a_cpp_program_runs_against_the_installed_package(self):
        self.check_stream(run(self.examples / "stream", cwd="/"))
        broken = subprocess.run([self.examples / "stream", "/no/such/model"], capture_output=True, text=True,
                                check=False)
        self.assertEqual(broken.returncode, 2)
        self.assertIn("no model '/no/such/model'", broken.stderr)

    def test_a_c_program_runs_against_the_installed_package(self):
        result = run(self.examples / "stream_c", cwd="/")
        self.assertEqual(result.stdout, PROMPT + self.generate(60)["text"] + "\n")

    def test_a_python_program_runs_against_the_installed_library(self):
        environment = os.environ | {"ENCORE_LIBRARY": str(self.library)}
        self.check_stream(run(sys.executable, "-B", EXAMPLES / "stream.py", cwd="/", env=environment))

    def test_python_gets_the_tokens_of_the_executable(self):
        import encore
        expected = self.generate(40)
        with encore.Engine(library=self.library, device="cpu") as engine:
            waited = engine.submit(PROMPT, max_tokens=40)
            text, again = waited.wait(), waited.wait()
            ids = engine.submit(expected["prompt_ids"], max_tokens=40).wait()
            self.assertEqual((text.tokens, text.text), (expected["ids"], expected["text"]))
            self.assertEqual(ids.tokens, expected["ids"])
            self.assertEqual((again.text, again.tokens, again.finish), ("", [], text.finish))
            rows = engine.submit(PROMPT, max_tokens=5, logprobs=2).wait().logprobs
            self.assertEqual([row.top[0][0] for row in rows], expected["ids"][:5])
            chat = engine.submit([{"role": "user", "content": "Yes or no?"}], choice=["yes", "no"]).wait()
            self.assertIn(chat.text, ("yes", "no"))
            request = engine.submit(PROMPT, max_tokens=400, ignore_eos=True)
            request.abort()
            self.assertEqual(request.wait().finish, "aborted")
            streamed = engine.submit(PROMPT, max_tokens=4)
            self.assertEqual([token for update in streamed for token in update.tokens], expected["ids"][:4])
            end = streamed.wait()
            self.assertEqual((end.text, end.tokens, end.finish), ("", [], "length"))
            for token in (2**32 + 5, 3_000_000_000, -2**31 - 1):
                with self.assertRaisesRegex(ValueError, f"token id {token} does not fit 32 bits"):
                    engine.submit([1, token])
            with self.assertRaisesRegex(encore.Error, "stop token 2000000000 is outside the vocabulary"):
                engine.submit(PROMPT, max_tokens=9, min_tokens=3, stop_token_ids=2_000_000_000)
            with self.assertRaisesRegex(encore.Error, "temperature is a number, not 'hot'"):
                engine.submit(PROMPT, temperature="hot")
            self.assertTrue(engine.drain())
            self.assertEqual(engine.statistics().num_finished[encore.FINISHES.index("aborted")], 1)
        with self.assertRaisesRegex(encore.Error, "no model '/no/such/model'"):
            encore.Engine(library=self.library, model="/no/such/model")

    def test_python_loads_adapters_while_it_runs(self):
        import encore
        path = write_adapter(self.work / "adapter", 1)
        expected = json.loads(self.run_encore("generate", "--device", "cpu", "--prompt", PROMPT, "--max-tokens", 20,
                                              "--adapter", path, "--json").stdout)["ids"]
        with encore.Engine(library=self.library, device="cpu", max_loras=1, max_batch_size=2) as engine:
            base = engine.submit(PROMPT, max_tokens=20).wait().tokens
            with self.assertRaisesRegex(encore.Error, "no adapter"):
                engine.submit(PROMPT, adapter="poet")
            engine.load_adapter("poet", path)
            self.assertEqual(engine.submit(PROMPT, max_tokens=20, adapter="poet").wait().tokens, expected)
            self.assertEqual(engine.submit(PROMPT, max_tokens=20).wait().tokens, base)
            with self.assertRaisesRegex(encore.Error, "already"):
                engine.load_adapter("poet", path)
            engine.load_adapter("poet", path, replaces=True)
            engine.unload_adapter("poet")
            with self.assertRaisesRegex(encore.Error, "no adapter"):
                engine.unload_adapter("poet")

    def test_a_model_without_a_tokenizer_takes_tokens_alone(self):
        import encore
        with encore.Engine(library=self.library, device="cpu", model=self.model, max_seq_len=64, max_batch_size=2,
                           kv_tokens=256) as engine:
            update = engine.submit([1, 2, 3], max_tokens=4, ignore_eos=True).wait()
            self.assertEqual((len(update.tokens), update.text, update.finish), (4, "", "length"))
            with self.assertRaisesRegex(encore.Error, "submit token ids"):
                engine.submit("text")
            with self.assertRaisesRegex(encore.Error, "give stop_token_ids"):
                engine.submit([1, 2, 3], stop="text")

    def test_the_library_exports_its_functions_and_needs_no_other(self):
        symbols = run("nm", "-D", "--defined-only", self.library).stdout.split("\n")
        names = {line.split()[-1] for line in symbols if line}
        header = (self.prefix / "include" / "encore" / "c_api.h").read_text()
        declared = {name for name in names if f"{name}(" in header}
        self.assertGreaterEqual(len(declared), 12)
        self.assertEqual(names, declared)
        needed = run("readelf", "-d", self.library).stdout
        for line in needed.splitlines():
            if "(NEEDED)" in line:
                self.assertRegex(line, r"\[(libc|libm|libpthread|libdl|librt|ld-linux-.*)\.so")


if __name__ == "__main__":
    harness.main()
