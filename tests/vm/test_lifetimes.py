# SPDX-License-Identifier: MIT
"""Memory, processes, drivers and devices end under transfers between HBM of two nodes over their host NICs.

Each time: errors where there is something to tell, no hang, nothing left behind, no access to memory that is somebody else's by then.
Node 0 writes over and over (the source) into memory of node 1 (the target).
"""
import re
import time

from two_nodes import WITH_NICS
from weftvm import paths
from weftvm.case import NodeTest

ASK = f"{paths.BIN}/weft-lifetimes ask "
BYTES = 256 << 10
LIMIT = 60  # seconds for what must not hang; NICs give a silent peer up after 5 s, the wrapper a transfer after 15 s


class Lifetimes(NodeTest):
    options = WITH_NICS

    def on(self, node, command, timeout=LIMIT):
        return self.sh(command, timeout, node).strip()

    def ask(self, node, words, timeout=LIMIT):
        return self.on(node, ASK + words, timeout)

    def refused(self, node, words):
        """What it said; a refusal, not the end of the program."""
        r = self.cluster.run(node, ASK + words, LIMIT)
        self.assertEqual(r.rc, 1, f"{words}: {r.out}{r.err}")
        return r.err

    def status(self, node):
        out = self.ask(node, "status")
        completed, failed, in_flight = (int(n) for n in re.findall(r"=(\d+)", out)[:3])
        return completed, failed, in_flight, out

    def until(self, what, node=0):
        """Ask for the stream's status until what(completed, failed, in flight, text); the last status."""
        end = time.monotonic() + LIMIT
        while True:
            now = self.status(node)
            if what(*now):
                return now
            self.assertLess(time.monotonic(), end, f"it does not come: {now}")

    def start(self, node):
        self.on(node, f"setsid {paths.BIN}/weft-lifetimes serve </dev/null >/tmp/lifetimes.log 2>&1 & "
                      f"echo $! >/tmp/lifetimes.pid; for i in $(seq 300); do {ASK} status >/dev/null 2>&1 && exit; sleep 0.1; done; "
                      "cat /tmp/lifetimes.log >&2; exit 1")

    def kill(self, node):
        self.on(node, "kill -9 $(cat /tmp/lifetimes.pid); while [ -e /proc/$(cat /tmp/lifetimes.pid) ]; do sleep 0.05; done; "
                      "rm -f /tmp/weft-lifetimes.sock")

    def quit(self, node):
        self.ask(node, "quit")

    def left(self, node):
        """What of both devices is in use: the NIC's verbs objects, the accelerator's memory and contexts."""
        return self.on(node, r"""for i in $(seq 50); do # the last file's end may be a moment after its process's
                now=$(rdma res show efa_0 | grep -o 'cq [0-9]* qp [0-9]*\|mr [0-9]*'; cat /sys/kernel/debug/accel/*:*/weft_hbm | grep -o 'used.*by [0-9]*'
                    grep -c '^context' /sys/kernel/debug/accel/*:*/weft_contexts || :)
                [ "$now" = "$(printf 'cq 0 qp 0\nmr 0\nused 0 by 0\n0')" ] && break; sleep 0.1; done; echo "$now" """)

    def bdf(self, node, driver):
        return self.on(node, f"ls /sys/bus/pci/drivers/{driver} | grep ^0000:")

    def setUp(self):
        self.before = [self.left(n) for n in range(2)]
        self.assertEqual(self.before[0], "cq 0 qp 0\nmr 0\nused 0 by 0\n0")
        for node in range(2):
            self.start(node)
        self.stream()

    def tearDown(self):
        for node in range(2):
            if self.true(node, f"{ASK} status >/dev/null 2>&1"):
                self.quit(node)
        self.assertEqual([self.left(n) for n in range(2)], self.before)

    def stream(self, keep="keep"):
        """The source writes buffer a (seed 1) into the target's a."""
        for node in range(2):
            self.ask(node, f"alloc a {BYTES}")
        self.ask(0, "seed a 1")
        self.ask(0, "add a")
        self.target = self.ask(1, "add a")
        self.ask(0, f"stream a {BYTES} {self.ask(1, 'address')} {self.target} {keep}")
        return self.until(lambda completed, *_: completed > 4)

    def works(self):
        """New programs on both nodes carry the right bytes."""
        for node in range(2):
            if not self.true(node, f"{ASK} status >/dev/null 2>&1"):
                self.start(node)
        for node in range(2):
            self.ask(node, f"alloc z {BYTES}")
        self.ask(0, "seed z 77")
        self.ask(0, "add z")
        self.ask(0, f"stream z {BYTES} {self.ask(1, 'address')} {self.ask(1, 'add z')}")
        self.until(lambda completed, *_: completed > 2)
        self.assertRegex(self.ask(0, "stop"), r"failed=0 in_flight=0")
        self.ask(1, "holds z 77")

    def others_stay(self, names, before):
        """Fill other buffers of the target, let the source write on, and see that nothing of it arrives there."""
        for i, name in enumerate(names):
            self.ask(1, f"seed {name} {100 + i}")
        done = self.status(0)
        self.until(lambda completed, failed, *_: completed + failed > done[0] + done[1] + before)
        for i, name in enumerate(names):
            self.ask(1, f"holds {name} {100 + i}")
        self.assertEqual(self.ask(1, "freed"), "0")

    # ---- memory

    def test_target_frees_its_memory(self):
        """Freed while registered: nobody else gets it. Deregistered: the source gets errors, its next owner nothing of the source's."""
        self.ask(1, "free a")
        va = self.target.split()[0]
        for name in "bcd":
            self.assertNotEqual(self.ask(1, f"alloc {name} {BYTES}"), va)
        self.others_stay("bcd", 8)
        self.assertEqual(self.status(0)[1], 0)

        self.ask(1, "remove a")
        self.until(lambda _, failed, *rest: failed > 0)
        self.assertEqual(self.ask(1, f"alloc e {BYTES}"), va, "the range is free again, and the best fit")
        self.others_stay("bcde", 8)
        done = self.status(0)
        self.assertRegex(done[3], r"(?i)remote|address|key|peer|abort")
        self.ask(0, "stop")
        self.works()

    def test_source_frees_its_memory(self):
        """What is in flight keeps it: the data stays right, and deregistration is refused until it ends."""
        self.assertIn("busy", self.refused(0, "remove a"))
        self.ask(0, "free a")
        self.ask(0, f"alloc b {BYTES}")
        self.ask(0, "seed b 2")
        done = self.status(0)
        self.until(lambda completed, *_: completed > done[0] + 8)
        self.assertRegex(self.ask(0, "stop"), r"failed=0 in_flight=0")
        self.ask(1, "holds a 1")
        self.ask(0, "remove a")
        self.works()

    # ---- processes

    def test_source_is_killed(self):
        self.kill(0)
        self.ask(1, "seed a 5")
        time.sleep(1)
        self.ask(1, "holds a 5")
        self.works()

    def test_target_is_killed(self):
        self.kill(1)
        done = self.until(lambda _, failed, *rest: failed > 0)
        self.assertNotEqual(done[3].split(maxsplit=3)[3:], [])
        self.start(1)
        va = self.ask(1, f"alloc b {BYTES}")
        self.assertEqual(va, self.target.split()[0], "its memory is free again")
        self.others_stay("b", 8)
        self.assertRegex(self.ask(0, "stop"), r"in_flight=0")
        self.works()

    # ---- drivers

    def unbind_accelerator(self, node):
        """Under the NIC's attachment. Everybody gets errors, and the memory is not driven again before the NIC lets go."""
        bdf = self.bdf(node, "weft")
        self.on(node, f"echo {bdf} >/sys/bus/pci/drivers/weft/unbind")
        self.until(lambda _, failed, *rest: failed > 0)
        self.assertIn("No such device", self.refused(node, f"alloc b {BYTES}"))
        self.on(node, f"if echo {bdf} 2>/dev/null >/sys/bus/pci/drivers/weft/bind; then exit 1; fi")
        self.assertRegex(self.ask(0, "stop"), r"in_flight=0")
        self.quit(node)
        self.on(node, f"echo {bdf} >/sys/bus/pci/drivers/weft/bind; until [ -e /sys/bus/pci/devices/{bdf}/accel ]; do sleep 0.1; done")
        self.works()

    def test_target_accelerator_is_unbound(self):
        self.unbind_accelerator(1)

    def test_source_accelerator_is_unbound(self):
        self.unbind_accelerator(0)

    def unbind_nic(self, node):
        """Upstream's efa cannot take its users' contexts away: removal waits for them, and they go on."""
        bdf = self.bdf(node, "efa")
        self.on(node, f"(echo {bdf} >/sys/bus/pci/drivers/efa/unbind; touch /tmp/unbound) >/dev/null 2>&1 </dev/null &")
        time.sleep(1)
        self.on(node, "[ ! -e /tmp/unbound ]")
        done = self.status(0)
        self.until(lambda completed, *_: completed > done[0] + 4)
        self.kill(node)
        self.on(node, "until [ -e /tmp/unbound ]; do sleep 0.1; done; rm /tmp/unbound")
        self.assertIn("used 0 by 0", self.on(node, "cat /sys/kernel/debug/accel/*:*/weft_hbm"))
        return bdf

    def bind_nic(self, node, bdf):
        self.on(node, f"echo {bdf} >/sys/bus/pci/drivers/efa/bind; until rdma link show efa_0/1 2>/dev/null; do sleep 0.1; done")

    def test_target_nic_is_unbound(self):
        """A NIC says once, to requests under way, that the peer's former life is over; then it reaches the new one."""
        self.bind_nic(1, self.unbind_nic(1))
        done = self.status(0)
        self.until(lambda _, failed, *rest: failed > done[1] + 4)
        self.assertRegex(self.ask(0, "stop"), r"in_flight=0")
        self.works()

    def test_source_nic_is_unbound(self):
        self.bind_nic(0, self.unbind_nic(0))
        self.works()

    # ---- devices

    def reset_accelerator(self, node):
        """Its users have lost it; the NIC keeps the range, and no new user gets it before the old one ends."""
        bdf = self.bdf(node, "weft")
        self.on(node, f"echo 1 >/sys/bus/pci/devices/{bdf}/reset")
        self.assertRegex(self.refused(node, f"alloc b {BYTES}"), "Input/output error")
        self.assertRegex(self.refused(node, "seed a 9"), "Input/output error")
        done = self.status(0)
        self.until(lambda completed, failed, *_: completed + failed > done[0] + done[1] + 4)
        used = self.on(node, "cat /sys/kernel/debug/accel/*:*/weft_hbm")
        self.assertIn(f"used {BYTES} by 1", used)
        self.assertRegex(self.ask(0, "stop"), r"in_flight=0")
        self.quit(node)
        self.works()

    def test_target_accelerator_is_reset(self):
        self.reset_accelerator(1)

    def test_source_accelerator_is_reset(self):
        self.reset_accelerator(0)

    def test_target_nic_is_reset(self):
        """By the kernel between two drivers, while the source goes on: its former life is over for the source too."""
        bdf = self.bdf(1, "efa")
        self.kill(1)
        self.on(1, f"echo {bdf} >/sys/bus/pci/drivers/efa/unbind; echo 1 >/sys/bus/pci/devices/{bdf}/reset")
        self.bind_nic(1, bdf)
        self.until(lambda _, failed, *rest: failed > 4)
        self.start(1)
        self.ask(1, f"alloc b {BYTES}")
        self.ask(1, "add b")
        self.others_stay("b", 8)
        self.assertRegex(self.ask(0, "stop"), r"in_flight=0")
        self.works()
