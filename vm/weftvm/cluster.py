# SPDX-License-Identifier: MIT
"""N nodes and the switch between them."""
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import accel, clock, paths
from .node import Node, NodeDied, Result

LAYOUTS = ("switch", "roots", "root-bus")
MAX_NODES = 64
# QEMU's own CPU, with fewer address bits: an AMD CPU of 40 bits has a hole below 1 TiB where the firmware puts 64-bit BARs, so
# that the kernel finds no room for one that was removed and found again.
CPU_TCG = "qemu64,phys-bits=39"
LATE = 0.5  # seconds after a command in which what the kernel says is counted as its doing
LATE_INIT = 90  # seconds in which a guest reaches guest/start; one that does not is started again, once
made = []  # clusters that were started, for those who judge them
CMDLINE = ("console=ttyS0 panic=-1 loglevel=5 mitigations=off nokaslr no_timer_check cryptomgr.notests "
           "initcall_blacklist=jent_mod_init,crypto_kdf108_init 8250.nr_uarts=1")


def _asan_runtime():
    """The sanitizer's runtime must be loaded before what uses it."""
    return subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True,
                          check=True).stdout.strip()


def modprobe_deps(module):
    """The packaged modules that a module of ours needs."""
    out = subprocess.run(["modinfo", "-F", "depends", str(module)], capture_output=True, text=True, check=True).stdout
    return [d for d in out.strip().split(",") if d]


@dataclass(frozen=True)
class Options:
    """What a cluster is made of. Sizes are QEMU's ("1G"), memory is in MiB, times in seconds."""
    nodes: int = 2
    devices: int = 1  # accelerators in each
    ports: int = 1  # of each accelerator
    hbm: str = "1G"
    cpus: int = 1
    memory: int = 1024
    kernel: str = "vmlinux"
    modules: tuple = ()  # inserted in order; one named weft.ko takes the place of the built driver
    driver: bool = True  # False loads none
    qemu_opts: tuple = ()  # or a string, in shell's words
    device_opts: str = ""
    nics: tuple = 0  # host NICs in each node, a number or one for each node
    nic_opts: str = ""
    viommu: bool = False
    capture: str = None
    loss: str = None
    seed: str = None
    model: str = None
    layout: str = "switch"
    share: str = None  # a folder that every node sees as /share (read-write); by default one that ends with the cluster
    append: str = ""
    sanitize: bool = False  # the device and the switch from build/asan
    boot_timeout: float = 270

    def __post_init__(self):
        if not 1 <= self.nodes <= MAX_NODES:
            raise ValueError(f"nodes is 1 to {MAX_NODES}")
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout is one of {', '.join(LAYOUTS)}")
        nics = (self.nics,) * self.nodes if isinstance(self.nics, int) else tuple(self.nics)
        if len(nics) != self.nodes:
            raise ValueError(f"nics is a number, or {self.nodes} of them")
        opts = shlex.split(self.qemu_opts) if isinstance(self.qemu_opts, str) else self.qemu_opts
        for name, value in (("nics", nics), ("qemu_opts", tuple(opts)), ("modules", tuple(map(Path, self.modules)))):
            object.__setattr__(self, name, value)


