# SPDX-License-Identifier: MIT
"""What `make bench` runs: an all-reduce of two nodes by every path side by side (onchip, peer, staged over the host
NIC, staged over
tcp), what the registration cache saves, and the modelled ratio of staged to peer. Fails when a result is wrong, never
when it is slow."""
import argparse
import json
import re
import statistics
import subprocess
import sys
import time

from . import paths, report
from .cluster import Cluster
from .node import NodeDied

RESULT = paths.BUILD / "bench.json"
CHART = paths.BUILD / "bench.svg"
SURFACE = paths.BUILD / "bench-surface.svg"
MODEL = "weft"  # profile of modelled_us
SURFACE_MODEL = "dl1"
NIC = ("efa-direct", "efa")
PATHS = {  # what is asked for, and what may carry it
    "onchip": ({"WCCL_PATH": "onchip"}, ("roce",)),
    "peer": ({"WCCL_PATH": "peer"}, NIC),
    "staged-efa": ({"WCCL_PATH": "staged", "WCCL_STAGED_OVER": "efa"}, NIC),
    "staged-tcp": ({"WCCL_PATH": "staged", "WCCL_STAGED_OVER": "tcp"}, ("tcp",)),
}
# Runs of wccl-perf: sizes, factor, iterations, warm-up. Every size of a run is measured on every path before the next
# run begins.
GROUPS = [(4 << 10, 256 << 10, 4, 20, 3), (1 << 20, 4 << 20, 4, 20, 2), (32 << 20, 32 << 20, 2, 2, 1),
          (256 << 20, 256 << 20, 2, 1, 1)]
TRACES = {"training": 12, "loop": 200}  # and steps
CACHES = {"off": {"WCCL_MR_CACHE_ENTRIES": "0"}, "on": {}}
RATIOS = [("peer", "staged-tcp"), ("peer", "staged-efa"), ("peer", "onchip"),
          ("onchip", "staged-tcp")]  # time of the second / of the first
LIMIT = 1800  # seconds for one run of wccl-perf
WAIT = 300  # seconds for one wait in it: 256 MiB by sockets take their time in emulation


class Failed(Exception):
    """A step of the bench; the text says which and why."""


def say(text):
    print(f"weft: {text}", flush=True)


def size(text):
    """Bytes of "4K", "32M", "1G"."""
    found = re.fullmatch(r"(\d+)([KMG]?)(i?B)?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text} is not a size")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


def human(count):
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if count >= 1 << shift:
            return f"{count >> shift} {unit}"
    return f"{count} B"


def groups(largest, quick):
    """GROUPS up to `largest` bytes, fewer when quick."""
    chosen = []
    for low, high, factor, iterations, warmup in GROUPS:
        if low <= largest and not (quick and low > 32 << 20):
            chosen.append((low, min(high, largest), factor, iterations, warmup))
    if not chosen:
        raise Failed(f"--max is at least {human(GROUPS[0][0])}")
    return chosen


def perf(cluster, options, env):
    """wccl-perf on all nodes: rank 0's rows, each right."""
    file = cluster.share / "wccl-perf.json"
    file.unlink(missing_ok=True)
    command = f"exec wccl-perf {options} -T {WAIT} $([ $WEFT_RANK = 0 ] && echo --json /share/{file.name})"
    for rank, result in enumerate(cluster.run_all(command, LIMIT, env=env)):
        if not result.ok:
            problems = "\n".join(result.problems)
            raise Failed(f"wccl-perf {options} with {env} on node {rank} ended with {result.rc}\n"
                         f"{result.out}{result.err}{problems}")
    rows = json.loads(file.read_text())["rows"]
    if not rows:
        raise Failed(f"wccl-perf {options} with {env} measured nothing")
    for row in rows:
        if row["wrong"] != 0:
            raise Failed(f"wccl-perf {options} with {env}: {row['wrong']} elements of {row['bytes']} bytes are wrong")
        if row["path"] != env["WCCL_PATH"]:
            raise Failed(f"wccl-perf with {env} took the path {row['path']}")
    return rows


