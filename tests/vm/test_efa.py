# SPDX-License-Identifier: MIT
"""The host NIC under upstream software: efa.ko, rdma-core, libfabric and perftest as Debian ships them.

Two nodes with a NIC each. Every program runs twice, as server and client, in one node (through the NIC back to itself) or one in each.
"""
import re
from two_nodes import WITH_NICS
from weftvm import pair
from weftvm.case import NodeTest

LIMIT = 120  # seconds for a pair of programs; they take about one


class Efa(NodeTest):
    options = WITH_NICS
    port = 18600

    def needs(self, program):
        if not self.true(0, f"command -v {program}"):
            self.skipTest(f"{program} is not installed")

    def pair(self, command, nodes=(0, 1), options=("-p", "-p")):
        """Run COMMAND on the first node and COMMAND ADDRESS on the second; what each said."""
        Efa.port += 1
        sides = pair.run(self.cluster, f"{command} {options[0]} {self.port}", f"{command} {options[1]} {self.port} {self.cluster.addresses[nodes[0]]}",
                         self.port, nodes, LIMIT)
        for side in sides:
            self.assertEqual(side.rc, 0, side.text)
        return tuple(side.text for side in sides)

    def counters(self, node):
        out = self.ok(self.cluster.run(node, "cd /sys/class/infiniband/efa_0/ports/1/hw_counters; grep -H . *"))
        return {name: int(value) for name, value in (line.split(":") for line in out.split())}


class Device(Efa):
    def test_verbs_see_it(self):
        for rank in range(2):
            out = self.ok(self.cluster.run(rank, "ibv_devinfo -v -d efa_0"))
            self.assertRegex(out, r"vendor_id:\s+0x1d0f")
            self.assertRegex(out, r"state:\s+PORT_ACTIVE")
            self.assertRegex(out, rf"node_guid:\s+00ef:a0ff:fe00:{rank << 8:04x}")
            gid = self.ok(self.cluster.run(rank, "cat /sys/class/infiniband/efa_0/ports/1/gids/0"))
            self.assertEqual(gid.strip(), f"fe80:0000:0000:0000:00ef:a0ff:fe00:{rank << 8:04x}")

    def test_libfabric_offers_both_fabrics(self):
        out = self.ok(self.cluster.run(0, "fi_info -p efa"))
        self.assertEqual(re.findall(r"fabric: (\S+)", out), ["efa-direct", "efa", "efa"])
        self.assertEqual(re.findall(r"type: (\S+)", out), ["FI_EP_RDM", "FI_EP_RDM", "FI_EP_DGRAM"])
        direct = self.ok(self.cluster.run(0, "fi_info -p efa -f efa-direct -v"))
        self.assertRegex(direct, r"caps: \[ FI_MSG, FI_RMA,")
        self.assertRegex(direct, r"max_msg_size: (8928|1073741824)")

    def test_driver_comes_and_goes(self):
        # The reset handshake at removal and probe, and all of the admin queue.
        self.ok(self.cluster.run(1, """for i in 1 2 3; do
            rmmod efa && [ ! -e /sys/class/infiniband/efa_0 ] && insmod /share/.weft/modules/efa.ko || exit 1
            until [ -e /dev/infiniband/uverbs0 ]; do sleep 0.2; done
            ibv_devinfo -d efa_0 | grep -q PORT_ACTIVE || exit 1
        done""", 120))


class OneNode(Efa):
    def test_ud_with_checked_data(self):
        for text in self.pair("ibv_ud_pingpong -c -n 300 -g 0 -d efa_0", nodes=(0, 0)):
            self.assertIn("300 iters in", text)
            self.assertNotIn("invalid data", text)

    def test_ud_with_events(self):
        for text in self.pair("ibv_ud_pingpong -e -n 300 -g 0 -d efa_0", nodes=(0, 0)):
            self.assertIn("300 iters in", text)

    def test_srd(self):
        self.needs("ib_write_bw")
        for program in ("ib_send_bw -s 8192", "ib_write_bw -s 65536", "ib_read_bw -s 65536"):
            with self.subTest(program):
                _, client = self.pair(f"{program} -c SRD -d efa_0 -x 0 -n 200", nodes=(0, 0))
                self.assertRegex(client, r"\n\s*\d+\s+200\s+\d")

    def test_a_killed_pair_leaves_nothing(self):
        self.needs("ib_write_bw")
        Efa.port += 1
        self.ok(self.cluster.run(0, f"""ib_write_bw -c SRD -d efa_0 -x 0 -s 1048576 -D 60 -p {self.port} >/dev/null 2>&1 & s=$!
            until ss -ltnH | grep -q ':{self.port} '; do sleep 0.1; done
            ib_write_bw -c SRD -d efa_0 -x 0 -s 1048576 -D 60 -p {self.port} 127.0.0.1 >/dev/null 2>&1 & c=$!
            sleep 2; kill -9 $s $c; wait $s $c
            rdma res | grep 'efa_0: .*cq 0 qp 0 .*mr 0'""", 90))


