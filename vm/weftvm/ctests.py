# SPDX-License-Identifier: MIT
"""The unit and sim tests, which CTest knows, in build/asan and build/tsan.

To start a program under a sanitizer takes longer than most of its cases. So cases of one GoogleTest program run in one
process, some dozens at a time. When such a process ends without a report, its cases run again alone, by CTest, as all
other tests do.
"""
import concurrent.futures
import itertools
import json
import os
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from xml.etree import ElementTree

from . import paths
from .tally import concerned, wanted

SLOW = 15  # a line now and then, so that a quiet terminal is known to be alive
TOGETHER = 40  # cases in one process
LIMIT = 300  # seconds for a test; for those in one process together three times that
FILTER = "--gtest_filter="


def environment():
    folder = paths.TOP / "tests"
    return dict(os.environ, ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1",
                UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
                TSAN_OPTIONS=f"halt_on_error=1:second_deadlock_stack=1:suppressions={folder}/tsan.supp",
                LSAN_OPTIONS=f"suppressions={folder}/lsan.supp:print_suppressions=0", GTEST_COLOR="no")


def properties(test):
    return {p["name"]: p["value"] for p in test.get("properties", [])}


class Case:
    """A test of CTest's; `part` is its name in its GoogleTest program, None: it is no such test."""

    def __init__(self, number, test):
        self.number, self.name = number, test["name"]
        self.program, *words = test.get("command") or ["", ""]
        self.folder = properties(test).get("WORKING_DIRECTORY", ".")
        parts = [word[len(FILTER):] for word in words if word.startswith(FILTER)]
        alone_ = "ENVIRONMENT" in properties(test) or "alone" in properties(test).get("LABELS", [])
        self.part = parts[0] if len(parts) == 1 and not alone_ else None


class Progress:
    """Says now and then how many of the tests have run."""

    def __init__(self, tier, total):
        self.tier, self.total, self.seen, self.said = tier, total, 0, time.monotonic()
        self.lock = threading.Lock()

    def more(self, count=1):
        with self.lock:
            self.seen += count
            if time.monotonic() - self.said > SLOW:
                self.said = time.monotonic()
                print(f"weft:   {self.tier}: {self.seen} of {self.total}", flush=True)


def together(cases, env):
    """Run cases of one program in one process: [(name, seconds, verdict, text)], or None when that says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        try:
            ran = subprocess.run([cases[0].program, FILTER + ":".join(case.part for case in cases),
                                  f"--gtest_output=json:{file}"], cwd=cases[0].folder, env=env, timeout=3 * LIMIT,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            suites = json.loads(file.read_text())["testsuites"]
        except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
            return None
    found = {f"{suite['name']}.{case['name']}": case for suite in suites for case in suite["testsuite"]}
    out = []
    for case in cases:
        row = found.get(case.part, {})
        failures, result = row.get("failures", []), row.get("result")
        if result not in ("COMPLETED", "SKIPPED"):
            return None
        skipped = result == "SKIPPED"
        text = "\n".join(f["failure"] for f in failures)
        if skipped:
            text = "\n".join(s.get("message", "") for s in row.get("skipped", []))
        out.append((case.name, float(row["time"].rstrip("s")), "failed" if failures else "skipped" if skipped else "passed",
                    text))
    # A leak is told at the end, and not whose it is.
    return None if ran.returncode and all(row[2] != "failed" for row in out) else out


def alone(tally, tier, tree, cases, env, progress):
    """Run each case in a process of its own, by CTest."""
    xml = paths.BUILD / "junit" / f"{tier}.ctest.xml"
    xml.unlink(missing_ok=True)
    cmd = ["ctest", "--test-dir", str(tree), "-j", str(os.cpu_count()), "--output-on-failure", "--timeout", str(LIMIT),
           "--output-junit", str(xml), "-I", "0,0,0," + ",".join(str(case.number) for case in cases)]
    p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=env)
    output = []
    for line in p.stdout:
        output.append(line)
        if re.match(r"\s*\d+/\d+ Test", line):
            progress.more()
    p.wait()
    try:
        rows = ElementTree.parse(xml).getroot().findall("testcase")
    except (OSError, ElementTree.ParseError):
        tally.add(tier, "ctest", 0, "failed", "".join(output))
        return
    for row in rows:
        text = (row.findtext("system-out") or "")
        status = row.get("status")
        reason = ""
        skip = row.find("skipped")
        if status == "run":
            verdict = "passed"
        elif status in ("notrun", "disabled") or skip is not None:
            m = re.search(r"Skipped\n(.*)", text) or re.search(r"SKIP\w*[:\s]+(.*)", text)
            verdict = "skipped"
            reason = m.group(1) if m else "" if skip is None else skip.get("message", "")
            if "not find" in (reason or "") or "Unable to find" in reason or reason.startswith("NOT_RUN"):
                verdict = "failed"  # its program was not built
        else:
            verdict = "failed"
        tally.add(tier, row.get("name"), float(row.get("time") or 0), verdict, reason or text)


def groups(cases):
    """Cases in lists of those that can run in one process, and the others: (lists, others)."""
    key = lambda case: (case.program, case.folder)  # noqa: E731
    lists = []
    for _, mine in itertools.groupby(sorted((c for c in cases if c.part), key=key), key):
        mine = list(mine)
        parts = -(-len(mine) // TOGETHER)
        lists += [mine[i::parts] for i in range(parts)]
    return lists, [case for case in cases if not case.part]


def ctest(tally, patterns, tier, label=""):
    """The tests of a tree of the build, or those with the label."""
    if not concerned(patterns, tier):
        return
    tree, env, start = paths.BUILD / tier, environment(), time.monotonic()
    listing = subprocess.run(["ctest", "--test-dir", str(tree), "--show-only=json-v1"], capture_output=True, text=True,
                             env=env)
    if listing.returncode:
        tally.add(tier, "ctest", 0, "failed", listing.stdout + listing.stderr)
        tally.close(tier, start)
        return
    tests = json.loads(listing.stdout)["tests"]
    cases = [Case(i, test) for i, test in enumerate(tests, 1) if wanted(patterns, f"{tier}/{test['name']}")
             and (not label or label in properties(test).get("LABELS", []))]
    if not cases and not patterns:
        tally.add(tier, "ctest", 0, "failed", f"no test in {tree}")
    lists, others = groups(cases)
    progress = Progress(tier, len(cases))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for mine, rows in zip(lists, pool.map(lambda mine: together(mine, env), lists)):
            if rows is None:
                others += mine
                continue
            progress.more(len(rows))
            for row in rows:
                tally.add(tier, *row)
    if others:
        alone(tally, tier, tree, sorted(others, key=lambda case: case.number), env, progress)
    tally.close(tier, start)
