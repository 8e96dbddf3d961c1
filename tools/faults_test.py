#!/usr/bin/env python3
"""Tests of tools/faults.py; run by `./dev faults`."""

import contextlib
import io
import pathlib
import tempfile
import unittest
from unittest import mock

import faults

DIFF = "\ndiff --git a/x.txt b/x.txt\n--- a/x.txt\n+++ b/x.txt\n@@ -1,2 +1,1 @@\n one\n-two\n"


class FaultsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(setattr, faults, "COPY", faults.COPY)
        faults.COPY = pathlib.Path(self.folder.name)

    def fault(self, header, diff=DIFF):
        patch = faults.COPY / "lost_line.patch"
        patch.write_text(header + diff)
        return faults.parse(patch)

    def test_reads_the_header(self):
        fault = self.fault("Wrong: a line is lost\nTest: cli.generate GenerateTest.test_it\n")
        self.assertEqual((fault.name, fault.wrong, fault.target, fault.on_gpu),
                         ("lost_line", "a line is lost", "encore", False))
        fault = self.fault("Wrong: a line is lost\nGPU: backend_test A.B\n")
        self.assertEqual((fault.test, fault.target, fault.on_gpu), ("backend_test A.B", "backend_test", True))

    def test_wants_one_sentence_and_one_test(self):
        for header in ("Test: a_test A.B\n", "Wrong: x\n", "Wrong: x\nTest: a_test\n",
                       "Wrong: x\nTest: a_test A.B\nGPU: a_test A.C\n"):
            with self.assertRaises(SystemExit):
                self.fault(header)

    def test_applies_to_the_copy_and_comes_off_again(self):
        fault = self.fault("Wrong: a line is lost\nTest: a_test A.B\n")
        file = faults.COPY / "x.txt"
        file.write_text("one\ntwo\n")
        self.assertIsNone(faults.problem_of_applying(fault))
        self.assertEqual(file.read_text(), "one\n")
        self.assertIsNone(faults.problem_of_applying(fault, "--reverse"))
        self.assertEqual(file.read_text(), "one\ntwo\n")
        file.write_text("another\n")
        self.assertIn("x.txt", faults.problem_of_applying(fault))

    def test_a_fault_that_takes_longer_than_the_limit_fails(self):
        fault = self.fault("Wrong: a line is lost\nTest: a_test A.B\n")
        for seconds, is_good in ((59, True), (61, False)):
            output = io.StringIO()
            with mock.patch.multiple(faults, build=lambda *_: None, passes=lambda *_: True, plant=lambda *_: "caught"), \
                    mock.patch.object(faults.time, "monotonic", side_effect=[100, 100 + seconds]), \
                    contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                self.assertEqual(faults.run([fault], 60), is_good)
            self.assertEqual("lost_line: caught, but only after the limit of 60 s" in output.getvalue(), not is_good)
            self.assertIn(f"{int(is_good)} of 1 faults caught within 60 s each", output.getvalue())


if __name__ == "__main__":
    unittest.main()
