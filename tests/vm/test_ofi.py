# SPDX-License-Identifier: MIT
"""libweft_ofi over the host NIC: every operation, HBM by DMA-BUF, and beside a foreign RDMA device (Soft-RoCE)."""
import unittest

from weftvm import Cluster, paths

BIN = paths.BUILD / "weft" / "bin"
LIBRARY = paths.BUILD / "weft" / "lib" / "libweft_ofi.so.0"
c = None


def setUpModule():
    global c
    c = Cluster(nodes=1, devices=1, nics=1, cpus=2)
    unittest.addModuleCleanup(c.close)
    c.start()


class Ofi(unittest.TestCase):
    def ok(self, result):
        self.assertTrue(result.ok, f"{result.rc}\n{result.out}\n{result.err}\n{result.problems}")
        return result.out

    def test_transfers(self):
        for provider in ("efa-direct", "efa"):
            with self.subTest(provider):
                out = self.ok(c.run(0, f"WEFT_OFI_PROVIDER={provider} {BIN}/test_ofi --gtest_filter='*Transfer*'", 240))
                self.assertIn("[  PASSED  ]", out)

    def test_hbm(self):
        for provider in ("efa-direct", "efa"):
            with self.subTest(provider):
                out = self.ok(c.run(0, f"WEFT_OFI_PROVIDER={provider} {BIN}/weft-ofitest", 240))
                self.assertIn("[  PASSED  ] 4 tests", out)
                self.assertIn("[  SKIPPED ] 1 test", out)  # of NICs whose writes are late
                print(next(line for line in out.splitlines() if line.startswith("64 KiB of HBM")))

    def test_zz_beside_a_foreign_device(self):
        """Last: the device stays. Programs that bring nothing, libibverbs or libfabric along."""
        self.ok(c.run(0, "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0 && ibv_devices | grep rxe0"))
        self.assertFalse(c.run(0, "fi_info -p efa").ok, "libfabric alone finds the EFA: is it fixed?")
        ask = f"{BIN}/ofi_program_%s {LIBRARY} efa-direct"
        for program in ("plain", "verbs"):
            self.assertEqual(self.ok(c.run(0, ask % program)), "1\n")
        late = c.run(0, ask % "fabric")
        self.assertEqual(late.rc, 2)
        self.assertIn(f"LD_PRELOAD={LIBRARY}", late.err.replace(str(LIBRARY.resolve()), str(LIBRARY)))
        self.assertEqual(self.ok(c.run(0, f"LD_PRELOAD={LIBRARY} " + ask % "fabric")), "1\n")
        # Others still see every device.
        self.assertIn("rxe0", self.ok(c.run(0, f"LD_PRELOAD={LIBRARY} ibv_devices")))
        self.ok(c.run(0, f"WEFT_OFI_PROVIDER=efa-direct {BIN}/test_ofi --gtest_filter='*Transfer.*'", 120))


class TwoNics(unittest.TestCase):
    """From one NIC to another in a node, so that all of it passes the switch; NICs and a switch that promise no more than they must."""

    def hbm(self, options, plan, environment=""):
        with Cluster(nodes=1, devices=1, nics=2, cpus=2, nic_opts=options) as two:
            two.switch("plan " + plan)
            r = two.run(0, f"{environment} WEFT_OFI_PROVIDER=efa-direct {BIN}/weft-ofitest", 300)
            self.assertTrue(r.ok, f"{r.rc}\n{r.out}\n{r.err}\n{r.problems}")
            rows = two.switch("stats")["rows"]
            return r.out, {what: sum(row[what] for row in rows) for what in ("lost", "reordered")}

    def test_out_of_order_and_lossy(self):
        out, stats = self.hbm("spray=on", "loss=0.02 reorder=0.05 seed=7")
        self.assertIn("[  PASSED  ] 4 tests", out)
        self.assertGreater(stats["lost"], 100)
        self.assertGreater(stats["reordered"], 100)

    def test_writes_posted_late(self):
        out, _ = self.hbm("posted=on", "loss=0", "WEFT_NIC_POSTED=1")
        self.assertIn("[  PASSED  ] 5 tests", out)

    def test_all_of_it(self):
        out, stats = self.hbm("spray=on,posted=on", "loss=0.02 reorder=0.05 seed=8", "WEFT_NIC_POSTED=1")
        self.assertIn("[  PASSED  ] 5 tests", out)
        self.assertGreater(stats["lost"], 100)
