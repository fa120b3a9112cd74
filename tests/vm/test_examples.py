# SPDX-License-Identifier: MIT
"""examples/dmabuf-readback: passes on healthy exporters (weft, udmabuf, our test module), and names each planted bug.

One node with a host NIC, an accelerator with 8 GiB of HBM and an 8 GiB BAR (ivshmem) for the module of tests/vm/exporter.
"""
import re
import shutil

from weftvm import paths
from weftvm.case import NodeTest, build_module

PROGRAM = paths.BIN / "dmabuf-readback"
BAR = "-object memory-backend-memfd,id=exporter,size=8G,share=on -device ivshmem-plain,memdev=exporter,bus=pcie.0"
TESTS = {"WholeAllocations", "WhatTheNicWritesIsThere", "EachAllocationIsItself", "PartsOfAnAllocation",
         "AFreedRangeIsNotHandedOutUnderAnExport", "RemovalRevokes", "FourGiBAndMore"}
# bug: (tests that fail, what one of them says)
BUGS = {
    "revoke": ({"RemovalRevokes"}, [
        r"fault: missing revoke, the NIC reads on after the device was removed",
        r"fault: missing revoke, memory of a removed device can still be registered",
        r"fault: missing revoke, after its return the device lent the importer's range to others: "
        r"at byte 0 the NIC sees what was put at byte 0 of allocation 2\b"]),
    "free": ({"AFreedRangeIsNotHandedOutUnderAnExport"}, [
        r"fault: free with a live export, the range was handed out again: at byte 0 the NIC sees what was put at byte 0 of allocation 2\b",
        r"fault: free with a live export, the importer wrote into allocation 2: at byte 0 the NIC sees what was put at byte 0 of allocation 99\b"]),
    "offset": ({"EachAllocationIsItself"}, [
        r"sees what was put at byte 0 of allocation 1\)\nExpected: true\nfault: wrong offset of the allocation within the device's memory \(allocation 2 of 4\)"]),
    "part": ({"PartsOfAnAllocation"}, [
        r"at byte 4096 the NIC sees what was put at byte 0 of allocation 1\)\nExpected: true\nfault: wrong offset of a part within its allocation"]),
    "segment": ({"FourGiBAndMore"}, [r"fault: a segment of 4 GiB or more\?"]),
}


class DmabufReadback(NodeTest):
    options = {"nodes": 1, "nics": 1, "hbm": "8G", "cpus": 2, "qemu_opts": BAR}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        shutil.copy2(build_module("tests/vm/exporter/module"), cls.cluster.share)

    def readback(self, program, exporter):
        """(exit code, tests that passed, failed, skipped, all that it said)."""
        r = self.cluster.run(0, f"{program} --exporter={exporter} --gtest_color=no 2>&1", 240)
        said = {word: set(re.findall(rf"\[ *{word} *\] Readback\.(\w+) \(\d+ ms\)", r.out)) for word in ("OK", "FAILED", "SKIPPED")}
        self.assertEqual(set.union(*said.values()), TESTS, r.out)
        return r.rc, said["OK"], said["FAILED"], said["SKIPPED"], r.out

    def module(self, bug):
        self.sh(f"insmod /share/weft_exporter.ko bug={bug}")
        try:
            return self.readback(paths.BIN / "weft-exportertest", "module")
        finally:
            self.sh("rmmod weft_exporter")

    def test_weft(self):
        used = "cat /sys/kernel/debug/accel/*/weft_hbm"
        rc, passed, _, _, out = self.readback(PROGRAM, "weft")
        self.assertEqual((rc, passed), (0, TESTS), out)
        self.assertIn("used 0 by 0", self.sh(used))

    def test_udmabuf(self):
        """The kernel's own exporter: nothing to remove, and 64 MiB at most."""
        rc, passed, _, skipped, out = self.readback(PROGRAM, "udmabuf")
        self.assertEqual((rc, skipped), (0, {"RemovalRevokes", "FourGiBAndMore"}), out)
        self.assertEqual(passed, TESTS - skipped)

    def test_module(self):
        rc, passed, _, _, out = self.module("none")
        self.assertEqual((rc, passed), (0, TESTS), out)

    def test_bugs(self):
        for bug, (tests, messages) in BUGS.items():
            with self.subTest(bug):
                rc, _, failed, _, out = self.module(bug)
                self.assertEqual((rc, failed), (1, tests), out)
                for message in messages:
                    self.assertRegex(out, message)

    def test_links_nothing_but_verbs(self):
        """What a stranger needs: GoogleTest, libibverbs, libefa; libweft only for our own exporter."""
        out = self.sh(f"ldd {paths.BIN}/weft-exportertest")
        libraries = set(re.findall(r"^\s*lib(\w+)", out, re.M)) - {"c", "m", "stdc", "gcc_s", "nl", "gtest"}
        self.assertEqual(libraries, {"ibverbs", "efa"}, out)
