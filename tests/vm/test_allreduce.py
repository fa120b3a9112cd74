# SPDX-License-Identifier: MIT
"""All-reduce between two nodes over the on-chip NICs: exact, seen from outside, on a bad wire, with a dead peer."""
import json
import subprocess
import sys

from two_nodes import TwoNodes
from weftvm import paths

CHECKER = paths.TOP / "tests" / "wire" / "rocecheck.py"


class AllReduce(TwoNodes):
    def test_sizes_types_and_operations(self):
        self.perf("-b 4K -e 4M -f 8 -n 2 -w 1")
        self.perf("-b 60 -e 60K -f 32 -n 1 -w 0 -d all -o all", 240)

    def test_host_memory_sees_no_payload(self):
        """One doorbell a collective a rank; through guest RAM go slots and completions alone."""
        for rows in self.perf("-b 1M -e 16M -f 4 -n 4 -w 1"):
            for row in rows:
                self.assertEqual(row["path"], "onchip")
                self.assertEqual(row["host_dram_bytes"], 0, row)
                self.assertEqual(row["cpu_copies"], 0, row)
                self.assertEqual(row["doorbells"], 1, row)

    def test_capture_is_sound(self):
        """tshark finds RoCE v2 and nothing malformed; an independent reading finds each ICRC right; results are as uncaptured."""
        capture = self.cluster.rundir / "capture.pcapng"
        plain = self.perf("-b 4K -e 1M -f 4 -n 1 -w 0 --hash")
        self.cluster.switch(f"capture start {capture}")
        captured = self.perf("-b 4K -e 1M -f 4 -n 1 -w 0 --hash", name="captured")
        self.cluster.switch("capture stop")
        self.assertEqual([row["hash"] for row in plain[0]], [row["hash"] for row in captured[0]])
        check = subprocess.run([sys.executable, str(CHECKER), str(capture)], capture_output=True, text=True, timeout=120)
        found = json.loads(check.stdout)
        self.assertEqual((check.returncode, found["wrong"]), (0, 0), check.stdout)
        # Each size's all-reduce moves at least its bytes once in each direction, at most 4096 a packet.
        sent = sum(count for name, count in found["opcodes"].items() if "WRITE" in name)
        self.assertGreater(sent, sum(row["bytes"] for row in captured[0]) / 4096)
        dissected = subprocess.run(["tshark", "-r", str(capture), "-Y", "infiniband", "-T", "fields", "-e", "infiniband.bth.opcode"],
                                   capture_output=True, text=True, timeout=120)
        self.assertEqual(len(dissected.stdout.split()), found["roce"], dissected.stderr)
        malformed = subprocess.run(["tshark", "-r", str(capture), "-Y", "_ws.malformed"], capture_output=True, text=True, timeout=120)
        self.assertEqual(malformed.stdout, "")

    def test_a_bad_wire_changes_nothing(self):
        for loss in ("0.01", "0.05"):
            with self.subTest(loss=loss):
                before = {row["port"]: row["lost"] for row in self.cluster.switch("stats")["rows"]}
                self.cluster.switch(f"plan loss={loss} seed=7")
                try:
                    self.perf("-b 64K -e 1M -f 4 -n 2 -w 0", 240)
                finally:
                    self.cluster.switch("plan")
                lost = sum(row["lost"] - before.get(row["port"], 0) for row in self.cluster.switch("stats")["rows"])
                self.assertGreater(lost, 0)

    def test_peer_without_a_host_nic_names_the_reason(self):
        result = self.cluster.run_all("exec wccl-perf -b 4K -n 1 -T 20", 60, env={"WCCL_PATH": "peer"})[0]
        self.assertNotEqual(result.rc, 0)
        self.assertIn("host NIC", result.err + result.out)


class StrictIommu(TwoNodes):
    """Only what the driver maps is reachable: the rings, the shadow, the events."""

    options = {"viommu": True}

    def test_all_reduce(self):
        rows = self.perf("-b 4K -e 4M -f 8 -n 2 -w 1", 240)
        self.assertTrue(all(row["host_dram_bytes"] == 0 for row in rows[0]))


class DeadPeer(TwoNodes):
    """A long run in which rank 1 falls silent: rank 0 names it within its limit, and the next communicator works."""

    def test_cut_link(self):
        try:
            self.end(here=lambda: self.cluster.switch("link n1d0p0 down"))
        finally:
            self.cluster.switch("link n1d0p0 up")
        self.works()

    def test_killed_process(self):
        self.end("kill -9 $$")
        self.works()

    def test_killed_node(self):
        self.end(here=lambda: self.cluster.kill(1))
        self.cluster.boot(1)
        self.works()
