# SPDX-License-Identifier: MIT
"""What a guest's clock runs on under TCG, as options for its kernel.

QEMU's TCG hands the host's time stamp counter (TSC) through. A guest cannot measure its rate on a busy host, so it is told
the rate, where the host's counter is constant: reading the clock is then a few instructions instead of a register access.
"""
import ctypes
import functools
import mmap
import platform
import time
from pathlib import Path

HPET = "tsc=unstable clocksource=hpet"
_RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
_WINDOW = 0.05  # seconds
_AGREE = 1e-4  # two measurements in a row differ by less than this share


def _constant():
    try:
        flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    except (OSError, StopIteration):
        return False
    return platform.machine() == "x86_64" and "constant_tsc" in flags and "nonstop_tsc" in flags


def measure(rdtsc, now, sleep=time.sleep, tries=6):
    """The counter's rate in kHz, or None when the host is too busy to tell. `now` gives ns."""
    def sample():
        # The shortest of some: nothing came between its three readings.
        pairs = []
        for _ in range(30):
            before = now()
            count = rdtsc()
            pairs.append((now() - before, before, count))
        took, before, count = min(pairs)
        return before + took / 2, count

    last = None
    t0, c0 = sample()
    for _ in range(tries):
        sleep(_WINDOW)
        t1, c1 = sample()
        rate = (c1 - c0) / (t1 - t0) * 1e6 if t1 > t0 and c1 > c0 else 0
        if last and abs(rate / last - 1) < _AGREE:
            return round((rate + last) / 2)
        last, t0, c0 = rate, t1, c1
    return None


def rate_khz():
    """The rate of this host's TSC in kHz, or None where it is not constant or not known."""
    if not _constant():
        return None
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:  # not allowed here
        return None
    code.write(_RDTSC)
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    return measure(ctypes.CFUNCTYPE(ctypes.c_uint64)(address), lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW))


@functools.cache
def kernel_options():
    khz = rate_khz()
    return f"tsc_early_khz={khz} tsc=reliable" if khz else HPET
