# SPDX-License-Identifier: MIT
"""The launcher: what it makes of how a command ended, its reports, the guest that does not come up."""
import argparse
import contextlib
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
from xml.etree import ElementTree

from weftvm import __main__ as launcher
from weftvm import check, cluster, console, paths, report, vmtier
from weftvm.case import NodeTest, build_module
from weftvm.node import Result
from weftvm.tally import Tally

COMPLAINER = "tests/vm/complainer"


class FakeNode:
    """A node whose command has ended."""
    restarts, boot_seconds, killed = 0, 2.5, False

    def __init__(self, rank, text="", panicked=False):
        self.rank, self.text, self._panicked = rank, text, panicked
        self.complaints = [console.Complaint(self, 1, number, line, 0) for number, line in console.scan(text)]

    def console(self, generation=None):
        return self.text

    def panicked(self):
        return self._panicked

    def qemu_log(self):
        return ""

    def obituary(self):
        return "it ended"


def judged(folder, *pairs, boot_error=""):
    """verdict() of nodes and their results: (exit code, what was said, JSON, JUnit)."""
    args = argparse.Namespace(json=f"{folder}/r.json", junit=f"{folder}/r.xml", command=["a", "b"], timeout=7)
    c = SimpleNamespace(nodes=[node for node, _ in pairs], accel="tcg", complaints=lambda: [])
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = launcher.verdict(c, args, [r for _, r in pairs], boot_error)
    return code, said.getvalue(), json.loads(Path(args.json).read_text()), ElementTree.parse(args.junit).getroot()


