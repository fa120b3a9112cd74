# SPDX-License-Identifier: MIT
"""KVM or TCG? KVM only when QEMU really ran a guest instruction on it: a /dev/kvm that opens but hangs exists."""
import os
import select
import subprocess
import time
from pathlib import Path

from . import paths

PROBE_SECONDS = 3


def _probe():
    """Start the kernel on KVM and see whether it speaks in time.

    A few instructions of firmware are not enough: without hardware support KVM emulates real mode, so that a guest
    which will never get further still runs them (seen). The kernel's first words take long mode and paging.
    """
    cmd = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-machine", "q35", "-accel", "kvm", "-cpu", "host",
           "-m", "256",
           "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
           "-kernel", str(paths.MADE / "vmlinux"), "-append", "earlyprintk=ttyS0 console=ttyS0 panic=-1"]
    p = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    deadline, said = time.monotonic() + PROBE_SECONDS, b""
    try:
        while b"Linux version" not in said:
            if not select.select([p.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                return False
            chunk = os.read(p.stdout.fileno(), 65536)
            if not chunk:
                return False
            said += chunk
        return True
    finally:
        p.kill()  # and no wait: it may hang in the kernel


def detect():
    """Return (accel, reason); WEFT_ACCEL=tcg|kvm forces one. The probe's answer is kept until the host reboots."""
    forced = os.environ.get("WEFT_ACCEL", "")
    if forced in ("tcg", "kvm"):
        return forced, "asked for"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg", "no /dev/kvm that we may open"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    known = paths.CACHE / "kvm-probe"
    try:
        when, answer = known.read_text().split()
        if when == boot and answer in ("tcg", "kvm"):
            return answer, "probed since this machine's boot"
    except (OSError, ValueError):
        pass
    good = _probe()
    answer = "kvm" if good else "tcg"
    known.write_text(f"{boot} {answer}\n")
    return answer, "ran a guest on KVM" if good else f"KVM ran no guest instruction within {PROBE_SECONDS} s"
