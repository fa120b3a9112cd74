# SPDX-License-Identifier: MIT
"""Results for machines: Weft's JSON (schema 1) and JUnit."""
import json
import os
import re
from xml.etree import ElementTree


def write_json(path, command, accel, rows, **more):
    _write(path, json.dumps({"schema": 1, "command": command, "accel": accel, **more, "rows": rows}, indent=1) + "\n")


def write_junit(path, suite, cases):
    """cases: (name, seconds, verdict, text) with verdict "passed", "failed" or "skipped"."""
    count = lambda v: str(sum(c[2] == v for c in cases))  # noqa: E731
    root = ElementTree.Element("testsuite", name=suite, tests=str(len(cases)), failures=count("failed"),
                               skipped=count("skipped"), time=f"{sum(c[1] for c in cases):.3f}")
    for name, seconds, verdict, text in cases:
        case = ElementTree.SubElement(root, "testcase", classname=suite, name=name, time=f"{seconds:.3f}")
        if verdict != "passed":
            kind = "failure" if verdict == "failed" else "skipped"
            text = re.sub("[^\t\n\x20-\ufffd]", "?", text)  # XML has no control characters
            ElementTree.SubElement(case, kind, message=(text.strip().splitlines() or [""])[0][:200]).text = text
    _write(path, ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n")


def _write(path, text):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(temporary, path)
