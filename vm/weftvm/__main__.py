# SPDX-License-Identifier: MIT
"""The command line of vm/weft-vm."""
import argparse
import dataclasses
import importlib
import os
import signal
import sys
import threading
import time

from . import console, report
from .cluster import LAYOUTS, Cluster, Options
from .node import NodeDied, Result

GRACE = 30  # how long the other nodes may go on once the command failed on one
GRACE_DEAD = 3  # and once a node is gone


def warn(text):
    print(f"weft-vm: {text}", file=sys.stderr, flush=True)


def options(parser, nodes):
    parser.add_argument("--nodes", type=int, default=nodes, metavar="N", help="virtual machines (%(default)s)")
    parser.add_argument("--devices", type=int, default=1, metavar="D", help="accelerators in each (%(default)s)")
    parser.add_argument("--ports", type=int, default=1, metavar="P", help="ports of each accelerator (%(default)s)")
    parser.add_argument("--nics", type=int, default=0, metavar="K",
                        help="host NICs in each, beside the accelerators (%(default)s)")
    parser.add_argument("--hbm", default="1G", metavar="SIZE", help="HBM of each accelerator (%(default)s)")
    parser.add_argument("--cpus", type=int, default=1, metavar="C", help="CPUs of each node (%(default)s)")
    parser.add_argument("--memory", type=int, default=1024, metavar="M",
                        help="memory of each node in MiB (%(default)s)")
    parser.add_argument("--kernel", default="vmlinux", metavar="WHICH",
                        help="vmlinux or bzImage: the root's own; or a file, or a kernel build tree (%(default)s)")
    parser.add_argument("--module", dest="modules", action="append", default=[], metavar="X.ko",
                        help="insert this module too; one named weft.ko takes the place of the built driver")
    parser.add_argument("--no-driver", dest="driver", action="store_false", help="do not load the built driver")
    parser.add_argument("--qemu-opts", default="", metavar="OPTS", help="more options for QEMU, as one word")
    parser.add_argument("--device-opts", default="", metavar="K=V,...", help="more properties of the accelerators")
    parser.add_argument("--nic-opts", default="", metavar="K=V,...", help="more properties of the host NICs")
    parser.add_argument("--append", default="", metavar="OPTS", help="more of the kernel's command line")
    parser.add_argument("--layout", choices=LAYOUTS, default="switch",
                        help="accelerators and NICs under one PCIe switch, each at a root port, or on the root bus "
                             "(%(default)s)")
    parser.add_argument("--viommu", action="store_true", help="a strict Intel IOMMU in each node")
    parser.add_argument("--capture", metavar="FILE", help="pcapng of all frames on the switch")
    parser.add_argument("--loss", metavar="P", help="share of frames that the switch loses (0.01 is 1 %%)")
    parser.add_argument("--seed", metavar="S", help="seed of what happens by chance")
    parser.add_argument("--model", metavar="X.so", help="device model to load instead of the accelerator's")
    parser.add_argument("--sanitize", action="store_true",
                        help="the device and the switch under ASan and UBSan (vm/build check)")
    parser.add_argument("--share", metavar="DIR",
                        help="folder that is /share in every node (by default a passing one)")
    parser.add_argument("--allow", action="append", default=[], metavar="REGEX",
                        help="kernel messages that do not fail the run")
    parser.add_argument("--boot-timeout", type=float, default=270, metavar="SECONDS", help="(%(default)s)")


def cluster(args, interactive=False):
    options = {f.name: getattr(args, f.name) for f in dataclasses.fields(Options)}
    return Cluster(allow=args.allow, say=warn, interactive=interactive, **options)


