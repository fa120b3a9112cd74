# SPDX-License-Identifier: MIT
"""weft-fwpack as a program: what it says and how it exits."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

program = sys.argv.pop(1)
image = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None


def run(*arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout + done.stderr


class Fwpack(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return path

    @unittest.skipUnless(image, "no riscv64-unknown-elf-g++ when this was built: there is no firmware image")
    def test_takes_the_image(self):
        code, text = run("--check", image)
        self.assertEqual(code, 0, text)
        self.assertIn("good: weft control 2.0 for hardware 2.0", text)

    def test_packs_what_it_takes(self):
        out = self.folder / "out.bin"
        code, text = run(self.file("in.bin", b"\x13\0\0\0\x13"), out)
        self.assertEqual(code, 0, text)
        self.assertEqual(out.stat().st_size, 64 + 8)
        code, text = run("--check", out)
        self.assertEqual(code, 0, text)
        damaged = bytearray(out.read_bytes())
        damaged[-8] ^= 1
        code, text = run("--check", self.file("damaged.bin", damaged))
        self.assertEqual(code, 1, text)
        self.assertIn("refused, boot error 8", text)

    def test_refuses_another_file(self):
        code, text = run("--check", self.file("text", b"not an image, but longer than a header is: " * 4))
        self.assertEqual(code, 1, text)
        self.assertIn("refused, boot error 3: not a Weft", text)

    def test_wrong_use(self):
        for arguments in ((), ("one",), ("--check", self.folder / "nothing"), (self.folder / "nothing", self.folder / "out"),
                          (self.file("in.bin", b"\0" * 4), self.folder / "no" / "out"),
                          (self.file("large.bin", b"\0" * (256 * 1024 + 4)), self.folder / "out")):
            code, text = run(*arguments)
            self.assertEqual(code, 2, (arguments, text))
            self.assertTrue(text)


unittest.main()
