# SPDX-License-Identifier: MIT
"""What `make demo` shows: two nodes all-reduce between their HBMs by each of the three paths, verified; and a capture
of a short run."""
import argparse
import json
import shlex
import sys
import time

from . import paths, report
from .cluster import Cluster

RESULT = paths.BUILD / "demo.json"
CAPTURE = paths.BUILD / "demo.pcapng"
CAPTURED = 1 << 20  # bytes: the largest size of the captured run
MODEL = "weft"
# What is shown of each path: sizes in full over the on-chip NICs, some of them over the host NIC.
PATHS = {
    "onchip": ("from HBM to HBM over the on-chip NICs", "-f 2"),
    "peer": ("from HBM to HBM over the host NIC, which reads and writes HBM through DMA-BUF", "-f 32"),
    "staged": ("the detour: HBM, host DRAM, host NIC, host DRAM, HBM", "-f 32"),
}


class Failed(Exception):
    """A step of the demo; the text says which and why."""


def say(text):
    print(f"weft: {text}", flush=True)


def perf(cluster, path, options, timeout, show=False):
    """Run wccl-perf on all nodes; rank 0's output is shown if asked. Returns its JSON."""
    result_file = cluster.share / "wccl-perf.json"
    result_file.unlink(missing_ok=True)

    def sink(rank, stream, data):
        if rank == 0 and (show or stream == 2):
            (sys.stdout if stream == 1 else sys.stderr).buffer.write(data)
            (sys.stdout if stream == 1 else sys.stderr).buffer.flush()

    command = f"exec wccl-perf {options} $([ $WEFT_RANK = 0 ] && echo --json /share/{result_file.name})"
    results = cluster.run_all(command, timeout, env={"WCCL_PATH": path}, sink=sink)
    for rank, result in enumerate(results):
        if not result.ok:
            problems = "\n".join(result.problems)
            raise Failed(f"wccl-perf on node {rank} ended with {result.rc}\n{result.err or result.out}{problems}")
    return json.loads(result_file.read_text())


def hashes(rows):
    """The payload hash of each size's results."""
    return {(row["bytes"], row.get("in_place")): row["hash"] for row in rows}


def compare(results):
    """The paths side by side: what each costs at the sizes that all have."""
    say("side by side (bus bandwidth, out of place; emulator speed, not hardware):")
    print(f"{'bytes':>12}" + "".join(f"{path:>12}" for path in results) + "   GB/s", flush=True)
    speed = {path: {row["bytes"]: row["busbw_GBps"] for row in result["rows"] if not row["in_place"]} for path,
             result in results.items()}
    for size in sorted(set.intersection(*(set(of) for of in speed.values()))):
        print(f"{size:>12}" + "".join(f"{of[size]:>12.3f}" for of in speed.values()), flush=True)


def main(arguments):
    parser = argparse.ArgumentParser(prog="make demo DEMO=...", description=__doc__)
    parser.add_argument("--max", default="32M", metavar="SIZE", help="largest all-reduce (%(default)s)")
    parser.add_argument("--iters", type=int, default=5, metavar="N", help="timed rounds of each size (%(default)s)")
    args = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        with Cluster(nodes=2, nics=1, cpus=2, hbm="1G", say=say) as cluster:
            say("two nodes with an accelerator and a host NIC each on "
                f"{cluster.accel.upper()} ({cluster.accel_reason}), "
                "up after " + " and ".join(f"{node.boot_seconds:.1f} s" for node in cluster.nodes))
            common = f"-w 1 --hash --model {MODEL}"
            results = {}
            for path, (text, steps) in PATHS.items():
                say(f"{path}: {text}")
                least = "4K" if path == "onchip" else "32K"
                results[path] = perf(cluster, path,
                                     f"-b {least} -e {shlex.quote(args.max)} {steps} -n {args.iters} {common}", 300,
                                     show=True)
            compare(results)
            rows = [row for result in results.values() for row in result["rows"]]
            report.write_json(str(RESULT), results["onchip"]["command"], cluster.accel, rows)
            CAPTURE.unlink(missing_ok=True)
            cluster.switch(f"capture start {CAPTURE}")
            short = perf(cluster, "onchip", f"-b 4K -e {CAPTURED} -f 2 -n 1 {common}", 120)
            cluster.switch("capture stop")
            cluster.shutdown()
        wrong = sum(row["wrong"] for row in rows + short["rows"])
        if wrong or not rows:
            raise Failed(f"{wrong} elements are wrong" if rows else "nothing was measured")
        for path, result in results.items():
            strays = [row for row in result["rows"] if row["path"] != path
                      or (row["host_dram_bytes"] > 0) != (path == "staged")]
            if strays:
                raise Failed(f"{path}: went another way, or through host memory: {strays[0]}")
        expected = hashes(results["onchip"]["rows"])
        for name, found in [*results.items(), ("captured", short)]:
            differ = [key for key, value in hashes(found["rows"]).items() if expected.get(key) != value]
            if differ:
                raise Failed(f"the results of the run {name} differ from those over the on-chip NICs at {differ}")
        say("all paths have equal results, by hash; a short run over the on-chip NICs, up to "
            f"{CAPTURED >> 20} MiB, is captured in {CAPTURE.relative_to(paths.TOP)} "
            f"({CAPTURE.stat().st_size >> 20} MiB)")
    except (Failed, OSError, ValueError) as error:
        print(f"weft: the demo failed: {error}", file=sys.stderr)
        return 1
    say(f"rows in {RESULT.relative_to(paths.TOP)}; all of it took {time.monotonic() - began:.0f} s")
    return 0
