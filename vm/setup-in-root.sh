#!/bin/sh
# SPDX-License-Identifier: MIT
# setup-in-root.sh OUT: runs inside the root (vm/enter). Makes in OUT, each once, what builds and boots need:
#   root.env        kernel= and qemu= of the root
#   qemu/           headers of the root's own QEMU: include/, linux-headers/, VERSION
#   vmlinux         the root's kernel as an ELF with a PVH entry; bzImage
#   initramfs.cpio  busybox, /init and the modules that mount the root
set -eu
out=$1 here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
mkdir -p "$out"; cd "$out"

if [ -e /etc/weft-root ]; then
    . /etc/weft-root
else # ROOT=/
    kernel=$(dpkg-query -W -f '${Depends}' linux-headers-amd64 | sed -n 's/.*linux-headers-\([^ ,]*\).*/\1/p')
    qemu=$(dpkg-query -W -f '${Version}' qemu-system-x86)
fi
printf 'kernel=%s\nqemu=%s\n' "$kernel" "$qemu" >root.env.tmp && mv root.env.tmp root.env
have=$(qemu-system-x86_64 --version | sed -n 's/.*version \([0-9.]*\).*/\1/p')

# ---- QEMU's headers: a device object must be built against exactly the version it is loaded into
if [ "$(cat qemu/.done 2>/dev/null)" != "$qemu" ]; then
    t=$(now)
    src=/usr/src/weft
    set -- "$src"/qemu_*.orig.tar.xz
    if [ ! -e "$1" ]; then # ROOT=/
        src=$out/source; mkdir -p "$src"
        (cd "$src" && apt-get -qq source --download-only --tar-only qemu="$qemu") >&2 ||
            die "no source of QEMU $qemu: ROOT=/ needs a deb-src line in this machine's apt sources"
        set -- "$src"/qemu_*.orig.tar.xz
    fi
    rm -rf qemu; mkdir qemu
    tar -C qemu --strip-components=1 --wildcards --no-wildcards-match-slash -xf "$1" \
        '*/include' '*/qapi' '*/scripts/qapi*' '*/VERSION' \
        '*/linux-headers/asm-generic' '*/linux-headers/linux' '*/linux-headers/asm-x86'
    [ "$(cat qemu/VERSION)" = "$have" ] ||
        die "QEMU's headers are $(cat qemu/VERSION), its program is $have: run make refresh"
    ln -s asm-x86 qemu/linux-headers/asm
    # -b: with the built-in types
    python3 -B qemu/scripts/qapi-gen.py -b -o qemu/include/qapi qemu/qapi/qapi-schema.json
    rm -rf qemu/include/qapi/*.c qemu/include/qapi/*.trace-events qemu/qapi qemu/scripts
    for d in POSIX LINUX IOVEC SYSMACROS MADVISE CPUID_H QOM_CAST_DEBUG ATOMIC64 INT128; do
        echo "#define CONFIG_$d 1"
    done >qemu/include/config-host.h
    printf '#define HOST_X86_64 1\n#define HAVE_STRUCT_STAT_ST_ATIM 1\n' >>qemu/include/config-host.h
    : >qemu/include/config-poison.h # target macros, which code common to all targets never sees
    echo "$qemu" >qemu/.done
    say "QEMU $have: headers ($(took "$t"))"
fi

# ---- the kernel: started through its PVH entry it need not unpack itself under TCG
if [ "$(cat .vmlinux 2>/dev/null)" != "$kernel" ]; then
    t=$(now)
    python3 -B "$here/extract-vmlinux.py" "/boot/vmlinuz-$kernel" | zstd -qdc >vmlinux.tmp
    readelf -n vmlinux.tmp 2>/dev/null | grep -q Xen || die "the kernel image has no PVH note"
    mv vmlinux.tmp vmlinux
    cp "/boot/vmlinuz-$kernel" bzImage
    echo "$kernel" >.vmlinux
    say "kernel $kernel: vmlinux ($(took "$t"))"
fi

# ---- the initramfs
key=$(cat "$here/guest/init" "$here/mkinitramfs" | sha256sum)
if [ "$(cat .initramfs 2>/dev/null)" != "$kernel $key" ]; then
    t=$(now)
    "$here/mkinitramfs" "$kernel" initramfs.cpio.tmp
    mv initramfs.cpio.tmp initramfs.cpio
    echo "$kernel $key" >.initramfs
    say "initramfs: $(($(stat -c %s initramfs.cpio) / 1000)) kB ($(took "$t"))"
fi
