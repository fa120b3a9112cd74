# SPDX-License-Identifier: MIT
"""What `make demo` shows: two nodes all-reduce between their HBMs over the on-chip NICs, verified; and a capture of a short run."""
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


class Failed(Exception):
    """A step of the demo; the text says which and why."""


def say(text):
    print(f"weft: {text}", flush=True)


def perf(cluster, options, timeout, show=False):
    """Run wccl-perf on all nodes; rank 0's output is shown if asked. Returns rank 0's output and its JSON."""
    result_file = cluster.share / "wccl-perf.json"
    result_file.unlink(missing_ok=True)

    def sink(rank, stream, data):
        if rank == 0 and (show or stream == 2):
            (sys.stdout if stream == 1 else sys.stderr).buffer.write(data)
            (sys.stdout if stream == 1 else sys.stderr).buffer.flush()

    command = f"exec wccl-perf {options} $([ $WEFT_RANK = 0 ] && echo --json /share/{result_file.name})"
    results = cluster.run_all(command, timeout, env={"WCCL_PATH": "onchip"}, sink=sink)
    for rank, result in enumerate(results):
        if not result.ok:
            problems = "\n".join(result.problems)
            raise Failed(f"wccl-perf on node {rank} ended with {result.rc}\n{result.err or result.out}{problems}")
    return results[0].out, json.loads(result_file.read_text())


def hashes(rows):
    """The payload hash of each size's results."""
    return {(row["bytes"], row.get("in_place")): row["hash"] for row in rows}


def main(arguments):
    parser = argparse.ArgumentParser(prog="make demo DEMO=...", description=__doc__)
    parser.add_argument("--max", default="32M", metavar="SIZE", help="largest all-reduce (%(default)s)")
    parser.add_argument("--iters", type=int, default=5, metavar="N", help="timed rounds of each size (%(default)s)")
    args = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        with Cluster(nodes=2, hbm="1G", say=say) as cluster:
            say(f"two nodes with an accelerator each on {cluster.accel.upper()} ({cluster.accel_reason}), "
                "up after " + " and ".join(f"{node.boot_seconds:.1f} s" for node in cluster.nodes))
            common = f"-f 2 -w 1 --hash --model {MODEL}"
            timed, result = perf(cluster, f"-b 4K -e {shlex.quote(args.max)} -n {args.iters} {common}", 300, show=True)
            rows = result["rows"]
            report.write_json(str(RESULT), result["command"], cluster.accel, rows)
            CAPTURE.unlink(missing_ok=True)
            cluster.switch(f"capture start {CAPTURE}")
            _, short = perf(cluster, f"-b 4K -e {CAPTURED} -n 1 {common}", 120)
            cluster.switch("capture stop")
            cluster.shutdown()
        wrong = sum(row["wrong"] for row in rows + short["rows"])
        if wrong or not rows:
            raise Failed(f"{wrong} elements are wrong" if rows else "nothing was measured")
        timed_hashes, captured_hashes = hashes(rows), hashes(short["rows"])
        differ = [size for size, value in captured_hashes.items() if timed_hashes.get(size) != value]
        if differ:
            raise Failed(f"the captured run's results differ from the timed run's at {differ}")
        say(f"captured the same up to {CAPTURED >> 20} MiB in {CAPTURE.relative_to(paths.TOP)} "
            f"({CAPTURE.stat().st_size >> 20} MiB); equal results, by hash")
    except (Failed, OSError, ValueError) as error:
        print(f"weft: the demo failed: {error}", file=sys.stderr)
        return 1
    say(f"rows in {RESULT.relative_to(paths.TOP)}; all of it took {time.monotonic() - began:.0f} s")
    return 0
