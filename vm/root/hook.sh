#!/bin/sh
# SPDX-License-Identifier: MIT
# hook.sh excludes|finish ROOT: mmdebstrap's hooks for the core root.
set -eu
root=$2
inroot() { chroot "$root" "$@"; }
case $1 in
excludes)
    # A file in the root and not --dpkgopt: with that, mmdebstrap filters the essential packages through a Python
    # program (6 s). /etc/kernel: the kernel's hooks would build an initramfs that nobody boots (20 s). rv*: the
    # multilibs except RV32IM's. qemu-*: qemu-user's other targets (440 MB).
    cat >"$root/etc/dpkg/dpkg.cfg.d/weft" <<'EOF'
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/etc/kernel/p*.d/*
path-exclude=/usr/lib/gcc/riscv64-unknown-elf/*/rv*
path-include=/usr/lib/gcc/riscv64-unknown-elf/*/rv32im/*
path-exclude=/usr/bin/qemu-*
path-include=/usr/bin/qemu-system-x86_64
path-include=/usr/bin/qemu-riscv32
EOF
    ;;
finish)
    abi=$(inroot dpkg-query -W -f '${Depends}' linux-headers-amd64 | sed -n 's/.*linux-headers-\([^ ,]*\).*/\1/p')
    [ -e "$root/boot/vmlinuz-$abi" ] && [ -e "$root/lib/modules/$abi/build/Makefile" ] || {
        echo "no kernel image or no headers for $abi" >&2; exit 1; }
    # mmdebstrap's default sources have no deb-src.
    if ! grep -qs '^deb-src' "$root/etc/apt/sources.list" "$root"/etc/apt/sources.list.d/*.list; then
        sed -n 's/^deb /deb-src /p' "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/src.list"
        inroot apt-get -qq update
    fi
    # The source of exactly the installed QEMU, while the package lists are still there. --tar-only: a mirror may
    # have dropped the .dsc of a superseded version.
    inroot sh -ec 'mkdir -p /usr/src/weft && cd /usr/src/weft
        v=$(dpkg-query -W -f "\${source:Version}" qemu-system-x86)
        apt-get -qq source --download-only --tar-only "qemu=$v"'
    # This build's proxy must not bind a later stage, which is given its own.
    sed -i '/Proxy/d' "$root"/etc/apt/apt.conf.d/99mmdebstrap 2>/dev/null || :
    {
        echo "kernel=$abi"
        echo "kernel_version=$(inroot dpkg-query -W -f '${Version}' "linux-headers-$abi")"
        echo "qemu=$(inroot dpkg-query -W -f '${Version}' qemu-system-x86)"
    } >"$root/etc/weft-root"
    ;;
*) echo "hook.sh: excludes or finish" >&2; exit 2;;
esac
