# SPDX-License-Identifier: MIT
"""wccl-doctor as a program: on the simulator, and as processes that find nothing to go by."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ET
from pathlib import Path

program = sys.argv.pop(1)


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("WEFT_", "WCCL_", "OMPI_", "SLURM_", "RANK",
                                                                      "WORLD_SIZE"))}
    return {**clean, **more}


def run(*options, timeout=120, **env):
    return subprocess.run([program, *options], capture_output=True, text=True, timeout=timeout, env=environment(**env))


def handles(pid, number):
    """A process has a handler for a signal."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Simulated(unittest.TestCase):
    def test_three_healthy_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            report, drawing = Path(folder, "r.json"), Path(folder, "r.svg")
            done = run("--sim", "--ranks", "3", "-e", "1M", "--expect", "onchip", "--json", str(report), "--svg",
                       str(drawing))
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertTrue(done.stdout.endswith("\nhealthy\n"), done.stdout)
            found = json.loads(report.read_text())
            ET.parse(drawing)
        self.assertEqual([p["ranks"] for p in found["pairs"]], [[0, 1], [0, 2], [1, 2]])
        self.assertEqual((found["findings"], found["healthy"], found["accel"]), ([], True, "sim"))
        for pair in found["pairs"]:
            self.assertEqual(pair["automatic"]["path"], "onchip")
            onchip = pair["ways"]["onchip"]
            self.assertEqual([r["bytes"] for r in onchip["rows"]], [4096, 32768, 262144, 1048576])
            for row in onchip["rows"]:
                self.assertEqual(row["wrong"], 0)
                # bytes over time, whatever the time is
                self.assertAlmostEqual(row["one_way_GBps"], row["bytes"] / row["one_way_us"] / 1e3, places=9)
            self.assertEqual(onchip["host_copies"], 0)
            for way in ("peer", "staged/efa"):  # the simulator has no host NIC
                self.assertEqual(pair["ways"][way]["outcome"], "impossible", pair["ways"][way])
                self.assertTrue(pair["ways"][way]["error"])
            # Where there is libfabric it carries; virtual time, which knows nothing of hosts, says nothing of it.
            tcp = pair["ways"]["staged/tcp"]
            if tcp["outcome"] == "impossible":
                self.assertIn("libfabric", tcp["error"])
            else:
                self.assertEqual((tcp["outcome"], tcp["host_copies"]), ("done", 2), tcp)
                self.assertEqual([(r["one_way_us"], r["wrong"]) for r in tcp["rows"]], [(None, 0)] * 4)
        # A ring of 3 moves 4/3 of the size in each direction.
        for row in found["world"]["rows"]:
            self.assertAlmostEqual(row["busbw_GBps"], row["bytes"] / row["all_reduce_us"] / 1e3 * 4 / 3, places=9)

    def test_same_seed_same_figures(self):
        once, again = (run("--sim", "-e", "32K").stdout for _ in range(2))
        self.assertEqual(once, again)

    def test_a_path_by_environment_is_a_detour_or_none(self):
        # What a program gets here that asks for nothing: the request of WCCL_PATH, which the simulator cannot meet.
        done = run("--sim", "-e", "4K", WCCL_PATH="peer")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("broken: sim0->sim1: ", done.stdout)

    def test_interrupt(self):
        child = subprocess.Popen([program, "--sim", "--ranks", "16", "-e", "32M"], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, env=environment())
        while not handles(child.pid, signal.SIGINT):
            self.assertIsNone(child.poll())
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
        self.assertEqual((child.returncode, err), (130, b"wccl-doctor: interrupted\n"))

    def test_limit_is_said(self):
        done = run("--sim", "--ranks", "24", "-e", "64M", "--limit", "1")  # no machine moves that much in a second
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"broken: the walk was not over after 1 s: \d+ trials are missing")


class Processes(unittest.TestCase):
    def start(self, rank, ranks, port, *options, **env):
        env = environment(WEFT_RANK=str(rank), WEFT_SIZE=str(ranks), WCCL_COMM_ID=f"127.0.0.1:{port}",
                          WCCL_SOCKET_IFNAME="lo", **env)
        return subprocess.Popen([program, "-e", "4K", "--device", "null", *options], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE,
                                text=True, env=env)

    def end(self, child, timeout=90):
        out, err = child.communicate(timeout=timeout)
        return child.returncode, out, err

    def walk(self, *options, **env):
        port = free_port()
        children = [self.start(rank, 3, port, "-T", "20", *options, **env) for rank in range(3)]
        return [self.end(child) for child in children]

    def test_walks_on_where_nothing_works(self):
        """Without ports, host NIC and libfabric: each pair has its turn and says why, all end."""
        ends = self.walk(WEFT_OFI="/nowhere/libweft_ofi.so.0")
        self.assertEqual([e[0] for e in ends], [1, 0, 0], ends)
        host = socket.gethostname()
        said = [line for line in ends[0][1].splitlines() if line.startswith("broken: ") and "->" in line]
        self.assertEqual([line.split()[1] for line in said],
                         [f"{host}/{a}->{host}/{b}:" for a, b in ((0, 1), (0, 2), (1, 2))], ends)
        for line in said:
            self.assertIn("/nowhere/libweft_ofi.so.0", line)

    def test_walks_over_what_is_left(self):
        """Host memory over libfabric's tcp: the detour of each pair is named, with the reason."""
        ends = self.walk("--expect", "staged", "--rank-fall", "1e6")  # how fast it is depends on who else is busy here
        if "the OFI wrapper cannot be loaded" in ends[0][1] or "libfabric has no" in ends[0][1]:
            self.skipTest("there is no libweft_ofi with libfabric's tcp here")
        self.assertEqual([e[0] for e in ends], [0, 0, 0], ends)
        self.assertTrue(ends[0][1].endswith("\nhealthy\n"), ends)
        ends = self.walk("--expect", "peer", "--rank-fall", "1e6")
        self.assertEqual([e[0] for e in ends], [3, 0, 0], ends)
        said = [line for line in ends[0][1].splitlines() if line.startswith("detour: ")]
        self.assertEqual(len(said), 3, ends)
        for line in said:
            self.assertRegex(line,
                             r"^detour: 4 KiB \S+->\S+: staged over tcp, 2 host copies; not onchip: .*; not peer: ")

    def test_names_who_did_not_come(self):
        code, out, err = self.end(self.start(0, 2, free_port(), "-T", "1"))
        self.assertEqual(code, 1, err)
        self.assertIn("broken: rank 1: did not come", out)

    def test_without_rank_0(self):
        code, _, err = self.end(self.start(1, 2, free_port(), "-T", "1"))
        self.assertEqual(code, 1)
        self.assertIn("rank 0 does not answer at 127.0.0.1:", err)

    def test_strangers_do_no_harm(self):
        port = free_port()
        child = self.start(0, 2, port, "-T", "3")
        deadline = time.monotonic() + 10
        while True:
            try:
                stranger = socket.create_connection(("127.0.0.1", port), 1)
                break
            except OSError:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
        code, out, _ = self.end(child)
        stranger.close()
        self.assertEqual(code, 1)
        self.assertIn("did not come", out)


class Usage(unittest.TestCase):
    def test_one_rank(self):
        done = run()
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is one rank", done.stderr)

    def test_refuses(self):
        for options in (["--expect", "fast"], ["-b", "7"], ["-b", "4M", "-e", "4K"], ["--ranks", "3"]):
            self.assertEqual(run(*options).returncode, 2, options)
        self.assertEqual(run("--help").returncode, 0)


if __name__ == "__main__":
    unittest.main()