class Cluster:
    """Boots nodes as Options say; a context manager.

    `allow` holds regular expressions for kernel messages that are no complaints. Everything that start() refuses is a
    ValueError, what fails is NodeDied or TimeoutError.
    """

    def __init__(self, allow=(), say=None, interactive=False, **options):
        self.options = Options(**options)
        self.size = self.options.nodes
        self.allow, self.interactive = tuple(allow), interactive
        self._say = say or (lambda text: None)
        self.accel, self.accel_reason = accel.detect()
        self.fabric = None
        self.rundir = None
        self.nodes = []
        self.dirty = ""  # why no other test should use it
        self.addresses = [f"10.77.0.{1 + i}" for i in range(self.size)]

    # ---- life

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def start(self):
        """Start the switch and the nodes and wait until every node serves commands."""
        if paths.RUN:
            paths.RUN.mkdir(parents=True, exist_ok=True)
        self.rundir = Path(tempfile.mkdtemp(prefix="weft-", dir=paths.RUN))
        self.share = Path(self.options.share).resolve() if self.options.share else self.rundir / "share"
        (self.share / ".weft").mkdir(parents=True, exist_ok=True)
        for old in (self.share / ".weft").glob("node*"):
            shutil.rmtree(old, ignore_errors=True)
        paths.BUILD.mkdir(exist_ok=True)
        paths.publish()
        self._prepare()
        self._start_fabric()
        self.nodes = [Node(rank, self.rundir, self.share) for rank in range(self.size)]
        made.append(self)
        self._come_up(self.nodes)

    def boot(self, rank, wait=True):
        """Start a node again that was killed or has ended."""
        node = self.nodes[rank]
        if node.alive():
            raise ValueError(f"node {rank} is running")
        if wait:
            self._come_up([node])
        else:
            self._boot(node)

    def _come_up(self, nodes):
        """Boot nodes and wait for them. A guest whose kernel or init stands still is started again, once."""
        began = time.monotonic()
        for node in nodes:
            self._boot(node)
        deadline = began + self.options.boot_timeout
        late = min(began + LATE_INIT, deadline)
        while not all(node.hello.wait(0.1) for node in nodes) and time.monotonic() < late:
            pass
        for node in nodes:
            if not node.reached_init() and time.monotonic() < deadline:
                self._say(f"node {node.rank} did not reach its init in {LATE_INIT} s and is started again; "
                          f"why may be in {self.evidence(node)}")
                node.kill()
                node.restarts += 1
                self._boot(node)
        for node in nodes:
            try:
                node.wait_ready(deadline)
            except TimeoutError as e:
                raise TimeoutError(f"{e}; why may be in {self.evidence(node)}") from None

    @staticmethod
    def evidence(node):
        """Keep what tells why a node stands still; returns the folder."""
        kept = paths.BUILD / "hung" / f"{time.strftime('%m%d-%H%M%S')}-{os.getpid()}"
        node.evidence(kept)
        return kept.relative_to(paths.TOP)

    def restarts(self):
        """Guests that were started again."""
        return sum(node.restarts for node in self.nodes)

    # ---- what the kernels say

    def complaints(self):
        """All that was said so far by any node in any of its boots and is not allowed (console.Complaint)."""
        for node in self.nodes:
            node.look()
        return [c for node in self.nodes for c in node.complaints]

    def permit(self, allow):
        """Other regular expressions for what is no complaint, from now on."""
        for node in self.nodes:
            node.look()
            node.allow = tuple(allow)
        self.allow = tuple(allow)

    @contextmanager
    def allowing(self, *allow):
        """A with statement in which the kernels may say this too."""
        before = self.allow
        self.permit(before + allow)
        try:
            yield
            self.settle()
        finally:
            self.permit(before)

    def settle(self):
        """Wait until what the last commands may have done has been said, by the guests' clocks: a host may stall."""
        threads = [threading.Thread(target=node.settle, args=(LATE,), daemon=True) for node in self.nodes]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def close(self):
        """End everything at once: guests are not asked."""
        self.settle()
        for node in self.nodes:
            node.close()
        if self.fabric and self.fabric.poll() is None:
            self.fabric.terminate()
            try:
                self.fabric.wait(5)
            except subprocess.TimeoutExpired:
                self.fabric.kill()
                self.fabric.wait()
        if self.rundir:
            shutil.rmtree(self.rundir, ignore_errors=True)

    def shutdown(self, timeout=10):
        """Power the nodes off in order (their consoles stay readable), then stop the switch so that captures are
        whole."""
        self.settle()
        deadline = time.monotonic() + timeout
        for node in self.nodes:
            node.off()
        for node in self.nodes:
            if node.proc:
                node.dead.wait(max(0.1, deadline - time.monotonic()))
                node.kill() if node.alive() else None
        if self.fabric and self.fabric.poll() is None:
            self.fabric.terminate()
            try:
                self.fabric.wait(5)
            except subprocess.TimeoutExpired:
                self.fabric.kill()

    # ---- commands

    def run(self, rank, command, timeout=60, env=None, sink=None):
        """Run a command in a node; see script() for its form. Raises NodeDied only when the node was dead before."""
        return self.nodes[rank].run(self.script(rank, command, env), timeout, sink)

    def run_all(self, command, timeout=60, env=None, sink=None, ranks=None):
        """Run a command on every node (or `ranks`) at once; `sink(rank, stream, bytes)`. Returns the results in
        order."""
        ranks = list(range(self.size)) if ranks is None else list(ranks)
        results = [None] * len(ranks)

        def one(i, rank):
            try:
                results[i] = self.run(rank, command, timeout, env,
                                      (lambda stream, data: sink(rank, stream, data)) if sink else None)
            except NodeDied as e:
                results[i] = Result(255, "", str(e), 0.0, gone=True)
        threads = [threading.Thread(target=one, args=(i, rank), daemon=True) for i, rank in enumerate(ranks)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return results

    def switch(self, line, timeout=10):
        """One command to the switch ("stats", "plan loss=0.01 seed=7", "link n0d0p0 down", ...); its answer, a dict.

        ValueError when the switch refuses it.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(timeout)
            control.connect(str(self.rundir / "control.sock"))
            control.sendall(line.encode() + b"\n")
            answer = json.loads(control.makefile().readline())
        if not answer.pop("ok"):
            raise ValueError(f"switch: {answer['error']}")
        return answer

    def reset_switch(self):
        """No impairment, all links up."""
        if self.fabric:
            self.switch("plan")
            for row in self.switch("stats")["rows"]:
                if re.fullmatch(r"n\d+[de]\d+p\d+", row["port"]):
                    self.switch(f"link {row['port']} up")

    def kill(self, rank):
        """SIGKILL a node's QEMU."""
        self.nodes[rank].kill()

    def stop(self, rank):
        """Let a node stand still (SIGSTOP) until cont()."""
        self.nodes[rank].stop()

    def cont(self, rank):
        self.nodes[rank].cont()

    def monitor(self, rank, execute, **arguments):
        """One QMP command on a node's QEMU."""
        return self.nodes[rank].monitor(execute, **arguments)

    def dma(self, rank, device):
        """Bytes that went through a device's DMA so far: {"payload-ram-read": n, ...}; `device` is "accel0", "nic0",
        ..."""
        text = self.monitor(rank, "qom-get", path=f"/machine/peripheral/{device}", property="dma")
        return {name: int(value) for name, value in (word.split("=") for word in text.split())}

    def console(self, rank):
        return self.nodes[rank].console()

    def environment(self, rank):
        """What every command finds in its environment."""
        return {
            "WEFT_RANK": str(rank), "WEFT_SIZE": str(self.size), "WEFT_ADDR": self.addresses[rank],
            "WEFT_ADDRS": ",".join(self.addresses), "WEFT_ACCEL": self.accel, "WEFT_BUILD": str(paths.BUILD),
            "PATH": f"{paths.BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LD_LIBRARY_PATH": str(paths.LIB), "HOME": "/root", "LC_ALL": "C.UTF-8",
        }

    def script(self, rank, command, env=None):
        """The shell script for a command: a string is shell code, a list is words, run in /share."""
        lines = [f"export {k}={shlex.quote(str(v))}" for k, v in {**self.environment(rank), **(env or {})}.items()]
        lines.append("cd /share")
        lines.append(command if isinstance(command, str) else "exec " + shlex.join(str(w) for w in command))
        return "\n".join(lines) + "\n"

    def guest_path(self, word):
        """Where a guest finds a file of the checkout named on a command line; any other word is returned as it is."""
        path = Path(word)
        if "/" not in word or not path.is_file():
            return word
        path = path.resolve()
        if path.parts[1] in ("usr", "bin", "sbin", "lib", "etc", "opt", "var", "boot"):
            return word  # the root's, which the guest shares
        if path.is_relative_to(paths.BUILD):
            return str(path)
        if path.is_relative_to(paths.TOP) and (paths.GUEST / path.relative_to(paths.TOP)).exists():
            return str(paths.GUEST / path.relative_to(paths.TOP))
        to = self.share / ".weft" / "cmd" / path.name
        to.parent.mkdir(exist_ok=True)
        shutil.copy2(path, to)
        to.chmod(0o755)
        return f"/share/.weft/cmd/{path.name}"

    # ---- how it is put together

    def _tree(self):
        return paths.BUILD / ("asan" if self.options.sanitize else "weft")

    def fabric_error(self):
        """What the switch said when it ended by itself, else an empty string."""
        if self.fabric is None or self.fabric.poll() is None:
            return ""
        log = self.fabric_log.read_text(errors="replace")[-2000:].strip()
        return f"the switch ended with {self.fabric.returncode}: {log}"

    def _prepare(self):
        weft = self.share / ".weft"
        shutil.copy(paths.TOP / "vm" / "guest" / "start", weft / "start")
        hosts = ["127.0.0.1 localhost"] + [f"{a} node{i}" for i, a in enumerate(self.addresses)]
        (weft / "hosts").write_text("\n".join(hosts) + "\n")
        modules = list(self.options.modules)
        built = paths.DRIVER / "weft.ko"
        if self.options.driver and built.exists() and not any(m.name == "weft.ko" for m in modules):
            modules.insert(0, built)
        if self.options.devices and self.options.driver and not modules:
            self._say("no driver is built (build/driver/weft.ko): the accelerators stay without one")
        if any(self.options.nics) and self.options.driver and not any(m.name == "efa.ko" for m in modules):
            if not paths.EFA.exists():
                raise ValueError("no driver for host NICs is built (build/efa/efa.ko): say make build; with ROOT=/ it "
                                 "needs the package linux-source-6.12")
            modules.append(paths.EFA)
        (weft / "modules").mkdir(exist_ok=True)
        self._insmod, self._modprobe = [], []
        ours = {m.name.replace("-", "_").removesuffix(".ko") for m in modules}
        for m in modules:
            if not m.is_file():
                raise ValueError(f"no such module: {m}")
            subprocess.run(["strip", "--strip-debug", "-o", str(weft / "modules" / m.name), str(m)], check=True)
            self._insmod.append(f"/share/.weft/modules/{m.name}")
            self._modprobe += [d for d in modprobe_deps(m) if d not in ours and d not in self._modprobe]
        self._firmware = str(paths.FIRMWARE) if paths.FIRMWARE.exists() and self.options.driver else ""
        self._kernel, self._initrd = self._pick_kernel()
        self._preload = ""
        if self.options.devices or any(self.options.nics):
            device = self._tree() / "lib" / "weft-qemu.so"
            if not device.exists():
                raise ValueError(f"no device is built ({device.relative_to(paths.TOP)}); "
                                 "or say --devices 0 and --nics 0")
            self._preload = f"{_asan_runtime()}:{device}" if self.options.sanitize else str(device)

    def _pick_kernel(self):
        """kernel= is vmlinux or bzImage (the root's own), a file of either kind, or a kernel build tree."""
        initrd = paths.MADE / "initramfs.cpio"
        if self.options.kernel in ("vmlinux", "bzImage"):
            return paths.MADE / self.options.kernel, initrd
        given = Path(self.options.kernel)
        if given.is_dir():
            for name in ("vmlinux", "arch/x86/boot/bzImage"):
                if (given / name).exists():
                    initrd = self.rundir / "initramfs.cpio"
                    subprocess.run([str(paths.TOP / "vm" / "mkinitramfs"), "-", str(initrd), str(given)], check=True)
                    return given / name, initrd
            raise ValueError(f"{given} holds no vmlinux and no arch/x86/boot/bzImage")
        if not given.is_file():
            raise ValueError(f"no such kernel: {given}")
        return given, initrd

    def _start_fabric(self):
        program = self._tree() / "bin" / "weft-fabric"
        self._net = None
        if not program.exists():
            if self.options.devices or any(self.options.nics) or self.options.capture or self.size > 2:
                raise ValueError(f"no switch is built ({program.relative_to(paths.TOP)})")
            return  # two nodes without accelerators reach each other by QEMU's own means
        cmd = ["setpriv", "--pdeathsig", "KILL", str(program), "--weft", str(self.rundir / "weft.sock"),
               "--net", str(self.rundir / "net.sock"), "--control", str(self.rundir / "control.sock")]
        for option, value in (("--capture", self.options.capture), ("--loss", self.options.loss),
                              ("--seed", self.options.seed)):
            if value is not None:
                cmd += [option, str(value)]
        self.fabric_log = self.rundir / "fabric.log"
        with open(self.fabric_log, "wb") as log:
            self.fabric = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        ready = threading.Event()

        def read():
            for line in self.fabric.stdout:
                if line.strip() == b"ready":
                    ready.set()
            ready.set()
        threading.Thread(target=read, daemon=True).start()
        if not ready.wait(30) or self.fabric.poll() is not None:
            raise NodeDied("the switch did not start: " + self.fabric_log.read_text(errors="replace").strip())
        self._net = self.rundir / "net.sock"

    def _pci(self, rank):
        """QEMU options for the accelerators and the host NICs of a node, and where they sit."""
        out = []
        functions = []
        for d in range(self.options.devices):
            if self.options.model:
                device = f"weft-model,bus=@,id=accel{d},path={Path(self.options.model).resolve()},name=n{rank}d{d}"
            else:
                device = f"weft,bus=@,id=accel{d},hbm={self.options.hbm},ports={self.options.ports},serial=n{rank}d{d}"
            device += f",fabric={self.rundir}/weft.sock"
            functions.append(device + ("," + self.options.device_opts if self.options.device_opts else ""))
        for k in range(self.options.nics[rank]):
            nic = (f"weft-efa,bus=@,id=nic{k},mac={self.nic_mac(rank, k)},fabric={self.rundir}/weft.sock,"
                   f"serial=n{rank}e{k}")
            functions.append(nic + ("," + self.options.nic_opts if self.options.nic_opts else ""))
        if self.options.layout == "switch" and functions:
            out += ["-device", "pcie-root-port,id=rp0,bus=pcie.0,chassis=1,slot=1",
                    "-device", "x3130-upstream,id=up0,bus=rp0"]
        for i, function in enumerate(functions):
            if self.options.layout == "switch":
                bus = f"dn{i}"
                out += ["-device", f"xio3130-downstream,id={bus},bus=up0,chassis=2,slot={i}"]
            elif self.options.layout == "roots":
                bus = f"rp{i}"
                out += ["-device", f"pcie-root-port,id={bus},bus=pcie.0,chassis={1 + i},slot={1 + i}"]
            else:
                bus = "pcie.0"
            out += ["-device", function.replace("bus=@", f"bus={bus}", 1)]
        return out

    @staticmethod
    def nic_mac(rank, nic):
        """The address of a host NIC; its GID is made of it (EUI-64)."""
        return f"02:ef:a0:{rank >> 8:02x}:{rank & 255:02x}:{nic:02x}"

    def _boot(self, node):
        rank = node.rank
        quoted = {
            "size": self.size, "build": paths.BUILD, "firmware": self._firmware, "modprobe": " ".join(self._modprobe),
            "module_files": " ".join(self._insmod), "interactive": self._terminal() if self.interactive and not rank
            else "",
        }
        (node.commands_dir / "env").write_text("".join(f"{k}={shlex.quote(str(v))}\n" for k, v in quoted.items()))
        (node.commands_dir / "profile").write_text(
            "".join(f"export {k}={shlex.quote(v)}\n" for k, v in self.environment(rank).items()))
        kvm = self.accel == "kvm"
        # Only what is under test sits behind the IOMMU: virtio devices keep guest-physical addresses (9p hangs
        # otherwise).
        virtio = ",disable-legacy=on" if self.options.viommu else ""
        append = [CMDLINE, f"weft.node={rank}"]
        if not kvm:
            append.append(clock.kernel_options())
        if self.options.viommu:
            append.append("intel_iommu=on iommu.strict=1")
        # The console's reader goes by the stamps. A host that stalls, or a node stopped for 20 s, is no lock-up.
        append += ["watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120", self.options.append, "printk.time=1"]
        argv = ["qemu-system-x86_64", "-name", f"node{rank}",
                "-machine", "q35" + (",kernel-irqchip=split" if kvm and self.options.viommu else ""),
                "-accel", "kvm" if kvm else "tcg,thread=multi"]
        argv += ["-cpu", "host" if kvm else CPU_TCG]
        argv += ["-m", str(self.options.memory), "-smp", str(self.options.cpus), "-nodefaults", "-no-user-config",
                 "-display", "none",
                 "-no-reboot", "-kernel", str(self._kernel), "-initrd", str(self._initrd), "-append", " ".join(append)]
        if self.options.viommu:  # before the devices behind it
            argv += ["-device", "intel-iommu"]
        argv += ["-device", "virtio-rng-pci" + virtio]
        for tag, path, readonly in (("root", paths.CLEAN_ROOT, True), ("build", paths.BUILD, True),
                                    ("share", self.share, False)):
            argv += ["-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap"
                     + (",readonly=on" if readonly else ""),
                     "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}{virtio}"]
        argv += self._netdev(rank, virtio)
        argv += self._pci(rank)
        argv += self.options.qemu_opts
        node.allow = self.allow
        node.start(argv, preload=self._preload, interactive=bool(quoted["interactive"]), virtio=virtio)

    def _netdev(self, rank, virtio):
        if self._net:
            netdev = f"stream,id=net0,server=off,addr.type=unix,addr.path={self._net}"
        elif self.size == 2:
            netdev = (f"dgram,id=net0,local.type=unix,local.path={self.rundir}/net{rank}.sock,"
                      f"remote.type=unix,remote.path={self.rundir}/net{1 - rank}.sock")
        else:
            return []
        return ["-netdev", netdev, "-device", f"virtio-net-pci,netdev=net0,mac=02:77:00:00:00:{rank:02x}{virtio}"]

    @staticmethod
    def _terminal():
        try:
            size = os.get_terminal_size()
        except OSError:
            size = os.terminal_size((0, 0))
        return f"rows {size.lines or 24} cols {size.columns or 80}"
