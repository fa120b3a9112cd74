# SPDX-License-Identifier: MIT
"""What counts as a kernel's complaint on a console: its own texts, of each kind."""
import tempfile
import unittest
from pathlib import Path

from weftvm import console

BAD = """\
WARNING: CPU: 0 PID: 231 at drivers/accel/weft/queue.c:112 weft_queue_free+0x88/0x90 [weft]
BUG: kernel NULL pointer dereference, address: 0000000000000010
BUG: unable to handle page fault for address: ffffc90000a3c000
Oops: 0002 [#1] PREEMPT SMP NOPTI
Oops: general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1] SMP
kernel BUG at lib/list_debug.c:32!
Kernel panic - not syncing: sysrq triggered crash
BUG: KASAN: slab-use-after-free in weft_event+0x41/0xc0 [weft]
BUG: KCSAN: data-race in a / b
BUG: KFENCE: out-of-bounds read in test+0x1/0x2
UBSAN: array-index-out-of-bounds in drivers/accel/weft/mailbox.c:52:17
ODEBUG: free active (active state 0) object: 00000000c3f3 object type: timer_list hint: tick+0x0/0x60
refcount_t: underflow; use-after-free.
list_del corruption. next->prev should be ffff88800a, but was dead000000000122. (next=ffff88800b)
kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
DMA-API: weft 0000:03:00.0: device driver failed to check map error[device address=0x0000000003a2a000]
WARNING: possible circular locking dependency detected
WARNING: possible recursive locking detected
INFO: possible recursive locking detected
WARNING: possible irq lock inversion dependency detected
WARNING: inconsistent lock state
WARNING: suspicious RCU usage
BUG: sleeping function called from invalid context at kernel/locking/mutex.c:585
WARNING: SOFTIRQ-safe -> SOFTIRQ-unsafe lock order detected
INFO: trying to register non-static key.
WARNING: bad unlock balance detected!
[ BUG: Invalid wait context ]
WARNING: held lock freed!
WARNING: lock held when returning to user space!
BUG: scheduling while atomic: insmod/97/0x00000002
INFO: task weft-drvtest:214 blocked for more than 120 seconds.
rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
rcu: INFO: rcu_preempt self-detected stall on CPU
rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... } 21002 jiffies s: 77 root: 0x2/.
rcu: rcu_preempt kthread timer wakeup didn't happen for 5252 jiffies! g-1079 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x402
rcu: rcu_preempt kthread starved for 5252 jiffies! g-1079 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x402 ->cpu=1
watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [wccl-perf:214]
watchdog: Watchdog detected hard LOCKUP on cpu 0
irq 27: nobody cared (try booting with the "irqpoll" option)
unregister_netdevice: waiting for eth0 to become free. Usage count = 2
insmod: page allocation failure: order:9, mode:0x40cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null)
Out of memory: Killed process 233 (wccl-perf) total-vm:1048576kB, anon-rss:900000kB, file-rss:0kB
DMAR: [DMA Read NO_PASID] Request device [03:00.0] fault addr 0x5a5a000 [fault reason 0x06] PTE Read access is not set
DMAR: DRHD: handling fault status reg 2
DMAR: VT-d detected Invalidation Time-out Error: SID 0
DMAR-IR: [INTR-REMAP] Request device [f0:00.0] fault index 0x8080 [fault reason 0x22] Present field in IRTE is clear
weft 0000:03:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000a address=0x5a5a000 flags=0x0000]
AMD-Vi: Completion-Wait loop timed out
pcieport 0000:00:01.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:03:00.0
pcieport 0000:00:01.0: AER: Multiple Correctable error message received from 0000:03:00.0
weft 0000:03:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Requester ID)
pcieport 0000:00:01.0: DPC: containment event, status:0x1f01 source:0x0000
Call Trace:
""".splitlines()

