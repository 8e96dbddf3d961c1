#!/usr/bin/env python3
"""Draws small faults of the code by itself and sees a test fail for each (./dev faults --mutate N --seed S).

A mutant is one of three changes to a line of the core, or of the modules that are named: a condition is negated, a constant is one larger, a statement
is left out. All mutants that were drawn are compiled into one build of a copy of the tree, behind a switch: the
environment variable ENCORE_MUTANT says which one is on. Those that do not compile are dropped. Each test is then run
once without any, which tells which mutants it reaches, and for each mutant those tests run that reach it until one
fails: the quick ones first, its own module's before others. A test that hangs has failed, too: one that computes on and
on, or whose threads all sleep. Time is counted in seconds of the processor, so that a busy machine kills no mutant.

A mutant that survives is a test that is missing, or changes nothing that anybody could see. tests/faults/equivalent.txt
has a line for each of the latter: the file, the kind, the text of the line, and why.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import time

import faults

CORE = ("ir", "ops", "passes", "runtime", "kv", "sched", "engine")
REASONS = faults.FAULTS / "equivalent.txt"
SWITCH = "base/mutant.h"
SWITCH_TEXT = r"""// Which mutant is on, and which ones are reached: what tools/mutants.py compiles into a copy of the tree.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace encore {

class Mutants {
 public:
  static bool is_on(int number) {
    static Mutants mutants;
    if (mutants.reached_ != nullptr) mutants.is_reached_[number].store(true, std::memory_order_relaxed);
    return mutants.on_ == number;
  }

 private:
  static constexpr int kMost = 100000;

  Mutants() {
    if (const char* const on = std::getenv("ENCORE_MUTANT")) on_ = std::atoi(on);
    reached_ = std::getenv("ENCORE_MUTANTS_REACHED");
    if (reached_ != nullptr) is_reached_ = new std::atomic<bool>[kMost]();
  }
  ~Mutants() {
    if (reached_ == nullptr) return;
    std::FILE* const file = std::fopen(reached_, "a");
    for (int i = 0; i < kMost; ++i) {
      if (is_reached_[i]) std::fprintf(file, "%d\n", i);
    }
    std::fclose(file);
  }

  int on_ = 0;
  const char* reached_ = nullptr;
  std::atomic<bool>* is_reached_ = nullptr;
};

