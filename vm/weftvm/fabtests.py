# SPDX-License-Identifier: MIT
"""libfabric's own tests (fabtests): what upstream's runfabtests.sh would run, in its order and judged by its rules.

That script speaks to its nodes over ssh, ours over the launcher's channel. The commands, their order and the exclusions
are read from its text and from upstream's exclude file; nothing of it is repeated here.
"""
import errno
import re
import shlex

from . import pair, paths

HOME = paths.BUILD / "fabtests"
QUICK = ("unit_tests", "neg_unit_tests", "functional_tests", "short_tests")  # its set "quick" (-t quick)
PROVIDER = ("prov_efa_tests",)  # what it adds for this provider (-P)
LIMIT = 300  # seconds for each program (upstream: 120, on a real machine)
PORT = 3000  # fabtests' own, where the two sides exchange addresses (-E)

# (pattern, reason): what is left out beyond upstream's exclude file.
EXCLUDED = (
    (r"^fi_flood -e msg", "the provider has no FI_EP_MSG, and this program's client crashes when it learns that"),
    (r"^fi_rdm_cntr_pingpong", "the provider of libfabric 2.1 has no completion queue to wait on (fi_cq_open: ENOSYS)"),
)

_NOT_OFFERED = (errno.ENODATA, errno.ENOSYS)
_GID = "$(cat /sys/class/infiniband/efa_0/ports/1/gids/0)"
_PEER_LEFT = (errno.ENOTCONN, errno.ECONNRESET, errno.EPIPE)
_NO_PROVIDER = re.compile(r"fi_getinfo\(\).*ret=-(?:%d|%d) " % _NOT_OFFERED)


def commands(text, sets):
    """[(set, command)] of the text of runfabtests.sh."""
    out = []
    for name in sets:
        array = re.search(rf"^{name}=\((.*?)^\)", text, re.M | re.S)
        if not array:
            raise ValueError(f"upstream's runfabtests.sh has no {name}")
        out += [(name, line) for line in shlex.split(array.group(1).replace("\\\n", "\n"))]
    return out


def exclusions(text):
    """The patterns of an exclude file."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def cases(sets):
    """[(set, command, reason)]; reason says why a command is not run, or is empty."""
    if not (HOME / ".made").exists():
        raise ValueError("no fabtests are built (build/fabtests): say make interop")
    theirs = exclusions((HOME / "efa.exclude").read_text())
    out = []
    for name, command in commands((HOME / "runfabtests.sh").read_text(), sets):
        reason = next((f"upstream's efa.exclude: {p}" for p in theirs if re.search(p, command)), "")
        reason = reason or next((f"{why} ({p})" for p, why in EXCLUDED if re.search(p, command)), "")
        out.append((name, command, reason))
    return out


def run(cluster, name, command):
    """Run one command; returns (verdict, reason): "passed", "skipped" or "failed"."""
    if name.endswith("unit_tests"):
        return _alone(cluster, command, name.startswith("neg_"))
    line = f"{HOME}/bin/{command} -p efa -E"
    server, client = pair.run(cluster, line, f"{line} {cluster.addresses[0]}", PORT, limit=LIMIT)
    said = f"server: {server.rc}\n{server.text.strip()}\nclient: {client.rc}\n{client.text.strip()}"
    problems = server.problems + client.problems
    if problems:
        return "failed", "\n".join(problems)
    # Upstream's rule is that both say so. With -E most clients ask fi_getinfo only after their server has, which then
    # is gone.
    if server.rc in _NOT_OFFERED and (client.rc == server.rc or client.rc in _PEER_LEFT
                                      and _NO_PROVIDER.search(server.text)):
        return "skipped", _offered(server.rc)
    return ("failed", said) if server.rc or client.rc else ("passed", "")


def _alone(cluster, command, negative):
    """A unit test, on the first node. A negative one passes if it finds no such provider."""
    # an address of this provider is a GID
    line = f"timeout -k 5 {LIMIT} {HOME}/bin/{command} -p efa".replace("GOOD_ADDR", _GID).replace("SERVER_ADDR", _GID)
    r = cluster.run(0, line, LIMIT + 30)
    if r.problems:
        return "failed", "\n".join(r.problems)
    if negative:
        return ("passed", "") if r.rc == errno.ENODATA else ("failed", f"{r.rc}\n{r.out}\n{r.err}")
    if r.rc in _NOT_OFFERED:
        return "skipped", _offered(r.rc)
    return ("failed", f"{r.rc}\n{r.out}\n{r.err}") if r.rc else ("passed", "")


def _offered(rc):
    return f"the provider does not offer what it needs ({errno.errorcode[rc]})"