GOOD = """\
weft: loading out-of-tree module taints kernel.
weft: module verification failed: signature and/or required key missing - tainting kernel
DMAR: IOMMU enabled
DMAR: Host address width 39
DMAR: DRHD base: 0x000000fed90000 flags: 0x0
DMAR: dmar0: reg_base_addr fed90000 ver 1:0 cap d2008c22260286 ecap f00f4a
DMAR: No ATSR found
DMAR: dmar0: Using Queued invalidation
DMAR: Intel(R) Virtualization Technology for Directed I/O
DMAR-IR: Enabled IRQ remapping in x2apic mode
AMD-Vi: AMD IOMMUv2 loaded and initialized
pcieport 0000:00:01.0: AER: enabled with IRQ 24
pcieport 0000:00:01.0: DPC: enabled with IRQ 24
acpi PNP0A08:00: _OSC: OS now controls [PCIeHotplug SHPCHotplug PME AER PCIeCapability LTR]
DMA-API: preallocated 65536 debug entries
DMA-API: debugging enabled by kernel config
kmemleak: Kernel memory leak detector initialized (mem pool available: 15678)
traps: weft-drvtest[212] general protection fault ip:401136 sp:7ffd error:0 in weft-drvtest[401000+1000]
weft-drvtest[214]: segfault at 0 ip 0000000000401136 sp 00007ffd error 6 in weft-drvtest[401000+1000]
WARN_ON in a text of somebody
rcu: Hierarchical RCU implementation.
weft 0000:03:00.0: not usable; once the cause is cured, reset the function
workqueue: weft_event_work [weft] hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND
""".splitlines()

STAMPS = ("[    1.234567] ", "[    0.000000][    T0] ", "[12345.678901][  C1] ", "<4>[    1.234567] ",
          "half a line of a program[    1.234567] ")


class Scanner(unittest.TestCase):
    def test_each_kind(self):
        for line in BAD:
            for stamp in STAMPS:
                with self.subTest(line=line, stamp=stamp):
                    self.assertEqual(console.scan(f"x\r\n{stamp}{line}\r\n"),
                                     [(1, stamp.strip() and (stamp + line).strip())])

    def test_nothing_that_is_well(self):
        for line in GOOD:
            with self.subTest(line=line):
                self.assertEqual(console.scan(STAMPS[0] + line), [])

    def test_programs_may_say_what_they_like(self):
        for line in ("WARNING: the store is full", "a BUG: in my program", "Call Trace:", "AER: hello"):
            self.assertEqual(console.scan(line), [])

    def test_the_kernel_without_stamps(self):
        """Before the stamps are on, or from a kernel that has none."""
        for line in ("BUG: kernel NULL pointer dereference, address: 0000000000000010",
                     "Oops: 0002 [#1] PREEMPT SMP NOPTI",
                     "WARNING: CPU: 0 PID: 231 at kernel/a.c:1 a+0x1/0x2",
                     "Kernel panic - not syncing: Attempted to kill init!",
                     "WARNING: possible recursive locking detected"):
            with self.subTest(line=line):
                self.assertEqual(len(console.scan(line)), 1)

    def test_allowed_with_its_trace(self):
        report = "\n".join(STAMPS[0] + line for line in (
            "------------[ cut here ]------------", BAD[0], "Modules linked in: weft", "Call Trace:", " <TASK>",
            "---[ end trace 0000000000000000 ]---"))
        self.assertEqual([number for number, _ in console.scan(report)], [1])
        self.assertEqual(console.scan(report, [r"weft/queue\.c"]), [])
        self.assertEqual(len(console.scan(report + "\n" + STAMPS[0] + BAD[1], [r"weft/queue\.c"])), 1)

    def test_excerpt(self):
        text = "\n".join(f"line {i}" for i in range(100))
        self.assertEqual(console.excerpt(text, [50], before=1, after=2), "  line 49\n  line 50\n  line 51")
        self.assertEqual(console.excerpt(text, [2, 90], before=0, after=1), "  line 2\n  ...\n  line 90")
        self.assertEqual(console.end("a\nb\nc\n", 2), "  b\n  c")


class Follower(unittest.TestCase):
    def test_as_it_grows(self):
        """Nothing twice, nothing lost where a read ends in a line or in a report, and the right line numbers."""
        report = "".join(f"{STAMPS[0]}{line}\r\n" for line in ("up", BAD[0], "RIP: 0010", "Call Trace:", BAD[1]))
        for step in (1, 7, 60, 1000):
            with self.subTest(step=step), tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "console")
                follower, found = console.Follower(None, file, 1), []
                self.assertEqual(follower.look(()), [])
                for at in range(0, len(report), step):
                    with open(file, "a", newline="") as f:
                        f.write(report[at:at + step])
                    found += follower.look(())
                self.assertEqual([(c.number, c.line) for c in found],
                                 [(1, (STAMPS[0] + BAD[0])), (4, STAMPS[0] + BAD[1])])

    def test_last_line(self):
        """A panic may be the last that is said, without an end of line."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "console")
            file.write_text(STAMPS[0] + BAD[6])
            follower = console.Follower(None, file, 1)
            self.assertEqual(follower.look(()), [])
            self.assertEqual(len(follower.look((), last=True)), 1)
