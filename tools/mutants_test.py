#!/usr/bin/env python3
"""Tests of tools/mutants.py; run by `./dev faults`."""

import dataclasses
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import mutants

SOURCE = """#include <cstdlib>
int answer(int x) {
  int sum = 0;
  const int twice = x * 2;
  // sum = 7;
  if (x > 10 && twice < 50) sum += 1;
  if (const int half = x / 2) sum += half;
  for (int i = 0; i < x; ++i)
    sum += 3;
  return sum;
}
"""


def mutants_of(source):
    return {(mutant.line + 1, mutant.kind, mutant.text[mutant.start:mutant.end]): mutant
            for mutant in mutants.mutants_of("src/kv/x.cc", source)}


class MutantsTest(unittest.TestCase):
    def test_finds_conditions_constants_and_statements(self):
        found = mutants_of(SOURCE)
        self.assertEqual({key for key in found if key[1] != "one more"},
                         {(6, "negated", "x > 10 && twice < 50"),
                          (6, "left out", "if (x > 10 && twice < 50) sum += 1;"),
                          (7, "left out", "if (const int half = x / 2) sum += half;"),
                          (9, "left out", "sum += 3;")})
        self.assertEqual({key for key in found if key[1] == "one more"},
                         {(3, "one more", "0"), (4, "one more", "2"), (6, "one more", "10"), (6, "one more", "50"),
                          (6, "one more", "1"), (7, "one more", "2"), (8, "one more", "0"), (9, "one more", "3")})

    def test_leaves_declarations_strings_and_checks_alone(self):
        for line in ('  const std::string text = make();', '  Type name(a, b);', '  return next();', '  ENCORE_CHECK(a == b);',
                     '  log::info("7 of {}", name);', "  using kv::Page;", "#define X y(2);", "  static_assert(kSize == 2);"):
            self.assertEqual(mutants_of("  {\n" + line), {}, line)

    def test_the_same_seed_draws_the_same(self):
        self.assertEqual(mutants.draw(["kv"], 5, 3), mutants.draw(["kv"], 5, 3))
        self.assertNotEqual(mutants.draw(["kv"], 5, 3), mutants.draw(["kv"], 5, 4))

    def test_survivors_of_a_run_are_found_again_wherever_their_lines_are(self):
        everything, _ = mutants.draw(["kv"], 10**9, 0)
        lines = [dataclasses.replace(mutant, line=mutant.line + 7) for mutant in everything[:3]]
        record = (f"12 of 12 mutants compile, drawn from 99\n[1/3] {lines[0]}: SURVIVES\n[2/3] {lines[1]}: killed by kv_test\n"
                  f"[3/3] {lines[2]}: SURVIVES, no test reaches it\n{lines[0]}\n")
        found, _ = mutants.survivors_of(record, ["kv"])
        self.assertEqual({mutant.key for mutant in found}, {everything[0].key, everything[2].key})

    def test_each_mutant_is_behind_its_switch(self):
        found = list(mutants_of(SOURCE).values())
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "base").mkdir()
            (folder / mutants.SWITCH).write_text(mutants.SWITCH_TEXT)
            main = "\nint main() { std::printf(\"%d %d\", answer(12), answer(1)); }\n"
            (folder / "x.cc").write_text(mutants.planted(SOURCE, dict(enumerate(found, 1))) + main)
            subprocess.run(["g++", "-std=c++20", "-I", folder, folder / "x.cc", "-o", folder / "x"], check=True)
            run = lambda on: subprocess.run([folder / "x"], capture_output=True, text=True, check=True,
                                            env={"ENCORE_MUTANT": str(on), "ENCORE_MUTANTS_REACHED": folder / "reached"}).stdout
            self.assertEqual(run(0), "43 3")
            outputs = {key: run(number) for number, key in enumerate(mutants_of(SOURCE), 1)}
            self.assertEqual(outputs[6, "negated", "x > 10 && twice < 50"], "42 4")
            self.assertEqual(outputs[9, "left out", "sum += 3;"], "7 0")
            self.assertEqual(outputs[9, "one more", "3"], "55 4")
            survivors = {key for key, output in outputs.items() if output == "43 3"}
            self.assertEqual(survivors, {(4, "one more", "2"), (6, "one more", "10"), (6, "one more", "50")})
            reached = {int(number) for number in (folder / "reached").read_text().split()}
            self.assertEqual(reached, set(range(1, len(found) + 1)))

    def test_a_test_that_hangs_kills_its_mutant_and_none_that_reaches_it_lets_it_survive(self):
        mutant = mutants.Mutant("src/kv/x.cc", 0, "left out", 0, 1, "x")
        reached = {("kv", "A.a"): ({1}, 0.1), ("engine", "B.b"): ({1, 2}, 0.1)}
        with mock.patch.object(mutants, "run", side_effect=[(True, 1), (False, 1)]) as run:
            self.assertEqual(mutants.killer(1, mutant, reached, ["engine", "kv"], 1), ("engine", True))
            self.assertEqual([call.args[0] for call in run.call_args_list], ["kv", "engine"])
        self.assertEqual(mutants.killer(3, mutant, reached, ["engine", "kv"], 1), (None, False))


if __name__ == "__main__":
    unittest.main()
