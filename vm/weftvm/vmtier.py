# SPDX-License-Identifier: MIT
"""The vm tier: tests/vm/test_*.py, unittest modules whose classes get booted nodes from weftvm.case.

Workers, a process each, run classes side by side; one that goes on to a class that wants equal nodes keeps its nodes.
A test during which, or shortly after which, a kernel complains has failed.
"""
import collections
import itertools
import multiprocessing.connection
import os
import signal
import sys
import time
import traceback
import unittest

from . import console, paths
from .case import NodeTest, pool, say
from .cluster import LATE, Cluster, Options, made
from .tally import wanted

TEST_LIMIT = 300  # seconds that a test may take
WORKERS = os.cpu_count()  # classes of tests that run at once


class _Entry:
    def __init__(self, test):
        self.test, self.start, self.end, self.results = test, time.monotonic(), None, []


class Watch(unittest.TestResult):
    """Counts tests, each once it is known what the kernels said in the moments after it."""

    def __init__(self, tally, limit=TEST_LIMIT):
        super().__init__()
        self.tally, self.limit = tally, limit
        self._now = None
        self._ended = []  # tests whose kernels may still say something
        self._named = set()  # complaints that a test has failed with

    def startTest(self, test):
        super().startTest(test)
        self._now = _Entry(test)
        if self.limit:
            signal.alarm(self.limit)

    def stopTest(self, test):
        if self.limit:
            signal.alarm(0)
        super().stopTest(test)
        self._now.end = time.monotonic()
        self._ended.append(self._now)
        self._now = None
        self._judge(time.monotonic() - LATE)

    def _complaints(self):
        """Those that nobody else judges."""
        mine = []
        for c in (c for cluster in made for c in cluster.complaints()):
            c.judge = c.judge or self
            mine += [c] if c.judge is self else []
        return mine

    def _judge(self, until, settled=0):
        """Count the tests that ended before `until`; nothing has happened on the nodes from then until `settled`."""
        while self._ended and self._ended[0].end <= until:
            entry = self._ended.pop(0)
            end = max(entry.end + LATE, settled)
            said = [c for c in self._complaints() if entry.start <= c.at <= end]
            self._named.update(said)
            if said:
                text = "the kernel complained: " + "; ".join(map(str, said[:4])) + "\n" + console.shown(said)
                for node in {c.node for c in said if console.STILL.search(c.line) and c.node.alive()}:
                    text += f"\nwhy may be in {Cluster.evidence(node)}"
                bad = [r for r in entry.results if r[1] == "failed"]
                entry.results = [(*r[:2], r[2] + "\n" + text) for r in bad] or [(entry.test, "failed", text)]
                _soil(entry.test)
            for test, verdict, text in entry.results:
                self.tally.add("vm", _name(test), entry.end - entry.start, verdict, text)

    def finish(self):
        """Wait for what the kernels may still say, then count the rest."""
        if self._ended:
            last = self._ended[-1].end
            self._judge(last - LATE)
            for cluster in made:
                cluster.settle()
            self._judge(last, time.monotonic())
        other = [c for c in self._complaints() if c not in self._named]
        self._named.update(other)
        if other:
            names = ", ".join(sorted({f"node{c.node.rank}" for c in other}))
            self.tally.add("vm", f"console.{names}", 0, "failed", "outside of the tests\n" + console.shown(other))

    def _add(self, test, verdict, text=""):
        if self._now:
            self._now.results.append((test, verdict, text))
        else:  # setUpClass and the like, whose "test" is a place holder with an id()
            self.tally.add("vm", _name(test), 0, verdict, text)

    def addSuccess(self, test):
        self._add(test, "passed")

    def addFailure(self, test, err):
        self._add(test, "failed", self._exc_info_to_string(err, test))
        _soil(test)

    addError = addFailure

    def addSkip(self, test, reason):
        self._add(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self._add(test, "passed")

    def addUnexpectedSuccess(self, test):
        self._add(test, "failed", "passed, though marked as an expected failure")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._add(subtest, "failed", self._exc_info_to_string(err, test))
            _soil(test)


def _soil(test):
    """Nobody else uses the nodes of a test that failed."""
    cluster = getattr(test, "cluster", None)
    if cluster:
        cluster.dirty = cluster.dirty or f"{_name(test)} failed"


def _name(test):
    name = test.id()
    module = name.rpartition("(")[2].partition(".")[0] if name.startswith(("setUp", "tearDown")) else ""
    return f"{module}.{name}" if module else name


def _flatten(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from _flatten(t)
        else:
            yield t


def _late(*_):
    raise TimeoutError(f"the test took longer than {TEST_LIMIT} s")


def load(tally=None):
    """All tests of the tier; a module that does not load is a failed test."""
    folder = paths.TOP / "tests" / "vm"
    sys.path.insert(0, str(folder))
    tests = []
    for path in sorted(folder.glob("test_*.py")):
        try:
            loader = unittest.TestLoader()
            tests += _flatten(loader.loadTestsFromName(path.stem))
            if loader.errors:
                raise RuntimeError("\n".join(loader.errors))
        except Exception:  # noqa: BLE001
            if tally:
                tally.add("vm", path.stem, 0, "failed", traceback.format_exc())
    return tests


def names():
    """The names of all tests."""
    return [_name(test) for test in load()]


def classes(tests):
    """The tests in runs of one class each, and the nodes that these want: [(Options or None, tests)]."""
    out = []
    for case, mine in itertools.groupby(tests, type):
        out.append((Options(**case.wanted()) if issubclass(case, NodeTest) else None, list(mine)))
    return out


class Queue:
    """Classes of tests, of which some wait for a worker."""

    def __init__(self, all_):
        self.all = list(all_)
        self.waiting = list(range(len(self.all)))

    def wanted(self, number):
        """The nodes that a class wants; of none: no nodes."""
        return None if number is None else self.all[number][0]

    def take(self, mine, others):
        """The number of the next class for a worker that has nodes `mine`, beside workers that have `others`: of one for
        the same nodes, else for nodes that nobody has booted, else any; nodes that most tests wait for come first.
        None: no class waits."""
        tests = collections.Counter()
        for number in self.waiting:
            tests[self.wanted(number)] += len(self.all[number][1])

        def order(number):
            options = self.wanted(number)
            return options == mine, options is None or options not in others, tests[options], -number

        best = max(self.waiting, default=None, key=order)
        if best is not None:
            self.waiting.remove(best)
        return best


class _Link:
    """What a worker has for a tally: it tells the parent."""

    def __init__(self, pipe):
        self.pipe = pipe

    def add(self, *case):
        self.pipe.send(case)


def _work(queue, pipe):
    """A worker: runs the classes whose numbers it is given, on nodes of its own, and ends when it gets None."""
    signal.signal(signal.SIGALRM, _late)
    link = _Link(pipe)
    try:
        while (number := pipe.recv()) is not None:
            tests = queue.all[number][1]
            began, watch = time.monotonic(), Watch(link)
            unittest.TestSuite(tests).run(watch)
            watch.finish()
            name = type(tests[0])
            say(f"{name.__module__}.{name.__name__}: {len(tests)} tests ({time.monotonic() - began:.1f} s)")
            pipe.send(None)
        pool.close()
        Watch(link).finish()  # what the kernels said after the last test
        pipe.send((pool.boots, pool.restarts))
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        pool.close()


def share_out(tally, queue, workers):
    """Run all classes of the queue on this many workers; counts what they tell."""
    fork = multiprocessing.get_context("fork")
    running, has = {}, {}  # by pipe: the process, and the number of the class that it runs, or None

    def give(pipe):
        mine = queue.wanted(has.pop(pipe, None))
        has[pipe] = queue.take(mine, [queue.wanted(number) for number in has.values()])
        pipe.send(has[pipe])

    try:
        for _ in range(min(workers, len(queue.waiting))):
            mine, theirs = fork.Pipe()
            running[mine] = fork.Process(target=_work, args=(queue, theirs))
            running[mine].start()
            theirs.close()
            give(mine)
        while running:
            for pipe in multiprocessing.connection.wait(list(running)):
                try:
                    told = pipe.recv()
                except EOFError:
                    worker, number = running.pop(pipe), has.pop(pipe)
                    worker.join()
                    if worker.exitcode or number is not None:
                        name = "worker" if number is None else _name(queue.all[number][1][0])
                        tally.add("vm", name, 0, "failed", f"its process ended with code {worker.exitcode}")
                    continue
                if told is None:
                    give(pipe)
                elif len(told) == 2:
                    pool.boots += told[0]
                    pool.restarts += told[1]
                else:
                    tally.add(*told)
    finally:
        for worker in running.values():
            worker.terminate()
        for worker in running.values():
            worker.join()
    for number in queue.waiting:
        tally.add("vm", _name(queue.all[number][1][0]), 0, "failed", "it did not run: no worker was left")


def vm(tally, patterns):
    start = time.monotonic()
    chosen = classes(t for t in load(tally) if wanted(patterns, "vm/" + _name(t)))
    share_out(tally, Queue(chosen), WORKERS)
    if pool.boots:
        say(f"{pool.boots} guests booted, {pool.restarts} of them started again")
    tally.close("vm", start)
