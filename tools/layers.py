#!/usr/bin/env python3
"""Holds the order of the modules as data and checks src/ against it; run by `./dev layers` and CI.

Errors: a module that includes one it may not, a CUDA header or a vendor's `#if` outside
backend/cuda, a file outside a module. Warnings: files that have outgrown their limit.
Exit code 1 if there is an error. `--graph` prints which module includes which, and how often.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

# Module -> the modules whose headers it may include, besides its own and base/. In reading order:
# a module stands below everything it may include.
MAY_INCLUDE = {
    "base": "",
    "ir": "",
    "ops": "ir",
    "passes": "ops ir",
    "listing": "passes ir",
    "backend": "ir",
    "runtime": "passes ops backend ir",
    "planning": "runtime passes ops backend ir",
    "model": "ops ir backend",
    "kv": "",
    "loader": "kv model runtime backend passes ops ir",
    "sample": "backend",
    "sched": "kv",
    "engine": "sample sched kv loader model runtime backend ir",
    "traffic": "engine planning sample sched kv runtime backend",
    "diagnose": "engine planning sched sample loader model runtime backend listing passes ops ir",
    "measure": "diagnose traffic engine planning sched sample loader model runtime backend passes ops ir",
    "text": "",
    "grammar": "sample text",
    "server": "engine grammar text sample sched",
    "config": "engine loader planning runtime backend",
    "hub": "",
    "setup": "hub config engine text planning loader model runtime backend passes",
    "library": "setup config diagnose engine grammar text sample",
    "cli": "setup hub server text measure diagnose traffic engine sample sched kv loader model config planning runtime backend listing passes ops ir",
}
# What the tests of a module may include besides.
TESTS_MAY_INCLUDE = {
    "ir": {"listing"},
    "passes": {"listing"},
    "runtime": {"listing"},
    "planning": {"model", "loader"},
    "model": {"listing"},
    "loader": {"listing"},
    "engine": {"listing", "planning", "diagnose"},
    "measure": {"setup"},
}
MAY_INCLUDE = {module: {"base", module, *names.split()} for module, names in MAY_INCLUDE.items()}

# What a newcomer reads in an afternoon; --graph adds up its lines.
CORE = {"ir", "ops", "passes", "runtime", "kv", "sched", "engine"}

# Suffix -> lines that have proved readable.
MAX_LINES = {".h": 250, ".inc": 400, ".cc": 400, ".cuh": 500, ".cu": 500}

CUDA_FOLDER = "backend/cuda/"
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"(?P<ours>[^"]+)"|<(?P<system>[^>]+)>)')
CUDA_HEADER = re.compile(r"(cuda|cublas|nccl|nvtx|cooperative_groups|cub/|thrust/|cute/|cutlass/|mma\.h|nv/)")
CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif)\b(?P<condition>.*)")
# The one header that device code shares: its functions must be declared for both sides.
SHARED_WITH_DEVICES = {"backend/host_device.h"}
VENDOR = re.compile(
    r"\b(__(CUDA|HIP|NV)\w*|CUDA_VERSION|\w*ROCM\w*"
    r"|(ENCORE|USE|WITH|HAVE|HAS|ENABLE)_(CUDA|HIP|NCCL|CUBLAS\w*))\b|__has_include\s*\(\s*<cu")


class Report:
    """What a check found: errors and warnings as "file:line: text", and includes between modules."""

    def __init__(self):
        self.errors = []
        self.warnings = []
        self.includes = Counter()  # (from module, to module) -> count
        self.files = Counter()     # module -> files
        self.lines = Counter()     # module -> lines, without tests


def is_for_tests(path):
    """Is it a test, or in a module's folder testing/, which only tests may include?"""
    return "_test." in path or "/testing/" in path


def check(sources):
    """Checks a mapping of path (relative to src/) to text."""
    report = Report()
    for path, text in sorted(sources.items()):
        module = path.split("/")[0] if "/" in path else ""
        if module not in MAY_INCLUDE:
            report.errors.append(f"src/{path}:1: not in a module; tools/layers.py lists the modules")
            continue
        lines = text.splitlines()
        suffix = Path(path).suffix
        report.files[module] += 1
        if not is_for_tests(path):
            report.lines[module] += len(lines)
        if len(lines) > MAX_LINES[suffix]:
            report.warnings.append(f"src/{path}:{len(lines)}: longer than {MAX_LINES[suffix]} lines")
        if suffix in (".cu", ".cuh") and not path.startswith(CUDA_FOLDER):
            report.errors.append(f"src/{path}:1: CUDA code belongs in src/{CUDA_FOLDER}")
        for number, line in enumerate(lines, start=1):
            problem = check_line(report, path, module, line)
            if problem:
                report.errors.append(f"src/{path}:{number}: {problem}")
    return report


def check_line(report, path, module, line):
    """The error in one line, or None; counts its include."""
    if match := INCLUDE.match(line):
        if header := match["ours"]:
            target = header.split("/")[0]
            if "/" not in header or target not in MAY_INCLUDE:
                return f'"{header}" is not "module/header.h"'
            report.includes[module, target] += 1
            if is_for_tests(header) and not is_for_tests(path):
                return f'"{header}" is for tests only'
            also = TESTS_MAY_INCLUDE.get(module, set()) if is_for_tests(path) else set()
            if target not in MAY_INCLUDE[module] | also:
                allowed = " ".join(name for name in MAY_INCLUDE if name in MAY_INCLUDE[module] - {module})
                return f"{module}/ may not include {target}/ (only: {allowed or 'itself'})"
        elif CUDA_HEADER.match(match["system"]) and not path.startswith(CUDA_FOLDER):
            return f"<{match['system']}> is a CUDA header; those appear only in src/{CUDA_FOLDER}"
    elif match := CONDITION.match(line):
        shared = path in SHARED_WITH_DEVICES
        if VENDOR.search(match["condition"]) and not path.startswith(CUDA_FOLDER) and not shared:
            return "a vendor's #if in shared code; a backend is a folder that CMake adds or leaves out"
    return None


def graph(report):
    """The actual edges, one module a line."""
    rows = [f"{'module':<9} {'files':>5} {'lines':>6}  includes (times)"]
    for module in MAY_INCLUDE:
        edges = "  ".join(f"{to} ({report.includes[module, to]})" for to in MAY_INCLUDE
                          if to != module and report.includes[module, to])
        name = module + ("*" if module in CORE else "")
        rows.append(f"{name:<9} {report.files[module]:>5} {report.lines[module]:>6}  {edges}".rstrip())
    rows.append(f"{'all':<9} {sum(report.files.values()):>5} {sum(report.lines.values()):>6}")
    rows.append(f"{'core (*)':<9} {sum(report.files[m] for m in CORE):>5} {sum(report.lines[m] for m in CORE):>6}")
    rows.append("lines: without tests and what they share in testing/")
    return "\n".join(rows)


def read_sources(root):
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8")
            for path in root.rglob("*") if path.suffix in MAX_LINES}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", action="store_true", help="print the edges that exist")
    arguments = parser.parse_args()
    report = check(read_sources(Path(__file__).resolve().parent.parent / "src"))
    if arguments.graph:
        print(graph(report))
    for error in report.errors:
        print(f"{error}", file=sys.stderr)
    for warning in report.warnings:
        print(f"{warning} (a warning)", file=sys.stderr)
    print(f"layers: {sum(report.files.values())} files, {len(report.errors)} errors, "
          f"{len(report.warnings)} warnings")
    return 1 if report.errors else 0


if __name__ == "__main__":
    sys.exit(main())
