# SPDX-License-Identifier: MIT
"""What `make check` counts."""
import sys
import time

from . import paths, report


def listed_skips():
    """What may be skipped: in a root of ours what tests/skips.list says, elsewhere everything."""
    if paths.CLEAN_ROOT == "/":
        return ("",)
    lines = (paths.TOP / "tests" / "skips.list").read_text().splitlines()
    return tuple(line.split()[0] for line in lines if line.strip() and not line.startswith("#"))


class Tally:
    def __init__(self, quiet=False, skips=None):
        self.skips = listed_skips() if skips is None else skips  # names that may be skipped begin so
        self.cases = []  # (tier, name, seconds, verdict, text)
        self.quiet = quiet

    def add(self, tier, name, seconds, verdict, text=""):
        if verdict == "skipped" and not f"{tier}/{name}".startswith(self.skips):
            reason = text.strip() or "no reason given"
            verdict, text = "failed", f"skipped, which tests/skips.list does not allow: {reason}"
        self.cases.append((tier, name, seconds, verdict, text))
        if self.quiet:
            return
        if verdict == "failed":
            print(f"FAILED  {tier}/{name}", flush=True)
            lines = text.strip().splitlines()
            for line in lines[:4] + ["..."] + lines[-40:] if len(lines) > 45 else lines:
                print(f"        {line}")
        elif verdict == "skipped":
            print(f"skipped {tier}/{name}: {text.strip() or 'no reason given'}", flush=True)
        sys.stdout.flush()

    def count(self, verdict, tier=None):
        return sum(c[3] == verdict for c in self.cases if tier in (None, c[0]))

    def close(self, tier, start):
        """Say how a tier went and write its JUnit."""
        mine = [c[1:] for c in self.cases if c[0] == tier]
        report.write_junit(str(paths.BUILD / "junit" / f"{tier}.xml"), tier, mine)
        counts = ", ".join(f"{self.count(v, tier)} {v}" for v in ("passed", "failed", "skipped") if self.count(v, tier))
        print(f"weft: {tier}: {counts or 'nothing to run'} ({time.monotonic() - start:.1f} s)", flush=True)


def concerned(patterns, tier):
    """May one of the patterns select something of the tier?"""
    return not patterns or any("/" not in p or tier.endswith(p.partition("/")[0]) for p in patterns)


def wanted(patterns, name):
    return not patterns or any(p in name for p in patterns)