class Output:
    """Streams the nodes' output; with several nodes line by line, each with its node's name."""

    def __init__(self, size):
        self.size, self.lock, self.rest = size, threading.Lock(), {}

    def __call__(self, rank, stream, data):
        to = (sys.stdout if stream == 1 else sys.stderr).buffer
        with self.lock:
            if self.size > 1:
                data = self.rest.pop((rank, stream), b"") + data
                data, newline, rest = data.rpartition(b"\n")
                if rest:
                    self.rest[rank, stream] = rest
                if not newline:
                    return
                data = b"".join(b"[n%d] %s\n" % (rank, line) for line in data.split(b"\n"))
            self._write(to, data)

    def _write(self, to, data):
        try:
            to.write(data)
            to.flush()
        except BrokenPipeError:
            os._exit(141)

    def finish(self):
        with self.lock:
            for (rank, stream), data in sorted(self.rest.items()):
                self._write((sys.stdout if stream == 1 else sys.stderr).buffer, b"[n%d] %s\n" % (rank, data))
            self.rest.clear()


def run(args):
    if not args.command:
        raise ValueError("no command; say: weft-vm run [options] -- COMMAND")
    deadline = time.monotonic() + args.timeout
    args.boot_timeout = min(args.boot_timeout, args.timeout)
    c = cluster(args)
    results = [None] * c.size
    try:
        return run_on(c, args, deadline, results)
    except (SystemExit, KeyboardInterrupt):
        verdict(c, args, [r or Result(143, "", "interrupted", 0) for r in results], "interrupted")
        raise
    finally:
        c.close()


def run_on(c, args, deadline, results):
    """Boot the cluster, run the command on it and say how it went; returns the exit code."""
    output = Output(c.size)
    boot_error = ""
    warn(f"{c.size} node{'s' * (c.size > 1)}, {args.devices} accelerator{'s' * (args.devices != 1)} each, "
         f"on {c.accel.upper()} ({c.accel_reason})")
    try:
        c.start()
        warn("up after " + ", ".join(f"{n.boot_seconds:.1f} s" for n in c.nodes))
    except (NodeDied, TimeoutError) as e:
        boot_error = str(e)
        late = isinstance(e, TimeoutError)
        results = [Result(255 if n.panicked() else 124 if late else 1, "", boot_error, 0, late, not late)
                   for n in c.nodes]
    if not boot_error:
        run_command(c, args.command, deadline, output, results)
        fabric_error = c.fabric_error()
        c.shutdown()
    else:
        fabric_error = c.fabric_error()
    output.finish()
    code = verdict(c, args, results, boot_error)
    if fabric_error:
        warn(fabric_error)
    return code or (1 if fabric_error else 0)


def run_command(c, command, deadline, output, results):
    """Run the command on all nodes; when one fails, the others get GRACE seconds."""
    words = [c.guest_path(command[0])] + command[1:]
    failed = threading.Event()

    def one(rank):
        left = max(0.1, deadline - time.monotonic())
        try:
            results[rank] = c.run(rank, words, left, sink=lambda stream, data: output(rank, stream, data))
        except NodeDied as e:
            results[rank] = Result(255, "", str(e), 0, gone=True)
        if results[rank].rc:
            failed.set()
    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(c.size)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads) and not failed.wait(0.2):
        pass
    began = time.monotonic()
    while any(t.is_alive() for t in threads):
        grace = GRACE if all(n.alive() for n in c.nodes) else GRACE_DEAD
        if time.monotonic() > min(began + grace, deadline + 15):
            break
        time.sleep(0.1)
    for rank, t in enumerate(threads):
        if t.is_alive():
            warn(f"node {rank} is still busy {grace} s after another one failed: killed")
            c.kill(rank)
            t.join(10)


