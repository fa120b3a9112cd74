# SPDX-License-Identifier: MIT
"""A server and its client: one in each of two nodes, or both in one."""
import re
from dataclasses import dataclass

# perftest calibrates its clock first; on a busy machine it says this and gives no report. No fault of what is under
# test.
BUSY = re.compile(r"^ ?Correlation coefficient r\^2: ", re.M)
TRIES = 8

GRACE = 2  # seconds that a server may go on once its client failed

# The client waits until the server listens (or has ended); a client that fails ends the server soon after.
_SERVER = """{kill_late} {command} & pair_server=$!
while kill -0 $pair_server 2>/dev/null && ! ss -ltnH | grep -q ":{port} "; do sleep 0.05; done
: >{mark}
( until [ -e {mark}.failed ]; do sleep 0.5; done; sleep {grace}; kill $pair_server ) 2>/dev/null & pair_watch=$!
wait $pair_server; pair_rc=$?
kill $pair_watch
"""
_CLIENT = """until [ -e {mark} ]; do sleep 0.05; done
{kill_late} {command}; pair_rc=$?
[ $pair_rc = 0 ] || : >{mark}.failed
"""
_serial = 0


@dataclass
class Side:
    rc: int  # the program's exit code; 124: it took longer than the limit; 255: its node is gone
    text: str  # what it said, both streams
    problems: list  # what the kernel of its node complained about


def run(cluster, server, client, port, nodes=(0, 1), limit=120):
    """Run the shell line `server` on nodes[0] and, once it listens on TCP `port`, `client` on nodes[1].

    `limit` in seconds is each one's. Returns a Side for each. A pair that found the machine too busy to measure is
    run again.
    """
    for _ in range(TRIES):
        sides = _once(cluster, server, client, port, nodes, limit)
        if not any(BUSY.search(side.text) for side in sides) or any(side.problems for side in sides):
            break
    return sides


def _once(cluster, server, client, port, nodes, limit):
    global _serial
    _serial += 1
    words = {"port": port, "mark": f"/share/pair-{_serial}", "kill_late": f"timeout -k 5 {limit}", "grace": GRACE}
    serve, ask = _SERVER.format(command=server, **words), _CLIENT.format(command=client, **words)
    late = limit + 30
    if nodes[0] == nodes[1]:
        r = cluster.run(nodes[0],
                        f"( {serve} exit $pair_rc ) >/tmp/server 2>&1 & pair_both=$!\n"
                        f"( {ask} exit $pair_rc ) 2>&1; pair_rc=$?\n"
                        f"wait $pair_both; printf '\\n---pair %s %s\\n' $? $pair_rc; cat /tmp/server", late)
        said, found, rest = r.out.partition("\n---pair ")
        codes, _, served = rest.partition("\n")
        sides = zip(map(int, codes.split()), (served, said)) if found else ((r.rc or 1, r.out + r.err),) * 2
        return tuple(Side(rc, text, r.problems) for rc, text in sides)
    end = "exit $pair_rc"
    results = cluster.run_all(f"if [ $WEFT_RANK = {nodes[0]} ]; then\n{serve}\nelse\n{ask}\nfi 2>&1; {end}", late,
                              ranks=nodes)
    return tuple(Side(r.rc, r.out + r.err, r.problems) for r in results)
