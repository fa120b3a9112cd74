# SPDX-License-Identifier: MIT
"""wccl-doctor in nodes: silent on a healthy cluster, and each of the planted detours found and named."""
import json
import xml.etree.ElementTree as ET

from two_nodes import WITH_NICS, TwoNodes

PORTS = ("n0d0p0", "n1d0p0")
SMALL = "-b 4K -e 1M -f 16 -n 4"


class Doctor(TwoNodes):
    def cut(self, *links):
        for link in links:
            self.cluster.switch(f"link {link} down")
            self.addCleanup(self.cluster.switch, f"link {link} up")

    def doctor(self, options=SMALL, prefix="", timeout=150, env=None):
        """On both nodes; exit code, text and JSON of rank 0. The other rank ends well, whatever is found."""
        report, drawing = self.cluster.share / "doctor.json", self.cluster.share / "doctor.svg"
        for file in (report, drawing):
            file.unlink(missing_ok=True)
        command = f"{prefix} exec wccl-doctor {options} --json /share/doctor.json --svg /share/doctor.svg"
        results = self.cluster.run_all(command, timeout, env=env)
        self.assertEqual((results[1].rc, results[1].out), (0, ""), results[1].err)
        self.assertTrue(report.exists(), results[0].out + results[0].err)
        ET.parse(drawing)
        return results[0].rc, results[0].out, json.loads(report.read_text())

    def finds(self, kind, words, rc, **how):
        """Exactly one finding, of this kind, with these words."""
        code, said, report = self.doctor(**how)
        self.assertEqual([f["kind"] for f in report["findings"]], [kind], said)
        for word in words:
            self.assertIn(word, report["findings"][0]["text"])
        self.assertIn(f"{kind}: {report['findings'][0]['text']}\n", said)
        self.assertEqual(code, rc, said)
        self.assertFalse(report["healthy"])
        return report


class Healthy(Doctor):
    """NICs and accelerators below one switch, ports up; what is planted here can be taken away again."""
    options = WITH_NICS

    def test_silent(self):
        code, said, report = self.doctor("-n 4 --expect peer", timeout=280)
        self.assertEqual((code, report["findings"], report["healthy"]), (0, [], True), said)
        self.assertTrue(said.endswith("\nhealthy\n"), said)
        (pair,) = report["pairs"]
        self.assertEqual(pair["automatic"]["path"], "onchip")
        copies = {"onchip": 0, "peer": 0, "staged/efa": 2, "staged/tcp": 2}
        self.assertEqual({name: way["host_copies"] for name, way in pair["ways"].items()}, copies)
        for name, way in pair["ways"].items():
            self.assertEqual(way["outcome"], "done", said)
            self.assertTrue(all(row["wrong"] == 0 and row["one_way_us"] > 0 for row in way["rows"]), way)
        # A fresh buffer is registered, a used one is not.
        cost = pair["ways"]["peer"]["cost"]
        self.assertGreater(cost["registrations"], 0)
        self.assertEqual(cost["registrations"], cost["teardowns"])
        self.assertTrue(cost["registration_us"] > 0 and cost["teardown_us"] > 0, cost)
        self.assertGreater(cost["hits"], 0)
        self.assertTrue(all(row["registrations"] == 0 for row in pair["ways"]["peer"]["rows"]))

    def test_ports_down(self):
        self.cut(*PORTS)
        words = ("1 MiB node0->node1: peer, 0 host copies; ", "not onchip: ", "port that is up")
        self.finds("detour", words, 3, options=SMALL + " --expect onchip")

    def test_wrapper_missing_on_one_node(self):
        hidden = "[ $WEFT_RANK = 0 ] || export WEFT_OFI=/nowhere/libweft_ofi.so.0;"
        # On-chip does without: a fact of the table, no finding.
        code, said, report = self.doctor(SMALL + " --expect onchip", prefix=hidden)
        self.assertEqual((code, report["healthy"]), (0, True), said)
        for way in ("peer", "staged/efa", "staged/tcp"):
            self.assertEqual(report["pairs"][0]["ways"][way]["outcome"], "impossible", said)
            self.assertIn("/nowhere/libweft_ofi.so.0", report["pairs"][0]["ways"][way]["error"])
        # With the ports down nothing is left.
        self.cut(*PORTS)
        command = f"{hidden} exec wccl-doctor {SMALL} --expect peer"
        result = self.cluster.run_all(command, 150)[0]
        self.assertEqual(result.rc, 1, result.out + result.err)
        self.assertRegex(result.out, r"\nbroken: node0->node1: .*/nowhere/libweft_ofi\.so\.0.*rank 1 on node1")

    def test_cache_off(self):
        report = self.finds("registration", ("node0-node1, peer: ", "registrations for each transfer", "WCCL_MR_CACHE_ENTRIES"), 3,
                            options=SMALL + " --expect peer", env={"WCCL_MR_CACHE_ENTRIES": 0})
        for row in report["pairs"][0]["ways"]["peer"]["rows"]:
            self.assertGreaterEqual(row["registrations"], 1)
            self.assertGreater(row["registration_us"], 0)

    def test_wire_of_the_nic_is_cut(self):
        self.cut(*PORTS, "n1e0p0")
        self.finds("detour", ("1 MiB node0->node1: staged over tcp, 2 host copies; ", "not peer: ", "do not reach each other"), 3,
                   options=SMALL + " --expect peer")

    def test_asked_for_by_the_environment(self):
        self.finds("detour", ("node0->node1: staged", "asked for"), 3, options=SMALL + " --expect peer", env={"WCCL_PATH": "staged"})

    def test_a_rank_that_dies_ends_the_walk_in_good_order(self):
        """Rank 1 is killed in mid-walk: rank 0 says so and ends."""
        result = self.strike("wccl-doctor -n 60000 -e 4M -T 10", "kill -9 $$", timeout=200)[0]
        self.assertEqual(result.rc, 1, result.out + result.err)
        self.assertRegex(result.out, r"\nbroken: node1: \S+")


class OtherRootPort(Doctor):
    options = {**WITH_NICS, "layout": "roots"}

    def test_staged(self):
        self.cut(*PORTS)
        self.finds("detour", ("1 MiB node0->node1: staged over efa-direct, 2 host copies; ", "not peer: ", "not below one PCIe switch"), 3,
                   options=SMALL + " --expect peer")


class NoNicOnOneNode(Doctor):
    options = {**WITH_NICS, "nics": (1, 0)}

    def test_staged(self):
        self.cut(*PORTS)
        self.finds("detour", ("1 MiB node0->node1: staged over tcp, 2 host copies; ", "not peer: ", "rank 1 on node1"), 3,
                   options=SMALL + " --expect peer")
