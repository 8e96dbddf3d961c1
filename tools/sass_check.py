#!/usr/bin/env python3
"""Checks that compiled kernels hold the instructions that they were written for; run by ctest.

Disassembles object files with cuobjdump and holds each kernel named in RULES to its rule: the forms of
the memory model in src/backend/cuda/litmus, and what makes the engine's own kernels fast. Needs no GPU.
Exit code 1 where a rule is broken, 77 (skipped) where no cuobjdump is found: it comes with the CUDA
toolkit; without one, `pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm --target DIR` and give
--cuobjdump DIR/nvidia/cu13/bin/cuobjdump.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SKIPPED = 77

# What touches global memory or a barrier in shared memory, or orders it; a pair of a rule is adjacent
# among these.
MEMORY = re.compile(r"(LDG?|STG?|ATOMG?|REDG?)(\.|$)|MEMBAR|CCTL|SYNCS\.(ARRIVE|PHASECHK)")

# What ends a run of instructions that are issued one after the other.
JUMP = re.compile(r"(BRA|BRX|CALL|RET|EXIT)(\.|$)")


@dataclass
class Rule:
    """What every kernel of an object file whose name matches has to hold. Patterns match whole opcodes."""

    file: str        # the source, as the object file's name ends
    kernel: str      # found in the demangled name, after shorten()
    why: str
    has: tuple = ()     # patterns that occur
    lacks: tuple = ()   # patterns that do not
    pairs: tuple = ()   # (pattern, pattern, times): the one right before the other, so often at least
    behind: tuple = ()  # (pattern, loads, uses): at each, since the last jump, as many uses as loads


# Scope -> what MEMBAR and what strong accesses call it. Between blocks of a cluster sm_90 does what it
# does for the whole GPU.
HARDWARE = {"cta": ("CTA", "SM"), "cluster": ("GPU", "GPU"), "gpu": ("GPU", "GPU"), "sys": ("SYS", "SYS")}
FILES = {"cta": "block", "cluster": "cluster", "gpu": "device", "sys": "system"}


def message_rules(scope):
    """The forms of a scope. Each kernel publishes twice (a flag, and the ready flag back) and polls twice."""
    barrier, strength = HARDWARE[scope]
    store, load = rf"ST\.E\.STRONG\.{strength}", rf"LD\.E\.STRONG\.{strength}"
    membar, drop = rf"MEMBAR\.ALL\.{barrier}", r"CCTL\.IVALL"
    fences = (r"MEMBAR\.\S+",) + (() if scope == "cluster" else (drop,))  # its barriers have both

    def rule(publish, observe, why, **parts):
        kernel = rf"<Message<{scope}, {publish}, {observe}, 1> >"
        return Rule(f"litmus/{FILES[scope]}.cu", kernel, f"{scope}: {why}", **parts)

    def fenced(fence):
        return f"Fenced<{scope}, {fence}<{scope}> >"

    acquires = [] if scope == "cta" else [(load, drop, 2)]  # warps of a block share their L1
    yield rule(f"Release<{scope}>", f"Acquire<{scope}>", "st.release is MEMBAR then a strong store, ld.acquire a "
               "strong load then CCTL.IVALL", pairs=((membar, store, 2), *acquires))
    yield rule(fenced("OneWay"), fenced("OneWay"), "fence.release waits, fence.acquire drops L1",
               pairs=((membar, store, 2),), has=(load,) if scope == "cta" else (load, drop))
    yield rule(fenced("AcqRel"), fenced("AcqRel"), "fence.acq_rel does both",
               pairs=((membar, store, 2),) if scope == "cta" else ((membar, drop, 4), (drop, store, 2)))
    yield rule(f"FencedVolatile<{scope}>", f"FencedVolatile<{scope}>", "CUDA's own fences are MEMBAR.SC",
               has=(rf"MEMBAR\.SC\.{barrier}", r"ST\.E\.STRONG\.SYS", r"LD\.E\.STRONG\.SYS"))
    if scope == "cluster":
        return
    yield rule(f"Relaxed<{scope}>", f"Relaxed<{scope}>", "the relaxed twin orders nothing", has=(store, load),
               lacks=fences)
    yield rule("Volatile", "Volatile", "the volatile twin orders nothing",
               has=(r"ST\.E\.STRONG\.SYS", r"LD\.E\.STRONG\.SYS"), lacks=fences)
    yield rule("Plain", "Plain", "the plain twin has weak flags", lacks=(*fences, r"ST\.E\.STRONG\S*"))


LITMUS_RULES = [rule for scope in HARDWARE for rule in message_rules(scope)] + [
    Rule("litmus/device.cu", r"<WorkQueue<gpu, ClaimAcqRel<gpu>", "atom.acq_rel is MEMBAR, ATOM, CCTL.IVALL",
         pairs=((r"MEMBAR\.ALL\.GPU", r"ATOM\.E\.ADD\.STRONG\.GPU", 1),
                (r"ATOM\.E\.ADD\.STRONG\.GPU", r"CCTL\.IVALL", 1))),
    Rule("litmus/device.cu", r"<WorkQueue<gpu, ClaimAcquire<gpu>", "atom.acquire is ATOM, CCTL.IVALL",
         pairs=((r"ATOM\.E\.ADD\.STRONG\.GPU", r"CCTL\.IVALL", 1),)),
    Rule("litmus/device.cu", r"<Exchange<gpu, SwapAcqRel<gpu>", "atom.acq_rel.exch is MEMBAR, ATOM, CCTL.IVALL",
         pairs=((r"MEMBAR\.ALL\.GPU", r"ATOM\.E\.EXCH\.STRONG\.GPU", 1),
                (r"ATOM\.E\.EXCH\.STRONG\.GPU", r"CCTL\.IVALL", 1))),
    Rule("litmus/device.cu", r"<Exchange<gpu, SwapRelaxed<gpu>", "the relaxed twin orders nothing",
         has=(r"ATOM\.E\.EXCH\.STRONG\.GPU",), lacks=(r"MEMBAR\S*", r"CCTL\S*")),
    Rule("litmus/device.cu", r"<Relay<gpu, RelayAcqRel<gpu>", "one fence between two flags is MEMBAR and CCTL.IVALL",
         pairs=((r"MEMBAR\.ALL\.GPU", r"CCTL\.IVALL", 1), (r"CCTL\.IVALL", r"ST\.E\.STRONG\.GPU", 1))),
    Rule("litmus/device.cu", r"<Relay<gpu, RelayRelease<gpu>", "the twin that only releases keeps L1 before its flag",
         pairs=((r"MEMBAR\.ALL\.GPU", r"ST\.E\.STRONG\.GPU", 3),)),
    Rule("litmus/device.cu", r"<Order<gpu, ", "relaxed accesses of one address or two need no fence",
         has=(r"ST\.E\.STRONG\.GPU", r"LD\.E\.STRONG\.GPU"), lacks=(r"MEMBAR\S*", r"CCTL\S*")),
    Rule("litmus/device.cu", r"<Message<gpu, Fenced<gpu, OneWay<gpu> >, Fenced<gpu, OneWay<gpu> >, 4> >",
         "one fence.release stands before all four flags", pairs=((r"ST\.E\.STRONG\.GPU", r"ST\.E\.STRONG\.GPU", 3),)),
    Rule("litmus/device.cu", r"<Lock<gpu, TakeAcquire<gpu>, Release<gpu> >", "taken by an acquire, left by a release",
         pairs=((r"ATOM\.E\.CAS\.STRONG\.GPU", r"CCTL\.IVALL", 1),
                (r"MEMBAR\.ALL\.GPU", r"ST\.E\.STRONG\.GPU", 1))),
    Rule("litmus/device.cu", r"<Lock<gpu, TakeRelaxed<gpu>, Relaxed<gpu> >", "the relaxed twin orders nothing",
         has=(r"ATOM\.E\.CAS\.STRONG\.GPU",), lacks=(r"MEMBAR\S*", r"CCTL\S*")),
]

ARRIVE, WAIT = r"SYNCS\.ARRIVE\.TRANS64\.(RED\.)?A1T0", r"SYNCS\.PHASECHK\.TRANS64\.TRYWAIT"
ACQUIRES = (WAIT, r"CCTL\.IVALL", 2)
USED_BEFORE_ARRIVAL = ((ARRIVE, r"LDS\.128", r"ISETP\.NE\.OR"),)
LITMUS_RULES += [
    Rule("litmus/block.cu", r"<Message<cta, ArriveRelease<cta, cta>, WaitAcquire<cta>, 1> >",
         "an arrival and a wait of a block need nothing else", pairs=((WAIT, r"ST\.E", 1), (WAIT, r"LD\.E", 1)),
         lacks=(r"MEMBAR\S*", r"CCTL\S*")),
    Rule("litmus/cluster.cu", r"<Message<cluster, ArriveRelease<cluster, cluster>, WaitAcquire<cluster>, 1> >",
         "an arrival is MEMBAR then the arrival, a wait is followed by CCTL.IVALL",
         pairs=((r"MEMBAR\.ALL\.GPU", ARRIVE, 2), ACQUIRES)),
    Rule("litmus/block.cu", r"<Delivery<cta, BulkCopy<true>, WaitAcquire<cta>, false> >",
         "a proxy fence waits; slots are given back when their loads have been used",
         has=(r"UBLKCP\S*", r"FENCE\.VIEW\.ASYNC\S*"), pairs=((r"ST\.E", r"MEMBAR\.ALL\.CTA", 1),),
         behind=USED_BEFORE_ARRIVAL),
    Rule("litmus/block.cu", r"<Delivery<cta, BulkCopy<false>,", "the twin has no fence", has=(r"UBLKCP\S*",),
         lacks=(r"MEMBAR\S*",)),
    Rule("litmus/cluster.cu", r"<Delivery<cluster, AsyncStore, WaitAcquire<cluster>, false> >",
         "counted bytes are acquired; slots are given back when their loads have been used",
         has=(r"STAS\.128",), pairs=(ACQUIRES,), behind=USED_BEFORE_ARRIVAL),
]

# An arrival at a barrier does not wait for loads; the product that uses a load does.
READ_BEFORE_ARRIVAL = ((r"SYNCS\.ARRIVE\.\S*A1T0\S*", r"LDSM\S*", r"HMMA\S*"),)
HEAD_SIZES = (64, 96, 128, 256)  # each has a file of attention's kernels
OVERLAP = ("PREEXIT", "ACQBULK")  # lets the next kernel start; waits for the one before
ENGINE_RULES = [
    Rule("linear/gemv.cu", r"\bgemv_kernel<", "boxes by the copy engine, sums on tensor cores",
         has=(r"UTMALDG\S*", r"SYNCS\.ARRIVE\S*", r"SYNCS\.PHASECHK\S*", r"HMMA\S*", *OVERLAP),
         behind=READ_BEFORE_ARRIVAL),
    Rule("linear/skinny_gemm_bf16.cu", r"\bskinny_gemm_kernel<", "boxes by the copy engine, sums on tensor cores, partial sums to the cluster",
         has=(r"UTMALDG\S*", r"HGMMA\S*", r"STAS\S*", *OVERLAP)),
    *(Rule(f"attention/decode_{size}.cu", r"\battention_decode<",
           "the last block of a sequence combines: acq_rel on its counter",
           pairs=((r"MEMBAR\.ALL\.GPU", r"ATOM\.E\.ADD\.STRONG\.GPU", 1),
                  (r"ATOM\.E\.ADD\.STRONG\.GPU", r"CCTL\.IVALL", 1)), has=OVERLAP) for size in HEAD_SIZES),
    *(Rule(f"attention/varlen_{size}.cu", r"\battention_varlen<",
           "boxes by the copy engine, sums on tensor cores; the last part to come combines: acq_rel on its counter",
           has=(r"UTMALDG\S*", r"HGMMA\S*", r"USETMAXREG\S*", *OVERLAP),
           pairs=((r"MEMBAR\.ALL\.GPU", r"ATOM\S*ADD\.STRONG\.GPU", 1),
                  (r"ATOM\S*ADD\.STRONG\.GPU", r"CCTL\.IVALL", 1))) for size in HEAD_SIZES),
]

RULES = LITMUS_RULES + ENGINE_RULES


def shorten(name):
    """A demangled name without our namespaces, scopes as PTX writes them."""
    for prefix in ("encore::cuda::litmus::", "encore::cuda::"):
        name = name.replace(prefix, "")
    for number, scope in enumerate(("cta", "cluster", "gpu", "sys")):
        name = name.replace(f"(Scope){number}", scope)
    return name


def parse(text):
    """Kernel -> its opcodes in order, from demangled output of cuobjdump -sass."""
    kernels, opcodes = {}, None
    for line in text.splitlines():
        if match := re.search(r"Function : (.+)", line):
            opcodes = kernels.setdefault(shorten(match[1].strip()), [])
        elif opcodes is not None and (match := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line)):
            opcodes.append(match[1])
    return kernels


def broken(rule, opcodes):
    """What of a rule a kernel breaks, as sentences."""
    def count(pattern):
        return sum(bool(re.fullmatch(pattern, opcode)) for opcode in opcodes)

    found = [f"has no {pattern}" for pattern in rule.has if count(pattern) == 0]
    found += [f"has {count(pattern)} of {pattern}" for pattern in rule.lacks if count(pattern) > 0]
    memory = [opcode for opcode in opcodes if MEMORY.match(opcode)]
    for first, second, times in rule.pairs:
        seen = sum(bool(re.fullmatch(first, a) and re.fullmatch(second, b)) for a, b in zip(memory, memory[1:]))
        if seen < times:
            found.append(f"has {second} right after {first} {seen} times instead of {times}")
    for pattern, loads, uses in rule.behind:
        if count(pattern) == 0:
            found.append(f"has no {pattern}")
        unused = 0
        for opcode in opcodes:
            change = bool(re.fullmatch(loads, opcode)) - bool(re.fullmatch(uses, opcode))
            unused = 0 if JUMP.match(opcode) else max(0, unused + change)  # some use what came before the jump
            if re.fullmatch(pattern, opcode) and unused > 0:
                found.append(f"has {pattern} with {unused} {loads} in front of it whose {uses} is not")
    return found


def find_cuobjdump(given):
    """The disassembler to use: the one that was given, on PATH, or in a toolkit."""
    candidates = [given] if given else [shutil.which("cuobjdump"), "/usr/local/cuda/bin/cuobjdump"]
    return next((path for path in candidates if path and os.access(path, os.X_OK)), None)


def disassemble(cuobjdump, path):
    """Demangled SASS of an object file; cuobjdump needs nvdisasm beside it."""
    folders = os.pathsep.join([str(Path(cuobjdump).resolve().parent), os.environ.get("PATH", "")])
    result = subprocess.run([cuobjdump, "-sass", path], capture_output=True, text=True, check=False,
                            env={**os.environ, "PATH": folders})
    if result.returncode != 0:
        sys.exit(f"sass_check: cuobjdump failed on {path}: {result.stderr.strip()[:300]}")
    return subprocess.run(["c++filt"], input=result.stdout, capture_output=True, text=True, check=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("objects", nargs="+", help="object files; those that no rule names are left out")
    parser.add_argument("--rules", choices=("litmus", "engine"), help="only these")
    parser.add_argument("--cuobjdump", help="the disassembler; else the one on PATH or of /usr/local/cuda")
    arguments = parser.parse_args()
    cuobjdump = find_cuobjdump(arguments.cuobjdump)
    if cuobjdump is None:
        print("sass_check: skipped, no cuobjdump on PATH, in /usr/local/cuda or by --cuobjdump")
        return SKIPPED
    rules = {"litmus": LITMUS_RULES, "engine": ENGINE_RULES, None: RULES}[arguments.rules]
    problems, checked = [], 0
    for file in dict.fromkeys(rule.file for rule in rules):
        path = next((name for name in arguments.objects if name.endswith((f"/{file}.o", f"/{file}.obj"))), None)
        if path is None:
            problems.append(f"{file}: no such object among the arguments")
            continue
        kernels = parse(disassemble(cuobjdump, path))
        for rule in (rule for rule in rules if rule.file == file):
            matching = {name: opcodes for name, opcodes in kernels.items() if re.search(rule.kernel, name)}
            if not matching:
                problems.append(f"{file}: no kernel matches {rule.kernel}")
            for name, opcodes in matching.items():
                checked += 1
                problems += [f"{file}: {name[:120]} {what} ({rule.why})" for what in broken(rule, opcodes)]
    for problem in problems:
        print(f"sass_check: {problem}", file=sys.stderr)
    print(f"sass_check: {len(rules)} rules, {checked} kernels, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