def measure(cluster, chosen, rounds):
    """{(path, bytes): [row of each round]}; paths alternate within each round and group of sizes."""
    samples = {}
    for number in range(rounds):
        for low, high, factor, iterations, warmup in chosen:
            for name, (env, transports) in PATHS.items():
                rows = perf(cluster,
                            f"-b {low} -e {high} -f {factor} -n {iterations} -w {warmup} --no-in-place "
                            f"--model {MODEL}", env)
                for row in rows:
                    if row["transport"] not in transports:
                        raise Failed(f"{name} was carried by {row['transport']}")
                    # What the ranks send, 2 (n - 1) times the data, goes from one device into host DRAM and into the
                    # next out of it.
                    sent = 2 * (row["ranks"] - 1) * row["bytes"] * row["iterations"]
                    if row["host_dram_bytes"] != (2 * sent if name.startswith("staged") else 0):
                        raise Failed(f"{name}: {row['host_dram_bytes']} payload bytes went by host DRAM, "
                                     f"of {sent} sent")
                    samples.setdefault((name, row["bytes"]), []).append(row)
                say(f"round {number + 1} of {rounds}: {name}: "
                    + ", ".join(f"{human(r['bytes'])} {r['time_us'] / 1e3:.2f} ms" for r in rows))
    return samples


def spread(values):
    return {"median_us": statistics.median(values), "min_us": min(values), "max_us": max(values)}


def summarise(samples):
    """Rows of times, and of ratios: the median of the rounds' ratios, since a round's runs saw the same machine."""
    rows = []
    for (name, count), found in samples.items():
        times = spread([row["time_us"] for row in found])
        ranks = found[0]["ranks"]
        rows.append({"bench": "all_reduce", "bytes": count, "path": name, **times,
                     "busbw_GBps": count / times["median_us"] / 1e3 * 2 * (ranks - 1) / ranks,
                     "modelled_us": found[0]["modelled_us"],
                     "transport": found[0]["transport"], "rounds": len(found),
                     "host_dram_bytes": found[0]["host_dram_bytes"],
                     "cpu_copies": found[0]["cpu_copies"], "flushes": found[0]["flushes"]})
    rows.sort(key=lambda row: (row["bytes"], list(PATHS).index(row["path"])))
    for of, to in RATIOS:
        for count in sorted({bytes_ for _, bytes_ in samples}):
            values = [slow["time_us"] / fast["time_us"] for fast, slow in zip(samples[of, count], samples[to, count])]
            modelled = samples[to, count][0]["modelled_us"] / samples[of, count][0]["modelled_us"]
            rows.append({"ratio": "speedup", "of": of, "to": to, "bytes": count, "value": statistics.median(values),
                         "min": min(values), "max": max(values), "modelled": modelled})
    return rows


def cache(cluster, rounds):
    """Traces with the registration cache off and on: times, and the ratios of them and of what registrations alone
    took."""
    found = {}
    for number in range(rounds):
        for trace, steps in TRACES.items():
            for which, env in CACHES.items():
                row = perf(cluster, f"--trace {trace} -n {steps}", {"WCCL_PATH": "peer", **env})[0]
                found.setdefault((trace, which), []).append(row)
                say(f"round {number + 1} of {rounds}: trace {trace}, cache {which}: {row['time_us'] / 1e3:.1f} ms, "
                    f"{row['registrations']['registrations']} registrations")
    rows = []
    cost = lambda row: row["registrations"]["registration_us"] + row["registrations"]["teardown_us"]  # noqa: E731
    for (trace, which), runs in found.items():
        rows.append({"bench": f"trace-{trace}", "bytes": runs[0]["bytes"], "path": "peer", "cache": which,
                     **spread([r["time_us"] for r in runs]),
                     "busbw_GBps": None, "modelled_us": None, "collectives": runs[0]["collectives"],
                     "registrations": runs[0]["registrations"]})
    for trace in TRACES:
        for what, value in (("time", lambda row: row["time_us"]), ("registering", cost)):
            values = [value(off) / value(on) for off, on in zip(found[trace, "off"], found[trace, "on"])
                      if value(on) > 0]
            if values:
                rows.append({"ratio": "cache", "of": f"{trace}, {what}, cache off", "to": f"{trace}, {what}, cache on",
                             "bytes": found[trace, "on"][0]["bytes"], "value": statistics.median(values),
                             "min": min(values), "max": max(values)})
    return rows


