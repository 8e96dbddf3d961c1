#!/usr/bin/env python3
"""The hash that parts tuning caches tells apart what may change which kernel is fastest; run by ctest.

It takes --build DIR, where the CUDA backend was configured for Ninja.
"""

import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).with_name("hash_sources.cmake")


class HashSourcesTest(unittest.TestCase):
    def hash_of(self, build, *texts):
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / f"{number}.cc" for number in range(len(texts))]
            for file, text in zip(files, texts):
                file.write_text(text)
            output = Path(folder) / "hash.cc"
            subprocess.run(["cmake", f"-DOUTPUT={output}", f"-DBUILD={build}", "-P", SCRIPT, "--", *files], check=True)
            return re.search(r'"([0-9a-f]{16})"', output.read_text())[1]

    def test_is_the_same_for_the_same(self):
        self.assertEqual(self.hash_of("nvcc 13 -O3", "a", "b"), self.hash_of("nvcc 13 -O3", "a", "b"))

    def test_differs_with_a_source(self):
        self.assertNotEqual(self.hash_of("nvcc 13 -O3", "a", "b"), self.hash_of("nvcc 13 -O3", "a", "c"))

    def test_differs_with_the_compiler_and_its_flags(self):
        self.assertNotEqual(self.hash_of("nvcc 13 -O3", "a"), self.hash_of("nvcc 14 -O3", "a"))
        self.assertNotEqual(self.hash_of("nvcc 13 -O3", "a"), self.hash_of("nvcc 13 -O3 -lineinfo", "a"))


class BuildTest(unittest.TestCase):
    """What the build hands to the script."""

    folder = None

    def setUp(self):
        commands = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", "src/backend/cuda/source_hash.cc"], check=True,
                                  capture_output=True, text=True).stdout
        (line,) = [line for line in commands.splitlines() if SCRIPT.name in line]
        self.arguments = shlex.split(line)

    def test_hashes_every_source_of_kernels_and_of_what_binds_and_measures_them(self):
        cuda = SCRIPT.parent
        sources = [*cuda.parent.glob("*"), *(path for path in cuda.rglob("*") if "litmus" not in path.relative_to(cuda).parts)]
        wanted = {path for path in sources if path.is_file() and not re.search(r"_(test|bench)\.\w+$", path.name)
                  and path.suffix not in (".py", ".cmake", ".txt")}
        hashed = {Path(path).resolve() for path in self.arguments[self.arguments.index("--") + 1:]}
        self.assertEqual(hashed, wanted)
        self.assertLessEqual({cuda / "linear/skinny_gemm.cu", cuda / "kernels.cc", cuda.parent / "tuning.cc"}, hashed)

    def test_hashes_both_compilers_with_their_flags_and_the_architecture(self):
        (build,) = [argument for argument in self.arguments if argument.startswith("-DBUILD=")]
        self.assertRegex(build, r"=NVIDIA 13\.[\d.]+ .*-O\d.* 90a\S*, \w+ \d[\d.]+ .*-O\d")


if __name__ == "__main__":
    if "--build" in sys.argv:
        BuildTest.folder = sys.argv.pop(sys.argv.index("--build") + 1)
        sys.argv.remove("--build")
    unittest.main()
