#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""rocecheck.py CAPTURE...: check each RoCE v2 packet of a pcap or pcapng file by a reading of the standard of its own.

Shares no code with the device model. For every packet to UDP port 4791 it checks the lengths against each other, the IPv4
header checksum, the fixed fields of the BTH and the ICRC (InfiniBand Architecture Specification, volume 1, annex A17).
Prints one JSON object a file; exits 1 when a packet is wrong or a file has none.
"""
import collections
import json
import struct
import sys
import zlib

ROCE_PORT = 4791
# Bytes behind the BTH that an opcode's extended headers take (IBTA volume 1, table 38, and A17).
RC_NAMES = {
    0x00: "SEND_FIRST", 0x01: "SEND_MIDDLE", 0x02: "SEND_LAST", 0x03: "SEND_LAST_IMM", 0x04: "SEND_ONLY",
    0x05: "SEND_ONLY_IMM", 0x06: "WRITE_FIRST", 0x07: "WRITE_MIDDLE", 0x08: "WRITE_LAST", 0x09: "WRITE_LAST_IMM",
    0x0A: "WRITE_ONLY", 0x0B: "WRITE_ONLY_IMM", 0x0C: "READ_REQUEST", 0x0D: "READ_RESPONSE_FIRST",
    0x0E: "READ_RESPONSE_MIDDLE", 0x0F: "READ_RESPONSE_LAST", 0x10: "READ_RESPONSE_ONLY", 0x11: "ACKNOWLEDGE",
    0x12: "ATOMIC_ACKNOWLEDGE", 0x13: "COMPARE_SWAP", 0x14: "FETCH_ADD", 0x16: "SEND_LAST_INV", 0x17: "SEND_ONLY_INV",
}
SERVICES = {0: "RC", 1: "UC", 3: "UD"}


class Malformed(Exception):
    """What is wrong with a packet."""


def frames(path):
    """Yield (interface name, Ethernet frame) of a pcap or pcapng file; each frame must be whole."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] == b"\x0a\x0d\x0d\x0a":
        yield from pcapng_frames(data)
        return
    magic, = struct.unpack_from("<I", data)
    if magic not in (0xA1B2C3D4, 0xA1B23C4D):
        raise SystemExit(f"{path}: neither pcap nor pcapng (little-endian)")
    at = 24
    while at < len(data):
        captured, original = struct.unpack_from("<II", data, at + 8)
        if captured != original:
            raise SystemExit(f"{path}: truncated capture")
        yield "pcap", data[at + 16:at + 16 + captured]
        at += 16 + captured


def pcapng_frames(data):
    at, names = 0, []
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if length < 12 or length % 4 or at + length > len(data):
            raise SystemExit(f"pcapng: block at {at} has length {length}")
        if struct.unpack_from("<I", data, at + length - 4)[0] != length:
            raise SystemExit(f"pcapng: block at {at}: lengths differ")
        if kind == 1:  # interface description: option 2 is its name
            option, name = at + 16, f"if{len(names)}"
            while option < at + length - 4:
                code, size = struct.unpack_from("<HH", data, option)
                if code == 0:
                    break
                if code == 2:
                    name = data[option + 4:option + 4 + size].decode()
                option += 4 + (size + 3) // 4 * 4
            names.append(name)
        elif kind == 6:
            interface, _, _, captured, original = struct.unpack_from("<IIIII", data, at + 8)
            if captured != original:
                raise SystemExit("pcapng: truncated packet")
            yield names[interface], data[at + 28:at + 28 + captured]
        at += length


def internet_checksum(header):
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def check(frame):
    """The opcode's name, or None when it is not RoCE v2. Raises Malformed."""
    if len(frame) < 14:
        return None
    kind, at = struct.unpack_from(">H", frame, 12)[0], 14
    if kind == 0x8100:
        kind, at = struct.unpack_from(">H", frame, 16)[0], 18
    if kind == 0x0800:
        header = (frame[at] & 15) * 4
        if frame[at + 9] != 17:
            return None
        packet = bytearray(frame[at:at + struct.unpack_from(">H", frame, at + 2)[0]])
    elif kind == 0x86DD:
        header = 40
        if frame[at + 6] != 17:
            return None
        packet = bytearray(frame[at:at + 40 + struct.unpack_from(">H", frame, at + 4)[0]])
    else:
        return None
    if struct.unpack_from(">H", packet, header + 2)[0] != ROCE_PORT:
        return None
    if kind == 0x0800 and (header != 20 or internet_checksum(bytes(packet[:20])) != 0xFFFF):
        raise Malformed("IPv4 header checksum")
    if struct.unpack_from(">H", packet, header + 4)[0] != len(packet) - header:
        raise Malformed("UDP length differs from IP length")
    bth = header + 8
    if len(packet) < bth + 12 + 4:
        raise Malformed("shorter than BTH and ICRC")
    if packet[bth + 1] & 0x0F:
        raise Malformed("transport version")
    if packet[bth + 4] & 0x3F or packet[bth + 8] & 0x7F:
        raise Malformed("reserved bits of the BTH")
    masked = bytearray(packet[:-4])
    if kind == 0x0800:
        masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
    else:
        masked[0] |= 0x0F
        masked[1] = masked[2] = masked[3] = masked[7] = 0xFF
    masked[header + 6] = masked[header + 7] = masked[bth + 4] = 0xFF
    if struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(masked))) != bytes(packet[-4:]):
        raise Malformed("ICRC")
    opcode = packet[bth]
    name = RC_NAMES.get(opcode & 0x1F)
    if name is None or opcode >> 5 not in SERVICES:
        raise Malformed(f"opcode {opcode:#x}")
    return f"{SERVICES[opcode >> 5]}_{name}"


def examine(path):
    result = {"file": path, "frames": 0, "roce": 0, "wrong": 0, "opcodes": collections.Counter(),
              "reasons": collections.Counter(), "interfaces": collections.Counter()}
    for interface, frame in frames(path):
        result["frames"] += 1
        try:
            name = check(frame)
        except Malformed as why:
            result["roce"] += 1
            result["wrong"] += 1
            result["reasons"][str(why)] += 1
            continue
        if name:
            result["roce"] += 1
            result["opcodes"][name] += 1
            result["interfaces"][interface] += 1
    return result


def main(paths):
    if not paths or paths[0] in ("-h", "--help"):
        print(__doc__)
        return 2
    bad = False
    for path in paths:
        result = examine(path)
        bad |= result["wrong"] > 0 or result["roce"] == 0
        print(json.dumps(result))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
