#!/usr/bin/env python3
"""Tests of tools/sass_check.py; run by ctest."""

import unittest

from sass_check import RULES, Rule, broken, parse

TEXT = """
		Function : void encore::cuda::litmus::litmus_kernel<encore::cuda::litmus::Release<(encore::cuda::Scope)2> >(int)
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                       /* 0x00000a00ff017b82 */
                                                                                /* 0x000e220000000800 */
        /*0010*/                   MEMBAR.ALL.GPU ;                             /* 0x0000000000007992 */
        /*0020*/                   ERRBAR;                                      /* 0x00000000000079ab */
        /*0030*/               @P0 ST.E.STRONG.GPU desc[UR4][R2.64], R5 ;       /* 0x0000000502007985 */
        /*0040*/              @!P1 LD.E.STRONG.GPU R3, desc[UR4][R2.64] ;       /* 0x0000000402037980 */
        /*0050*/                   IADD3 R3, R3, 0x1, RZ ;                      /* 0x0000000103037810 */
        /*10060*/                  CCTL.IVALL ;                                 /* 0x00000000ff00798f */
		Function : other
        /*0000*/                   EXIT ;                                       /* 0x000000000000794d */
"""
KERNEL = "void litmus_kernel<Release<gpu> >(int)"


class SassCheckTest(unittest.TestCase):
    def setUp(self):
        self.kernels = parse(TEXT)

    def problems(self, **parts):
        return broken(Rule("a.cu", "litmus", "why", **parts), self.kernels[KERNEL])

    def test_reads_opcodes_with_and_without_predicates(self):
        self.assertEqual(list(self.kernels), [KERNEL, "other"])
        self.assertEqual(self.kernels[KERNEL], ["LDC", "MEMBAR.ALL.GPU", "ERRBAR", "ST.E.STRONG.GPU", "LD.E.STRONG.GPU",
                                                "IADD3", "CCTL.IVALL"])

    def test_finds_what_is_missing_and_what_must_not_be_there(self):
        self.assertEqual(self.problems(has=("MEMBAR.*", "ERRBAR"), lacks=("HGMMA.*",)), [])
        self.assertEqual(self.problems(has=("HGMMA.*",)), ["has no HGMMA.*"])
        self.assertEqual(self.problems(lacks=("CCTL.*",)), ["has 1 of CCTL.*"])

    def test_pairs_are_neighbours_among_memory_instructions_in_that_order(self):
        fence = (r"MEMBAR\.ALL\.GPU", r"ST\.E\.STRONG\.GPU", 1)
        acquire = (r"LD\.E\.STRONG\.GPU", r"CCTL\.IVALL", 1)
        self.assertEqual(self.problems(pairs=(fence, acquire)), [])
        self.assertEqual(len(self.problems(pairs=((fence[1], fence[0], 1),))), 1)
        self.assertEqual(len(self.problems(pairs=((fence[0], acquire[0], 1),))), 1)
        self.assertEqual(len(self.problems(pairs=((*fence[:2], 2),))), 1)

    def test_loads_in_front_of_an_arrival_are_used_in_front_of_it_unless_a_jump_parts_them(self):
        rule = Rule("a.cu", "ring", "why", behind=(("ARRIVE", "LDSM.*", "HMMA"),))
        for good in (["LDSM.4", "LDSM", "HMMA", "HMMA", "ARRIVE"], ["LDSM", "HMMA", "BRA", "ARRIVE", "LDSM"]):
            self.assertEqual(broken(rule, good), [], good)
        for bad in (["LDSM", "ARRIVE", "HMMA"], ["LDSM", "LDSM", "HMMA", "ARRIVE", "HMMA"],
                    ["HMMA", "LDSM", "ARRIVE"], ["LDSM", "HMMA"]):
            self.assertEqual(len(broken(rule, bad)), 1, bad)

    def test_every_rule_asks_for_something(self):
        for rule in RULES:
            self.assertTrue(rule.has or rule.lacks or rule.pairs or rule.behind, rule.kernel)


if __name__ == "__main__":
    unittest.main()
