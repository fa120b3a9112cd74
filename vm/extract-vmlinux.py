#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""extract-vmlinux.py BZIMAGE: write the compressed kernel of a bzImage to stdout.

The setup header (Documentation/arch/x86/boot.rst) tells its place: setup_sects at 0x1f1, payload_offset at 0x248,
payload_length at 0x24c. The payload's last four bytes are the unpacked size, not compressed data.
"""
import struct
import sys

with open(sys.argv[1], "rb") as f:
    data = f.read()
if data[0x202:0x206] != b"HdrS":
    sys.exit("not a bzImage: " + sys.argv[1])
sectors = data[0x1F1] or 4
offset, length = struct.unpack_from("<II", data, 0x248)
start = (sectors + 1) * 512 + offset
sys.stdout.buffer.write(data[start:start + length - 4])
