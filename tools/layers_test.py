#!/usr/bin/env python3
"""Tests of tools/layers.py; run by `./dev layers`."""

import unittest

from layers import MAY_INCLUDE, check, graph


class LayersTest(unittest.TestCase):
    def errors(self, path, text):
        return check({path: text}).errors

    def test_the_table_lists_a_module_after_all_it_may_include(self):
        order = list(MAY_INCLUDE)
        for module, allowed in MAY_INCLUDE.items():
            for name in allowed:
                self.assertLessEqual(order.index(name), order.index(module), f"{module} -> {name}")

    def test_accepts_what_the_table_allows(self):
        self.assertEqual(self.errors("passes/fuse.cc", '#include "base/error.h"\n'
                                     '#include "ir/graph.h"\n#include "passes/fuse.h"\n#include <vector>\n'), [])

    def test_names_the_line_of_an_upward_include(self):
        self.assertEqual(self.errors("ir/graph.h", '#pragma once\n#include "ops/ops.h"\n'),
                         ["src/ir/graph.h:2: ir/ may not include ops/ (only: base)"])

    def test_holds_tests_to_the_same_table(self):
        self.assertEqual(len(self.errors("kv/pool_test.cc", '#include "backend/device.h"\n')), 1)

    def test_keeps_what_tests_share_out_of_the_rest(self):
        line = '#include "sched/testing/fake_device.h"\n'
        self.assertEqual(self.errors("sched/scheduler_test.cc", line), [])
        self.assertEqual(self.errors("engine/testing/tiny_model.h", line), [])
        self.assertEqual(len(self.errors("sched/scheduler.cc", line)), 1)
        report = check({"kv/testing/fake.h": "a\n", "kv/pool_test.cc": "a\n", "kv/pool.h": "a\n"})
        self.assertEqual(report.lines["kv"], 1)

    def test_does_not_pass_permissions_on(self):
        self.assertEqual(len(self.errors("server/http.cc", '#include "runtime/executor.h"\n')), 1)

    def test_ignores_an_include_in_a_comment(self):
        self.assertEqual(self.errors("ir/graph.h", '// #include "ops/ops.h"\n'), [])

    def test_wants_includes_to_start_with_a_module(self):
        self.assertEqual(len(self.errors("ir/graph.cc", '#include "graph.h"\n')), 1)
        self.assertEqual(len(self.errors("ir/graph.cc", '#include "util/graph.h"\n')), 1)

    def test_wants_files_in_a_known_module(self):
        self.assertEqual(len(self.errors("main.cc", "")), 1)
        self.assertEqual(len(self.errors("utils/misc.h", "")), 1)

    def test_keeps_cuda_in_its_folder(self):
        for line in ("#include <cuda_runtime.h>", "#include <cuda/atomic>", "#  include <cublasLt.h>",
                     "#ifdef __CUDACC__", "#if defined(ENCORE_CUDA)", "#elif __has_include(<cuda.h>)"):
            self.assertEqual(len(self.errors("backend/device.h", line + "\n")), 1, line)
            self.assertEqual(self.errors("backend/cuda/device/device.h", line + "\n"), [], line)
        self.assertEqual(len(self.errors("runtime/copy.cu", "")), 1)

    def test_leaves_other_conditions_alone(self):
        self.assertEqual(self.errors("backend/cpu/gemm.cc", "#ifdef __AVX512F__\n#endif\n"), [])

    def test_warns_of_files_that_grew_too_long(self):
        report = check({"ir/graph.h": "\n" * 251, "ir/graph.cc": "\n" * 400})
        self.assertEqual(report.warnings, ["src/ir/graph.h:251: longer than 250 lines"])
        self.assertEqual(report.errors, [])

    def test_the_graph_counts_includes_between_modules(self):
        report = check({"ops/ops.cc": '#include "ir/op.h"\n#include "ir/graph.h"\n#include "ops/ops.h"\n'})
        self.assertRegex(graph(report), r"(?m)^ops\* +1 +3  ir \(2\)$")


if __name__ == "__main__":
    unittest.main()
