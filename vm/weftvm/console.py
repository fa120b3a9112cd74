# SPDX-License-Identifier: MIT
"""What a guest kernel's console says is wrong."""
import re
import time
from dataclasses import dataclass

# The kernel stamps its lines (printk.time=1, Cluster sees to it). A program may have written the start of the line.
_STAMP = re.compile(r"\[\s*\d+\.\d{6}\](?:\[\s*[TC]\d+\])?\s?")
_STILL = "|".join([r"INFO: task .* blocked for more than", r"rcu.*detected (?:expedited )?stalls?",
                   r"rcu.*kthread (?:starved|timer wakeup didn't)", r"soft lockup", r"hard LOCKUP"])
# An out-of-tree module's taint notes ("loading out-of-tree module taints kernel") match nothing here.
_BAD = re.compile("|".join([
    # any report
    r"\bOops\b[:\s]", r"\bBUG:", r"\bWARNING:", r"kernel BUG at",
    r"general protection fault(?! ip:)", r"Unable to handle kernel", r"Kernel panic - not syncing",
    # sanitizers and object checks
    r"\bKASAN:", r"\bKCSAN:", r"\bKFENCE:", r"\bUBSAN:", r"\bODEBUG:", r"refcount_t: ",
    r"list_(?:add|del) corruption", r"kmemleak: \d+ new suspected", r"DMA-API: (?!preallocated|debugging enabled|nr )",
    # lockdep and RCU
    r"possible (?:circular|recursive|irq lock inversion)", r"inconsistent lock state", r"suspicious RCU usage",
    r"sleeping function called from invalid context", r"-> \w+-unsafe lock order", r"trying to register non-static key",
    r"bad unlock balance", r"Invalid wait context", r"held lock freed", r"lock held when returning to user space",
    # what stands still
    _STILL, r"irq \d+: nobody cared", r"unregister_netdevice: waiting for",
    # memory
    r"page allocation failure", r"Out of memory(?: and no killable|: Killed)",
    # the IOMMU and the bus
    r"DMAR(?:-IR)?:.*(?i:fault|error|time-?out|failed)", r"AMD-Vi:.*(?i:event logged|fault|error|time-?out|timed out)",
    r"AER: (?!enabled)", r"PCIe Bus Error:", r"DPC: (?!enabled|error containment capabilities)",
]))
# A line without a stamp is the kernel's when it begins as only the kernel's do.
_BARE = re.compile(r"BUG: |Oops: |WARNING: (?:CPU: |possible |inconsistent |suspicious |bad |held |lock )|"
                   r"Kernel panic - |general protection fault[,:]|Unable to handle kernel |INFO: task .* blocked for ")
STILL = re.compile(_STILL)  # a CPU, a timer or a task gets no further
PANIC = re.compile(r"Kernel panic - not syncing")
_TRACE = re.compile(r"\bCall Trace:")  # counts where none of the above came shortly before it, allowed or not
REPORT = 60  # lines that a report takes at most until its trace


@dataclass(eq=False)
class Complaint:
    """A line of a kernel that says that it is unwell."""
    node: object  # weftvm.Node
    generation: int  # which of its boots
    number: int  # of the line
    line: str
    at: float  # time.monotonic() when it was seen
    judge: object = None  # who answers for it

    def __str__(self):
        return f"node {self.node.rank}: {self.line}"


def kernel_line(line):
    """The message of a kernel's line, or None."""
    m = _STAMP.search(line)
    if m:
        return line[m.end():]
    return line if _BARE.match(line) else None


def scan(text, allow=()):
    """Return the offending lines of a console, as (line number, line); `allow` holds regular expressions to pass
    over."""
    return _scan(text, allow, -REPORT - 1)[0]


def _scan(text, allow, known):
    """The same, and the number of the last line that began a report; `known` is that of an earlier text, seen from
    here."""
    found = []
    for number, line in enumerate(text.split("\n")):
        message = kernel_line(line)
        if not message:
            continue
        if _BAD.search(message):
            known = number
        elif not (_TRACE.search(message) and number - known > REPORT):
            continue
        if not any(re.search(a, message) for a in allow):
            found.append((number, line.strip()))
    return found, known


def excerpt(text, numbers, before=4, after=30):
    """The console around the first lines with these numbers (they usually come as one report)."""
    lines = text.split("\n")
    wanted = set()
    for number in list(numbers)[:8]:
        wanted.update(range(max(0, number - before), min(len(lines), number + after)))
    out, last = [], None
    for i in sorted(wanted):
        if last is not None and i != last + 1:
            out.append("  ...")
        out.append("  " + lines[i].rstrip())
        last = i
    return "\n".join(out)


def end(text, lines=25):
    """A console's last lines."""
    return "\n".join("  " + line.rstrip() for line in text.rstrip().split("\n")[-lines:])


def shown(complaints):
    """The consoles around complaints, of each node and boot once."""
    boots = {}
    for c in complaints:
        boots.setdefault((c.node, c.generation), []).append(c.number)
    return "\n".join(f"node {node.rank}: its kernel's console says:\n{excerpt(node.console(generation), numbers)}"
                     for (node, generation), numbers in boots.items())


class Follower:
    """Reads a console as it grows."""

    def __init__(self, node, path, generation):
        self.node, self.path, self.generation = node, path, generation
        self._seen = self._lines = 0
        self._known = -REPORT - 1

    def look(self, allow, last=False):
        """Complaints of what is new; `last`: the guest has ended, so a line without an end is whole."""
        try:
            with open(self.path, "rb") as f:
                f.seek(self._seen)
                new = f.read()
        except OSError:
            return []
        if not last:
            new = new[:new.rfind(b"\n") + 1]
        first, self._lines, self._seen = self._lines, self._lines + new.count(b"\n"), self._seen + len(new)
        now = time.monotonic()
        found, known = _scan(new.decode(errors="replace"), allow, self._known - first)
        self._known = known + first
        return [Complaint(self.node, self.generation, first + number, line, now) for number, line in found]
