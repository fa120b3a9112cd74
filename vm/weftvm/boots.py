# SPDX-License-Identifier: MIT
"""weft-vm boots N: boots the nodes N times and counts the guests that had to be started again, or did not come up.

What tells why is kept in build/hung.
"""
import argparse
import os

from .cluster import Cluster
from .node import NodeDied


def main(words):
    parser = argparse.ArgumentParser(prog="weft-vm boots", description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--no-driver", action="store_true")
    parser.add_argument("--append", default="", help="more of the kernel's command line")
    args = parser.parse_args(words)
    failed, restarts, times = 0, 0, []
    for number in range(1, args.count + 1):
        c = Cluster(nodes=args.nodes, devices=args.devices, cpus=args.cpus, driver=not args.no_driver, append=args.append,
                    say=print)
        try:
            c.start()
            said = ", ".join(f"{n.boot_seconds:.1f} s" for n in c.nodes)
            times += [n.boot_seconds for n in c.nodes]
        except (TimeoutError, NodeDied) as e:
            failed += 1
            said = str(e)
        finally:
            restarts += c.restarts()
            c.close()
        print(f"boot {number}: {said} (load {os.getloadavg()[0]:.1f})", flush=True)
    print(f"{args.count} boots of {args.nodes} nodes: {failed} failed, {restarts} guests started again"
          + (f"; {min(times):.1f} to {max(times):.1f} s" if times else ""))
    return 1 if failed or restarts else 0
