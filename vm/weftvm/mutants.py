# SPDX-License-Identifier: MIT
"""`make mutants`: plants each defect of tests/mutants/*.patch, and a named test of `make check` must fail.

    mutants [PATTERN...]     only patches whose name contains one of the patterns

A patch starts with lines "What:", "Kind: found|planted" and "Test: TIER/PATTERN" (the name of a test as `weft-vm check`
takes it), then comes a diff against the checkout. The defects are planted in a copy of the checkout, build/mutants/tree;
there each test must pass first. A patch that no longer applies, does not build or is not caught fails the run. Ends with
"caught N of N". A vm test of a defect in Python or in the guest's scripts alone needs no build.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import paths, report

PATCHES = paths.TOP / "tests" / "mutants"
COPY = paths.BUILD / "mutants" / "tree"
LIMIT = 900  # seconds for one patch's build and test


class Bad(Exception):
    """A patch that says nothing about the tests: it does not apply, does not build, names no test."""


class Patch:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        text = path.read_text()
        head = text.partition("\n--- ")[0]
        fields = dict(re.findall(r"^(What|Kind|Test): (.+)$", head, re.M))
        if set(fields) != {"What", "Kind", "Test"} or fields["Kind"] not in ("found", "planted"):
            raise ValueError(f"{path}: needs the lines What:, Kind: found|planted and Test:")
        self.what, self.kind, self.test = fields["What"], fields["Kind"], fields["Test"].strip()
        self.tier, _, self.pattern = self.test.partition("/")
        if self.tier not in ("asan", "vm", "style") or not self.pattern:
            raise ValueError(f"{path}: Test: is asan/NAME, vm/NAME or style/NAME")
        self.files = re.findall(r"^\+\+\+ b/(\S+)", text, re.M)

    def apply(self, tree=COPY, options=()):
        # busybox: the root has no other program for it
        r = subprocess.run(["busybox", "patch", "-p1", *options, "-i", str(self.path)], cwd=tree,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if r.returncode or "FAILED" in r.stdout:
            raise Bad("does not apply: " + r.stdout.strip())


def sh(command, limit=LIMIT, **more):
    """Run a command in the copy; returns (exit code, output). 124: it took longer than the limit."""
    try:
        r = subprocess.run(command, cwd=COPY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                           timeout=limit, **more)
        return r.returncode, r.stdout
    except subprocess.TimeoutExpired as e:
        return 124, (e.stdout or b"").decode(errors="replace") if isinstance(e.stdout, bytes) else e.stdout or ""


def sources():
    """The checkout's files, without builds, as paths relative to it."""
    for folder, below, files in os.walk(paths.TOP):
        at = Path(folder).relative_to(paths.TOP)
        below[:] = [d for d in below if d not in (".git", "__pycache__") and not (at == Path() and d.startswith("build"))]
        yield from (at / name for name in files if not (at / name) == Path(".git"))


def copy():
    """The checkout in build/mutants/tree, written only where it differs, so that the copy's build stays warm."""
    names = set(sources())
    for name in names:
        source, to = paths.TOP / name, COPY / name
        if to.exists() and to.read_bytes() == source.read_bytes():
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, to)
    for folder, below, files in os.walk(COPY):
        at = Path(folder).relative_to(COPY)
        below[:] = [d for d in below if not (at == Path() and d.startswith("build"))]
        for name in files:
            if at / name not in names:
                (COPY / at / name).unlink()


def environment():
    env = dict(os.environ, WEFT_TOP=str(COPY), WEFT_BUILD_INSIDE="1", CCACHE_DIR=str(paths.CACHE / "ccache"),
               CCACHE_BASEDIR=str(COPY), CCACHE_NOHASHDIR="1")
    env.pop("PYTHONPATH", None)
    return env


def build(tier):
    rc, out = sh(["vm/build", "check", tier + "/"], limit=3600, env=environment())
    if rc:
        raise Bad("does not build: " + out[-800:])


