# SPDX-License-Identifier: MIT
"""weft-smi, wccl-perf and wccl-sched as programs, on the simulator: output, exit codes, files."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

backend = sys.argv.pop()
programs = Path(sys.argv.pop())
LAUNCHERS = ("WEFT_", "WCCL_", "OMPI_", "SLURM_", "PMI", "MV2_", "PALS_", "FLUX_", "MPI_", "RANK", "WORLD_SIZE")


def run(name, *options, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    return subprocess.run([programs / name, *options], capture_output=True, text=True, timeout=120, env={**clean, **env})


class Case(unittest.TestCase):
    def ok(self, name, *options, **env):
        done = run(name, *options, **env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def refused(self, words, name, *options, code=1, **env):
        done = run(name, *options, **env)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(words, done.stderr)


class Everywhere(Case):
    def test_version(self):
        for name in ("weft-smi", "wccl-perf", "wccl-sched", "wccl-doctor", "weft-chart"):
            self.assertRegex(self.ok(name, "--version"), rf"^{name} \d+\.\d+\.\d+\n$")

    def test_json_to_standard_output_and_to_a_file(self):
        perf = ("wccl-perf", "--sim", "--ranks", "2", "-b", "4K", "-n", "1", "-w", "0")
        for command in (perf, ("weft-smi", "-d", "sim"), ("wccl-sched", "time", "all_reduce:ring", "--ranks", "4"),
                        ("wccl-sched", "surface", "--bytes", "32M", "--copy-rate", "4"),
                        ("wccl-doctor", "--sim", "--ranks", "2", "-b", "4K", "-e", "4K")):
            with self.subTest(command), tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "out.json")
                self.ok(*command, "--json", str(file))
                whole = json.loads(file.read_text())
                alone = json.loads(self.ok(*command, "--json", "-"))
                self.assertEqual(whole.keys(), alone.keys())
                self.assertIn("schema", alone)
                self.assertNotEqual(run(*command, "--json", "/not/there.json").returncode, 0)


class Smi(Case):
    def test_views(self):
        for view in ("list", "hbm", "ports", "firmware", "log", "sensors", "counters"):
            self.assertIn("sim:1", self.ok("weft-smi", view, "--device", "sim:1"))
        self.assertRegex(self.ok("weft-smi", "-d", "sim"), "(?s)SIM0.*SIM7")

    def test_json(self):
        found = json.loads(self.ok("weft-smi", "counters", "--json", "-", "-d", "sim:0", WEFT_ACCEL="tcg"))
        self.assertEqual((found["schema"], found["accel"]), (1, "tcg"))
        self.assertEqual(found["command"], "weft-smi counters --json - -d sim:0")
        self.assertIn("rx_payload_bytes", [row["counter"] for row in found["rows"]])

    def test_ports_have_both_addresses(self):
        row = json.loads(self.ok("weft-smi", "ports", "--json", "-", "-d", "sim:0"))["rows"][0]
        self.assertRegex(row["ipv4"], r"^\d+\.\d+\.\d+\.\d+$")
        self.assertIn("ipv6", row)

    def test_errors(self):
        self.refused("cannot open sim:99: the simulator has 8 devices", "weft-smi", "-d", "sim:99")
        done = run("weft-smi", "sensors", "-d", "null")
        self.assertEqual(done.returncode, 1)
        self.assertIn("null: FAILED: ", done.stdout)

    # Of three devices the second does not open.
    def test_a_failed_device_is_shown_with_the_reason_and_hides_no_other(self):
        done = run("weft-smi", "-d", backend, WEFT_TEST_BACKEND_FAILS="1")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual([backend + ":0" in done.stdout, backend + ":2" in done.stdout], [True, True])
        self.assertTrue(any(line.startswith(backend + ":1: FAILED: ") and "asked to fail" in line for line in lines), done.stdout)
        found = json.loads(run("weft-smi", "--json", "-", "-d", backend, WEFT_TEST_BACKEND_FAILS="1").stdout)
        self.assertEqual([row["device"] for row in found["rows"]], [backend + ":0", backend + ":2", backend + ":1"])
        self.assertIn("asked to fail", found["rows"][2]["error"])


class Perf(Case):
    def rows(self, *options, **env):
        return json.loads(self.ok("wccl-perf", "--sim", "--ranks", "2", "-n", "1", "-w", "0", "--json", "-", *options, **env))

    def test_sizes_below_one_element(self):
        found = self.rows("-b", "1", "-e", "16", "-f", "2", "-d", "double", "--no-in-place")
        self.assertEqual([(r["bytes"], r["count"], r["wrong"]) for r in found["rows"]],
                         [(0, 0, 0), (0, 0, 0), (0, 0, 0), (8, 1, 0), (16, 2, 0)])
        found = self.rows("-b", "0", "-e", "4", "-f", "2", "--no-in-place")
        self.assertEqual([r["count"] for r in found["rows"]], [0, 0, 0, 1])
        for collective in ("allreduce", "sendrecv"):
            self.assertEqual([r["count"] for r in self.rows("-b", "0", "--op", collective, "--no-in-place")["rows"]], [0])

    # Both are 0 for one rank alone, and that would be exit code 0.
    def test_a_launcher_without_a_size_is_refused(self):
        for name in ("RANK", "PMI_RANK", "PMIX_RANK"):
            self.refused(f"{name}=1 is set, but", "wccl-perf", "-b", "4K", WEFT_DEVICE="sim:0", **{name: "1"})

    def test_hbm_is_a_power_of_two(self):
        self.refused("6G is not a power of two", "wccl-perf", "--sim", "--hbm", "6G", code=2)
        self.assertIn("power of two", " ".join(self.ok("wccl-perf", "--help").split()))

    def test_the_model_replays_the_schedule_that_ran(self):
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder, "direct"))
            self.ok("wccl-sched", "write", "barrier:dissemination", "--ranks", "2", "-o", file)
            built_in = self.rows("--op", "barrier", "--model", "weft")
            self.assertEqual(built_in["schedule"], "barrier:dissemination")
            named = self.rows("--op", "barrier", "--model", "weft", WCCL_SCHED_FILE=file)
            self.assertIn(file, named["schedule"])
            self.ok("wccl-sched", "write", "all_reduce:ring", "--ranks", "2", "--lanes", "2", "-o", file)
            two_lanes = self.rows("-b", "64K", "--ports", "2", "--model", "weft", WCCL_SCHED_FILE=file)
            self.assertIn(file, two_lanes["schedule"])
            self.refused("is for 2 ranks, not 4", "wccl-perf", "--dry", "--ranks", "4", "--model", "weft", WCCL_SCHED_FILE=file)


if __name__ == "__main__":
    unittest.main()
