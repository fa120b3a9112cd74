#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""program_test.py WEFT-FABRIC: the switch program through its sockets, spoken to by hand.

`-netdev stream` framing as QEMU's net/stream.c has it, link messages as weft/fabric/link.hpp fixes them.
"""
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv.pop(1)
HELLO, FRAME, CREDIT, PAUSE, STATE, STATION = 1, 2, 3, 4, 5, 6


def frame(to, source, text):
    return bytes([2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, source, 0x88, 0xB5]) + text.ljust(46, b".")


class Port:
    """A client of one of the switch's sockets."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(10)
        self.socket.connect(path)

    def take(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def close(self):
        self.socket.close()


class Netdev(Port):
    def send(self, data):
        self.socket.sendall(struct.pack(">I", len(data)) + data)

    def receive(self):
        return self.take(struct.unpack(">I", self.take(4))[0])


class Weft(Port):
    def __init__(self, path, name, credits=1024):
        super().__init__(path)
        self.message(HELLO, 0, 0, struct.pack("<IHHII32s", 0x4B4E4C57, 2, 0, credits, 0, name.encode()))
        assert self.receive()[0] == HELLO

    def message(self, kind, cls, count, payload=b""):
        self.socket.sendall(struct.pack("<IBBH", len(payload), kind, cls, count) + payload)

    def send(self, data):
        self.message(FRAME, 0, 0, data)

    def receive(self):
        length, kind, cls, count = struct.unpack("<IBBH", self.take(8))
        return kind, count, self.take(length)

    def receive_frame(self):
        while True:
            kind, _, payload = self.receive()
            if kind == FRAME:
                return payload


class FabricProgram(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weft-")
        self.paths = {kind: f"{self.folder.name}/{kind}.sock" for kind in ("weft", "net", "control")}
        options = [word for kind, path in self.paths.items() for word in (f"--{kind}", path)]
        self.process = subprocess.Popen([PROGRAM, *options], stdout=subprocess.PIPE, text=True)
        self.assertEqual(self.process.stdout.readline(), "ready\n")
        self.ports = []

    def tearDown(self):
        for port in self.ports:
            port.close()
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(10), 0)
        self.process.stdout.close()
        self.assertEqual(os.listdir(self.folder.name), [], "socket files are removed")
        self.folder.cleanup()

    def port(self, kind, *arguments):
        port = kind(self.paths["weft" if kind is Weft else "net"], *arguments)
        self.ports.append(port)
        return port

    def command(self, line):
        control = Port(self.paths["control"])
        control.socket.sendall(line.encode() + b"\n")
        answer = control.socket.makefile().readline()
        control.close()
        return json.loads(answer)

    def await_stats(self, holds):
        """The ports' counters, once holds(them) is true."""
        for _ in range(200):
            rows = {row["port"]: row for row in self.command("stats")["rows"]}
            if holds(rows):
                return rows
            time.sleep(0.02)
        self.fail(f"waited in vain; last: {rows}")

    def await_ports(self, *names):
        self.await_stats(lambda rows: rows.keys() >= set(names))

    def test_netdevs_and_accelerators_share_one_segment(self):
        a, b, c = self.port(Netdev), self.port(Netdev), self.port(Weft, "n0d0p0")
        self.await_ports("net0", "net1", "n0d0p0")
        a.send(frame(9, 1, b"to all"))
        for other in (b.receive, c.receive_frame):
            self.assertEqual(other(), frame(9, 1, b"to all"))
        c.send(frame(1, 3, b"back"))
        self.assertEqual(a.receive(), frame(1, 3, b"back"))
        given = 0
        for _ in range(1023):  # with the one above the whole window; credits come back in lots, before it is used up
            c.send(frame(1, 3, b"more"))
            self.assertEqual(a.receive(), frame(1, 3, b"more"))
        while given < 512:
            kind, count, _ = c.receive()
            self.assertEqual(kind, CREDIT)
            given += count
        self.assertLessEqual(given, 1024)

    def test_credits_hold_frames_back(self):
        a, c = self.port(Netdev), self.port(Weft, "few", 2)
        self.await_ports("net0", "few")
        for number in range(4):
            a.send(frame(3, 1, b"%d" % number))
        self.assertEqual([c.receive_frame()[14:15] for _ in range(2)], [b"0", b"1"])
        c.socket.settimeout(0.2)
        with self.assertRaises(TimeoutError):
            c.receive()
        c.socket.settimeout(10)
        c.message(CREDIT, 0, 2)
        self.assertEqual([c.receive_frame()[14:15] for _ in range(2)], [b"2", b"3"])

    def test_capture_and_plan_by_command(self):
        a, c = self.port(Netdev), self.port(Weft, "n0d0p0")
        self.await_ports("net0", "n0d0p0")
        capture = os.path.join(self.folder.name, "x.pcapng")
        self.assertTrue(self.command(f"capture start {capture}")["ok"])
        c.send(frame(1, 3, b"kept"))
        self.assertEqual(a.receive(), frame(1, 3, b"kept"))
        self.assertTrue(self.command("capture stop")["ok"])
        with open(capture, "rb") as file:
            data = file.read()
        os.unlink(capture)
        self.assertEqual(data.count(frame(1, 3, b"kept")), 1)
        self.assertIn(b"n0d0p0", data)
        self.assertTrue(self.command("plan loss=1 seed=2")["ok"])
        c.send(frame(1, 3, b"lost"))
        a.send(frame(3, 1, b"netdevs keep theirs"))
        self.assertEqual(c.receive_frame(), frame(3, 1, b"netdevs keep theirs"))
        rows = self.await_stats(lambda rows: rows["n0d0p0"]["lost"] > 0)
        self.assertEqual((rows["n0d0p0"]["lost"], rows["net0"]["lost"]), (1, 0))

    def test_a_port_that_ends_is_told_to_the_others(self):
        a, b, c, d = self.port(Netdev), self.port(Netdev), self.port(Weft, "n0d0p0"), self.port(Weft, "n1d0p0")
        self.await_ports("net0", "net1", "n0d0p0", "n1d0p0")
        b.send(frame(9, 2, b"here"))
        d.send(frame(9, 4, b"and here"))
        for _ in range(2):
            a.receive(), c.receive_frame()
        b.close()
        self.assertEqual(c.receive(), (STATION, 0, bytes([2, 0, 0, 0, 0, 2, 0, 0])))
        self.assertTrue(self.command("link n1d0p0 down")["ok"])
        self.assertEqual(c.receive(), (STATION, 0, bytes([2, 0, 0, 0, 0, 4, 0, 0])))
        self.assertTrue(self.command("link n1d0p0 up")["ok"])
        self.assertEqual(c.receive(), (STATION, 1, bytes([2, 0, 0, 0, 0, 4, 0, 0])))
        # A guest is told by ICMP: host unreachable, with the packet.
        packet = bytes.fromhex("450000280000400040060000") + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + b"tcp".ljust(20, b".")
        a.send(frame(2, 1, b"")[:12] + b"\x08\0" + packet)
        answer = a.receive()
        self.assertEqual(answer[34:36], bytes([3, 1]))
        self.assertEqual(answer[42:], packet)
        self.assertTrue(self.command("link net0 down")["ok"])
        self.assertEqual(c.receive(), (STATION, 0, bytes([2, 0, 0, 0, 0, 1, 0, 0])))

    def test_a_reordered_frame_that_nobody_passes_goes_on(self):
        a, c = self.port(Netdev), self.port(Weft, "n0d0p0")
        self.await_ports("net0", "n0d0p0")
        self.assertTrue(self.command("plan reorder=1 seed=1")["ok"])
        c.send(frame(9, 3, b"alone"))
        self.assertEqual(a.receive(), frame(9, 3, b"alone"))
        self.assertEqual(self.await_stats(lambda rows: True)["n0d0p0"]["reordered"], 1)

    def test_much_goes_through_a_netdev_that_reads_slowly(self):
        a, c = self.port(Netdev), self.port(Weft, "n0d0p0")
        a.send(frame(9, 1, b"here"))
        c.receive_frame()
        big = frame(1, 3, b"x" * 9000)
        for lap in range(3):
            for number in range(300):
                c.send(big + b"%6d" % (300 * lap + number))
            for number in range(300):
                self.assertEqual(a.receive(), big + b"%6d" % (300 * lap + number))

    def test_bad_commands_say_why(self):
        for line, why in (("plan loss=2", "probability"), ("plan x=1", "no x"), ("link nobody up", "no port nobody"),
                          ("dance", "commands:"), ("capture start /nonexistent/x", "cannot write")):
            answer = self.command(line)
            self.assertFalse(answer["ok"])
            self.assertIn(why, answer["error"])

    def test_link_down_is_told_to_the_port(self):
        c = self.port(Weft, "n1d0p0")
        self.await_ports("n1d0p0")
        self.assertTrue(self.command("link n1d0p0 down")["ok"])
        self.assertEqual(c.receive()[:2], (STATE, 0))
        self.assertTrue(self.command("link n1d0p0 up")["ok"])
        self.assertEqual(c.receive()[:2], (STATE, 1))

    def test_garbage_ends_that_port_only(self):
        a, b = self.port(Netdev), self.port(Netdev)
        bad = Port(self.paths["weft"])
        self.ports.append(bad)
        bad.socket.sendall(b"\xff" * 64)
        with self.assertRaises((EOFError, ConnectionResetError)):
            bad.take(1 << 20)
        worse = self.port(Netdev)
        worse.socket.sendall(b"\xff\xff\xff\xff")
        with self.assertRaises((EOFError, ConnectionResetError)):
            worse.take(1)
        a.send(frame(9, 1, b"on"))
        self.assertEqual(b.receive(), frame(9, 1, b"on"))

    def test_second_switch_on_the_same_socket_is_refused(self):
        other = subprocess.run([PROGRAM, "--net", self.paths["net"]], capture_output=True, text=True, timeout=10)
        self.assertEqual(other.returncode, 1)
        self.assertIn("in use", other.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