inline bool mutant(int number) { return Mutants::is_on(number); }

}  // namespace encore
"""


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str  # from the root of the tree
    line: int  # from 0
    kind: str  # "negated", "one more", "left out"
    start: int  # columns of what is replaced
    end: int
    text: str  # the line as it is

    @property
    def module(self):
        return self.file.split("/")[1]

    @property
    def key(self):
        return (self.file, self.kind, self.text.strip())

    def __str__(self):
        return f"{self.file}:{self.line + 1}: {self.kind}: {self.text.strip()}" + (
            f"  [{self.text[self.start:self.end]}]" if self.kind == "one more" else "")

    def replacement(self, number):
        old = self.text[self.start:self.end]
        if self.kind == "negated":
            return f"(encore::mutant({number}) != bool({old}))"
        if self.kind == "one more":
            return f"(encore::mutant({number}) ? {old} + 1 : {old})"
        return f"{{ if (!encore::mutant({number})) {{ {old} }} }}"


def closing(text, opening):
    """Where the parenthesis that opens at `opening` closes on this line; None: not on it."""
    depth = 0
    for i in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return None


def blank(text):
    """The line with the insides of strings, characters and comments as spaces."""
    spaces = lambda found: found[0][0] + " " * (len(found[0]) - 2) + found[0][-1]
    text = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)+\'(?![0-9])', spaces, text)
    comment = text.find("//")
    return text if comment < 0 else text[:comment] + " " * (len(text) - comment)


# A statement of one line, which declares nothing and returns nothing.
STATEMENT = re.compile(r"^\s+((?:\+\+|--)?[A-Za-z_][\w:]*(?:(?:\.|->)\w+|\[[^\]]*\]|\([^()]*\))*\s*"
                       r"(?:[-+*/|&^]?=[^=]|\+\+|--|;|\().*;)\s*$")
NOT_A_STATEMENT = re.compile(r"^\s*(return|using|namespace|case|default|throw|delete|goto|typedef|else|static_assert|"
                             r"ENCORE_CHECK|fail|log::|break)\b|\{\s*$")
# In a row of an op, attributes are examples of their types: any number is as good.
NO_CONSTANT = re.compile(r"\b(template|static_assert|case|enum|using|class|struct|ENCORE_CHECK|alignas)\b|^\s*#|"
                         r"\.attrs = |^\s*\{\"[^\"]*\", int64_t\{")


def mutants_of(file, source):
    """Every mutant of a source. Begins where functions may: includes and such are left alone."""
    found = []
    lines = source.split("\n")
    for number, text in enumerate(lines):
        plain = blank(text)
        if not plain.strip() or plain.lstrip().startswith("#"):
            continue
        add = lambda kind, start, end: found.append(Mutant(file, number, kind, start, end, text))
        for condition in re.finditer(r"\b(?:if|while) \(", plain):
            opening = condition.end() - 1
            end = closing(plain, opening)
            inside = plain[opening + 1:end] if end else ";"
            if ";" not in inside and not re.search(r"[\w>*&]\s+\*?\w+ = ", inside):
                add("negated", opening + 1, end)
        if not NO_CONSTANT.search(plain):
            for constant in re.finditer(r"(?<![\w.'<\"])\d+(?![\w.'>\"])", plain):
                add("one more", *constant.span())
        before = lines[number - 1].rstrip() if number else ""
        if STATEMENT.match(plain) and not NOT_A_STATEMENT.search(plain) and before.endswith((";", "{", "}", ")", ":")) \
                and plain.count("(") == plain.count(")"):
            add("left out", len(plain) - len(plain.lstrip()), len(plain.rstrip()))
    return found


def all_mutants(modules):
    everything = []
    for module in modules:
        for path in sorted((faults.ROOT / "src" / module).rglob("*.cc")):
            if not path.name.endswith("_test.cc") and not {"testing", "cuda"} & {*path.parts}:
                everything += mutants_of(path.relative_to(faults.ROOT).as_posix(), path.read_text())
    return everything


def draw(modules, count, seed):
    everything = all_mutants(modules)
    return random.Random(seed).sample(everything, min(count, len(everything))), len(everything)


def survivors_of(record, modules):
    """The mutants that survived in the run whose output this is, wherever their lines are now."""
    texts = set(re.findall(r"^\[\d+/\d+\] (src/\S+?:)\d+(: .*?): SURVIVES", record, re.MULTILINE))
    everything = all_mutants(modules)
    found = [mutant for mutant in everything if tuple(re.match(r"(src/\S+?:)\d+(: .*)", str(mutant)).groups()) in texts]
    return found, len(everything)


def planted(source, mutants):
    """The source with mutants behind their switches; `mutants`: by their numbers."""
    lines = source.split("\n")
    by_line = collections.defaultdict(list)
    for number, mutant in mutants.items():
        by_line[mutant.line].append((number, mutant))
    for line, here in by_line.items():
        text = lines[line]
        # From the inside out, so that columns stay right: one that holds others comes after them.
        edits = sorted(here, key=lambda edit: (edit[1].end - edit[1].start, edit[0]))
        shifts = []
        for number, mutant in edits:
            moved = lambda column, is_end: column + sum(
                by for at, by in shifts if at < column or (at == column and is_end))
            start, end = moved(mutant.start, False), moved(mutant.end, True)
            piece = dataclasses.replace(mutant, text=text, start=start, end=end).replacement(number)
            shifts += [(mutant.start, piece.index(text[start:end])),
                       (mutant.end, len(piece) - piece.index(text[start:end]) - (end - start))]
            text = text[:start] + piece + text[end:]
        # What is no constant any more cannot be one for the compiler.
        lines[line] = re.sub(r"\bconstexpr\b", "const", text)
    return "\n".join([f'#include "{SWITCH}"', *lines])


def build(mutants, targets):
    """Builds all, and drops those that do not compile. Returns the others, by their numbers."""
    mutants = dict(enumerate(mutants, 1))
    faults.copy_tree()
    (faults.COPY / "src" / SWITCH).write_text(SWITCH_TEXT)
    while True:
        for file in {mutant.file for mutant in mutants.values()} | set(written):
            here = {number: mutant for number, mutant in mutants.items() if mutant.file == file}
            text = planted((faults.ROOT / file).read_text(), here) if here else (faults.ROOT / file).read_text()
            if (faults.COPY / file).read_text() != text:
                (faults.COPY / file).write_text(text)
            written.add(file)
        output = faults.build(*targets, "--", "-k", "0")
        if output is None:
            return mutants
        places = set()
        for file, line in re.findall(r"src/(\S+?):(\d+):\d+: (?:error|note):", output):
            places.add((f"src/{file}", int(line) - 2))
        bad = {number for number, mutant in mutants.items() if (mutant.file, mutant.line) in places}
        if not bad:
            sys.exit(output[-3000:] + "\nfaults: the mutants do not build, and no line says which")
        print(f"{len(bad)} mutants do not compile", file=sys.stderr, flush=True)
        mutants = {number: mutant for number, mutant in mutants.items() if number not in bad}


MOST_BYTES = 4 << 30
LONGEST_SLEEP = 60  # of a test whose threads wait for each other, in seconds
QUICK = 0.3  # seconds that a quick test takes at most

written = set()  # sources of the copy that have mutants, or had some


def binary(module):
    [path] = (faults.COPY / "build" / "cpu").glob(f"*/*/{module}_test")
    return path


def limited(cpu_seconds):
    """Limits of a child: a mutant that computes or allocates without end ends by itself, and leaves no core."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def is_asleep(process):
    """Whether all threads of a process sleep; and its time of the processor, in ticks."""
    states, ticks = set(), 0
    for stat in pathlib.Path(f"/proc/{process.pid}/task").glob("*/stat"):
        try:
            fields = stat.read_text().rsplit(") ", 1)[1].split()
        except OSError:
            continue  # the thread has ended
        states.add(fields[0])
        ticks += int(fields[11]) + int(fields[12])
    return not states & {"R", "D"}, ticks


