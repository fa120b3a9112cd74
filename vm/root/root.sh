#!/bin/sh
# SPDX-License-Identifier: MIT
# root.sh [--refresh|--plain] [STAGE...]: find, or build, the Debian 13 root and add the given stages (vm/root/STAGE.list) to
# it in place. Prints the root's path on stdout, progress on stderr.
#
# The root lies in the cache under a hash of its recipe and the time it was made; the newest finished one is used.
# --refresh makes a new one from today's archives (security updates) and removes those that nobody is in.
# --plain finds or builds a Debian 12 with what the README asks of an ordinary machine, and ccache.
# ROOT=/ takes the running system instead: a Debian 13 with the same packages (vm/root/core.list).
# WEFT_MIRROR, WEFT_SECURITY: bases of the archives, else those of this machine's own apt.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
suite=trixie arch=amd64

refresh= kind=root what='Debian 13' size='600 MB of packages, 1 to 2 minutes'
case ${1:-} in
--refresh) refresh=1; shift;;
--plain) kind=plain suite=bookworm what='Debian 12' size='250 MB of packages, a minute'; shift;;
esac

packages() {
    case $kind-$1 in
    plain-core) # the list between the back quotes of the README's first section, and ccache
        echo ccache
        tr '\n' ' ' <"$here/../../README.md" | grep -o '`g++ cmake [^`]*`' | tr -d '`' | tr -s ' ' '\n' | grep . ;;
    *) sed 's/#.*//' "$here/$1.list" | tr -s ' \t\n' '\n' | grep . ;;
    esac
}
for s in "$@"; do [ -r "$here/$s.list" ] || die "no such stage: $s"; done

apt_install() { # $missing, on this machine
    say "installing on this machine (apt-get; log: $cache/apt.log):$missing"
    t=$(now)
    # shellcheck disable=SC2086
    { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install $missing; } \
        >"$cache/apt.log" 2>&1 </dev/null || { tail -n 15 "$cache/apt.log" >&2; die "apt-get could not install$missing"; }
    say "installed ($(took "$t"))"
}

if [ "${ROOT:-}" = / ]; then
    . /etc/os-release
    [ "${ID:-}-${VERSION_ID:-}" = debian-13 ] || die "ROOT=/ needs a Debian 13; this is ${PRETTY_NAME:-unknown}"
    missing=
    for s in core "$@"; do
        for p in $(packages "$s"); do
            case $p in src:*) continue;; esac # fetched where it is used
            p=${p%%=*}
            [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
        done
    done
    if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && [ "${WEFT_INSTALL:-}" = 1 ]; then
        mkdir -p "$cache"
        apt_install
    elif [ -n "$missing" ]; then
        die "ROOT=/ needs these packages (or say WEFT_INSTALL=1 as root): apt-get install --no-install-recommends$missing"
    fi
    echo /
    exit 0
fi

recipe() { if [ $kind = plain ]; then packages core; else cat "$here/core.list" "$here/hook.sh"; fi; }
key=$(recipe | { cat; echo "$suite $arch 1"; } | sha256sum | cut -c1-12)

newest() { # the newest finished root, or nothing
    set -- "$cache/$kind-$key"-*/etc/weft-root
    while [ $# -gt 1 ]; do shift; done
    [ -e "$1" ] && echo "${1%/etc/weft-root}"
}
have_stage() { # have_stage ROOT STAGE
    [ "$(cat "$1/var/lib/weft/$2" 2>/dev/null)" = "$(sha256sum <"$here/$2.list")" ]
}
complete() { # complete ROOT STAGE...
    c_=$1; shift
    for s in "$@"; do have_stage "$c_" "$s" || return 1; done
}

root=$(newest) || root=
if [ -n "$root" ] && [ -z "$refresh" ] && complete "$root" "$@"; then echo "$root"; exit 0; fi

# ---- from here on something has to be made

need_tools() {
    missing=
    command -v mmdebstrap >/dev/null || missing="$missing mmdebstrap"
    command -v setpriv >/dev/null && command -v unshare >/dev/null && command -v flock >/dev/null || missing="$missing util-linux"
    command -v mount >/dev/null || missing="$missing mount"
    ls /usr/share/keyrings/debian-archive-keyring.[gp]* >/dev/null 2>&1 || missing="$missing debian-archive-keyring"
    if [ "$(id -u)" != 0 ] && ! command -v newuidmap >/dev/null; then missing="$missing uidmap"; fi
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || die "this needs$missing (Debian, Ubuntu, Fedora, Arch and Nix package them)"
    if [ "$(id -u)" = 0 ]; then
        apt_install
    else
        die "something is missing; please run: sudo apt-get install --no-install-recommends$missing"
    fi
}

need_namespaces() {
    # shellcheck disable=SC2046
    ns=$(mount_ns $(all_ids)) && [ -n "$ns" ] && unshare $(all_ids) $ns --pid --fork true 2>/dev/null ||
        die "this machine or container allows no mount namespaces; on a Debian 13, say ROOT=/ (see vm/README.md)"
}

need_subids() {
    [ "$(id -u)" = 0 ] || grep -qs "^$(id -un):" /etc/subuid ||
        die "an ordinary user needs subordinate ids: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $(id -un)"
}

all_ids() { # options that make unshare's caller root with a range of ids (nothing when it is root)
    [ "$(id -u)" = 0 ] || echo '--map-root-user --map-auto'
}

remove() { # a root made by an ordinary user belongs to subordinate ids
    rm -rf --one-file-system "$@" 2>/dev/null || unshare --map-root-user --map-auto rm -rf --one-file-system "$@" ||
        die "cannot remove $*"
}

# The archives this machine's own apt uses, if it is a Debian: "uri PATTERN" is the first whose suite matches.
uri() {
    for f in /etc/apt/sources.list.d/*.sources; do
        [ -r "$f" ] && { cat "$f"; echo; }
    done | awk -v pat="$1" '
        function flush() { if (u != "" && s ~ pat) { split(u, a, " "); if (!done) print a[1]; done = 1 } u = s = "" }
        /^[ \t]*$/ { flush() }
        tolower($1) == "uris:" { u = $0; sub(/^[^:]*:[ \t]*/, "", u) }
        tolower($1) == "suites:" { s = $0 }
        END { flush() }' | grep -E '^https?://' && return 0
    for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do [ -r "$f" ] && cat "$f"; done |
        sed -n 's/^[ \t]*deb[ \t]\{1,\}\(\[[^]]*\][ \t]*\)\{0,1\}\([^ \t]*\)[ \t]\{1,\}\([^ \t]*\).*/\2 \3/p' |
        awk -v pat="$1" '$2 ~ pat { print $1; exit }' | grep -E '^https?://' || :
}

