# SPDX-License-Identifier: MIT
"""The driver in a guest: every ioctl (weft-drvtest), and the ends that are not the good one."""
import struct
import unittest

from weftvm import paths
from weftvm.cluster import Cluster

MODULE = "/share/.weft/modules/weft.ko"
FIRMWARE = "/lib/firmware/weft/weft-fw.bin"
BDF = "$(basename $(ls -d /sys/bus/pci/devices/*/ | while read d; do grep -qi 0x1af4 $d/vendor && grep -qi 0x10f0 $d/device && echo $d; done | head -n 1))"


class DriverCase(unittest.TestCase):
    """A test on the node of its class's cluster."""

    cluster = None
    options = {}

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(nodes=1, **cls.options)
        cls.cluster.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def sh(self, script, timeout=120):
        """Run shell code on the node; it must succeed and the kernel must not complain. Returns its output."""
        result = self.cluster.run(0, "set -e\n" + script, timeout)
        self.assertEqual(result.rc, 0, f"{script}\n{result.out}\n{result.err}")
        self.assertEqual(result.problems, [])
        return result.out

    def works(self):
        self.sh("weft-drvtest smoke")


def cases(cluster, test):
    """Run every case of weft-drvtest; each is a sub-test."""
    for name in cluster.run(0, "weft-drvtest list", 20).out.split():
        with test.subTest(case=name):
            test.sh(f"weft-drvtest {name}")


class Driver(DriverCase):
    """Ordinary layout: the accelerator below a PCIe switch, no IOMMU."""

    options = {"ports": 2, "cpus": 2}

    def test_ioctls(self):
        cases(self.cluster, self)

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
            for i in 1 2 3; do
                weft-drvtest reset >/tmp/said & p=$!
                until grep -q busy /tmp/said; do sleep 0.1; done
                echo 1 >/sys/bus/pci/devices/{BDF}/reset
                wait $p
                weft-drvtest smoke
            done""")

    def test_kill_while_busy(self):
        out = self.sh("""
            for i in 1 2 3 4 5; do
                weft-drvtest busy >/tmp/said & p=$!
                until grep -q busy /tmp/said; do sleep 0.1; done
                kill -9 $p
                ! wait $p
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
                until grep -q busy /tmp/said; do sleep 0.1; done
                echo 1 >/sys/bus/pci/devices/{BDF}/reset & q=$!
                kill -9 $p
                ! wait $p
                wait $q
                weft-drvtest smoke
            done""")

    def test_unbind_while_busy(self):
        self.sh(f"""
            d={BDF}
            for i in 1 2 3; do
                weft-drvtest hold >/tmp/said & p=$!
                until grep -q busy /tmp/said; do sleep 0.1; done
                echo $d >/sys/bus/pci/drivers/weft/unbind
                wait $p
                echo $d >/sys/bus/pci/drivers/weft/bind
                weft-drvtest smoke
            done""")

    def test_module_in_use_stays(self):
        self.sh("""
            weft-drvtest busy >/tmp/said & p=$!
            until grep -q busy /tmp/said; do sleep 0.1; done
            ! rmmod weft 2>/dev/null
            kill -9 $p
            ! wait $p""")
        self.works()


class Firmware(DriverCase):
    """Images that must be refused, each with its reason, and the right one afterwards."""

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

    options = {"viommu": True}

    def test_ioctls(self):
        cases(self.cluster, self)

    def test_reset_while_busy(self):
        self.sh(f"""
            weft-drvtest reset >/tmp/said & p=$!
            until grep -q busy /tmp/said; do sleep 0.1; done
            echo 1 >/sys/bus/pci/devices/{BDF}/reset
            wait $p
            weft-drvtest smoke""")

    def test_no_fault(self):
        """Whatever the tests above did, the IOMMU has refused nothing."""
        self.assertNotIn("DMAR: [DMA", self.sh("weft-drvtest host queue_ops; dmesg"))


if __name__ == "__main__":
    unittest.main()
