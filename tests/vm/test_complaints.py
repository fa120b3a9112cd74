# SPDX-License-Identifier: MIT
"""What a kernel complains about fails the test that ran then, and the run: seen by tests inside a test."""
import unittest

from weftvm.case import NodeTest
from weftvm.tally import Tally
from weftvm.vmtier import Watch

ASK = "echo '{} {}' >/sys/module/weft_complainer/parameters/complain"


class Complaints(NodeTest):
    options = {"nodes": 1, "devices": 0, "viommu": True, "qemu_opts": "-device edu,bus=pcie.0"}
    kernel_modules = ("tests/vm/complainer",)

    def inner(self, *commands):
        """Tests that run a command each and look at nothing; what was counted: [(verdict, text)]."""
        class Inner(unittest.TestCase):
            cluster = self.cluster

        for i, command in enumerate(commands):
            setattr(Inner, f"test_{i}", lambda test, command=command: test.cluster.run(0, command))
        tally = Tally(quiet=True, skips=("",))
        watch = Watch(tally, limit=None)
        unittest.TestSuite(Inner(f"test_{i}") for i in range(len(commands))).run(watch)
        watch.finish()
        return [(verdict, text) for _, _, _, verdict, text in tally.cases]

    def fails(self, what, *words):
        for after, wait in ((0, 0.3), (300, 0)):
            with self.subTest(after=after):
                ((verdict, text),) = self.inner(f"{ASK.format(what, after)}; sleep {wait}")
                self.assertEqual(verdict, "failed")
                for word in words:
                    self.assertIn(word, text)
                self.assertIn("node 0: its kernel's console says:", text)

    def test_warning(self):
        self.fails("warn", "WARNING: CPU: ", "weft_complainer was asked to")

    def test_lockdep(self):
        self.fails("lockdep", "possible circular locking dependency detected")

    def test_dma_fault(self):
        self.fails("dmar", "DMAR: [DMA Read", "fault addr 0x5a5a000")

    def test_oops(self):
        self.fails("oops", "BUG: kernel NULL pointer dereference", "Oops:")

    def test_only_the_test_at_that_time(self):
        """Neither one that ended well before nor one that comes well after."""
        verdicts = self.inner("true", "true", f"sleep 1; {ASK.format('warn', 0)}; sleep 1", "true")
        self.assertEqual([verdict for verdict, _ in verdicts], ["passed", "passed", "failed", "passed"])

    def test_skip_and_failure(self):
        """What a test itself says does not hide it."""
        class Inner(unittest.TestCase):
            cluster = self.cluster

            def test_skip(self):
                self.cluster.run(0, ASK.format("warn", 0) + "; sleep 0.3")
                self.skipTest("not installed")

            def test_wrong(self):
                self.fail("by itself")

        tally = Tally(quiet=True, skips=("",))
        watch = Watch(tally, limit=None)
        unittest.TestSuite([Inner("test_skip"), Inner("test_wrong")]).run(watch)
        watch.finish()
        skip, wrong = tally.cases
        self.assertEqual((skip[3], wrong[3]), ("failed", "failed"))
        self.assertIn("WARNING: CPU: ", skip[4])
        self.assertIn("by itself", wrong[4])

    def test_allowed(self):
        with self.cluster.allowing(r"weft_complainer\.c"):
            ((verdict, _),) = self.inner(ASK.format("warn", 0) + "; sleep 0.3")
        self.assertEqual(verdict, "passed")
