# SPDX-License-Identifier: MIT
"""All-reduce over the host NIC, from HBM to HBM and by the detour: exact, accounted for to the byte, with what breaks."""
import json

from two_nodes import WITH_NICS, TwoNodes
from weftvm import paths

BIN = paths.BUILD / "weft" / "bin"
VARIANTS = paths.BUILD / "weft" / "lib" / "variants"


class OverTheHostNic(TwoNodes):
    options = WITH_NICS
    path = "peer"

    def account(self, path, over, size, rounds):
        """Each rank's own account and what its NIC's DMA carried meanwhile."""
        before = [self.cluster.dma(rank, "nic0") for rank in range(2)]
        results = self.cluster.run_all(f"exec {BIN}/weft-ccltest account {size} {rounds}", 120,
                                       env={"WCCL_PATH": path, "WCCL_STAGED_OVER": over})
        accounts = []
        for rank, result in enumerate(results):
            self.assertEqual(result.rc, 0, result.out + result.err)
            own = json.loads(result.out)
            now = self.cluster.dma(rank, "nic0")
            own["nic"] = {name: now[name] - before[rank][name] for name in now}
            self.assertEqual((own["wrong"], own["path"], own["dma_freed"]), (0, path, 0), own)
            accounts.append(own)
        # The ranks of a ring send each other equally much: 2 (n - 1) / n of the buffer a round.
        self.assertEqual([a["sent"] for a in accounts], [size * rounds] * 2)
        return accounts

    SEGMENT = 8192  # bytes of payload in a frame of the host NIC
    RECORD = 40  # bytes of a call's record, a frame of its own

    def read_once(self, read, own, sent=None):
        """The NIC read its payload once, and again only those frames that it sent again after a stall of the host."""
        sent = own["sent"] if sent is None else sent
        again = read - sent
        self.assertGreaterEqual(again, 0, own)
        self.assertEqual(again % self.SEGMENT % self.RECORD, 0, own)
        self.assertTrue(again < sent or again == 0, own)

    def test_sizes(self):
        rows = self.perf("-b 4K -e 64M -f 4 -n 1 -w 1", 280)
        self.assertEqual(max(row["bytes"] for row in rows[0]), 64 << 20)
        for row in rows[0]:
            self.assertEqual((row["path"], row["transport"], row["host_dram_bytes"], row["cpu_copies"]), ("peer", "efa-direct", 0, 0), row)

    def test_types_and_operations(self):
        self.perf("-b 60 -e 60K -f 32 -n 1 -w 0 -d all -o all", 280)

    def test_peer_touches_no_guest_ram(self):
        for own in self.account("peer", "", 16 << 20, 3):
            nic = own["nic"]
            self.assertGreater(own["flushes"], 0)
            # A flush reads 4 bytes of HBM through the NIC into a scratch word: no payload, and no more than that.
            flushed = 4 * own["flushes"]
            # The records of the calls lie in guest RAM. In a ring as many come as go.
            records = self.RECORD * own["records"]
            self.assertGreater(records, 0)
            self.assertEqual(nic["payload-ram-write"], records + flushed, own)
            self.read_once(nic["payload-ram-read"], own, records)
            self.assertEqual(nic["payload-peer-write"], own["sent"], own)
            self.read_once(nic["payload-peer-read"] - flushed, own)
            self.assertEqual((own["host_dram"], own["cpu_copies"], own["device_read"], own["device_wrote"]), (0, 0, 0, 0), own)
            # Rings, doorbells and shadows are mapped; HBM (the buffers, and 2 MiB of staging) is not, in any process.
            self.assertLess(own["mapped"], 1 << 20, own)

    def test_staged_is_twice_the_payload_each_way(self):
        for over in ("efa", "tcp"):
            with self.subTest(over):
                for own in self.account("staged", over, 16 << 20, 3):
                    sent, nic = own["sent"], own["nic"]
                    self.assertEqual((own["device_wrote"], own["device_read"], own["host_dram"]), (sent, sent, 4 * sent), own)
                    # Over tcp the kernel's sockets do, by CPU copies.
                    carried = sent + self.RECORD * own["records"] if over == "efa" else 0
                    self.assertEqual(nic["payload-ram-write"], carried, own)
                    self.read_once(nic["payload-ram-read"], own, carried)
                    self.assertEqual((nic["payload-peer-read"], nic["payload-peer-write"]), (0, 0), own)
                    self.assertEqual(own["cpu_copies"] > 0, over == "tcp", own)

    def test_cache_off_and_small(self):
        for env in ({"WCCL_MR_CACHE_ENTRIES": 0}, {"WCCL_MR_CACHE_ENTRIES": 1}, {"WCCL_MR_CACHE_BYTES": "64K"}):
            with self.subTest(str(env)):
                rows = self.perf("-b 256K -e 4M -f 16 -n 3 -w 0", env=env)
                self.assertGreater(rows[0][-1]["registrations"]["registrations"], 0)

    def test_freed_buffers(self):
        """A buffer freed under a running all-reduce: an error on both ranks, and the next communicator works."""
        for path in ("peer", "staged"):
            with self.subTest(path):
                results = self.cluster.run_all(f"exec {BIN}/weft-ccltest free {64 << 20}", 120, env={"WCCL_PATH": path})
                for result in results:
                    self.assertEqual(result.rc, 0, result.out + result.err)
                    self.assertNotIn("first: no error", result.out)
                    self.assertIn("then: 0 wrong", result.out)