proxy() { # this machine's apt proxy: mmdebstrap and a chroot do not read its apt.conf
    command -v apt-config >/dev/null || return 0
    p_=; eval "$(apt-config shell p_ Acquire::http::Proxy)"
    echo "$p_"
}

build_core() {
    need_tools; need_subids; need_namespaces
    names='(^|[ \t])(bullseye|bookworm|trixie|forky|sid|stable|testing)([ \t]|$)'
    mirror=${WEFT_MIRROR:-$(uri "$names")}
    security=${WEFT_SECURITY:-$(uri '(bullseye|bookworm|trixie|forky|stable|testing)-security')}
    proxy=$(proxy)
    for keyring in /usr/share/keyrings/debian-archive-keyring.[gp]*; do [ -e "$keyring" ] && break; done
    sources=
    if [ -n "$mirror" ]; then
        for s in $suite $suite-updates; do sources="$sources
deb [signed-by=$keyring] $mirror $s main
deb-src [signed-by=$keyring] $mirror $s main"; done
        [ -z "$security" ] || sources="$sources
deb [signed-by=$keyring] $security $suite-security main
deb-src [signed-by=$keyring] $security $suite-security main"
    fi
    root=$cache/$kind-$key-$(date +%Y%m%d%H%M%S)
    part=$cache/part-${root##*/} log=$cache/root.log
    for p in "$cache/part-$kind"-*; do [ ! -e "$p" ] || { say "removing a broken-off root"; remove "$p"; }; done
    say "building the $what root (about $size; log: $log)"
    t=$(now)
    finish="$here/hook.sh finish \"\$1\""
    [ $kind = root ] || finish='date >"$1/etc/weft-root"'
    set -- mmdebstrap --variant=apt --architectures=$arch --keyring="$keyring" --mode=root \
        --include="$(packages core | paste -sd,)" \
        --aptopt='Acquire::Languages "none"' \
        --aptopt='Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false"' \
        --aptopt='Acquire::Retries "3"' ${proxy:+--aptopt="Acquire::http::Proxy \"$proxy\""} \
        --aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io \
        --essential-hook="$here/hook.sh excludes \"\$1\"" \
        --customize-hook="$finish" \
        $suite "$part" ${mirror:+-}
    # What mmdebstrap starts and mounts ends with namespaces of our own; an ordinary user is root in them.
    # shellcheck disable=SC2046
    set -- unshare $(all_ids) $(mount_ns $(all_ids)) --pid --fork --kill-child --mount-proc -- "$@"
    printf '%s\n' "$sources" >"$cache/sources.tmp"
    ( exec >&2 9>&-; watch_log "$log" ) & watcher=$!
    rc=0; contain "$@" <"$cache/sources.tmp" >"$log" 2>&1 || rc=$?
    kill $watcher 2>/dev/null || :
    rm -f "$cache/sources.tmp"
    [ $rc = 0 ] || { tail -n 25 "$log" >&2; die "mmdebstrap failed; see $log"; }
    [ -s "$part/etc/weft-root" ] || die 'the root is incomplete: its hook did not run'
    mv "$part" "$root"
    say "root ready: $(du -sm "$root" 2>/dev/null | cut -f1) MB ($(took "$t"))"
}

watch_log() { # what mmdebstrap is at, as it says it; ends with our parent
    seen=0 t=$(now) i=0
    while [ $((i += 1)) -lt 1800 ] && sleep 2 && kill -0 $$ 2>/dev/null; do
        sed -n "$((seen + 1)),\$s/^I: \(running apt-get update\|downloading.*\|extracting archives\|installing.*\|cleaning.*\).*/\1/p" \
            "$1" 2>/dev/null | cut -c1-70 | while read -r l; do say "  $l ($(took "$t"))"; done
        seen=$(wc -l <"$1" 2>/dev/null || echo 0)
    done
}

add_stage() { # add_stage STAGE: apt-get install in the finished root
    log=$cache/stage-$1.log
    say "adding stage $1 to the root (log: $log)"
    t=$(now)
    . "$root/etc/weft-root" # kernel_version
    pkgs=$(packages "$1" | grep -v '^src:' | sed "s/@kernel@/$kernel_version/" | paste -sd' ')
    sources=$(packages "$1" | sed -n 's/^src://p' | paste -sd' ')
    u=$(all_ids) rc=0
    # shellcheck disable=SC2086
    contain unshare $u $(mount_ns $u) --pid --fork --kill-child -- /bin/sh -ec '
        root=$1 pkgs=$2 proxy=$3 sources=$4
        mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"; mount -t tmpfs tmpfs "$root/run"
        [ -e "$root/etc/resolv.conf" ] || : >"$root/etc/resolv.conf"
        mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
        mount -t tmpfs tmpfs "$root/tmp"
        printf "#!/bin/sh\nexit 101\n" >"$root/usr/sbin/policy-rc.d"; chmod +x "$root/usr/sbin/policy-rc.d"
        set -- -qy ${proxy:+-o Acquire::http::Proxy="$proxy"} -o APT::Sandbox::User=root
        export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin
        chroot "$root" dpkg --configure -a # a broken-off earlier try
        chroot "$root" apt-get "$@" update
        chroot "$root" apt-get "$@" --no-install-recommends -f install $pkgs
        for p in $sources; do # --tar-only: a mirror may have dropped the .dsc of a superseded version
            v=$(chroot "$root" dpkg-query -W -f "\${source:Package}=\${source:Version}" "$p")
            mkdir -p "$root/usr/src/weft"
            chroot "$root" sh -ec "cd /usr/src/weft; exec apt-get \"\$@\"" - "$@" source --download-only --tar-only "$v"
        done
        chroot "$root" apt-get clean
        rm -rf "$root"/var/lib/apt/lists/* "$root/usr/sbin/policy-rc.d"
    ' - "$root" "$pkgs" "$(proxy)" "$sources" >"$log" 2>&1 </dev/null || rc=$?
    [ $rc = 0 ] || { tail -n 20 "$log" >&2; die "stage $1 failed; see $log (a root older than the archives: make refresh)"; }
    mark='mkdir -p "$1/var/lib/weft" && cat >"$1/var/lib/weft/$2"'
    # shellcheck disable=SC2086
    sha256sum <"$here/$1.list" | unshare ${u:---fork} sh -ec "$mark" - "$root" "$1"
    say "stage $1 added ($(took "$t"))"
}

mkdir -p "$cache"
command -v flock >/dev/null || need_tools
exec 9>"$cache/lock"
flock -n 9 || { say "waiting for another set-up"; flock 9; }
root=$(newest) || root=
if [ -z "$root" ] || [ -n "$refresh" ]; then build_core; fi
for s in "$@"; do have_stage "$root" "$s" || add_stage "$s"; done

# Older roots go when nobody holds their lock (vm/enter does while it runs).
for r in "$cache"/root-*/etc/weft-root; do
    r=${r%/etc/weft-root}
    if [ "$r" != "$root" ] && flock -n "$r.lock" true 2>/dev/null; then
        case $r in "$cache/root-$key"-*) ;; *) [ -n "$refresh" ] || continue;; esac
        say "removing the older root ${r##*/}"
        remove "$r" "$r.lock" "$r.mnt" "$cache/setup-${r##*/root-}"
    fi
done
echo "$root"
