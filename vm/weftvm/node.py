# SPDX-License-Identifier: MIT
"""One virtual machine: its QEMU process, its command channel, its console and its monitor."""
import json
import selectors
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field

from . import console

LOOK = 0.2  # seconds between two looks at the console
STARTED = b"weft-start: node "  # guest/start's first words: the kernel and its init have come up


class NodeDied(RuntimeError):
    """The guest's QEMU ended, or the guest stopped answering."""


@dataclass
class Result:
    """What a command in a guest did. rc is its exit code; 124: timed out; 255: the guest panicked or is gone."""
    rc: int
    out: str
    err: str
    seconds: float
    timed_out: bool = False
    gone: bool = False  # the node ended before the command did
    problems: list = field(default_factory=list)  # lines of the console that say that the kernel is unwell

    @property
    def ok(self):
        return self.rc == 0 and not self.problems


class _Command:
    def __init__(self, ident, sink):
        self.end = b"\0weft-end %s\n" % ident.encode()
        self.ident, self.sink = ident, sink
        self.rc = None
        self.held = {1: b"", 2: b""}
        self.data = {1: [], 2: []}
        self.ended = {1: False, 2: False}
        self.done = threading.Event()

    def feed(self, stream, chunk):
        """Take output; returns what comes after this command's end."""
        buf = self.held[stream] + chunk
        at = buf.find(self.end)
        if at >= 0:
            body, rest = buf[:at], buf[at + len(self.end):]
            self.held[stream], self.ended[stream] = b"", True
        else:
            # hold back what may be the start of the marker
            cut = buf.rfind(b"\0", max(0, len(buf) - len(self.end)))
            if cut >= 0 and not self.end.startswith(buf[cut:]):
                cut = -1
            body, self.held[stream], rest = (buf, b"", b"") if cut < 0 else (buf[:cut], buf[cut:], b"")
        if body:
            self.data[stream].append(body)
            if self.sink:
                self.sink(stream, body)
        self.check()
        return rest

    def check(self):
        if self.rc is not None and all(self.ended.values()):
            self.done.set()


