# SPDX-License-Identifier: MIT
"""The driver in a guest: every ioctl (weft-drvtest), and the ends that are not the good one."""
import time
import errno
import struct

from weftvm import clock, paths
from weftvm.case import NodeTest

MODULE = "/share/.weft/modules/weft.ko"
FIRMWARE = "/lib/firmware/weft/weft-fw.bin"
BDF = "$(basename $(ls -d /sys/bus/pci/devices/*/ | while read d; do grep -qi 0x1af4 $d/vendor && grep -qi 0x10f0 $d/device && echo $d; done | head -n 1))"


class DriverCase(NodeTest):
    """A test on one node."""

    options = {"nodes": 1}

    def works(self):
        self.sh("weft-drvtest smoke")


def cases(test):
    """Run every case of weft-drvtest; each is a sub-test."""
    names = test.sh("weft-drvtest list").split()
    test.assertGreater(len(names), 20)
    for name in names:
        with test.subTest(case=name):
            test.sh(f"weft-drvtest {name}")


class Driver(DriverCase):
    """Ordinary layout: the accelerator below a PCIe switch, no IOMMU."""

    options = {"nodes": 1, "ports": 2, "cpus": 2}

    def test_ioctls(self):
        cases(self)

    def test_load_and_unload(self):
        self.sh(f"""
            i=0
            while [ $i -lt 20 ]; do
                rmmod weft
                [ ! -e /dev/accel/accel0 ]
                insmod {MODULE}
                [ -e /dev/accel/accel0 ]
                i=$((i + 1))
            done""")
        self.works()

    def test_reset_while_busy(self):
        self.sh(f"""
            for how in reset look reset look; do
                weft-drvtest $how >/tmp/said & p=$!
                until grep -q busy /tmp/said; do kill -0 $p; sleep 0.1; done
                echo 1 >/sys/bus/pci/devices/{BDF}/reset
                wait $p
                weft-drvtest smoke
            done""")

    def test_kill_while_busy(self):
        out = self.sh("""
            for i in 1 2 3 4 5; do
                weft-drvtest busy >/tmp/said & p=$!
                until grep -q busy /tmp/said; do kill -0 $p; sleep 0.1; done
                kill -9 $p
                if wait $p; then exit 1; fi
                weft-drvtest smoke
            done
            cat /sys/kernel/debug/accel/*/weft_hbm
            cat /sys/kernel/debug/accel/*/weft_contexts""")
        self.assertIn("used 0 by 0", out)
        self.assertNotIn("context", out)

    def test_reset_and_kill_together(self):
        self.sh(f"""
            for i in 1 2 3; do
                weft-drvtest busy >/tmp/said & p=$!
                until grep -q busy /tmp/said; do kill -0 $p; sleep 0.1; done
                echo 1 >/sys/bus/pci/devices/{BDF}/reset & q=$!
                kill -9 $p
                if wait $p; then exit 1; fi
                wait $q
                weft-drvtest smoke
            done""")

    def test_unbind_while_busy(self):
        self.sh(f"""
            d={BDF}
            for i in 1 2 3; do
                weft-drvtest hold >/tmp/said & p=$!
                until grep -q busy /tmp/said; do kill -0 $p; sleep 0.1; done
                echo $d >/sys/bus/pci/drivers/weft/unbind
                wait $p
                echo $d >/sys/bus/pci/drivers/weft/bind
                weft-drvtest smoke
            done""")

    def test_guest_clock_runs_as_the_hosts(self):
        """Between two looks the guest counts what the host counts, whatever stalls meanwhile."""
        def look():
            before = time.monotonic()
            guest = float(self.sh("cut -d' ' -f1 /proc/uptime"))
            return before, guest, time.monotonic()
        first = look()
        time.sleep(5)
        second = look()
        passed = second[1] - first[1]
        self.assertGreater(passed, (second[0] - first[2]) * 0.99 - 0.02)  # uptime is cut to 0.01 s
        self.assertLess(passed, (second[2] - first[0]) * 1.01 + 0.02)
        source = self.sh("cat /sys/devices/system/clocksource/clocksource0/current_clocksource").strip()
        if self.cluster.accel == "tcg":
            self.assertEqual(source, "tsc" if "tsc=reliable" in clock.kernel_options() else "hpet")

    def test_remove_and_rescan(self):
        """The function is found again, and its 1 GiB of memory gets room again."""
        self.sh(f"""
            d={BDF}
            for i in 1 2 3; do
                echo 1 >/sys/bus/pci/devices/$d/remove
                [ ! -e /dev/accel/accel0 ]
                echo 1 >/sys/bus/pci/rescan
                [ -e /dev/accel/accel0 ]
            done""")
        self.works()

    def test_no_success_after_unbind(self):
        """The runtime looks at shadow values and rings without a system call: what it finds there must not pass for success."""
        self.sh(f"""
            d={BDF}
            rm -f /tmp/go; mkfifo /tmp/go
            weft-gonetest </tmp/go >/tmp/said & p=$!
            exec 7>/tmp/go
            until grep -q ready /tmp/said; do kill -0 $p; sleep 0.1; done
            echo $d >/sys/bus/pci/drivers/weft/unbind
            echo >&7
            wait $p
            echo $d >/sys/bus/pci/drivers/weft/bind""")
        self.works()

    def test_open_while_unbinding(self):
        self.sh(f"""
            d={BDF}
            rm -f /tmp/stop
            weft-drvtest opens & p=$!
            weft-drvtest opens & q=$!
            for i in $(seq 10); do
                echo $d >/sys/bus/pci/drivers/weft/unbind
                echo $d >/sys/bus/pci/drivers/weft/bind
            done
            touch /tmp/stop
            wait $p
            wait $q""", 300)
        self.works()

    def test_lost_files_are_closed(self):
        self.sh("weft-drvtest innocent", 300)
        self.works()

    def test_device_falls_off_the_bus(self):
        """All reads give ones: users get errors, and once the device is back a reset brings it to work."""
        out = self.sh(f"""
            d={BDF}
            weft-drvtest info
            weft-drvtest reset >/tmp/said & p=$!
            until grep -q busy /tmp/said; do kill -0 $p; sleep 0.1; done
            setpci -s $d COMMAND=0:2
            if weft-drvtest smoke 2>/dev/null; then exit 1; fi
            wait $p
            if weft-drvtest smoke 2>/dev/null; then exit 1; fi
            dmesg | tail -n 8
            until dmesg | grep -q 'not usable; once'; do sleep 0.1; done
            weft-drvtest failed
            setpci -s $d COMMAND=2:2
            echo 1 >/sys/bus/pci/devices/$d/reset""")
        self.assertIn("does not answer on the bus", out)
        self.assertIn("not usable; once the cause is cured", out)
        self.works()

    def test_module_in_use_stays(self):
        self.sh("""
            weft-drvtest busy >/tmp/said & p=$!
            until grep -q busy /tmp/said; do kill -0 $p; sleep 0.1; done
            if rmmod weft 2>/dev/null; then exit 1; fi
            kill -9 $p
            if wait $p; then exit 1; fi""")
        self.works()


