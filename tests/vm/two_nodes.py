# SPDX-License-Identifier: MIT
"""Two nodes with an accelerator each, for tests that run wccl-perf on both."""
import json

from weftvm.case import NodeTest


WITH_NICS = {"nics": 1, "cpus": 2, "hbm": "2G"}  # most tests need no more, so that one boot serves them


class TwoNodes(NodeTest):
    path = "onchip"  # what wccl-perf is asked for

    def run_perf(self, options, timeout=120, env=None, name="perf"):
        """wccl-perf on both nodes; returns the results and each rank's rows."""
        command = f"exec wccl-perf {options} --json /share/{name}-$WEFT_RANK.json"
        results = self.cluster.run_all(command, timeout, env={"WCCL_PATH": self.path, **(env or {})})
        files = [self.cluster.share / f"{name}-{rank}.json" for rank in range(2)]
        rows = [json.loads(file.read_text())["rows"] if file.exists() else [] for file in files]
        for file in files:
            file.unlink(missing_ok=True)
        return results, rows

    def perf(self, options, timeout=120, env=None, name="perf"):
        """The same, and all of it is right; returns each rank's rows."""
        results, rows = self.run_perf(options, timeout, env, name)
        for result in results:
            self.ok(result)
        for row in rows[0] + rows[1]:
            self.assertEqual(row["wrong"], 0)
        self.assertTrue(rows[0])
        return rows

    LIMIT = 4  # seconds of each wait of end()
    RUNS = 32 << 20  # bytes through the switch after which a run is under way

    def strike(self, command, blow="", here=lambda: None, struck=1, env=None, timeout=120):
        """Run `command` on both nodes and, once data flows, shell code `blow` on node `struck` and here() in this
        process.

        In `blow` $$ is the process that is struck. Returns the results.
        """
        sign = self.cluster.share / "strike"
        sign.unlink(missing_ok=True)
        first = self.carried()

        def then():
            here()
            sign.touch()

        waits = f"( until [ -e /share/strike ]; do sleep 0.1; done; {blow} ) &\n" if blow else ""
        return self.together([(waits if rank == struck else "") + "exec " + command for rank in range(2)], timeout,
                             env, lambda: self.carried() > first + self.RUNS, then)

    def end(self, blow="", here=lambda: None, struck=1, path=None, env=None):
        """A long run in which something befalls rank `struck`: the other ends with an error that names it, within its
        limit."""
        results = self.strike(f"wccl-perf -b 4M -e 4M -n 1000000 -w 0 -c 0 -T {self.LIMIT}", blow, here, struck,
                              {"WCCL_PATH": path or self.path, **(env or {})})
        other = results[1 - struck]
        self.assertNotIn(other.rc, (0, 124), other.err + other.out + results[struck].err)
        self.assertRegex(other.err, rf"rank {struck}\b", f"rank {struck} itself said: {results[struck].err}")
        return results

    def works(self):
        self.perf("-b 4K -e 64K -f 4 -n 1 -w 0")
