# SPDX-License-Identifier: MIT
"""`make check`: runs the tiers, counts, and ends with the line "N passed, N failed, N skipped".

    check [PATTERN...]           only tests whose name (tier/module.test) contains one of the patterns
    check --known [PATTERN...]   runs nothing; fails when a pattern selects nothing, as far as that is known without a build

The asan and tsan tiers are unit and sim tests (weftvm.ctests), the vm tier is tests/vm/test_*.py (weftvm.vmtier).
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import time

from . import accel, mutants, paths, report, vmtier
from .ctests import ctest
from .tally import Tally, wanted

TIERS = ("style", "asan", "tsan", "vm")


# ---- style

def _sources(*suffixes):
    """Files of the checkout, without builds and hidden folders."""
    out = []
    for folder, below, names in os.walk(paths.TOP):
        at = os.path.relpath(folder, paths.TOP)
        below[:] = [d for d in below if not d.startswith(".") and d != "__pycache__" and not (at == "." and d.startswith("build"))]
        out += [os.path.normpath(os.path.join(at, n)) for n in names if n.endswith(suffixes)]
    return sorted(out)


def _clang_format(files):
    r = subprocess.run(["clang-format", "--dry-run", "-Werror", "--ferror-limit=3"] + files, cwd=paths.TOP, capture_output=True, text=True)
    return r.returncode, r.stderr


def negated(text):
    """Numbers of the lines with a negated shell command whose outcome nobody takes: `set -e` passes over it."""
    command = re.compile(r"""(?:^|[;"'`(&|]|\bdo|\bthen|\belse)\s*! +[\w./$\[{(]""")
    return [number for number, line in enumerate(text.split("\n"), 1)
            if command.search(line) and not re.search(r"\|\||&&|\b(?:if|while|until|elif) !", line)
            and not line.lstrip().startswith(("#", "//", "*"))]


def style(tally, patterns):
    start = time.monotonic()

    def case(name, check):
        if not wanted(patterns, "style/" + name):
            return
        t = time.monotonic()
        try:
            verdict, text = check()
        except FileNotFoundError as e:
            verdict, text = "failed", f"{e.filename} is missing"
        tally.add("style", name, time.monotonic() - t, verdict, text)

    def formatted():
        files = [f for f in _sources(".c", ".h", ".cc", ".cpp", ".hpp") if not f.startswith("driver/")]
        bad = []
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for rc, text in pool.map(_clang_format, [files[i:i + 16] for i in range(0, len(files), 16)]):
                if rc:
                    bad.append(text)
        names = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", "".join(bad), re.M)))
        return ("failed", "clang-format -i puts these right: " + " ".join(names)) if bad else ("passed", "")

    def sparse():
        tree = paths.DRIVER
        kernel = paths.root_env()["kernel"]
        r = subprocess.run(["make", "-C", f"/lib/modules/{kernel}/build", "-j", str(os.cpu_count()), f"M={tree}", "W=1", "C=2",
                            "CHECK=sparse", "CF=-D__CHECK_ENDIAN__", f"WEFT_INC={paths.TOP}/qemu-device/include", f"WEFT_TOP={paths.TOP}", "modules"],
                           capture_output=True, text=True)
        text = "\n".join(line for line in (r.stdout + r.stderr).splitlines() if re.search(r"(warning|error):", line) and str(tree) in line
                         or "driver/" in line and "warning:" in line)
        if r.returncode:
            return "failed", r.stdout + r.stderr
        return ("failed", text) if text else ("passed", "")

    def python():
        bad = []
        for name in _sources(".py"):
            try:
                compile((paths.TOP / name).read_text(encoding="utf-8"), name, "exec", dont_inherit=True)
            except (SyntaxError, UnicodeDecodeError) as e:
                bad.append(f"{name}: {e}")
        return ("failed", "\n".join(bad)) if bad else ("passed", "")

    def shell():
        bad = []
        for name in _sources(""):
            path = paths.TOP / name
            with open(path, "rb") as f:
                first = f.readline(64)
            if first.startswith(b"#!") and b"sh" in first and b"python" not in first:
                interpreter = "bash" if b"bash" in first else "sh"
                r = subprocess.run([interpreter, "-n", str(path)], capture_output=True, text=True)
                if r.returncode:
                    bad.append(r.stderr)
        return ("failed", "".join(bad)) if bad else ("passed", "")

    def layers():
        """Only the OFI wrapper knows libfabric; nothing that programs link brings it, or libibverbs, along (README of userspace/ofi)."""
        bad = [f"{name} includes rdma/*.h" for name in _sources(".c", ".h", ".cpp", ".hpp")
               if name.startswith(("userspace/", "qemu-device/", "firmware/")) and not name.startswith("userspace/ofi/")
               and re.search(r"^#include <rdma/", (paths.TOP / name).read_text(errors="replace"), re.M)]
        for library in ("libweft.so", "libwccl.so"):
            file = paths.BUILD / "weft" / "lib" / library
            linked = subprocess.run(["ldd", str(file)], capture_output=True, text=True)
            if linked.returncode:
                bad.append(linked.stderr)
            bad += [f"{library} links {line.strip()}" for line in linked.stdout.splitlines() if re.search("libfabric|libibverbs|libefa|not found", line)]
        return ("failed", "\n".join(bad)) if bad else ("passed", "")

    def negations():
        bad = [f"{name}:{number}: say `if COMMAND; then exit 1; fi`" for name in _sources(".py", ".sh")
               for number in negated((paths.TOP / name).read_text(errors="replace"))]
        return ("failed", "\n".join(bad)) if bad else ("passed", "")

    case("layers", layers)
    case("negations", negations)
    case("clang-format", formatted)
    case("sparse", sparse)
    case("python", python)
    case("shell", shell)
    tally.close("style", start)


def unknown(patterns):
    """Patterns of the vm tier, whose names are known without a build, that select nothing, and those of no tier."""
    names = [f"vm/{name}" for name in vmtier.names()]
    return [p for p in patterns if "/" in p and not any(p in name for name in names)
            and not any(tier.endswith(p.partition("/")[0]) for tier in TIERS if tier != "vm")]


def planted(tally, names):
    """Each planted defect still applies, and its test is one of those that ran."""
    start, wrong = time.monotonic(), []
    for path in sorted(mutants.PATCHES.glob("*.patch")):
        try:
            patch = mutants.Patch(path)
            patch.apply(paths.TOP, ["--dry-run"])
            if not any(patch.test in name for name in names):
                wrong.append(f"{patch.name}: no test is called {patch.test}")
        except (ValueError, mutants.Bad) as e:
            wrong.append(f"{path.stem}: {e}")
    tally.add("mutants", "apply_and_name_a_test", time.monotonic() - start, "failed" if wrong else "passed",
              "\n".join(wrong))
    tally.close("mutants", start)


def main(patterns):
    start = time.monotonic()
    only_look = patterns[:1] == ["--known"]
    patterns = patterns[only_look:]
    strange = unknown(patterns)
    if strange or only_look:
        if strange:
            print("weft: no test's name contains " + " or ".join(strange), file=sys.stderr)
        return 2 if strange else 0
    tally = Tally()
    which, why = accel.detect()
    print(f"weft: checking on {which.upper()} ({why})", flush=True)
    (paths.BUILD / "junit").mkdir(parents=True, exist_ok=True)
    style(tally, patterns)
    ctest(tally, patterns, "asan")
    ctest(tally, patterns, "tsan", "threads")
    vmtier.vm(tally, patterns)
    names = [f"{c[0]}/{c[1]}" for c in tally.cases] + [f"vm/{name}" for name in vmtier.names()]
    if not patterns:
        planted(tally, names)
    report.write_json(str(paths.BUILD / "check.json"), "check", which, [
        {"tier": tier, "name": name, "seconds": round(seconds, 3), "verdict": verdict}
        for tier, name, seconds, verdict, _ in tally.cases], restarts=vmtier.pool.restarts)
    failed = [f"{c[0]}/{c[1]}" for c in tally.cases if c[3] == "failed"]
    if failed:
        print("weft: failed: " + " ".join(failed))
    for p in patterns:
        if not any(p in name for name in names):
            print(f"weft: no test's name contains {p}")
            failed.append(p)
    print(f"weft: checked in {time.monotonic() - start:.0f} s")
    print(f"{tally.count('passed')} passed, {len(failed)} failed, {tally.count('skipped')} skipped", flush=True)
    return 1 if failed or not tally.count("passed") else 0