class Verdict(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def test_each_end(self):
        long = "\n".join(f"[    1.000000] line {i}" for i in range(50))
        warned = long + "\n[    2.000000] WARNING: CPU: 0 PID: 1 at a.c:1 f+0x1/0x2"
        for node, result, code, status in (
                (FakeNode(0), Result(0, "", "", 1), 0, "ok"),
                (FakeNode(0), Result(3, "", "", 1), 3, "exit"),
                (FakeNode(0, long), Result(124, "", "", 7, timed_out=True), 124, "timeout"),
                (FakeNode(0, long, panicked=True), Result(255, "", "", 1, gone=True), 255, "panic"),
                (FakeNode(0, long), Result(255, "", "", 1, gone=True), 1, "gone"),
                (FakeNode(0, warned), Result(0, "", "", 1), 1, "console")):
            with self.subTest(status):
                got, said, report, junit = judged(self.folder, (node, result))
                (row,) = report["rows"]
                self.assertEqual((got, row["status"], row["exit"]), (code, status, code))
                self.assertEqual((junit.get("tests"), junit.get("failures")), ("1", str(int(code != 0))))
                # Where the kernel may tell the cause, its console is shown, and kept in both reports.
                shown = {"timeout": "line 49", "gone": "line 49", "console": "WARNING: CPU: 0"}.get(status)
                if shown:
                    self.assertIn(shown, said)
                    self.assertIn(shown, row["console"])
                    self.assertIn(shown, junit.find("testcase/failure").text)

    def test_the_worst_counts(self):
        fine, exit3 = (FakeNode(0), Result(0, "", "", 1)), (FakeNode(1), Result(3, "", "", 1))
        late = (FakeNode(2), Result(124, "", "", 7, timed_out=True))
        panic = (FakeNode(3, panicked=True), Result(255, "", "", 1, gone=True))
        for pairs, code in (((fine, exit3), 3), ((exit3, fine), 3), ((exit3, late), 124), ((exit3, late, panic), 255),
                            ((fine, fine), 0)):
            self.assertEqual(judged(self.folder, *pairs)[0], code)

    def test_no_boot(self):
        node = FakeNode(0, "[    1.000000] the last line")
        code, said, report, _ = judged(self.folder, (node, Result(124, "", "", 0, timed_out=True)),
                                       boot_error="no boot")
        self.assertEqual((code, report["error"]), (124, "no boot"))
        self.assertIn("the last line", said)

    def test_wrong_usage(self):
        """Refusals are reported to machines too."""
        file = Path(self.folder, "r.json")
        for options in (["--nodes", "65"], ["--nics", "1", "--layout", "switch", "--kernel", "/nowhere"]):
            file.unlink(missing_ok=True)
            ran = subprocess.run([sys.executable, "-B", "-m", "weftvm", "run", f"--json={file}", *options, "--",
                                  "true"],
                                 capture_output=True, text=True, timeout=100)
            self.assertEqual(ran.returncode, 2, ran.stderr)
            self.assertIn(json.loads(file.read_text())["error"], ran.stderr)


class Style(unittest.TestCase):
    def test_negations(self):
        """What `set -e` does not see."""
        wrong = ["~ rmmod weft", "    ~ wait $p", 'self.sh("~ [ -e /x ]")', "do ~ a; done", "a; ~ b",
                 "sh('~ echo >/x')"]
        right = ["if ~ a; then b; fi", "~ a || exit 1", "[ ~ -e x ]", "a ~= b", "while ~ a; do b; done", "# ~ a",
                 "Hi~ you"]
        self.assertEqual([line for line in wrong if check.negated(line.replace("~", "!")) != [1]], [])
        self.assertEqual([line for line in right if check.negated(line.replace("~", "!"))], [])


class Wrapper(unittest.TestCase):
    """vm/weft-vm lets the root see what the command line names, however it is spelt."""

    def bound(self, *words):
        """The folders that vm/weft-vm binds for a command line."""
        with tempfile.TemporaryDirectory() as folder:
            vm = Path(folder, "checkout", "vm")
            vm.mkdir(parents=True)
            shutil.copy2(paths.TOP / "vm" / "weft-vm", vm)
            (vm / "lib.sh").touch()
            for name, text in (("setup", "printf 'the-root\\nmade\\n'"), ("enter", 'printf "%s\\n" "$@"')):
                (vm / name).write_text(f"#!/bin/sh\n{text}\n")
                (vm / name).chmod(0o755)
            told = subprocess.run([vm / "weft-vm", "run", *words], cwd=vm, capture_output=True, text=True, check=True)
        said = told.stdout.split("\n")
        self.assertEqual(said[0], "the-root")
        return [b for a, b in zip(said, said[1:said.index("--")]) if a == "-b"]

    def test_files_elsewhere(self):
        with tempfile.TemporaryDirectory() as there, tempfile.TemporaryDirectory() as other:
            for option in ("--json", "--junit", "--capture", "--kernel", "--module", "--model", "--share"):
                for words in ([option, f"{there}/file"], [f"{option}={there}/file"], [f"{option}={there}"]):
                    with self.subTest(words=words):
                        self.assertEqual(self.bound("--nodes", "2", *words, "--", "cmd", f"--json={other}/x"), [there])
            self.assertEqual(self.bound(f"--json={there}/a", "--share", other, f"--junit={there}/b"), [there, other])
            self.assertEqual(self.bound("--nodes=2", f"--append={there}", "--", "cmd"), [])


class Patterns(unittest.TestCase):
    def test_what_selects_nothing(self):
        good = ["vm/test_driver", "test_driver", "vm/test_paths.Reachable", "asan/Any.Thing", "asan/Any",
                "style/shell", "n/Any"]
        bad = ["vm/test_boot", "vm/test_driver.Nobody", "fuzz/x"]
        self.assertEqual(check.unknown(good + bad), bad)


class Skips(unittest.TestCase):
    def test_only_what_is_listed(self):
        tally = Tally(quiet=True, skips=("asan/Filter.",))
        for name in ("Filter.A", "Transfer.Filter.A"):
            tally.add("asan", name, 0, "skipped", "no reason")
        tally.add("unit", "Filter.A", 0, "skipped", "")
        self.assertEqual([case[3] for case in tally.cases], ["skipped", "failed", "failed"])
        self.assertIn("no reason", tally.cases[1][4])

    def test_the_list(self):
        """Each line names a tier, a test and a reason."""
        for line in (paths.TOP / "tests" / "skips.list").read_text().splitlines():
            if line and not line.startswith("#"):
                self.assertRegex(line, r"^(unit|asan|tsan|vm|style)/\S+\s+\S+ \S+")


class Report(unittest.TestCase):
    def test_junit(self):
        """Counts, kinds, and text that XML cannot hold."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "new", "r.xml")
            report.write_junit(str(file), "s", [("a", 1.5, "passed", "x"), ("b", 0.5, "failed", "one\x1b\0\ntwo <&>"),
                                                ("c", 0, "skipped", "")])
            suite = ElementTree.parse(file).getroot()
        self.assertEqual([suite.get(k) for k in ("tests", "failures", "skipped", "time")], ["3", "1", "1", "2.000"])
        self.assertEqual(suite.find("testcase/failure").text, "one??\ntwo <&>")
        self.assertEqual([len(case) for case in suite], [0, 1, 1])


class OneNode(NodeTest):
    """All ends of a command on one boot; a panic is the last."""
    options = {"nodes": 1, "devices": 0}

    def end(self, *command, timeout=60):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        args = argparse.Namespace(json=f"{folder}/r.json", junit=f"{folder}/r.xml", command=list(command),
                                  timeout=timeout)
        results = [None]
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            launcher.run_command(self.cluster, args.command, time.monotonic() + timeout, lambda *_: None, results)
            code = launcher.verdict(self.cluster, args, results, "")
        row = json.loads(Path(args.json).read_text())["rows"][0]
        return code, row["status"], said.getvalue(), results[0]

    def test_ends(self):
        self.assertEqual(self.end("true")[:2], (0, "ok"))
        self.assertEqual(self.sh("cat /proc/sys/kernel/watchdog_thresh /sys/module/rcupdate/parameters/rcu_cpu_stall_timeout "
                                 "/sys/module/printk/parameters/time; cut -f1 /proc/sys/kernel/printk"), "60\n120\nY\n7\n")
        code, status, _, result = self.end("sh", "-c", "echo out; echo err >&2; exit 7")
        self.assertEqual((code, status, result.out, result.err), (7, "exit", "out\n", "err\n"))
        code, status, said, _ = self.end("sh", "-c", "echo here I hang >/dev/kmsg; sleep 60", timeout=3)
        self.assertEqual((code, status), (124, "timeout"))
        self.assertIn("here I hang", said)
        self.assertEqual(self.end("true")[:2], (0, "ok"), "the node serves on")
        with self.cluster.allowing("sysrq triggered crash|Call Trace"):
            code, status, _, _ = self.end("sh", "-c", "echo c >/proc/sysrq-trigger; sleep 60")
        self.assertEqual((code, status), (255, "panic"))
        self.cluster.dirty = "it panicked"


class SideBySide(unittest.TestCase):
    """Classes of tests on several workers."""

    def test_order(self):
        """First what the worker has nodes for, then nodes that nobody has, those that most tests want before others."""
        a, b = cluster.Options(nodes=1), cluster.Options(nodes=2)
        queue = vmtier.Queue([(a, "."), (b, "..."), (a, "."), (None, "."), (b, "..")])
        self.assertEqual(queue.take(a, []), 0)
        self.assertEqual(queue.take(None, [a]), 3, "it has no nodes and needs none")
        self.assertEqual(queue.take(None, [a]), 1)
        self.assertEqual(queue.take(None, [a, b]), 4, "nothing else: nodes like these once more")
        self.assertEqual(queue.take(b, [a]), 2)
        self.assertIsNone(queue.take(b, []))

    def test_all_are_counted(self):
        """Also when a worker dies with its test: that one has failed, and the others go on elsewhere."""
        class Good(unittest.TestCase):
            def test_pass(self):
                pass

            def test_fail(self):
                self.fail("as asked")

        class Deadly(unittest.TestCase):
            def test_dies(self):
                os._exit(7)

        tally = Tally(quiet=True)
        queue = vmtier.Queue([(None, [Deadly("test_dies")]), (None, [Good("test_pass"), Good("test_fail")])])
        with mock.patch.object(vmtier, "say"):
            vmtier.share_out(tally, queue, 2)
        seen = {name.rpartition(".")[2]: (verdict, text) for _, name, _, verdict, text in tally.cases}
        self.assertEqual({name: verdict for name, (verdict, _) in seen.items()},
                         {"test_dies": "failed", "test_pass": "passed", "test_fail": "failed"})
        self.assertIn("as asked", seen["test_fail"][1])
        self.assertIn("code 7", seen["test_dies"][1])
        with mock.patch.object(vmtier, "say"):
            tally, queue = Tally(quiet=True), vmtier.Queue([(None, [Deadly("test_dies")]), (None, [Good("test_pass")])])
            vmtier.share_out(tally, queue, 1)
        self.assertEqual([verdict for *_, verdict, _ in tally.cases], ["failed", "failed"], "none is forgotten")


class WholeRun(unittest.TestCase):
    def test_late_warning(self):
        """A module that warns after the command's end fails the run; the report lies where --json=FILE says."""
        module = build_module(COMPLAINER)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "r.json")
            ran = subprocess.run(
                [sys.executable, "-B", "-m", "weftvm", "run", "--nodes=1", "--devices=0", f"--module={module}",
                 f"--json={file}", "--", "sh", "-c",
                 "echo 'warn 300' >/sys/module/weft_complainer/parameters/complain"],
                capture_output=True, text=True, timeout=250)
            (row,) = json.loads(file.read_text())["rows"]
        self.assertEqual((ran.returncode, row["status"]), (1, "console"), ran.stderr)
        for place in (ran.stderr, row["console"]):
            self.assertIn("weft_complainer was asked to", place)


