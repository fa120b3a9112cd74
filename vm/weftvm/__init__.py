# SPDX-License-Identifier: MIT
"""Boots nodes (virtual machines with emulated accelerators) side by side and runs commands in them.

    from weftvm import Cluster

    with Cluster(nodes=2, devices=1) as c:
        r = c.run(0, "weft-smi list", timeout=30)      # a shell line, or a list of words
        assert r.rc == 0 and "weft" in r.out
        for r in c.run_all(["wccl-perf", "--json"]):   # on every node at once
            assert r.rc == 0, r.err

Runs inside the root only (vm/weft-vm enters it). Standard library only.
"""
from .cluster import Cluster
from .console import scan
from .node import Node, NodeDied, Result

__all__ = ["Cluster", "Node", "NodeDied", "Result", "scan"]
