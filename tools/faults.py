#!/usr/bin/env python3
"""Plants small faults, one at a time, in a copy of the tree, and sees a test fail for each (./dev faults).

A fault is tests/faults/NAME.patch: a diff below a header that says what is wrong and which test must fail:

    Wrong: a page is freed while a step that writes to it is still to come
    Test: sched_test Scheduler.NeverGivesAPageAway     a test binary and a filter of its tests
    Test: cli.generate GenerateTest.test_it            or a suite of tests/cli and the name of a test
    GPU: backend_test Tracer.CudaSeesIt                instead of Test: only a GPU shows it, so it is not run

A test that passes although its fault is planted is a test that is missing. A fault that takes longer than --limit to
build and test fails as well: those who change the code plant them while they wait.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FAULTS = ROOT / "tests" / "faults"
COPY = ROOT / "build" / "faults"  # of the tree; its own build lies in build/cpu below it


@dataclasses.dataclass
class Fault:
    name: str
    patch: pathlib.Path
    wrong: str
    binary: str  # or cli.SUITE
    filter: str
    on_gpu: bool

    @property
    def target(self):
        return "encore" if self.binary.startswith("cli.") else self.binary

    @property
    def test(self):
        return f"{self.binary} {self.filter}"


def parse(patch):
    header = patch.read_text().split("\ndiff --git ", 1)[0]
    fields = dict(re.findall(r"^(Wrong|Test|GPU): (.+)$", header, re.MULTILINE))
    place = fields.get("Test", fields.get("GPU", "")).split()
    if "Wrong" not in fields or len(place) != 2 or ("Test" in fields) == ("GPU" in fields):
        sys.exit(f"faults: {patch.name} needs the lines 'Wrong: SENTENCE' and 'Test: BINARY FILTER' (or GPU: ...)")
    return Fault(patch.stem, patch, fields["Wrong"], *place, "GPU" in fields)


def git(*arguments, cwd=ROOT):
    # The copy lies in a repository, whose root patches must not be taken to mean.
    environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(COPY.parent)}
    return subprocess.run(["git", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def copy_tree():
    """Brings the copy up to date. What did not change keeps its time, so that Ninja leaves it alone."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout.split("\0")
    wanted = {path for path in listed if path and (ROOT / path).is_file()}
    for path in sorted(wanted):
        source, copy = ROOT / path, COPY / path
        if copy.is_file() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        shutil.copymode(source, copy)
    for path in COPY.rglob("*"):
        name = path.relative_to(COPY).as_posix()
        if path.is_file() and not name.startswith("build/") and name not in wanted:
            path.unlink()


def problem_of_applying(fault, *options):
    result = git("apply", *options, str(fault.patch), cwd=COPY)
    return result.stderr.strip() if result.returncode else None