class TwoNodes(Efa):
    def test_libfabric_direct(self):
        for text in self.pingpong("rdm", 8192):
            self.assertRegex(text, r"\n8k\s+100\s+=100")

    def test_libfabric_datagrams(self):
        for text in self.pingpong("dgram", 4096):
            self.assertRegex(text, r"\n4k\s+100\s+=100")

    def pingpong(self, endpoint, size):
        return self.pair(f"fi_pingpong -p efa -e {endpoint} -c -I 100 -S {size}", options=("-B", "-P"))

    def test_ud(self):
        for text in self.pair("ibv_ud_pingpong -c -n 200 -g 0 -d efa_0"):
            self.assertIn("200 iters in", text)

    def test_srd_and_what_the_devices_counted(self):
        self.needs("ib_write_bw")
        before = [self.counters(n) for n in range(2)]
        self.pair("ib_write_bw -c SRD -d efa_0 -x 0 -s 100000 -n 300")
        self.pair("ib_read_bw -c SRD -d efa_0 -x 0 -s 100000 -n 300")
        after = [self.counters(n) for n in range(2)]

        def delta(node, name):
            return after[node][name] - before[node][name]
        # The client (node 1) asked; what it asked for is what the other one wrote and sent.
        self.assertEqual(delta(1, "rdma_write_bytes"), delta(0, "rdma_write_recv_bytes"))
        self.assertGreaterEqual(delta(1, "rdma_write_bytes"), 300 * 100000)
        self.assertEqual(delta(1, "rdma_read_bytes"), delta(0, "rdma_read_resp_bytes"))
        self.assertGreaterEqual(delta(1, "rdma_read_bytes"), 300 * 100000)
        for node in range(2):
            self.assertEqual(delta(node, "rdma_write_wr_err") + delta(node, "rdma_read_wr_err"), 0)

    def test_srd_over_a_lossy_switch(self):
        self.needs("ib_write_bw")
        self.cluster.switch("plan loss=0.02 seed=7")
        try:
            for text in self.pingpong("rdm", 4096):
                self.assertRegex(text, r"\n4k\s+100\s+=100")
            _, client = self.pair("ib_write_bw -c SRD -d efa_0 -x 0 -s 100000 -n 100")
            self.assertRegex(client, r"\n\s*100000\s+100\s+\d")
        finally:
            self.cluster.switch("plan loss=0")


class DeadPeer(Efa):
    def test_requests_end_and_the_next_peer_is_served(self):
        self.needs("ib_write_bw")
        Efa.port += 1
        command = f"ib_write_bw -c SRD -d efa_0 -x 0 -s 1048576 -D 100 -p {self.port}"
        listening = f"/share/listening-{self.port}"
        first = self.carried()
        # The switch says that the station is gone: the requests end with status 13 (unresponsive), well before the
        # program's own end.
        r = self.together((
            f"until [ -e {listening} ]; do sleep 0.1; done; {command} 10.77.0.2 2>&1; rdma res | grep 'qp 0 .*mr 0'",
            f"( until ss -ltnH | grep -q ':{self.port} '; do sleep 0.1; done; touch {listening} ) & {command}"),
            150, begun=lambda: self.carried() > first + (64 << 20), then=lambda: self.cluster.kill(1))[0]
        self.cluster.boot(1)
        self.ok(r)
        self.assertRegex(r.out, r"Failed status .* syndrom 0xd\b")
        for text in self.pair("ibv_ud_pingpong -c -n 100 -g 0 -d efa_0"):
            self.assertIn("100 iters in", text)
