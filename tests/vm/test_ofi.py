# SPDX-License-Identifier: MIT
"""libweft_ofi over the host NIC: every operation, HBM by DMA-BUF, and beside a foreign RDMA device (Soft-RoCE)."""
import unittest

from weftvm import Cluster, paths

BIN = paths.BUILD / "weft" / "bin"
LIBRARY = paths.BUILD / "weft" / "lib" / "libweft_ofi.so.0"
c = None


def setUpModule():
    global c
    if not paths.EFA.exists():
        raise unittest.SkipTest("the root lacks the stage for host NICs and there is no build/efa/efa.ko: make peer")
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
