#!/usr/bin/env python3
"""The hash that parts tuning caches tells apart what may change which kernel is fastest; run by ctest."""

import re
import subprocess
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


if __name__ == "__main__":
    unittest.main()