def build(*targets):
    """The compiler's output where it fails."""
    if not (COPY / ".deps").exists():
        (COPY / ".deps").symlink_to(ROOT / ".deps")
    if not (COPY / "build" / "cpu" / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "cpu"], cwd=COPY, check=True, stdout=sys.stderr)
    result = subprocess.run(["cmake", "--build", "--preset", "cpu", "--target", *targets], cwd=COPY, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return result.stdout if result.returncode else None


def passes(fault, limit):
    """Whether the fault's test passes; it must be there. One that hangs has failed, too."""
    if fault.target == "encore":
        suite = fault.binary.removeprefix("cli.")
        command = [sys.executable, "-B", f"tests/cli/{suite}_test.py", "--encore", "build/cpu/encore", fault.filter]
    else:
        [binary] = (COPY / "build" / "cpu").glob(f"*/*/{fault.binary}")
        command = [binary, f"--gtest_filter={fault.filter}"]
    try:
        result = subprocess.run(command, cwd=COPY, capture_output=True, text=True, timeout=limit / 2, check=False)
    except subprocess.TimeoutExpired:
        return False
    if "Running 0 tests" in result.stdout:
        sys.exit(f"faults: {fault.name}: there is no test {fault.test}")
    return result.returncode == 0


def plant(fault, limit):
    """What became of the fault."""
    if problem_of_applying(fault):
        return "does not apply"
    try:
        if (output := build(fault.target)) is not None:
            print(output[-3000:], file=sys.stderr)
            return "does not build"
        return "SURVIVES" if passes(fault, limit) else "caught"
    finally:
        problem_of_applying(fault, "--reverse")


def is_defined(fault):
    """Whether a source of the test's executable has the test."""
    module = fault.binary.removesuffix("_test")
    if fault.target == "encore":
        sources, test = [ROOT / f"tests/cli/{module.removeprefix('cli.')}_test.py"], rf"\b{fault.filter.split('.')[-1]}\b"
    else:
        folders = [ROOT / "tests/conformance"] if module == "conformance" else (ROOT / "src").rglob(module)
        sources = [source for folder in folders for source in folder.rglob("*_test.cc")]
        suite_and_name = re.search(r"(\w+)\.(\w+)", fault.filter)
        test = r"TEST\w*\(\s*{},\s*{}\b".format(*suite_and_name.groups()) if suite_and_name else fault.filter.strip("*")
    return any(re.search(test, source.read_text()) for source in sources if source.is_file())


def check(faults):
    good = True
    for fault in faults:
        problem = problem_of_applying(fault) or problem_of_applying(fault, "--reverse")
        if not problem and not is_defined(fault):
            problem = f"{fault.binary} has no test {fault.filter}"
        if problem:
            print(f"faults: {fault.patch.relative_to(ROOT)} does not apply:\n{problem}", file=sys.stderr)
            good = False
    print(f"{len(faults)} planted faults{' apply' if good else ''}")
    return good


def run(faults, limit):
    on_gpu = [fault for fault in faults if fault.on_gpu]
    faults = [fault for fault in faults if not fault.on_gpu]
    if (output := build(*sorted({fault.target for fault in faults}))) is not None:
        sys.exit(output[-3000:] + "\nfaults: the tree itself does not build")
    for fault in {fault.test: fault for fault in faults}.values():
        if not passes(fault, limit):
            sys.exit(f"faults: {fault.test} fails without any fault, or takes longer than {limit / 2:g} s")
    rows = []
    for number, fault in enumerate(faults, 1):
        start = time.monotonic()
        outcome = plant(fault, limit)
        seconds = time.monotonic() - start
        if seconds > limit:
            outcome += f", but only after the limit of {limit:g} s"
        rows.append((fault, outcome, seconds))
        print(f"[{number}/{len(faults)}] {fault.name}: {outcome}, {rows[-1][2]:.0f} s", file=sys.stderr, flush=True)
    print("| fault | what is wrong | test | | s |\n|---|---|---|---|---|")
    for fault, outcome, seconds in rows:
        print(f"| {fault.name} | {fault.wrong} | {fault.test} | {outcome} | {seconds:.0f} |")
    for fault in on_gpu:
        print(f"| {fault.name} | {fault.wrong} | {fault.test} | on a GPU only, not run | |")
    num_caught = sum(outcome == "caught" for _, outcome, _ in rows)
    print(f"{num_caught} of {len(rows)} faults caught within {limit:g} s each")
    return num_caught == len(rows)


def main():
    parser = argparse.ArgumentParser(prog="./dev faults", description="Plants faults and sees a test fail for each.")
    parser.add_argument("--check", action="store_true", help="only see that every patch applies")
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS",
                        help="to build and test each; half of it for the test alone (default: %(default)s)")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, of tests/faults/NAME.patch")
    arguments = parser.parse_args()
    faults = {patch.stem: parse(patch) for patch in sorted(FAULTS.glob("*.patch"))}
    if unknown := [name for name in arguments.names if name not in faults]:
        sys.exit(f"faults: no fault {unknown[0]} in {FAULTS.relative_to(ROOT)}/")
    chosen = [faults[name] for name in arguments.names] or list(faults.values())
    copy_tree()
    sys.exit(0 if (check(chosen) if arguments.check else run(chosen, arguments.limit)) else 1)


if __name__ == "__main__":
    main()
