# SPDX-License-Identifier: MIT
"""`make interop`: other people's software on the host NIC, unmodified: rdma-core's examples, libfabric's tools,
perftest and
libfabric's own tests (the set "quick", fabtests.py), in two nodes with a NIC each."""
import argparse
import re
import sys
import time

from . import fabtests, pair, paths, report
from .cluster import Cluster
from .node import NodeDied

RESULT = paths.BUILD / "interop.json"
MEMORY = 4096  # MiB; fabtests allocate 64 buffers of 8 MiB for each direction, and register them
LEAST = 40  # fabtests that must pass
LIMIT = 300  # seconds for a program; they take one to three on an idle machine
ONE, TWO = (0, 0), (0, 1)
BASE_PORT = 18600


def alone(command, expect, nodes=(0, 1)):
    """A command that is run in each node by itself, and patterns that its output has to show."""
    return {"command": command, "expect": expect, "nodes": nodes, "pair": False}


def both(command, expect, nodes=TWO, port="-p", client_port="-p", where=None):
    """A server and a client (which gets the server's address); patterns that both outputs, or `where`'s, have to
    show."""
    return {"command": command, "expect": expect, "nodes": nodes, "pair": True, "port": port,
            "client_port": client_port, "where": where}


def pingpong(options, iterations):
    return both(f"ibv_ud_pingpong {options} -n {iterations} -g 0 -d efa_0",
                [rf"{iterations} iters in", r"(?s)^(?!.*invalid data)"])


def libfabric(endpoint, size):
    return both(f"fi_pingpong -p efa -e {endpoint} -c -I 100 -S {size}", [rf"\n{size // 1024}k\s+100\s+=100"],
                port="-B", client_port="-P")


def perftest(program, options, iterations, size):
    """perftest's closing row: bytes, iterations, and figures. It checks no data; the counters of tests/vm/test_efa.py
    do."""
    return both(f"{program} -c SRD -d efa_0 -x 0 -n {iterations} -s {size} {options}".strip(),
                [rf"\n\s*{size}\s+{iterations}\s+\d"], where="client")


def here(step):
    """The same with both sides in one node."""
    return {**step, "nodes": ONE}


def suites():
    """{suite: [step]} of all but fabtests."""
    # The inline form of an RDMA write does not exist on the device (-I 0), and a READ is answered by no CPU.
    bandwidth = [perftest("ib_write_bw", "", 300, 65536), perftest("ib_write_bw", "", 50, 1048576),
                 perftest("ib_read_bw", "", 300, 65536),
                 perftest("ib_send_bw", "", 300, 8192)]
    latency = [perftest("ib_write_lat", "-I 0", 200, 64), perftest("ib_read_lat", "", 200, 64),
               perftest("ib_send_lat", "", 200, 64)]
    return {
        "rdma-core": [
            alone("ibv_devinfo -v -d efa_0", [r"vendor_id:\s+0x1d0f", r"state:\s+PORT_ACTIVE",
                                              r"link_layer:\s+Unspecified"]),
            here(pingpong("-c", 300)), here(pingpong("-e", 300)), pingpong("-c", 300), pingpong("-e", 300),
        ],
        "libfabric": [
            alone("fi_info -p efa", [r"(?s)fabric: efa-direct.*fabric: efa\n.*fabric: efa\n",
                                     r"(?s)FI_EP_RDM.*FI_EP_RDM.*FI_EP_DGRAM"]),
            alone("fi_info -p efa -f efa-direct -v", [r"caps: \[ FI_MSG, FI_RMA,", r"type: FI_EP_RDM"]),
            here(libfabric("rdm", 8192)), here(libfabric("dgram", 4096)), libfabric("rdm", 8192),
            libfabric("dgram", 4096),
        ],
        "perftest": [here(step) for step in bandwidth + latency] + bandwidth + latency,
    }


def alive(cluster):
    """NodeDied if a node has ended: what follows would fail for no reason of its own."""
    for node in cluster.nodes:
        if not node.alive():
            raise NodeDied(f"node {node.rank}: {node.obituary()}")


