# SPDX-License-Identifier: MIT
"""libweft_ofi over the host NIC: every operation, HBM by DMA-BUF, and beside a foreign RDMA device (Soft-RoCE)."""
from weftvm import paths
from weftvm.case import NodeTest

BIN = paths.BUILD / "weft" / "bin"
LIBRARY = paths.BUILD / "weft" / "lib" / "libweft_ofi.so.0"


class Ofi(NodeTest):
    options = {"nodes": 1, "nics": 1, "cpus": 2}

    def run_on(self, command, timeout=60):
        return self.cluster.run(0, command, timeout)

    def test_transfers(self):
        for provider in ("efa-direct", "efa"):
            with self.subTest(provider):
                out = self.ok(self.run_on(f"WEFT_OFI_PROVIDER={provider} {BIN}/test_ofi --gtest_filter='*Transfer*'", 240))
                self.assertIn("[  PASSED  ]", out)

    def test_hbm(self):
        for provider in ("efa-direct", "efa"):
            with self.subTest(provider):
                out = self.ok(self.run_on(f"WEFT_OFI_PROVIDER={provider} {BIN}/weft-ofitest", 240))
                self.assertIn("[  PASSED  ] 4 tests", out)
                self.assertIn("[  SKIPPED ] 1 test", out)  # of NICs whose writes are late
                print(next(line for line in out.splitlines() if line.startswith("64 KiB of HBM")))

    def test_zz_beside_a_foreign_device(self):
        """Last: the device stays. Programs that bring nothing, libibverbs or libfabric along."""
        self.ok(self.run_on("modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0 && ibv_devices | grep rxe0"))
        self.assertNotEqual(self.run_on("fi_info -p efa").rc, 0, "libfabric alone finds the EFA: is it fixed?")
        ask = f"{BIN}/ofi_program_%s {LIBRARY} efa-direct"
        for program in ("plain", "verbs"):
            self.assertEqual(self.ok(self.run_on(ask % program)), "1\n")
        late = self.run_on(ask % "fabric")
        self.assertEqual(late.rc, 2)
        self.assertIn(f"LD_PRELOAD={LIBRARY}", late.err.replace(str(LIBRARY.resolve()), str(LIBRARY)))
        self.assertEqual(self.ok(self.run_on(f"LD_PRELOAD={LIBRARY} " + ask % "fabric")), "1\n")
        # Others still see every device.
        self.assertIn("rxe0", self.ok(self.run_on(f"LD_PRELOAD={LIBRARY} ibv_devices")))
        self.ok(self.run_on(f"WEFT_OFI_PROVIDER=efa-direct {BIN}/test_ofi --gtest_filter='*Transfer.*'", 120))


class TwoNics(NodeTest):
    """From one NIC to another in a node, so that all of it passes the switch; NICs and a switch that promise little."""

    options = {"nodes": 1, "nics": 2, "cpus": 2}

    def hbm(self, plan, environment=""):
        self.cluster.switch("plan " + plan)
        out = self.sh(f"{environment} WEFT_OFI_PROVIDER=efa-direct {BIN}/weft-ofitest", 300)
        rows = self.cluster.switch("stats")["rows"]
        return out, {what: sum(row[what] for row in rows) for what in ("lost", "reordered")}


class OutOfOrderAndLossy(TwoNics):
    options = {**TwoNics.options, "nic_opts": "spray=on"}

    def test_hbm(self):
        out, stats = self.hbm("loss=0.02 reorder=0.05 seed=7")
        self.assertIn("[  PASSED  ] 4 tests", out)
        self.assertGreater(stats["lost"], 100)
        self.assertGreater(stats["reordered"], 100)


class WritesPostedLate(TwoNics):
    options = {**TwoNics.options, "nic_opts": "posted=on"}

    def test_hbm(self):
        out, _ = self.hbm("loss=0", "WEFT_NIC_POSTED=1")
        self.assertIn("[  PASSED  ] 5 tests", out)


class AllOfIt(TwoNics):
    options = {**TwoNics.options, "nic_opts": "spray=on,posted=on"}

    def test_hbm(self):
        out, stats = self.hbm("loss=0.02 reorder=0.05 seed=8", "WEFT_NIC_POSTED=1")
        self.assertIn("[  PASSED  ] 5 tests", out)
        self.assertGreater(stats["lost"], 100)
