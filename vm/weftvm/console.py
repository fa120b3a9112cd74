# SPDX-License-Identifier: MIT
"""What a guest kernel's console says is wrong."""
import re

# Only what the kernel printed (it stamps its lines): a program may print "WARNING:" as it likes. An out-of-tree
# module's taint notes ("loading out-of-tree module taints kernel", "module verification failed") match nothing here.
_STAMP = re.compile(r"^\s*(?:<\d>)?\[\s*\d+\.\d+\](?:\[\s*[TC]\d+\])?\s?")
_BAD = re.compile("|".join([
    r"\bOops\b[:\s]", r"\bBUG:", r"\bWARNING:", r"\bKASAN:", r"\bKCSAN:", r"\bKFENCE:", r"\bUBSAN:",
    r"general protection fault", r"Kernel panic - not syncing", r"kernel BUG at",
    r"possible recursive locking", r"circular locking", r"inconsistent lock state", r"suspicious RCU usage",
    r"INFO: task .* blocked for more than", r"rcu.*detected stalls?", r"soft lockup", r"hard LOCKUP",
    r"kmemleak: \d+ new suspected", r"DMA-API: .*(?:error|mismatch|leak)", r"refcount_t: ",
    r"irq \d+: nobody cared", r"Unable to handle kernel",
]))
PANIC = re.compile(r"Kernel panic - not syncing")


def kernel_line(line):
    """The message of a stamped kernel line, or None."""
    m = _STAMP.match(line)
    return line[m.end():] if m else None


def scan(text, allow=()):
    """Return the offending lines of a console, as (line number, line); `allow` holds regular expressions to pass over."""
    found = []
    for number, line in enumerate(text.splitlines()):
        message = kernel_line(line)
        if message and _BAD.search(message) and not any(re.search(a, message) for a in allow):
            found.append((number, line.strip()))
    return found


def excerpt(text, found, before=4, after=30):
    """The console around the first lines found (they usually come as one report)."""
    lines = text.splitlines()
    wanted = set()
    for number, _ in found[:8]:
        wanted.update(range(max(0, number - before), min(len(lines), number + after)))
    out, last = [], None
    for i in sorted(wanted):
        if last is not None and i != last + 1:
            out.append("  ...")
        out.append("  " + lines[i].rstrip())
        last = i
    return "\n".join(out)