def verdict(c, args, results, boot_error):
    rows, cases, code = [], [], 0
    c.complaints()  # a last look
    if boot_error:
        warn(boot_error)
    for node, r in zip(c.nodes, results):
        problems = [p.line for p in node.complaints]
        if node.panicked():
            status, rc = "panic", 255
        elif r.timed_out:
            status, rc = "timeout", 124
        elif not boot_error and node.killed and r.rc == 255:
            status, rc = "killed", 1
        elif r.gone:
            status, rc = "gone", 1
        else:
            status, rc = ("ok" if r.rc == 0 else "exit"), r.rc
        if problems and rc == 0:
            status, rc = "console", 1
        text = ""
        if problems:
            text = console.shown(node.complaints)
        elif boot_error or status in ("gone", "timeout"):
            text = f"node {node.rank}: the end of its console:\n{console.end(node.console())}"
        if text:
            warn(text)
        if status == "gone" or (boot_error and node.qemu_log()):
            warn(f"node {node.rank}: {node.obituary()}")
        if status != "ok":
            warn(f"node {node.rank}: {status} " +
                 (f"(timed out after {args.timeout:g} s)" if status == "timeout" else f"({rc})"))
        rows.append({"node": node.rank, "status": status, "exit": rc, "seconds": round(r.seconds, 3),
                     "boot_seconds": node.boot_seconds and round(node.boot_seconds, 3), "restarts": node.restarts,
                     "problems": problems, "console": text})
        cases.append((f"node{node.rank}", r.seconds, "passed" if status == "ok" else "failed",
                      f"{status} {rc}\n{r.err}\n{text}"))
        code = code or rc
    for wanted, status in ((255, "panic"), (124, "timeout")):
        if any(row["status"] == status for row in rows):
            code = wanted
            break
    if args.json:
        report.write_json(args.json, " ".join(args.command), c.accel, rows,
                          **({"error": boot_error} if boot_error else {}))
    if args.junit:
        report.write_junit(args.junit, " ".join(args.command), cases)
    return code


def shell(args):
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ValueError("shell needs a terminal; weft-vm run -- COMMAND does not")
    c = cluster(args, interactive=True)
    try:
        warn(f"a root shell on {c.accel.upper()}; exit ends it, Ctrl-A X ends it at once")
        c.start()
        c.nodes[0].dead.wait()
        return 255 if c.nodes[0].panicked() else 0
    finally:
        c.close()


def main():
    parser = argparse.ArgumentParser(prog="weft-vm", description="Boots nodes with emulated accelerators.")
    sub = parser.add_subparsers(dest="what", required=True, metavar="run|shell|demo|check|mutants|bench|interop|boots")
    p = sub.add_parser("run", help="boot nodes and run a command in each",
                       usage="weft-vm run [options] -- COMMAND",
                       description="""Boots the nodes, runs COMMAND in each with
                       WEFT_RANK, WEFT_SIZE, WEFT_ADDR, WEFT_ADDRS and WEFT_ACCEL in its environment, in /share, and
                       returns the first exit code that is not 0; 124: time-out, 255: a guest panicked. A kernel that complains
                       on its console fails the run. COMMAND may be a script in the checkout.""")
    options(p, 2)
    p.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="limit for all of it (%(default)s)")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--junit", metavar="FILE")
    p.add_argument("command", nargs=argparse.REMAINDER)
    p = sub.add_parser("shell", help="boot a node and give its root shell")
    options(p, 1)
    sub.add_parser("demo", help="what `make demo` shows", add_help=False)
    sub.add_parser("check", help="what `make check` runs", add_help=False)
    sub.add_parser("mutants", help="what `make mutants` runs", add_help=False)
    sub.add_parser("bench", help="what `make bench` runs", add_help=False)
    sub.add_parser("interop", help="what `make interop` runs", add_help=False)
    sub.add_parser("boots", help="boot again and again, and keep what a hang leaves", add_help=False)
    args, rest = parser.parse_known_args()
    if getattr(args, "command", None) and args.command[0] == "--":
        args.command = args.command[1:]
    # Ctrl-C and a polite kill alike: unwind, so that what we started ends and the report is written.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if args.what in ("demo", "check", "mutants", "bench", "interop", "boots"):
            try:
                module = importlib.import_module(f".{args.what}", __package__)
            except ModuleNotFoundError as e:
                if e.name != f"{__package__}.{args.what}":
                    raise
                warn(f"there is no {args.what} yet")
                return 2
            return module.main(rest)
        if rest:
            parser.error(f"unknown: {' '.join(rest)}")
        return {"run": run, "shell": shell}[args.what](args)
    except ValueError as e:
        warn(str(e))
        if getattr(args, "json", None):
            report.write_json(args.json, " ".join(args.command), "", [], error=str(e))
        return 2
    except (NodeDied, TimeoutError) as e:
        warn(str(e))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