def comes_to_an_end(process):
    """Waits for a process, unless all its threads sleep for longer than any test does."""
    last, since = None, time.monotonic()
    while True:
        try:
            process.wait(timeout=0.05 if last is None else 1)
            return True
        except subprocess.TimeoutExpired:
            asleep, ticks = is_asleep(process)
            if not asleep or ticks != last:
                last, since = ticks, time.monotonic()
            elif time.monotonic() - since > LONGEST_SLEEP:
                process.kill()
                process.wait()
                return False


def run(module, tests, environment, limit):
    """Whether the tests pass, and how many seconds of the processor they took."""
    command = [binary(module), f"--gtest_filter={':'.join(tests)}", "--gtest_fail_fast", "--gtest_brief=1"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(command, cwd=faults.COPY, env=os.environ | {"ENCORE_CONFORMANCE": "quick"} | environment,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          preexec_fn=lambda: limited(int(limit) + 1)) as process:
        passed = comes_to_an_end(process) and process.returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return passed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def tests_of(module):
    """All that need no GPU."""
    listed = subprocess.run([binary(module), "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    suite, tests = "", []
    for line in listed.split("\n"):
        name = line.split("#")[0].rstrip()
        if name.endswith(".") and not name.startswith(" "):
            suite = name
        elif name.startswith("  ") and "Cuda" not in suite + name:
            tests.append(suite + name.strip())
    return tests


def reached_by_tests(modules, limit):
    """For each module's tests, the mutants that they reach. Leaves out tests that fail without any."""
    reached = {}
    record = faults.COPY / "reached.txt"
    for module in modules:
        for test in tests_of(module):
            record.unlink(missing_ok=True)
            passed, seconds = run(module, [test], {"ENCORE_MUTANTS_REACHED": str(record)}, limit)
            if not passed:
                print(f"{test} fails without any mutant: left out", file=sys.stderr)
                continue
            numbers = record.read_text().split() if record.exists() else []
            reached[module, test] = ({int(number) for number in numbers}, seconds)
    return reached


def killer(number, mutant, reached, modules, limit):
    """The module whose tests kill the mutant; None: it survives. Also whether any test reaches it."""
    here = {place: seconds for place, (numbers, seconds) in reached.items() if number in numbers}
    rounds = []
    for module in modules:
        for is_quick in (True, False):
            tests = [test for (owner, test), seconds in here.items() if owner == module and (seconds <= QUICK) == is_quick]
            seconds = sum(here[module, test] for test in tests)
            if tests:
                rounds.append((not is_quick, module != mutant.module, seconds, module, tests))
    for _, _, seconds, module, tests in sorted(rounds):
        passed, _ = run(module, tests, {"ENCORE_MUTANT": str(number)}, limit + 5 * seconds)
        if not passed:
            return module, True
    return None, bool(here)


def reasons():
    """Why mutants that nobody can see cannot be seen, by their keys."""
    if not REASONS.exists():
        return {}
    rows = [line.split(" | ") for line in REASONS.read_text().split("\n") if line and not line.startswith("#")]
    if bad := [row for row in rows if len(row) != 4]:
        sys.exit(f"faults: {REASONS.name} wants FILE | KIND | LINE | WHY, not {' | '.join(bad[0])}")
    return {(file, kind, line): why for file, kind, line, why in rows}


def mutate(drawn, num_all, testing, limit):
    mutants = build(drawn, [f"{module}_test" for module in testing])
    print(f"{len(mutants)} of {len(drawn)} mutants compile, drawn from {num_all}", file=sys.stderr, flush=True)
    os.nice(19)  # hours of tests, beside somebody's work
    reached = reached_by_tests(testing, limit)
    known, survivors, num_equivalent = reasons(), [], 0
    for place, (number, mutant) in enumerate(sorted(mutants.items()), 1):
        by, is_reached = killer(number, mutant, reached, testing, limit)
        outcome = f"killed by {by}_test" if by else "SURVIVES" if is_reached else "SURVIVES, no test reaches it"
        if not by and mutant.key in known:
            outcome, num_equivalent = "equivalent: " + known[mutant.key], num_equivalent + 1
        elif not by:
            survivors.append(mutant)
        print(f"[{place}/{len(mutants)}] {mutant}: {outcome}", file=sys.stderr, flush=True)
    for mutant in survivors:
        print(mutant)
    print(f"{len(mutants)} mutants: {len(mutants) - len(survivors) - num_equivalent} killed, {num_equivalent} equivalent, "
          f"{len(survivors)} survive")
    return not survivors


def main():
    parser = argparse.ArgumentParser(prog="./dev faults --mutate", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--mutate", type=int, required=True, metavar="N", help="how many mutants to draw")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS",
                        help="to run a module's tests, beside five times what they take without mutants (default: %(default)s)")
    parser.add_argument("--own", action="store_true", help="only with the tests of the modules, not those of engine and runtime")
    parser.add_argument("--again", type=pathlib.Path, metavar="FILE",
                        help="those that survived in an earlier run, whose output the file has, in place of a draw")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of these modules, in place of {', '.join(CORE)}")
    arguments = parser.parse_args()
    known = sorted(path.parent.name for path in (faults.ROOT / "src").glob("*/CMakeLists.txt") if "TESTS" in path.read_text())
    if unknown := [module for module in arguments.modules if module not in known]:
        sys.exit(f"faults: {unknown[0]} is no module with tests: {', '.join(known)}")
    modules = arguments.modules or CORE
    drawn, num_all = (survivors_of(arguments.again.read_text(), modules) if arguments.again
                      else draw(modules, arguments.mutate, arguments.seed))
    faults.COPY = faults.ROOT / "build" / "mutants"
    testing = sorted({*modules} if arguments.own else {*modules, "engine", "runtime"})
    sys.exit(0 if mutate(drawn, num_all, testing, arguments.limit) else 1)


if __name__ == "__main__":
    main()
