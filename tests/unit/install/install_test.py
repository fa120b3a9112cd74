# SPDX-License-Identifier: MIT
"""cmake --install to a folder of its own, which is then moved: what is in it must work there."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

build, cmake, compiler, sanitize = sys.argv[1:5]
del sys.argv[1:5]
FLAGS = [f"-fsanitize={sanitize}"] if sanitize else []
HERE = Path(__file__).parent


def clean(**more):
    drop = ("LD_LIBRARY_PATH", "WEFT_DEVICE", "PKG_CONFIG_PATH")
    return {**{k: v for k, v in os.environ.items() if k not in drop}, **more}


class Copy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        first, cls.prefix = cls.folder / "first", cls.folder / "moved"
        cls.run_(cmake, "--install", build, "--prefix", first, "--component", "runtime")
        first.rename(cls.prefix)
        cls.lib = next(cls.prefix.rglob("libweft.so")).parent

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @staticmethod
    def run_(*command, **env):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=200, env=clean(**env))
        if done.returncode:
            raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def test_programs_find_the_libraries(self):
        self.run_(self.prefix / "bin/wccl-perf", "--sim", "--ranks", "2", "-b", "4K", "-n", "1", "-w", "0")
        self.assertIn("null", self.run_(self.prefix / "bin/weft-smi", "-d", "null"))
        for name in ("wccl-sched", "wccl-doctor", "weft-chart"):
            self.run_(self.prefix / "bin" / name, "--version")

    def test_pkg_config(self):
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config here")
        flags = self.run_("pkg-config", "--cflags", "--libs", "wccl", PKG_CONFIG_PATH=self.lib / "pkgconfig").split()
        program = self.folder / "by-pkg-config"
        self.run_(compiler, "-std=c11", "-Wall", "-Werror", *FLAGS, HERE / "program.c", "-o", program, *flags, f"-Wl,-rpath,{self.lib}")
        self.assertEqual(self.run_(program), "fine\n")

    def test_find_package(self):
        source, out = self.folder / "project", self.folder / "out"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(stranger C)\nfind_package(wccl 0.1 REQUIRED)\n"
            f"add_executable(program {HERE}/program.c)\ntarget_link_libraries(program wccl::wccl weft::weft)\n")
        self.run_(cmake, "-S", source, "-B", out, f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_C_COMPILER={compiler}",
                  f"-DCMAKE_C_FLAGS={' '.join(FLAGS)}")
        self.run_(cmake, "--build", out)
        self.assertEqual(self.run_(out / "program"), "fine\n")

    def test_the_api_alone_is_exported(self):
        for name, prefix in (("libweft.so", "weft_"), ("libwccl.so", "wccl"), ("libweft_ofi.so", ("weft_ofi_", "ibv_"))):
            if not (self.lib / name).exists():
                continue
            symbols = [line.split()[-1].split("@")[0] for line in self.run_("nm", "-D", "--defined-only", self.lib / name).splitlines()]
            own = [s for s in symbols if not s.startswith(("WEFT_", "WCCL_", "__asan", "__odr_asan"))]
            self.assertGreater(len(own), 0)
            self.assertEqual([s for s in own if not s.startswith(prefix)], [], name)


if __name__ == "__main__":
    unittest.main()