class Firmware(DriverCase):
    """Images that must be refused, each with its reason, and the right one afterwards."""

    options = Driver.options
    image = property(lambda self: paths.FIRMWARE.read_bytes())

    def patched(self, form, offset, value):
        image = bytearray(self.image)
        struct.pack_into(form, image, offset, value)
        return bytes(image)

    def refused(self, image, reason):
        """Load the driver with `image` (None: no file); the log must hold `reason`."""
        place = self.cluster.share / "bad-fw.bin"
        if image is not None:
            place.write_bytes(image)
        self.sh(f"cp {FIRMWARE} /tmp/good-fw.bin; rm -f {FIRMWARE}" + (f"; cp /share/bad-fw.bin {FIRMWARE}" if image is not None else ""))
        try:
            out = self.sh(f"rmmod weft; dmesg -C; insmod {MODULE} 2>&1 || true; dmesg; ls /dev/accel 2>/dev/null || true")
        finally:
            self.sh(f"cp /tmp/good-fw.bin {FIRMWARE}")
        self.assertIn(reason, out)
        self.assertNotIn("accel0", out)
        self.sh(f"rmmod weft; insmod {MODULE}")
        self.works()

    def test_missing(self):
        self.refused(None, "cannot be loaded (-2); install it below /lib/firmware")

    def test_no_header(self):
        self.refused(self.image[:20], "is 20 bytes, not 64 to")

    def test_too_long(self):
        self.refused(self.image + bytes(300 * 1024), "install the file anew")

    def test_cut_short(self):
        self.refused(self.image[:-64], f"its header says {len(self.image)}; the file is cut short or damaged")

    def test_wrong_magic(self):
        self.refused(self.patched("<I", 0, 0x7F454C46), "is no Weft firmware (magic 0x7f454c46")

    def test_wrong_header_version(self):
        self.refused(self.patched("<H", 4, 9), "image header version 9")

    def test_other_hardware(self):
        self.refused(self.patched("<I", 16, 7 << 16 | 3), "built for hardware interface 7.3")

    def test_flipped_bit(self):
        image = bytearray(self.image)
        image[len(image) // 2] ^= 0x10
        self.refused(bytes(image), "checksum wrong")


class StrictIommu(DriverCase):
    """Behind a strict IOMMU only what the DMA API mapped can be reached."""

    options = {"nodes": 1, "devices": 2, "viommu": True}
    kernel_modules = ("tests/vm/driver/importer",)

    def test_ioctls(self):
        cases(self)

    def test_reset_while_busy(self):
        self.sh(f"""
            weft-drvtest reset >/tmp/said & p=$!
            until grep -q busy /tmp/said; do kill -0 $p; sleep 0.1; done
            echo 1 >/sys/bus/pci/devices/{BDF}/reset
            wait $p
            weft-drvtest smoke""")


class ExportCase(DriverCase):
    """HBM as a dma-buf, imported for another PCI function (a second accelerator) by the module weft_importer."""

    options = {"nodes": 1, "devices": 2}
    kernel_modules = ("tests/vm/driver/importer",)

    def setUp(self):
        self.exporter, self.peer = self.sh(
            "for d in /sys/class/accel/accel[01]; do basename $(readlink -f $d/device); done").split()

    def attach(self, peer, how="export"):
        """(exit code, output) of weft-drvtest export."""
        r = self.cluster.run(0, f"weft-drvtest {how} {peer}", 30)
        return r.rc, r.out

    def detach(self):
        self.sh("echo detach >/dev/weft_importer")

    def segments(self):
        return [tuple(int(x, 16) for x in line.split()) for line in self.sh("cat /dev/weft_importer").splitlines()]

    def bar2(self, bdf):
        return int(self.sh(f"sed -n 3p /sys/bus/pci/devices/{bdf}/resource").split()[0], 16)


class Export(ExportCase):
    """Below one switch: reachable."""

    def test_addresses(self):
        """Without an IOMMU the importer sees the BAR where the CPU sees it."""
        rc, out = self.attach(self.peer)
        self.assertEqual(rc, 0)
        at = self.bar2(self.exporter) + int(out, 16)
        segments = self.segments()
        self.detach()
        self.assertEqual(sum(length for _, length in segments), (3 << 20) + 4096)
        for address, length in segments:
            self.assertEqual(address, at)
            self.assertEqual(length % 4096, 0)
            at += length

    def test_segment_boundary(self):
        """No segment crosses what the importer's device cannot cross; together they are the object."""
        self.sh(f"echo boundary {self.peer} fffff >/dev/weft_importer")
        try:
            rc, out = self.attach(self.peer)
            self.assertEqual(rc, 0)
            segments = self.segments()
            self.detach()
        finally:
            self.sh(f"echo boundary {self.peer} ffffffffffffffff >/dev/weft_importer")
        at = self.bar2(self.exporter) + int(out, 16)
        for address, length in segments:
            self.assertEqual(address, at)
            self.assertEqual(address >> 20, (address + length - 1) >> 20)
            at += length
        self.assertEqual(sum(length for _, length in segments), (3 << 20) + 4096)

    def test_reset_is_told(self):
        """A dynamic importer hears that the content is lost, once a reset; who pinned it is not called."""
        self.assertEqual(self.attach(self.peer, "watch")[0], 0)
        self.assertEqual(self.sh("cat /dev/weft_importer").strip(), "moved 0")
        for times in (1, 2):
            self.sh(f"echo 1 >/sys/bus/pci/devices/{self.exporter}/reset")
            self.assertEqual(self.sh("cat /dev/weft_importer").strip(), f"moved {times}")
        self.detach()
        self.assertEqual(self.attach(self.peer)[0], 0)
        self.sh(f"dmesg -C; echo 1 >/sys/bus/pci/devices/{self.exporter}/reset")
        self.assertNotIn("pinned memory moves", self.sh("dmesg"))
        self.detach()

    def test_memory_stays_while_attached(self):
        """The process is gone, its memory is not handed out before the importer lets go."""
        rc, _ = self.attach(self.peer)
        self.assertEqual(rc, 0)
        used = f"head -n 1 /sys/kernel/debug/accel/{self.exporter}/weft_hbm"
        self.assertIn(f"used {(3 << 20) + 4096} by 1", self.sh(used))
        self.detach()
        self.assertIn("used 0 by 0", self.sh(used))

    def test_unbind_while_attached(self):
        """The exporter goes: the importer can let go, and only then the memory is driven again."""
        rc, _ = self.attach(self.peer)
        self.assertEqual(rc, 0)
        self.sh(f"""
            echo {self.exporter} >/sys/bus/pci/drivers/weft/unbind
            setpci -s {self.exporter} COMMAND | grep -q '^...[0189]$' # memory decode is off
            if echo {self.exporter} 2>/dev/null >/sys/bus/pci/drivers/weft/bind; then exit 1; fi
            dmesg | grep -q 'still mapped by an importer'""")
        self.detach()
        self.sh(f"echo {self.exporter} >/sys/bus/pci/drivers/weft/bind; weft-drvtest --device /dev/accel/accel0 smoke")

    def test_reset_while_attached(self):
        rc, _ = self.attach(self.peer)
        self.assertEqual(rc, 0)
        self.sh(f"echo 1 >/sys/bus/pci/devices/{self.exporter}/reset; weft-drvtest smoke")
        self.detach()
        self.assertIn("used 0 by 0", self.sh(f"cat /sys/kernel/debug/accel/{self.exporter}/weft_hbm"))


class ExportUnreachable(ExportCase):
    """Each accelerator at a root port of its own: nothing says that the host bridge forwards between them."""

    options = {**ExportCase.options, "layout": "roots"}

    def test_refused(self):
        self.assertEqual(self.attach(self.peer)[0], errno.EPERM)
        self.assertIn("used 0 by 0", self.sh(f"cat /sys/kernel/debug/accel/{self.exporter}/weft_hbm"))


class ExportIommu(ExportCase):
    """The importer sees addresses of its own, made by the DMA API."""

    options = StrictIommu.options

    def test_addresses(self):
        rc, _ = self.attach(self.peer)
        self.assertEqual(rc, 0)
        segments = self.segments()
        bar = self.bar2(self.exporter)
        self.detach()
        self.assertEqual(sum(length for _, length in segments), (3 << 20) + 4096)
        for address, length in segments:
            self.assertEqual((address % 4096, length % 4096), (0, 0))
            self.assertFalse(bar <= address < bar + (1 << 30))