class Terminated(unittest.TestCase):
    def test_report(self):
        """SIGTERM to the shell in front of the namespace reaches the launcher, which still writes its report."""
        script = (f". {paths.TOP}/vm/lib.sh; contain unshare --pid --fork --kill-child --mount-proc -- "
                  """env --default-signal=INT,QUIT sh -c '"$@"; exit $?' - "$@" """)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "r.json")
            shell = subprocess.Popen(
                ["sh", "-c", script, "-", sys.executable, "-B", "-m", "weftvm", "run", "--nodes=1", "--devices=0",
                 "--json", str(file), "--", "sleep", "600"], stderr=subprocess.PIPE, text=True)
            said = ""
            while "up after" not in said:
                line = shell.stderr.readline()
                self.assertTrue(line, said)
                said += line
            shell.terminate()
            said += shell.communicate(timeout=60)[1]
            self.assertEqual(shell.returncode, 143, said)
            report = json.loads(file.read_text())
        self.assertEqual((report["error"], [row["exit"] for row in report["rows"]]), ("interrupted", [143]))


class Stuck(cluster.Cluster):
    """The first boot of each node stands still before its first instruction."""

    def _boot(self, node):
        whole = self.options
        if node.generation == 0:
            self.options = dataclasses.replace(whole, qemu_opts=("-S",))
        try:
            super()._boot(node)
        finally:
            self.options = whole


class ComesUp(unittest.TestCase):
    def test_started_again_once(self):
        said = []
        with mock.patch.object(cluster, "LATE_INIT", 3), Stuck(nodes=1, devices=0, say=said.append) as c:
            self.assertEqual(c.run(0, "echo up").out, "up\n")
            self.assertEqual((c.restarts(), c.nodes[0].generation), (1, 2))
        (line,) = [line for line in said if "started again" in line]
        kept = paths.TOP / line.split()[-1]
        found = (kept / "node0.qemu").read_text()
        self.assertEqual([word for word in ("prelaunch", "CR0=", "LVTT", "pic0: ") if word not in found], [])
        self.assertTrue((kept / "node0.console").exists())

    def test_not_twice(self):
        with mock.patch.object(cluster, "LATE_INIT", 1):
            c = cluster.Cluster(nodes=1, devices=0, qemu_opts="-S", boot_timeout=3)
            try:
                with self.assertRaisesRegex(TimeoutError, "did not boot in time; why may be in build/hung/"):
                    c.start()
                self.assertEqual(c.nodes[0].generation, 2)
            finally:
                c.close()
