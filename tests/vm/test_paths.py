# SPDX-License-Identifier: MIT
"""Which path is taken: {ports up, down} x {host NIC absent, reachable, unreachable} x {auto, onchip, peer, staged}."""
from two_nodes import WITH_NICS, TwoNodes

ABSENT = "no RDMA device is driven by efa"
REFUSED = "no peer-to-peer between the two"
PORTS = "on-chip needs a port that is up"

# By what is asked for: the path with its transport, or the words of the error. {ports: {asked: ...}}
WITHOUT_NIC = {
    "up": {"auto": ("onchip", "roce"), "onchip": ("onchip", "roce"), "peer": ABSENT, "staged": ("staged", "tcp")},
    "down": {"auto": ("staged", "tcp"), "onchip": PORTS, "peer": ABSENT, "staged": ("staged", "tcp")},
}
REACHABLE = {
    "up": {"auto": ("onchip", "roce"), "onchip": ("onchip", "roce"), "peer": ("peer", "efa-direct"), "staged": ("staged", "efa-direct")},
    "down": {"auto": ("peer", "efa-direct"), "onchip": PORTS, "peer": ("peer", "efa-direct"), "staged": ("staged", "efa-direct")},
}
UNREACHABLE = {
    "up": {"auto": ("onchip", "roce"), "onchip": ("onchip", "roce"), "peer": REFUSED, "staged": ("staged", "efa-direct")},
    "down": {"auto": ("staged", "efa-direct"), "onchip": PORTS, "peer": REFUSED, "staged": ("staged", "efa-direct")},
}


class Table:
    table = {}

    def ask(self, asked):
        results, rows = self.run_perf("-b 4K -n 1 -w 0 -T 30", 90, env={"WCCL_PATH": asked})
        return results, rows[0]

    def test_choice(self):
        for ports, line in self.table.items():
            for rank in range(2):
                self.cluster.switch(f"link n{rank}d0p0 {ports}")
            for asked, expected in line.items():
                with self.subTest(ports=ports, asked=asked):
                    results, rows = self.ask(asked)
                    said = "".join(r.out + r.err for r in results)
                    if isinstance(expected, str):
                        self.assertTrue(all(r.rc not in (0, 124) for r in results), said)
                        self.assertIn(expected, said)
                        self.assertIn(f"path {asked} was asked for, but", said)
                        continue
                    self.assertEqual([r.rc for r in results], [0, 0], said)
                    self.assertEqual([(row["path"], row["transport"], row["wrong"]) for row in rows], [(*expected, 0)] * len(rows), said)
                    self.assertTrue(rows)
                    # What was not taken is named with its reason.
                    if asked == "auto" and ports == "down":
                        self.assertIn("not onchip: " + PORTS, said)
                        if expected[0] == "staged":
                            self.assertIn("not peer: ", said)


class WithoutNic(Table, TwoNodes):
    table = WITHOUT_NIC


class Reachable(Table, TwoNodes):
    options = WITH_NICS
    table = REACHABLE

    def test_wire_of_the_nic_is_cut(self):
        """Ports down, and the NICs do not reach each other: found by asking, not by guessing."""
        for link in ("n0d0p0", "n1d0p0", "n1e0p0"):
            self.cluster.switch(f"link {link} down")
            self.addCleanup(self.cluster.switch, f"link {link} up")
        results, rows = self.ask("auto")
        said = "".join(r.out + r.err for r in results)
        self.assertEqual([(row["path"], row["transport"], row["wrong"]) for row in rows], [("staged", "tcp", 0)] * len(rows), said)
        self.assertTrue(rows, said)
        self.assertIn("host NICs do not reach each other", said)


class Unreachable(Table, TwoNodes):
    """The NIC sits behind another root port."""
    options = {**WITH_NICS, "layout": "roots"}
    table = UNREACHABLE
