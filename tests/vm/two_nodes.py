# SPDX-License-Identifier: MIT
"""Two nodes with an accelerator each, for tests that run wccl-perf on both."""
import json
import threading
import time
import unittest

from weftvm import paths
from weftvm.cluster import Cluster


class TwoNodes(unittest.TestCase):
    options = {}
    path = "onchip"  # what wccl-perf is asked for

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(nodes=2, **cls.options)
        cls.cluster.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def run_perf(self, options, timeout=120, env=None, name="perf"):
        """wccl-perf on both nodes; returns the results and each rank's rows."""
        command = f"exec wccl-perf {options} --json /share/{name}-$WEFT_RANK.json"
        results = self.cluster.run_all(command, timeout, env={"WCCL_PATH": self.path, **(env or {})})
        for result in results:
            self.assertEqual(result.problems, [])
        files = [self.cluster.share / f"{name}-{rank}.json" for rank in range(2)]
        rows = [json.loads(file.read_text())["rows"] if file.exists() else [] for file in files]
        for file in files:
            file.unlink(missing_ok=True)
        return results, rows

    def perf(self, options, timeout=120, env=None, name="perf"):
        """The same, and all of it is right; returns each rank's rows."""
        results, rows = self.run_perf(options, timeout, env, name)
        for result in results:
            self.assertEqual(result.rc, 0, result.out + result.err)
        for row in rows[0] + rows[1]:
            self.assertEqual(row["wrong"], 0)
        self.assertTrue(rows[0])
        return rows

    LIMIT = 10  # seconds of each wait of end()

    def end(self, prefix="", strike=lambda: None, after=8, struck=1, path=None, env=None):
        """A long run in which something befalls rank `struck`: the other ends with an error that names it, within its limit."""
        command = f"exec {{}} wccl-perf -b 4M -e 4M -n 1000000 -w 0 -c 0 -T {self.LIMIT}"
        results = [None, None]

        def run(rank):
            results[rank] = self.cluster.run(rank, command.format(prefix if rank == struck else ""), 120,
                                              env={"WCCL_PATH": path or self.path, **(env or {})})

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(after)
        strike()
        for thread in threads:
            thread.join(130)
        other = results[1 - struck]
        said = other.err + other.out
        self.assertNotIn(other.rc, (0, 124), said + results[struck].err)
        self.assertRegex(other.err, rf"rank {struck}\b", f"rank {struck} itself said: {results[struck].err}")
        return results

    def works(self):
        self.perf("-b 4K -e 64K -f 4 -n 1 -w 0")