class Node:
    """A guest. Made and started by Cluster; `argv` is QEMU's command line without the channels added here."""

    def __init__(self, rank, rundir, share):
        self.rank, self.rundir, self.share = rank, rundir, share
        self.commands_dir = share / ".weft" / f"node{rank}"
        self.commands_dir.mkdir(parents=True, exist_ok=True)
        self.proc = None
        self.generation = 0
        self.killed = False  # by us, on purpose
        self.hello = threading.Event()
        self.dead = threading.Event()
        self.setup_error = ""
        self.boot_seconds = None
        self._lock = threading.Lock()  # one command at a time
        self._mutex = threading.Lock()  # the fields below
        self._qmp_lock = threading.Lock()
        self._command = None
        self._serial = 0
        self._look_lock = threading.Lock()
        self._follower = None
        self._told = 0  # complaints that a Result has named
        self._kept = {}  # consoles of boots with complaints, once their files are gone
        self.allow = ()  # regular expressions for what the kernel may complain about
        self.complaints = []  # all others, of all boots
        self._unsettled = False  # a command has ended, and nobody has waited for what the kernel may say of it
        self._stuck = False  # the last command does not end
        self.restarts = 0  # boots that did not reach guest/start and were made again

    # ---- life

    def start(self, argv, preload=None, interactive=False, virtio=""):
        """Start QEMU. Call it from a thread that lives as long as the node: the kernel kills QEMU when it ends.

        `virtio` is appended to the options of virtio devices.
        """
        self.generation += 1
        self.console_path = self._console_path(self.generation)
        self.log_path = self.rundir / f"node{self.rank}.qemu.log"
        self._follower, self.killed = console.Follower(self, self.console_path, self.generation), False
        self.hello.clear()
        self.dead.clear()
        self.setup_error = ""
        pairs = {name: socket.socketpair() for name in ("ctl", "out", "err", "qmp")}
        for _, theirs in pairs.values():
            theirs.set_inheritable(True)
        argv = list(argv) + ["-device", "virtio-serial-pci,id=weftser,max_ports=8" + virtio]
        for nr, name in enumerate(("ctl", "out", "err"), 1):
            argv += ["-chardev", f"socket,id=weft{name},fd={pairs[name][1].fileno()}",
                     "-device", f"virtserialport,bus=weftser.0,nr={nr},chardev=weft{name},name=weft.{name}"]
        argv += ["-chardev", f"socket,id=weftqmp,fd={pairs['qmp'][1].fileno()}", "-mon", "chardev=weftqmp,mode=control"]
        if interactive:
            argv += ["-chardev", f"stdio,id=weftcon,mux=on,signal=off,logfile={self.console_path}",
                     "-serial", "chardev:weftcon", "-mon", "chardev=weftcon"]
        else:
            argv += ["-chardev", f"file,id=weftcon,path={self.console_path}", "-serial", "chardev:weftcon"]
        # The preload is env's for this one exec: nothing else can be started with it.
        full = ["setpriv", "--pdeathsig", "KILL", "env"] + ([f"LD_PRELOAD={preload}"] if preload else []) + argv
        self.started = time.monotonic()
        with open(self.log_path, "ab") as log:
            log.write((" ".join(full) + "\n").encode())
            log.flush()
            self.proc = subprocess.Popen(
                full, stdin=None if interactive else subprocess.DEVNULL, stdout=None if interactive else log,
                stderr=log, pass_fds=[theirs.fileno() for _, theirs in pairs.values()])
        for _, theirs in pairs.values():
            theirs.close()
        self._socks = {name: ours for name, (ours, _) in pairs.items()}
        self._qmp_file = None
        self._pump_thread = threading.Thread(target=self._pump, name=f"node{self.rank}", daemon=True)
        self._pump_thread.start()

    def _pump(self):
        """Read the channels until QEMU ends."""
        streams = {self._socks["out"]: 1, self._socks["err"]: 2, self._socks["ctl"]: 0}
        sel = selectors.DefaultSelector()
        for s in streams:
            sel.register(s, selectors.EVENT_READ)
        line = b""
        while sel.get_map():
            self.look()
            for key, _ in sel.select(LOOK):
                s = key.fileobj
                try:
                    chunk = s.recv(65536)
                except OSError:
                    chunk = b""
                if not chunk:
                    sel.unregister(s)
                elif streams[s]:
                    with self._mutex:
                        if self._command and not self._command.ended[streams[s]]:
                            self._command.feed(streams[s], chunk)
                else:
                    line += chunk
                    while b"\n" in line:
                        one, line = line.split(b"\n", 1)
                        self._control(one.decode(errors="replace").strip())
        self.proc.wait()
        self.look(last=True)
        with self._mutex:
            self.dead.set()
            self.hello.set()
            if self._command:
                self._command.done.set()

    def _control(self, line):
        word, _, rest = line.partition(" ")
        if word == "hello":
            _, _, self.setup_error = rest.strip().partition(" ")
            self.boot_seconds = time.monotonic() - self.started
            self.hello.set()
        elif word == "rc":
            ident, rc = rest.split()
            with self._mutex:
                if self._command and self._command.ident == ident:
                    self._command.rc = int(rc)
                    self._command.check()

    def _tell(self, line):
        try:
            self._socks["ctl"].sendall(line.encode() + b"\n")
        except OSError:
            pass  # dead; the pump says so

    def wait_ready(self, deadline):
        """Wait until the guest serves commands; TimeoutError or NodeDied when it does not come."""
        if not self.hello.wait(max(0, deadline - time.monotonic())):
            raise TimeoutError(f"node {self.rank} did not boot in time")
        if self.dead.is_set():
            raise NodeDied(f"node {self.rank}: {self.obituary()}")
        if self.setup_error:
            raise NodeDied(f"node {self.rank}: {self.setup_error}")

    def alive(self):
        return self.proc is not None and not self.dead.is_set()

    def kill(self):
        """SIGKILL for this node's QEMU."""
        self.killed = True
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
        if self.proc:
            self.dead.wait(10)

    def stop(self):
        """SIGSTOP for this node's QEMU: the guest stands still until cont()."""
        self.proc.send_signal(signal.SIGSTOP)

    def cont(self):
        self.proc.send_signal(signal.SIGCONT)

    def off(self):
        """Ask for an orderly end; returns at once."""
        if self.alive():
            self._tell("off")

    # ---- commands

    def run(self, script, timeout, sink=None):
        """Run a shell script; `sink(stream, bytes)` gets the output (1: stdout, 2: stderr) as it comes."""
        with self._lock:
            if not self.alive():
                raise NodeDied(f"node {self.rank}: {self.obituary()}")
            self._serial += 1
            ident = f"{self.generation}.{self._serial}"
            path = self.commands_dir / ident
            path.write_text(script)
            cmd = _Command(ident, sink)
            with self._mutex:
                self._command = cmd
                if self.dead.is_set():
                    cmd.done.set()
            start = time.monotonic()
            self._tell(f"run {ident}")
            timed_out = not cmd.done.wait(timeout)
            if timed_out:
                self._tell(f"kill {ident}")
                cmd.done.wait(10)
            seconds = time.monotonic() - start
            with self._mutex:
                self._command = None
            path.unlink(missing_ok=True)
            self._unsettled, self._stuck = True, not cmd.done.is_set()
            out, err = (b"".join(cmd.data[s]).decode(errors="replace") for s in (1, 2))
            rc = 124 if timed_out else cmd.rc if cmd.rc is not None else 255
            return Result(rc, out, err, seconds, timed_out, not timed_out and cmd.rc is None, self.problems())

    def settle(self, seconds):
        """Let the guest live on for a moment after its last command, and look at its console."""
        if self._unsettled and not self._stuck and self.alive() and not self._lock.locked():
            try:
                self.run(f"sleep {seconds}", 10)
            except NodeDied:
                pass
        self._unsettled = False
        self.look()

    # ---- what it says

    def _console_path(self, generation):
        return self.rundir / f"node{self.rank}.console.{generation}"

    def console(self, generation=None):
        """The serial console of the node's latest boot, or of another one."""
        generation = generation or self.generation
        if generation in self._kept:
            return self._kept[generation]
        try:
            return self._console_path(generation).read_text(errors="replace")
        except OSError:
            return ""

    def look(self, last=False):
        """Read what is new on the console and keep what the kernel complains about."""
        with self._look_lock:
            if self._follower:
                self.complaints += self._follower.look(self.allow, last)

    def problems(self):
        """Lines, since the last call, that say that the kernel is unwell. They are kept in `complaints` too."""
        self.look()
        new = self.complaints[self._told:]
        self._told += len(new)
        return [c.line for c in new]

    def reached_init(self):
        """The guest has come as far as guest/start."""
        try:
            return self.hello.is_set() or STARTED in self.console_path.read_bytes()
        except OSError:
            return False

    def evidence(self, folder):
        """Keep in `folder` what tells why the node stands still: console, QEMU's log, state and registers.

        These twice, 3 s apart: an interrupt that still waits then is lost, not on its way.
        """
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"node{self.rank}.console").write_text(self.console())
        said = [self.qemu_log()]
        for look in range(2 if self.alive() else 1):
            time.sleep(3 * look)
            for execute, line in (("query-status", None), *((None, words) for words in (
                    "info registers -a", "info lapic 0", "info lapic 1", "info pic"))):
                try:
                    answer = (self.monitor(execute) if execute else
                              self.monitor("human-monitor-command", **{"command-line": line}))
                except (OSError, RuntimeError) as e:
                    answer = str(e)
                said.append(f"=== {execute or line}\n" + (answer if isinstance(answer, str) else json.dumps(answer)))
        if self.alive() and self.hello.is_set():  # it may still serve
            said.append("=== in the guest\n" + self.run("cat /proc/interrupts /proc/timer_list", 20).out)
        (folder / f"node{self.rank}.qemu").write_text("\n".join(said).replace("\r", ""))

    def panicked(self):
        return bool(console.PANIC.search(self.console()))

    def qemu_log(self):
        try:
            return "".join(self.log_path.read_text(errors="replace").splitlines(keepends=True)[1:]).strip()
        except (OSError, AttributeError):
            return ""

    def obituary(self):
        if self.proc is None:
            return "never started"
        if self.killed:
            return "killed"
        if self.dead.is_set() and self.proc.returncode == 0 and not self.panicked():
            return "it powered off"
        if self.panicked():
            return "the guest panicked"
        if not self.dead.is_set():
            return "does not answer"
        log = self.qemu_log()
        return f"QEMU ended with {self.proc.returncode}" + (": " + log[-2000:] if log else "")

    # ---- QEMU's monitor

    def monitor(self, execute, **arguments):
        """One QMP command; returns its "return" value, raises RuntimeError with QEMU's error."""
        with self._qmp_lock:
            sock = self._socks["qmp"]
            sock.settimeout(30)
            if self._qmp_file is None:
                self._qmp_file = sock.makefile("rw", encoding="utf-8")
                json.loads(self._qmp_file.readline())  # greeting
                self._qmp("qmp_capabilities", {})
            return self._qmp(execute, arguments)

    def _qmp(self, execute, arguments):
        self._qmp_file.write(json.dumps({"execute": execute, "arguments": arguments}) + "\n")
        self._qmp_file.flush()
        while True:
            line = self._qmp_file.readline()
            if not line:
                raise NodeDied(f"node {self.rank}: the monitor is closed")
            answer = json.loads(line)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise RuntimeError(f"{execute}: {answer['error'].get('desc')}")

    def close(self):
        self.kill()
        for generation in {c.generation for c in self.complaints}:
            self._kept.setdefault(generation, self.console(generation))
        for s in getattr(self, "_socks", {}).values():
            s.close()
