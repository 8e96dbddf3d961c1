#!/usr/bin/env python3
"""No kernel waits for a block that may not be placed (launch.h): none polls memory that other blocks write; run by ctest.

Whoever polls loads by a strong or volatile access, or by an atomic that compares. Waits at mbarriers reach the blocks
of a cluster only, which are placed together.
"""

import re
import unittest
from pathlib import Path

FOLDER = Path(__file__).parent
LOADS = re.compile(r"\b(ld|atom)\.(relaxed|acquire|acq_rel|volatile)|\bld_(relaxed|acquire)<|\batom_\w+<|\batomicCAS\b|"
                   r"\bcompare_exchange|[.>]load\(::|\bvolatile\s+(?!\()\w+\s*\*")

# Files that may load so, and why.
ALLOWED = {
    "memory_order.cuh": "the vocabulary itself",
    "exchange.cuh": "waits for other GPUs, whose blocks are placed whatever this one does",
    "advance.cu": "one look at the host's mark, in no loop",
    "collectives.cu": "one look at the host's mark, in no loop",
    "step_start_test.cu": "a test, which gives up after some 20 ms",
    "lora.cuh": "one look at a row's slot, in no loop, to fetch what lies there",
}


def code(path):
    return re.sub(r"//[^\n]*", "", path.read_text())


class ResidencyTest(unittest.TestCase):
    def test_no_kernel_polls_what_other_blocks_write(self):
        # The litmus suite polls: it holds its blocks on the chip by a cooperative launch.
        kernels = [path for path in sorted([*FOLDER.rglob("*.cu"), *FOLDER.rglob("*.cuh")]) if path.parent.name != "litmus"]
        for path in kernels:
            if path.name not in ALLOWED:
                self.assertIsNone(LOADS.search(code(path)), f"{path.name}: a block may wait for one that is not placed")

    def test_the_pattern_finds_those_that_do(self):
        for line in ("while (ld_relaxed<Scope::kDevice>(flag) == 0) {}", "ld.acquire.gpu.u32 %0", "atomicCAS(lock, 0, 1)",
                     "x.compare_exchange_weak(y, z)", "auto* flag = (volatile int*)p;", "counter.load(::cuda::x)"):
            self.assertIsNotNone(LOADS.search(line), line)

    def test_the_litmus_tests_launch_blocks_that_wait_for_each_other_together(self):
        suite = code(FOLDER / "litmus" / "suite.cc")
        self.assertIn("cudaLaunchAttributeCooperative", suite)


if __name__ == "__main__":
    unittest.main()
