# SPDX-License-Identifier: MIT
"""`make check`: runs the tiers, counts, and ends with the line "N passed, N failed, N skipped".

    check [PATTERN...]           only tests whose name (tier/module.test) contains one of the patterns
    check --known [PATTERN...]   runs nothing; fails when a pattern selects nothing, as far as that is known without a build

unit and sim are CTest's, in build/asan and build/tsan. The vm tier is tests/vm/test_*.py (weftvm.vmtier).
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

from . import accel, paths, report, vmtier
from .tally import Tally, concerned, wanted

TIERS = ("style", "asan", "tsan", "vm")
SLOW = 15  # a line now and then, so that a quiet terminal is known to be alive


# ---- unit and sim

def labels(test):
    """CTest's labels of a test."""
    return next((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])


def ctest(tally, patterns, tier, label=""):
    """The tests of a tree of the build, or those with the label."""
    if not concerned(patterns, tier):
        return
    tree = paths.BUILD / tier
    start = time.monotonic()
    folder = paths.TOP / "tests"
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1",
               UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
               TSAN_OPTIONS=f"halt_on_error=1:second_deadlock_stack=1:suppressions={folder}/tsan.supp",
               LSAN_OPTIONS=f"suppressions={folder}/lsan.supp:print_suppressions=0", GTEST_COLOR="no")
    listing = subprocess.run(["ctest", "--test-dir", str(tree), "--show-only=json-v1"], capture_output=True, text=True, env=env)
    if listing.returncode:
        tally.add(tier, "ctest", 0, "failed", listing.stdout + listing.stderr)
        tally.close(tier, start)
        return
    tests = json.loads(listing.stdout)["tests"]
    chosen = [i for i, t in enumerate(tests, 1) if wanted(patterns, f"{tier}/{t['name']}") and (not label or label in labels(t))]
    if not chosen:
        if not patterns:
            tally.add(tier, "ctest", 0, "failed", f"no test in {tree}")
        tally.close(tier, start)
        return
    which = [] if len(chosen) == len(tests) else ["-I", "0,0,0," + ",".join(map(str, chosen))]
    xml = paths.BUILD / "junit" / f"{tier}.ctest.xml"
    xml.unlink(missing_ok=True)
    cmd = ["ctest", "--test-dir", str(tree), "-j", str(os.cpu_count()), "--output-on-failure", "--timeout", "300",
           "--output-junit", str(xml)] + which
    p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=env)
    said, seen, output = time.monotonic(), 0, []
    for line in p.stdout:
        output.append(line)
        if re.match(r"\s*\d+/\d+ Test", line):
            seen += 1
        if time.monotonic() - said > SLOW:
            said = time.monotonic()
            print(f"weft:   {tier}: {seen} of {len(chosen)}", flush=True)
    p.wait()
    try:
        from xml.etree import ElementTree
        cases = ElementTree.parse(xml).getroot().findall("testcase")
    except (OSError, ElementTree.ParseError):
        tally.add(tier, "ctest", 0, "failed", "".join(output))
        cases = []
    for case in cases:
        text = (case.findtext("system-out") or "")
        status = case.get("status")
        reason = ""
        skip = case.find("skipped")
        if status == "run":
            verdict = "passed"
        elif status in ("notrun", "disabled") or skip is not None:
            m = re.search(r"Skipped\n(.*)", text) or re.search(r"SKIP\w*[:\s]+(.*)", text)
            verdict, reason = "skipped", (m.group(1) if m else "" if skip is None else skip.get("message", ""))
            if "not find" in (reason or "") or "Unable to find" in reason or reason.startswith("NOT_RUN"):
                verdict = "failed"  # its program was not built
        else:
            verdict = "failed"
        tally.add(tier, case.get("name"), float(case.get("time") or 0), verdict, reason or text)
    tally.close(tier, start)


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
    report.write_json(str(paths.BUILD / "check.json"), "check", which, [
        {"tier": tier, "name": name, "seconds": round(seconds, 3), "verdict": verdict}
        for tier, name, seconds, verdict, _ in tally.cases], restarts=vmtier.pool.restarts)
    failed = [f"{c[0]}/{c[1]}" for c in tally.cases if c[3] == "failed"]
    if failed:
        print("weft: failed: " + " ".join(failed))
    names = [f"{c[0]}/{c[1]}" for c in tally.cases] + [f"vm/{name}" for name in vmtier.names()]
    for p in patterns:
        if not any(p in name for name in names):
            print(f"weft: no test's name contains {p}")
            failed.append(p)
    print(f"weft: checked in {time.monotonic() - start:.0f} s")
    print(f"{tally.count('passed')} passed, {len(failed)} failed, {tally.count('skipped')} skipped", flush=True)
    return 1 if failed or not tally.count("passed") else 0