def surface():
    """The modelled ratio staged / peer on DL1."""
    points = paths.BUILD / "bench-surface.json"
    subprocess.run([paths.BIN / "wccl-sched", "surface", "--profile", SURFACE_MODEL, "--json", points, "--svg",
                    SURFACE],
                   check=True, stdout=subprocess.DEVNULL)
    found = json.loads(points.read_text())
    points.unlink()
    keep = ("copy_GBps", "effective_GBps", "overlap", "slots", "slices_per_message", "slice_bytes", "consistent",
            "consistent_all")
    return [{"ratio": "surface", "of": found["of"], "to": found["to"], "bytes": row["bytes"], "value": row["ratio"],
             "profile": found["profile"], **{key: row[key] for key in keep}}
             for row in found["rows"]], found["published"], found["note"]


def chart(rows, note):
    """Bus bandwidth by size and path, with the rounds' spread."""
    times = [row for row in rows if row.get("bench") == "all_reduce"]
    bus = lambda row, us: row["busbw_GBps"] * row["median_us"] / us  # noqa: E731
    drawing = {"title": "All-reduce of two nodes by path", "subtitle": note, "x": {"label": "bytes", "scale": "log2"},
               "y": {"label": "bus bandwidth (GB/s)", "scale": "log"}, "series": [], "bands": []}
    for name in PATHS:
        mine = [row for row in times if row["path"] == name]
        drawing["series"].append({"name": name, "points": [[row["bytes"], row["busbw_GBps"]] for row in mine]})
        if len(mine) > 1:
            drawing["bands"].append({"series": name, "points": [[row["bytes"], bus(row, row["max_us"]),
                                                                 bus(row, row["min_us"])] for row in mine]})
    subprocess.run([paths.BIN / "weft-chart", "-", CHART], input=json.dumps(drawing).encode(), check=True)


def table(rows):
    """What a reader looks for first."""
    times = {(row["path"], row["bytes"]): row for row in rows if row.get("bench") == "all_reduce"}
    print(f"{'':>10}" + "".join(f"{name + ' (ms)':>26}" for name in PATHS))
    for count in sorted({key[1] for key in times}):
        cells = (times[name, count] for name in PATHS)
        print(f"{human(count):>10}" + "".join(
            f"{row['median_us'] / 1e3:>12.2f} ({row['min_us'] / 1e3:.2f}..{row['max_us'] / 1e3:.2f})".rjust(26)
            for row in cells))
    for row in rows:
        if row.get("ratio") == "speedup":
            print(f"{row['of']} against {row['to']}, {human(row['bytes'])}: "
                  f"{row['value']:.2f} ({row['min']:.2f} to {row['max']:.2f}); "
                  f"modelled {row['modelled']:.2f}")
        elif row.get("ratio") == "cache":
            print(f"{row['of']} against on: {row['value']:.2f} ({row['min']:.2f} to {row['max']:.2f})")
    sys.stdout.flush()


def main(arguments):
    parser = argparse.ArgumentParser(prog="make bench BENCH=...", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 32 MiB, two rounds")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds, each with every path and size (5; quick: 2)")
    parser.add_argument("--max", type=size, default=256 << 20, metavar="SIZE", help="largest all-reduce (256M)")
    args = parser.parse_args(arguments)
    rounds = args.rounds or (2 if args.quick else 5)
    began = time.monotonic()
    try:
        chosen = groups(args.max, args.quick)
        with Cluster(nodes=2, nics=1, cpus=2, hbm="1G", say=say) as cluster:
            note = f"emulator speed, not hardware ({cluster.accel.upper()})"
            say("two nodes with an accelerator and a host NIC each on "
                f"{cluster.accel.upper()} ({cluster.accel_reason}); {note}")
            rows = summarise(measure(cluster, chosen, rounds))
            rows += cache(cluster, rounds)
            cluster.shutdown()
        modelled, published, claim = surface()
        rows += modelled
        report.write_json(str(RESULT), "make bench", cluster.accel, rows, note=note, published=published,
                          surface_note=claim)
        chart(rows, note)
        table(rows)
    except (Failed, NodeDied, TimeoutError, OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"weft: the bench failed: {error}", file=sys.stderr)
        return 1
    say(note)
    say(f"rows in {RESULT.relative_to(paths.TOP)}, charts in {CHART.relative_to(paths.TOP)} and "
        f"{SURFACE.relative_to(paths.TOP)}; "
        f"all of it took {time.monotonic() - began:.0f} s")
    return 0
