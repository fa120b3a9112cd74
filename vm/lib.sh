# SPDX-License-Identifier: MIT
# Sourced by the shell scripts of vm/: the cache's place, progress lines, and running a command that takes all it
# started with it.

cache=${WEFT_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/weft}

say() { printf 'weft: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# Time in tenths of a second from the kernel's clock: no process, no dependence on the wall clock.
now() { read -r up_ _ </proc/uptime; up_=${up_%?}; echo "${up_%.*}${up_#*.}"; }
took() { d_=$(($(now) - $1)); echo "$((d_ / 10)).$((d_ % 10)) s"; } # took START

# user_ns: options that make unshare work for an ordinary user (nothing when we are root).
user_ns() { [ "$(id -u)" = 0 ] || echo "-U -r"; }

# mount_ns [UNSHARE-OPTION...]: options that give unshare mounts that nobody else sees. In a chroot whose root is no mount
# point the kernel does not let propagation be changed: there it has to be private already.
mount_ns() {
    if unshare "$@" -m true 2>/dev/null; then
        echo "-m --propagation private"
    elif ! grep -q ' shared:' /proc/self/mountinfo; then
        echo "-m --propagation unchanged"
    fi
}

# contain COMMAND...: run COMMAND, which starts with unshare --kill-child, so that nothing of it outlives us.
# unshare itself ignores SIGINT and SIGTERM while it waits, so this shell stays in front of it: Ctrl-C reaches the inner
# command from the terminal, SIGTERM from here, and it gets a moment to end by itself; SIGHUP ends everything at once;
# should this shell be killed, the kernel kills unshare and with it the whole PID namespace.
terminate_() { # SIGTERM to the command that unshare (process $1) and the namespace's first process wait for
    c_=$1
    [ "$(cat "/proc/$1/comm" 2>/dev/null)" != unshare ] || for level_ in 1 2; do
        c2_=; read -r c2_ _ 2>/dev/null <"/proc/$c_/task/$c_/children" || :
        c_=${c2_:-$c_}
    done
    kill -TERM "$c_" 2>/dev/null
}
contain() {
    exec 7<&0 # a background command would get /dev/null
    setpriv --pdeathsig KILL "$@" <&7 7<&- 9>&- &
    child_=$! sig_=
    trap 'sig_=130' INT
    trap 'terminate_ $child_; sig_=143' TERM
    trap 'kill -KILL $child_ 2>/dev/null; sig_=129' HUP
    exec 7<&-
    rc_=0
    wait $child_ || rc_=$?
    if [ -n "$sig_" ]; then
        n_=0
        while [ $n_ -lt 30 ] && kill -0 $child_ 2>/dev/null; do sleep 0.1 || :; n_=$((n_ + 1)); done
        kill -KILL $child_ 2>/dev/null
        wait $child_ 2>/dev/null
        trap - INT TERM HUP
        exit $sig_
    fi
    trap - INT TERM HUP
    return $rc_
}