def programs(pattern):
    """The test programs (ninja targets) of the ASan tree that hold tests of this name."""
    tree = COPY / "build" / "asan"
    listing = subprocess.run(["ctest", "--test-dir", str(tree), "--show-only=json-v1"], capture_output=True, text=True, check=True)
    tests = [t for t in json.loads(listing.stdout)["tests"] if pattern in "asan/" + t["name"]]
    if not tests:
        raise Bad(f"no test is called {pattern}")
    return tests, {Path(t["command"][0]).name for t in tests if t.get("command")}


def passes(patch):
    """Build what the patch touches and run its test: True when the test passes. Bad: no such test, or no build."""
    if patch.tier == "asan":
        tests, targets = programs(patch.pattern)
        known = sh(["ninja", "-C", "build/asan", "-t", "targets", "all"])[1]
        targets = sorted(t for t in targets if re.search(rf"^(\S*/)?{re.escape(t)}: ", known, re.M)) or ["weft_tests"]
        if any(t["command"][0].endswith("python3") or "python" in t["command"][0] for t in tests):
            targets = ["weft_tests"]
        rc, out = sh(["ninja", "-C", "build/asan"] + targets, env=environment())
        if rc:
            errors = [line for line in out.splitlines() if "error:" in line] or out.splitlines()[-5:]
            raise Bad("does not build: " + " | ".join(errors[:3]))
    elif patch.tier == "vm" and not all(f.startswith(("vm/", "tests/")) and f.endswith((".py", "/init", "/start")) for f in patch.files):
        build("vm")
    rc, out = sh([sys.executable, "-B", "-m", "weftvm", "check", patch.test], env=dict(environment(), PYTHONPATH=str(COPY / "vm")))
    closing = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", out, re.M)
    if rc == 124:
        return False
    if not closing or closing[-1][:2] == ("0", "0"):
        raise Bad("the test did not run: " + out[-400:])
    return rc == 0


def main(patterns):
    patches = [Patch(p) for p in sorted(PATCHES.glob("*.patch"))]
    patches = [p for p in patches if not patterns or any(w in p.name for w in patterns)]
    if not patches:
        print("weft: no patch's name contains " + " or ".join(patterns))
        return 1
    COPY.mkdir(parents=True, exist_ok=True)
    print(f"weft: {len(patches)} planted defects; building the copy build/mutants/tree", flush=True)
    copy()
    for tier in sorted({p.tier for p in patches} - {"style"}):
        build(tier)
    rows, sound = [], {}
    for i, patch in enumerate(patches, 1):
        start, verdict, why = time.monotonic(), "caught", ""
        try:
            if patch.test not in sound:  # a test that fails anyway proves nothing
                sound[patch.test] = passes(patch)
            if not sound[patch.test]:
                raise Bad("its test fails without the defect too")
            try:
                patch.apply()
                if passes(patch):
                    verdict = "survived"
            finally:
                copy()
        except Bad as e:
            verdict, why = "broken", str(e)
        seconds = time.monotonic() - start
        rows.append({"patch": patch.name, "kind": patch.kind, "test": patch.test, "verdict": verdict, "seconds": round(seconds, 1), "reason": why})
        print(f"weft: {i}/{len(patches)} {verdict:8} {patch.name} ({patch.test}, {seconds:.0f} s)" + (f": {why}" if why else ""), flush=True)
    report.write_json(str(paths.BUILD / "mutants.json"), "mutants", "none", rows)
    caught = sum(r["verdict"] == "caught" for r in rows)
    found = sum(r["kind"] == "found" for r in rows)
    print(f"weft: {found} of {len(rows)} are of a kind that was found in the tree")
    for r in rows:
        if r["verdict"] != "caught":
            print(f"weft: {r['verdict']}: {r['patch']} {r['reason']}")
    print(f"caught {caught} of {len(rows)}", flush=True)
    return 0 if caught == len(rows) else 1
