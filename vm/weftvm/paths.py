# SPDX-License-Identifier: MIT
"""Where things lie. The wrapper (vm/weft-vm) tells us in the environment."""
import os
import shutil
import tempfile
from pathlib import Path

TOP = Path(os.environ.get("WEFT_TOP") or Path(__file__).resolve().parents[2])
BUILD = TOP / "build"
BIN = BUILD / "weft" / "bin"
LIB = BUILD / "weft" / "lib"
FIRMWARE = BUILD / "weft" / "firmware" / "weft-fw.bin"
DRIVER = BUILD / "driver"
EFA = BUILD / "efa" / "efa.ko"  # the host NIC's driver
GUEST = BUILD / "guest"  # what a guest sees of the checkout besides the build
MADE = Path(os.environ.get("WEFT_MADE", "/nonexistent"))
CLEAN_ROOT = os.environ.get("WEFT_CLEAN_ROOT", "/")
CACHE = MADE.parent
# Inside the root /run is memory of this call alone and ends with it.
RUN = Path("/run/weft") if CLEAN_ROOT != "/" else None


def root_env():
    """What the root holds: {"kernel": its kernel's release, "qemu": QEMU's version, ...}."""
    return dict(line.split("=", 1) for line in (MADE / "root.env").read_text().splitlines())


GUEST_FOLDERS = ("tests", "examples")
_NOT_FOR_GUESTS = {".cc", ".cpp", ".h", ".hpp", ".c", ".o", ".pyc", ".pcap", ".pcapng"}


def publish():
    """Copy the scripts of tests/ and examples/ to build/guest/, which guests see; only what changed."""
    for folder in GUEST_FOLDERS:
        for path in (TOP / folder).rglob("*"):
            if not path.is_file() or path.suffix in _NOT_FOR_GUESTS or "__pycache__" in path.parts:
                continue
            to = GUEST / path.relative_to(TOP)
            have, want = (to.stat() if to.exists() else None), path.stat()
            if have and (have.st_size, int(have.st_mtime)) == (want.st_size, int(want.st_mtime)):
                continue
            to.parent.mkdir(parents=True, exist_ok=True)
            # Another run of ours may do the same now; in its own PID namespace it may even have our PID.
            with tempfile.NamedTemporaryFile(dir=to.parent, prefix=f".{to.name}.", delete=False) as temporary:
                pass
            shutil.copy2(path, temporary.name)
            os.rename(temporary.name, to)
