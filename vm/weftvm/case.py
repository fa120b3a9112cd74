# SPDX-License-Identifier: MIT
"""NodeTest: a unittest.TestCase with booted nodes, which classes with equal options share."""
import fcntl
import re
import shutil
import subprocess
import threading
import time
import unittest

from . import paths
from .cluster import Cluster, Options


def say(text):
    print(f"weft:   vm: {text}", flush=True)


def module_file(folder):
    """What build_module(folder) makes."""
    name = re.search(r"^obj-m\s*:?\+?=\s*(\w+)\.o", (paths.TOP / folder / "Kbuild").read_text(), re.M)[1]
    return paths.BUILD / "modules" / folder.replace("/", "-") / f"{name}.ko"


def build_module(folder):
    """Build the kernel module in a folder of the checkout for the root's kernel; no warnings. Returns the file."""
    file = module_file(folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file.parent / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # groups of tests that run side by side may want the same module
        for source in (paths.TOP / folder).iterdir():
            shutil.copy2(source, file.parent)
        made = subprocess.run(["make", "-s", "-C", f"/lib/modules/{paths.root_env()['kernel']}/build",
                               f"M={file.parent}", "W=1", "modules"], capture_output=True, text=True)
    if made.returncode or "warning" in made.stderr:
        raise RuntimeError(made.stdout + made.stderr)
    return file


class Pool:
    """The cluster that a class of tests uses, left over from the class before it when its options are the same."""

    def __init__(self):
        self.current = None
        self.boots = self.restarts = 0

    def take(self, case):
        """Nodes for the class `case`."""
        options = case.wanted()
        if self.current and (self.current.options != Options(**options) or self.current.dirty
                             or not all(node.alive() for node in self.current.nodes)):
            self.close()
        if self.current is None:
            for folder in case.kernel_modules:
                build_module(folder)
            self.current = Cluster(say=say, **options)
            try:
                self.current.start()
            except BaseException:
                self.close()
                raise
        self.current.reset_switch()
        self.current.permit(case.allow)
        return self.current

    def give(self, cluster):
        cluster.settle()
        cluster.permit(())

    def close(self):
        """Nobody wants these nodes any more."""
        if self.current:
            cluster, self.current = self.current, None
            self.boots += sum(node.generation for node in cluster.nodes)
            self.restarts += cluster.restarts()
            cluster.close()


pool = Pool()


class NodeTest(unittest.TestCase):
    """A test on the nodes of `self.cluster`. Whatever their kernels complain about fails it, unless allowed."""

    options = {}  # of weftvm.Cluster
    allow = ()  # regular expressions for kernel messages that are no complaints
    kernel_modules = ()  # folders of the checkout with a module each, which is built and inserted

    @classmethod
    def wanted(cls):
        """The options of the cluster."""
        more = {"modules": tuple(map(module_file, cls.kernel_modules))} if cls.kernel_modules else {}
        return {**cls.options, **more}

    @classmethod
    def setUpClass(cls):
        cls.cluster = pool.take(cls)

    @classmethod
    def tearDownClass(cls):
        pool.give(cls.cluster)

    def ok(self, result):
        """The command succeeded; returns what it said."""
        self.assertEqual(result.rc, 0, f"\n{result.out}\n{result.err}")
        return result.out

    def sh(self, script, timeout=120, node=0, env=None):
        """Run shell code on a node; each of its commands must succeed. Returns its output."""
        result = self.cluster.run(node, "set -e\n" + script, timeout, env)
        self.assertEqual(result.rc, 0, f"node {node}: {script}\n{result.out}\n{result.err}")
        return result.out

    def true(self, node, command, timeout=60):
        """Does a command on a node succeed?"""
        return self.cluster.run(node, command, timeout).rc == 0

    def carried(self):
        """Bytes that the switch has taken in so far."""
        return sum(row["rx_bytes"] for row in self.cluster.switch("stats")["rows"])

    def together(self, commands, timeout=120, env=None, begun=lambda: True, then=lambda: None):
        """Run a command on each node at once and, as soon as begun() and none has ended, then() here; the results."""
        results = [None] * len(commands)

        def run(rank):
            results[rank] = self.cluster.run(rank, commands[rank], timeout, env)

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(commands))]
        for thread in threads:
            thread.start()
        while not (is_time := begun()) and not any(results):
            time.sleep(0.1)
        if is_time:
            then()
        for thread in threads:
            thread.join(timeout + 15)
        self.assertTrue(is_time, f"what was to begin did not: {results}")
        return results