class Run:
    def __init__(self, patterns):
        self.patterns, self.rows, self.port = patterns, [], BASE_PORT

    def wanted(self, suite, command):
        return not self.patterns or any(p in f"{suite}/{command}" for p in self.patterns)

    def row(self, suite, command, verdict, seconds, reason=""):
        self.rows.append({"suite": suite, "command": command,
                          **{v: int(v == verdict) for v in ("passed", "failed", "skipped")},
                          "seconds": round(seconds, 3), "reason": reason.strip()})
        print(f"{verdict:8}{suite}: {command}" + (f": {reason}" if verdict == "skipped" else f" ({seconds:.1f} s)"),
              flush=True)
        if verdict == "failed":
            print("\n".join("        " + line for line in reason.strip().splitlines()[-40:]), flush=True)

    def count(self, verdict, suite=None):
        return sum(row[verdict] for row in self.rows if suite in (None, row["suite"]))

    def step(self, cluster, suite, step):
        where = "one node" if step["nodes"] == ONE else "two nodes" if step["pair"] else "each node"
        name = f"{step['command']} ({where})"
        if not self.wanted(suite, name):
            return
        start = time.monotonic()
        wrong = (self.two if step["pair"] else self.each)(cluster, step)
        self.row(suite, name, "failed" if wrong else "passed", time.monotonic() - start, wrong)
        alive(cluster)

    def each(self, cluster, step):
        for node in step["nodes"]:
            r = cluster.run(node, step["command"], LIMIT)
            missing = [p for p in step["expect"] if not re.search(p, r.out)]
            if missing or not r.ok:
                return f"node {node}: {r.rc}, not shown: {missing}\n{r.out}\n{r.err}\n" + "\n".join(r.problems)
        return ""

    def two(self, cluster, step):
        self.port += 1
        at = cluster.addresses[step["nodes"][0]]
        server, client = pair.run(cluster, f"{step['command']} {step['port']} {self.port}",
                                  f"{step['command']} {step['client_port']} {self.port} {at}",
                                  self.port, step["nodes"], LIMIT)
        wrong = ""
        for side, result in (("server", server), ("client", client)):
            missing = [p for p in step["expect"] if step["where"] in (None, side) and not re.search(p, result.text)]
            if result.rc or missing or result.problems:
                wrong += f"{side}: {result.rc}, not shown: {missing}\n{result.text}\n" + "\n".join(result.problems)
        return wrong

    def fabtests(self, cluster, suite, cases):
        for name, command, reason in cases:
            if not self.wanted(suite, command):
                continue
            start = time.monotonic()
            verdict, reason = ("skipped", reason) if reason else fabtests.run(cluster, name, command)
            self.row(suite, command, verdict, time.monotonic() - start, reason)
            alive(cluster)


def run(args):
    began = time.monotonic()
    this = Run(args.patterns)
    cases = {"fabtests": fabtests.cases(fabtests.QUICK), "fabtests-efa": fabtests.cases(fabtests.PROVIDER)}
    if not args.patterns:
        print("weft: interop takes about 10 minutes on 2 idle cores under TCG", flush=True)
    with Cluster(nodes=2, devices=0, nics=1, cpus=2, memory=MEMORY) as cluster:
        print(f"weft: two nodes with a host NIC each on {cluster.accel.upper()} ({cluster.accel_reason}), up after "
              + " and ".join(f"{node.boot_seconds:.1f} s" for node in cluster.nodes), flush=True)
        try:
            for suite, steps in suites().items():
                for step in steps:
                    this.step(cluster, suite, step)
            for suite in cases:
                this.fabtests(cluster, suite, cases[suite])
        except NodeDied as error:
            this.row("nodes", "stay up", "failed", 0, str(error))
        cluster.shutdown()
        for node in cluster.nodes:  # what came after the last command
            if node.problems():
                this.row("nodes", f"node {node.rank}'s kernel", "failed", 0, node.console()[-3000:])
        report.write_json(args.json, "interop", cluster.accel, this.rows)
    for suite in dict.fromkeys(row["suite"] for row in this.rows):
        print(f"weft: {suite}: " + ", ".join(f"{this.count(v, suite)} {v}" for v in ("passed", "failed", "skipped")))
    few = not args.patterns and this.count("passed", "fabtests") < LEAST
    if few:
        print(f"weft: fewer than {LEAST} fabtests passed")
    print(f"weft: rows in {args.json}; all of it took {time.monotonic() - began:.0f} s")
    print(f"{this.count('passed')} passed, {this.count('failed')} failed, {this.count('skipped')} skipped", flush=True)
    return 1 if few or this.count("failed") or not this.count("passed") else 0


def main(arguments):
    parser = argparse.ArgumentParser(prog="weft-vm interop", description=__doc__)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="only what has one of these in SUITE/COMMAND")
    parser.add_argument("--json", default=str(RESULT), metavar="FILE", help="where the rows go (%(default)s)")
    args = parser.parse_args(arguments)
    try:
        return run(args)
    except (NodeDied, TimeoutError, OSError) as error:
        print(f"weft: interop failed: {error}", file=sys.stderr)
        return 1
