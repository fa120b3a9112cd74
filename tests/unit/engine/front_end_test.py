#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""front_end_test.py WEFT-QEMU.SO TOY-MODEL.SO VERSION PRELOAD-FIRST [TEST]...: the QEMU front end without a guest.

The CPU halts at once; QEMU's qtest protocol accesses the bus in its place. The toy model's registers are those of
toy_model.h.
"""
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

DEVICE, TOY, VERSION = sys.argv[1:4]
FIRST = sys.argv[4]
del sys.argv[1:5]

QEMU = "qemu-system-x86_64"
BAR0, BAR2, BAR4 = 0xE0000000, 0xE1000000, 0xE0100000
RAM_SIZE = 1 << 20  # of the toy's BAR2
EFAULT = 14
MAGIC, SCRATCH, STEPS, BUSY = 0x00, 0x08, 0x20, 0x28
DMA_ADDR, DMA_BYTES, DMA_GO, DMA_DONE, DMA_ERROR = 0x30, 0x38, 0x40, 0x48, 0x50
IRQ, LINKS_UP, RESETS = 0x58, 0x90, 0xA8


def environment(device=None):
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=0:detect_odr_violation=0")
    env["LD_PRELOAD"] = (FIRST + ":" if FIRST else "") + (device or DEVICE)
    return env


def arguments(*more):
    return [QEMU, "-M", "q35", "-m", "64", "-nodefaults", "-no-user-config", "-display", "none", *more]


def refusal(*more, device=None):
    done = subprocess.run(arguments("-S", *more), env=environment(device), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=30)
    assert done.returncode == 1, done
    return done.stderr


class Machine:
    """QEMU with qtest and QMP."""

    def __init__(self, *more):
        self.dir = tempfile.TemporaryDirectory(prefix="weft-fe-")
        with open(self.dir.name + "/bios", "wb") as f:  # at the reset vector: cli; hlt; jmp back
            f.write(b"\xf4" * 0xFFF0 + b"\xfa\xf4\xeb\xfc" + b"\0" * 12)
        listen = {}
        for name in ("qtest", "qmp"):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.settimeout(30)
            s.bind(f"{self.dir.name}/{name}")
            s.listen(1)
            listen[name] = s
        self.proc = subprocess.Popen(
            arguments("-accel", "tcg", "-bios", self.dir.name + "/bios", "-qtest", f"unix:{self.dir.name}/qtest", "-qtest-log", "none",
                      "-chardev", f"socket,id=qmp,path={self.dir.name}/qmp", "-mon", "chardev=qmp,mode=control", *more),
            env=environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        files = {}
        for name, s in listen.items():
            files[name], _ = s.accept()
            files[name].settimeout(30)
            s.close()
        self._qtest, self._qmp = files["qtest"].makefile("rw"), files["qmp"].makefile("rw")
        for s in files.values():
            s.close()  # the files keep them
        json.loads(self._qmp.readline())
        self.qmp("qmp_capabilities")

    def close(self):
        for f in (self._qtest, self._qmp):
            f.close()
        self.proc.kill()
        self.proc.wait()
        self.proc.stderr.close()
        self.dir.cleanup()

    def qtest(self, line):
        self._qtest.write(line + "\n")
        self._qtest.flush()
        answer = self._qtest.readline().split()
        assert answer and answer[0] == "OK", (line, answer)
        return int(answer[1], 16) if len(answer) > 1 else None

    def qmp(self, command, **args):
        self._qmp.write(json.dumps({"execute": command, "arguments": args}) + "\n")
        self._qmp.flush()
        while True:
            answer = json.loads(self._qmp.readline())
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise RuntimeError(answer["error"]["desc"])

    def engines(self):
        names = []
        for task in os.listdir(f"/proc/{self.proc.pid}/task"):
            try:
                with open(f"/proc/{self.proc.pid}/task/{task}/comm") as f:
                    names.append(f.read().strip())
            except FileNotFoundError:
                pass
        return names.count("weft-engine")

    # The device at 00:01.0
    def config(self, offset, value=None, size=4):
        self.qtest(f"outl 0xcf8 {0x80000800 | offset & ~3:#x}")
        op, port = {1: "b", 2: "w", 4: "l"}[size], 0xCFC + offset % 4
        return self.qtest(f"in{op} {port:#x}" if value is None else f"out{op} {port:#x} {value:#x}")

    def capability(self, kind):
        at = self.config(0x34, size=1)
        while self.config(at, size=1) != kind:
            at = self.config(at + 1, size=1)
        return at

    def place(self):
        self.config(0x10, BAR0)
        self.config(0x18, BAR2)
        self.config(0x1C, 0)
        self.config(0x20, BAR4)
        self.config(0x04, 0x6, 2)

    def read(self, address, size="q"):
        return self.qtest(f"read{size} {address:#x}")

    def write(self, address, value, size="q"):
        self.qtest(f"write{size} {address:#x} {value:#x}")

    def until(self, address, value):
        limit = time.monotonic() + 20
        while self.read(address) != value:
            if time.monotonic() > limit:
                raise AssertionError(f"{address:#x}: {self.read(address):#x}, not {value:#x}")

    def dma(self, go, address, size=8):
        before = self.read(BAR0 + DMA_DONE)
        self.write(BAR0 + DMA_ADDR, address)
        self.write(BAR0 + DMA_BYTES, size)
        self.write(BAR0 + DMA_GO, go)
        self.until(BAR0 + DMA_DONE, before + 1)
        return self.read(BAR0 + DMA_ERROR)


class FrontEnd(unittest.TestCase):
    def machine(self, *more, toy="", place=True):
        m = Machine(*more, "-device", f"weft-model,addr=1,path={TOY}{toy}")
        self.addCleanup(m.close)
        if place:
            m.place()
        return m

    def test_identity_and_registers(self):
        m = self.machine()
        self.assertEqual(m.config(0x00), 0x10FF1AF4)
        self.assertEqual(m.config(0x08), 0x12000003)
        self.assertEqual(m.config(0x2C), 0x70771AF4)
        self.assertEqual(m.config(0x18) & 0xF, 0xC)  # 64-bit, prefetchable
        self.assertEqual(m.read(BAR0 + MAGIC), 0x594F54)
        self.assertEqual(m.read(BAR0 + MAGIC + 1, "b"), 0x4F)
        m.write(BAR0 + SCRATCH, 0x1122334455667788)
        self.assertEqual(m.read(BAR0 + SCRATCH), 0x1122334455667788)
        self.assertEqual(m.read(BAR0 + SCRATCH + 4, "l"), 0x11223344)
        self.assertEqual(m.engines(), 1)

    def test_dma_reaches_ram_and_other_memory_by_pointer_and_nothing_else(self):
        m = self.machine()
        m.write(0x100000, 0xABCDEF)
        self.assertEqual(m.dma(1, 0x100000), 0)
        self.assertEqual(m.read(BAR2), 0xABCDEF)
        m.write(BAR2, 0x55)
        self.assertEqual(m.dma(2, 0x200000, 300000), 0)
        self.assertEqual(m.read(0x200000), 0x55)
        self.assertEqual(m.dma(2, BAR2 + 0x1000), 0)  # a BAR that is memory
        self.assertEqual(m.read(BAR2 + 0x1000), 0x55)
        for what, go, address in (("its own registers", 1, BAR0), ("an interrupt controller", 1, 0xFEC00000),
                                  ("the MSI range", 2, 0xFEE00000), ("ROM", 2, 0xFFFFFF00), ("nothing", 1, 0x80000000),
                                  ("the end of RAM", 2, 0x4000000 - 4)):
            self.assertEqual(m.dma(go, address), EFAULT, what)
        self.assertEqual(m.read(0x4000000 - 8), 0)
        m.config(0x04, 0x2, 2)  # no bus mastering
        self.assertEqual(m.dma(1, 0x100000), EFAULT)

    def test_interrupt(self):
        m = self.machine()
        m.config(m.capability(0x11) + 2, 0x8000, 2)  # MSI-X enable
        vector = BAR4 + 16 * 2
        for offset, value in ((0, 0x300000), (4, 0), (8, 0xCAFE), (12, 0)):  # a message is a write: let it hit RAM
            m.write(vector + offset, value, "l")
        m.write(BAR0 + IRQ, 2)
        m.until(0x300000, 0xCAFE)
        m.write(0x300000, 0)
        m.write(vector + 12, 1, "l")  # masked: it waits in the PBA
        m.write(BAR0 + IRQ, 2)
        m.until(BAR4 + 0x800, 1 << 2)
        self.assertEqual(m.read(0x300000), 0)
        m.write(vector + 12, 0, "l")
        m.until(0x300000, 0xCAFE)

    def test_function_level_reset_keeps_memory(self):
        m = self.machine()
        m.write(BAR0 + SCRATCH, 5)
        m.write(BAR2, 0x77)
        self.assertTrue(m.config(0x84) & 1 << 28)  # FLR capable
        flr = m.read(BAR0 + RESETS) >> 32
        m.config(0x88, 0x8000, 2)
        self.assertEqual(m.config(0x04, size=2) & 0x6, 0)
        m.place()
        self.assertEqual(m.read(BAR0 + SCRATCH), 0)
        self.assertEqual(m.read(BAR2), 0x77)
        self.assertEqual(m.read(BAR0 + RESETS) >> 32, flr + 1)

    def test_reset_of_the_machine_clears_memory(self):
        m = self.machine()
        m.write(BAR2 + RAM_SIZE - 8, 0x77)
        cold = m.read(BAR0 + RESETS, "l")
        m.qmp("system_reset")
        limit = time.monotonic() + 20
        while m.config(0x04, size=2) & 0x2:
            self.assertLess(time.monotonic(), limit)
        m.place()
        self.assertEqual(m.read(BAR2 + RAM_SIZE - 8), 0)
        self.assertEqual(m.read(BAR0 + RESETS, "l"), cold + 1)

    def test_stop_and_continue(self):
        m = self.machine()
        m.write(BAR0 + BUSY, 1)
        m.qmp("stop")
        steps = m.read(BAR0 + STEPS)
        time.sleep(0.05)
        self.assertEqual(m.read(BAR0 + STEPS), steps)
        m.qmp("cont")
        limit = time.monotonic() + 20
        while m.read(BAR0 + STEPS) == steps:
            self.assertLess(time.monotonic(), limit)

    def test_quit_while_busy(self):
        m = self.machine()
        m.write(BAR0 + BUSY, 1)
        m.qmp("quit")
        self.assertEqual(m.proc.wait(20), 0)

    def test_link_says_who_it_is(self):
        with tempfile.TemporaryDirectory(prefix="weft-fe-") as d, socket.socket(socket.AF_UNIX) as s:
            s.bind(d + "/s")
            s.listen(2)
            s.settimeout(20)
            m = self.machine(toy=f",options=links=2,fabric={d}/s,name=n1d0")
            names = set()
            for _ in range(2):
                c, _ = s.accept()
                with c:
                    c.settimeout(20)
                    data = b""
                    while len(data) < 56:
                        data += c.recv(56 - len(data))
                length, kind, magic = struct.unpack_from("<IB3xI", data)
                self.assertEqual((length, kind, magic), (48, 1, 0x4B4E4C57))
                names.add(data[24:].rstrip(b"\0"))
            self.assertEqual(names, {b"n1d0p0", b"n1d0p1"})
            self.assertEqual(m.read(BAR0 + LINKS_UP), 0)  # no HELLO from us

    def test_hotplug(self):
        m = Machine("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off", "-device", "pcie-root-port,id=rp,addr=1,chassis=1,slot=1")
        self.addCleanup(m.close)
        slot_control = m.capability(0x10) + 0x18
        for _ in range(3):
            self.assertEqual(m.engines(), 0)
            m.qmp("device_add", driver="weft-model", id="toy", bus="rp", path=TOY)
            self.assertEqual(m.engines(), 1)
            m.config(slot_control, 0x100, 2)  # the guest turns the slot's power and its indicator on
            m.qmp("device_del", id="toy")
            m.config(slot_control, 0x700, 2)  # and off, when asked to
            limit = time.monotonic() + 20
            while m.engines():
                self.assertLess(time.monotonic(), limit)

    def test_faults(self):
        m = self.machine(place=False)
        path = "/machine/peripheral-anon/device[0]"
        for text, reason in (("spill 1 2", "fault 'spill': No such file"), ("spill x", "numbers may follow"),
                             ("a 1 2 3 4 5 6 7 8 9", "at most 8")):
            with self.assertRaisesRegex(RuntimeError, reason):
                m.qmp("qom-set", path=path, property="inject", value=text)

    def test_iommu_runs_the_model_in_the_main_loop(self):
        m = self.machine("-device", "intel-iommu")
        self.assertEqual(m.dma(1, 0x100000), 0)
        self.assertEqual(m.dma(1, 0x80000000), EFAULT)
        m.qmp("stop")
        m.qmp("cont")
        self.assertEqual(m.dma(1, 0x100000), 0)
        m.write(BAR0 + BUSY, 1)
        m.qmp("quit")
        self.assertEqual(m.proc.wait(20), 0)

    def test_refusals_say_why(self):
        self.assertIn("path= must name", refusal("-device", "weft-model"))
        self.assertIn("cannot load the model: /nope.so", refusal("-device", "weft-model,path=/nope.so"))
        self.assertIn("has no weft_model_entry", refusal("-device", "weft-model,path=libm.so.6"))
        self.assertIn("'x' is not key=value", refusal("-device", f"weft-model,path={TOY},options=x"))
        self.assertIn("toy: no option colour", refusal("-device", f"weft-model,path={TOY},options=links=1;colour=red"))
        self.assertIn("BAR2 is not a power of two", refusal("-device", f"weft-model,path={TOY},options=ram=5000"))

    def test_refuses_another_qemu(self):
        other = re.sub(r"\d$", lambda d: str((int(d[0]) + 1) % 10), VERSION).encode()
        with open(DEVICE, "rb") as f:
            image = f.read()
        with tempfile.TemporaryDirectory(prefix="weft-fe-") as d:
            patched = d + "/weft-qemu.so"
            with open(patched, "wb") as f:
                f.write(image.replace(VERSION.encode(), other))
            self.assertIn(f"built for QEMU {other.decode()}, but this is QEMU {VERSION}",
                          refusal("-device", "weft", device=patched))


if __name__ == "__main__":
    unittest.main()
