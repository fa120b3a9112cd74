# SPDX-License-Identifier: MIT
"""Who is dead and who is merely slow: on every path, at once on the same nodes. And a profiler's signals: nothing."""
import time

from weftvm import paths
from weftvm.case import NodeTest

CCLTEST = paths.BUILD / "weft" / "bin" / "weft-ccltest"
# name: path, over what, the node that rank 0 is on, which holds the meeting point
RUNS = {
    "onchip": ("onchip", "", 0),
    "peer": ("peer", "", 2),
    "staged-efa": ("staged", "efa", 0),
    "staged-tcp": ("staged", "tcp", 2),
}
NODES = 3
STOPPED = 20  # s; a host that pauses so long is slow, not dead
NAMED = 5  # s, within which the survivors of a node's death have its name


class SlowOrDead(NodeTest):
    options = {"nodes": NODES, "nics": 1, "memory": 768, "hbm": "256M"}

    def rank_of(self, name, node):
        return (node - RUNS[name][2]) % NODES

    def script(self, node, command, env):
        """Shell code that runs `command` on every path at once, each as a communicator of its own."""
        lines = []
        for i, (name, (path, over, root)) in enumerate(RUNS.items()):
            meeting = f"{self.cluster.addresses[root]}:{29800 + i}"
            lines.append(f"(WEFT_RANK={self.rank_of(name, node)} WCCL_COMM_ID={meeting}"
                         f" WCCL_PATH={path} WCCL_STAGED_OVER={over} {env} {CCLTEST} {command.format(name=name)}"
                         f" > /share/{name}-out-{node} 2>&1; echo $? > /share/{name}-end-{node}) &")
        return "\n".join(lines + ["wait"]) + "\n"

    def file(self, name):
        return self.cluster.share / name

    def said(self, name, node):
        return f"{name} on node {node}: " + self.file(f"{name}-out-{node}").read_text(errors="backslashreplace")

    def rounds(self, name, node):
        file = self.file(f"{name}-progress-{self.rank_of(name, node)}")
        return int(file.read_text() or 0) if file.exists() else 0

    def ended(self, name, node):
        return self.file(f"{name}-end-{node}").exists()

    def until(self, ready, what, limit, pause=0.1):
        end = time.monotonic() + limit
        while not ready():
            self.assertLess(time.monotonic(), end, f"{what} did not come")
            time.sleep(pause)

    def under_way(self, more=2):
        """Wait until each run has got on by `more` rounds on every node; one that has ended is a failure."""
        first = {(name, node): self.rounds(name, node) for name in RUNS for node in range(NODES)}

        def all_got_on():
            for name, node in first:
                if self.ended(name, node):
                    self.fail(self.said(name, node))
            return all(self.rounds(*key) >= before + more for key, before in first.items())

        self.until(all_got_on, "progress of every run", 180)

    def run_all(self, command, env="", meanwhile=lambda: None, timeout=240):
        """Run ccltest's `command` on each path and node at once, and meanwhile() here."""
        for old in self.cluster.share.glob("*-*"):
            old.unlink()
        self.together([self.script(node, command, env) for node in range(NODES)], timeout, then=meanwhile)

    def loop(self, meanwhile):
        """All-reduces on each path at once until told to stop; meanwhile() once they run."""

        def act():
            try:
                self.under_way()
                meanwhile()
            finally:
                for name in RUNS:
                    self.file(f"{name}-stop").touch()

        self.run_all("until /share/{name} 262144", "CCLTEST_TIMEOUT=120000", act)

    def test_1_signals(self):
        """A handled signal every 2 ms, with and without SA_RESTART, fails no wait."""
        for kind in ("restart", "plain"):
            with self.subTest(kind):
                self.run_all("check 1048576 4", f"CCLTEST_SIGNALS={kind}")
                for name in RUNS:
                    for node in range(NODES):
                        said = self.said(name, node)
                        self.assertEqual(self.file(f"{name}-end-{node}").read_text().strip(), "0", said)
                        self.assertEqual(self.file(f"{name}-out-{node}").read_text().strip(), "0", said)

    def test_2_stopped(self):
        """A node stands still for 20 s; then everything goes on, and is exact."""

        def stop():
            self.cluster.stop(1)
            try:
                time.sleep(STOPPED)
            finally:
                self.cluster.cont(1)
            self.under_way()

        with self.cluster.allowing("clocksource", "hrtimer: interrupt took"):  # the guest's time has jumped
            self.loop(stop)
        for name in RUNS:
            for node in range(NODES):
                self.assertEqual(self.file(f"{name}-end-{node}").read_text().strip(), "0", self.said(name, node))
                self.assertIn(" 0 wrong", self.said(name, node))

    def test_3_killed(self):
        """A node is killed: each survivor has its rank's name at once, long before the communicator's own limit, also
        where that rank held the meeting point."""
        took = {}

        def kill():
            self.cluster.kill(2)
            began = time.monotonic()

            def all_ended():
                for name in RUNS:
                    for node in range(2):
                        if (name, node) not in took and self.ended(name, node):
                            took[name, node] = time.monotonic() - began
                return len(took) == 2 * len(RUNS)

            self.until(all_ended, "the end of the survivors' runs", 100, pause=0.05)

        self.loop(kill)
        for (name, node), seconds in took.items():
            said = self.said(name, node)
            self.assertRegex(said, rf"rank {self.rank_of(name, 2)}\b", said)
            self.assertNotIn(f"rank {self.rank_of(name, node)} aborted", said)
            self.assertLessEqual(seconds, NAMED, said)