class DeadPeer(TwoNodes):
    options = WITH_NICS
    path = "peer"

    def leftovers(self):
        """Verbs objects of processes on each node."""
        return [self.cluster.run(rank, "rdma res show mr; rdma res show qp").out for rank in range(2)]

    def test_cut_link(self):
        try:
            self.end(here=lambda: self.cluster.switch("link n1e0p0 down"))
        finally:
            self.cluster.switch("link n1e0p0 up")
        self.works()

    def test_killed_process(self):
        for struck in (0, 1):
            with self.subTest(struck=struck):
                self.end("kill -9 $$", struck=struck)
                for text in self.leftovers():
                    self.assertNotIn("wccl-perf", text)
                self.works()

    def unbind(self, driver, then=":"):
        """Take the driver away under the run on node 1; it binds again when nobody holds HBM of before any more."""
        where = f"/sys/bus/pci/drivers/{driver}"
        device = self.sh(f"cd {where} && echo 0000:*", node=1).strip()
        self.assertRegex(device, r"^0000:\S+$")
        self.end(f"echo {device} > {where}/unbind & {then}")
        self.sh(f"while [ -e {where}/{device}/uevent ]; do sleep 0.2; done", 60, node=1)
        self.sh(f"until echo {device} > {where}/bind; do sleep 0.5; done", 60, node=1)
        self.works()

    def test_unbind_accelerator(self):
        self.unbind("weft")

    def test_unbind_nic(self):
        """The kernel waits for the NIC's users, as it does for any RDMA device that cannot disown them: they go on until they end."""
        self.unbind("efa", then="sleep 2; kill -9 $$")


class ResetUnderLoad(TwoNodes):
    """A function-level reset under the run; the driver is bound anew afterwards, as an administrator would."""
    # efa.ko is not told of a reset: it waits for its first command, then gives the device up, and the kernel complains that
    # objects of the process could not be destroyed one by one. They are gone with the device's state.
    options = WITH_NICS
    allow = (r"drivers/infiniband/core/(rdma_core|restrack)\.c",)
    path = "peer"

    def reset(self, driver, **options):
        where = f"/sys/bus/pci/drivers/{driver}"
        device = self.sh(f"cd {where} && echo 0000:*", node=1).strip()
        self.end(f"echo 1 > {where}/{device}/reset", **options)
        self.sh(f"echo {device} > {where}/unbind; until echo {device} > {where}/bind; do sleep 0.5; done", node=1)
        self.works()

    def test_accelerator(self):
        self.reset("weft")

    def test_accelerator_of_other_paths(self):
        """Staged over tcp no NIC touches HBM: only the device can say that it was lost."""
        for path, over in (("onchip", ""), ("staged", "efa"), ("staged", "tcp")):
            with self.subTest(path, over=over):
                self.reset("weft", path=path, env={"WCCL_STAGED_OVER": over})

    def test_nic(self):
        self.reset("efa")


class Variant(TwoNodes):
    """What holds with wccl as it is, and fails with a defect planted in it."""
    path = "peer"

    def wrong(self, variant):
        """Wrong elements of some all-reduces by libwccl with that defect."""
        libraries = f"{VARIANTS}/{variant}:{paths.LIB}"
        results = self.cluster.run_all(f"exec {BIN}/weft-ccltest check {4 << 20} 16", 240,
                                       env={"WCCL_PATH": self.path, "LD_LIBRARY_PATH": libraries})
        for result in results:
            self.assertEqual(result.rc, 0, result.out + result.err)
        return sum(int(result.out) for result in results)


class Spray(Variant):
    """The NIC delivers in any order, and the wire loses and reorders: what trusts the order fails, wccl does not."""
    options = {**WITH_NICS, "nic_opts": "spray=on"}

    def setUp(self):
        self.cluster.switch("plan loss=0.02 reorder=0.1 seed=11")
        self.addCleanup(self.cluster.switch, "plan")

    def test_exact(self):
        self.perf("-b 1M -e 4M -f 4 -n 4 -w 0", 240)

    def test_variant_that_trusts_the_order_fails(self):
        self.assertGreater(self.wrong("trusts-order"), 0)


class Damage(TwoNodes):
    """The wire changes bytes of frames: each such frame is dropped, counted and sent again."""
    options = WITH_NICS

    def test_exact(self):
        self.cluster.switch("plan corrupt=0.01 seed=5")
        self.addCleanup(self.cluster.switch, "plan")
        counters = "cat /sys/class/infiniband/efa_0/ports/1/hw_counters/rx_drops"

        def changed_and_dropped():
            changed = sum(row["corrupted"] for row in self.cluster.switch("stats")["rows"])
            return changed, sum(int(self.ok(self.cluster.run(node, counters))) for node in range(2))

        for path, over in (("peer", ""), ("staged", "efa")):
            with self.subTest(path, over=over):
                before = changed_and_dropped()
                self.perf("-b 1M -e 4M -f 4 -n 4 -w 0", 240, env={"WCCL_PATH": path, "WCCL_STAGED_OVER": over})
                changed, dropped = (now - then for now, then in zip(changed_and_dropped(), before))
                self.assertGreater(changed, 0)
                self.assertGreater(dropped, 0)


class Posted(Variant):
    """Peer writes are on their way for a while after their completion: without the flush stale data is reduced."""
    options = {**WITH_NICS, "nic_opts": "posted=on"}

    def test_exact(self):
        self.perf("-b 64K -e 4M -f 8 -n 4 -w 0", 240)

    def test_variant_without_flush_fails(self):
        self.assertGreater(self.wrong("no-flush"), 0)
