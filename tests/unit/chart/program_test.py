# SPDX-License-Identifier: MIT
"""weft-chart as a program: expat, a strict parser, decides whether its output is well-formed and what it says."""
import json
import re
import subprocess
import sys
import unittest
import xml.etree.ElementTree as ET

program = sys.argv.pop(1)
SVG = "{http://www.w3.org/2000/svg}"


def draw(chart):
    text = chart if isinstance(chart, str) else json.dumps(chart)
    return subprocess.run([program, "-", "-"], input=text.encode(), capture_output=True, timeout=30)


def tree(chart):
    done = draw(chart)
    assert done.returncode == 0, done.stderr.decode()
    return ET.fromstring(done.stdout)


def tips(root):
    return [t.text for shape in ("circle", "polygon") for m in root.iter(SVG + shape) for t in m.findall(SVG + "title")]


class Program(unittest.TestCase):
    def test_every_point_is_there(self):
        series = [{"name": f"s{i}", "points": [[2 ** k, i + k / 7] for k in range(12, 29)]} for i in range(12)]
        root = tree({"title": "t", "series": series})
        self.assertEqual(len(tips(root)), 12 * 17)
        for line in root.iter(SVG + "polyline"):
            self.assertEqual(len(line.get("points").split()), 17)

    def test_any_name_survives(self):
        names = ["<b>&amp;\"'</b>", "]]>", "-->", "\u00fc \u4e2d \U0001f600", "a\u0000b\u001f", "x" * 500, ""]
        points = [[4096, 1], [8192, 2]]
        root = tree({"title": names[0], "subtitle": names[1], "x": {"label": names[0]}, "y": {"label": names[2]},
                     "series": [{"name": n, "points": points} for n in names],
                     "labels": [{"x": 4096, "y": 1, "text": names[0]}],
                     "bands": [{"name": names[2], "y": [1, 2]}]})
        want = [re.sub("[\u0000-\u001f]", "\ufffd", n) for n in names]
        self.assertEqual([g.find(SVG + "title").text or "" for g in root.iter(SVG + "g")], want)
        self.assertEqual(root.find(SVG + "title").text, names[0])
        self.assertIn(names[0], [t.text for t in root.iter(SVG + "text")])

    def test_nothing_from_outside(self):
        done = draw({"series": [{"name": "s", "points": [[1, 1]]}]})
        text = done.stdout.decode().replace("http://www.w3.org/2000/svg", "", 1)
        for word in ("http", "script", "url(", "@import", "@font-face", "href"):
            self.assertNotIn(word, text)

    def test_same_input_same_bytes(self):
        chart = {"series": [{"name": "s", "points": [[k * k + 1, k / 3] for k in range(50)]}]}
        self.assertEqual(draw(chart).stdout, draw(chart).stdout)

    def test_points_follow_the_scale(self):
        # On a log2 axis octaves are equally wide; on a log y axis decades are equally high.
        root = tree({"y": {"scale": "log"}, "series": [{"name": "s", "points": [[2 ** k, 10 ** k] for k in range(9)]}]})
        at = [tuple(map(float, p.split(","))) for p in root.find(f".//{SVG}polyline").get("points").split()]
        for i in (0, 1):
            steps = [b[i] - a[i] for a, b in zip(at, at[1:])]
            self.assertLess(max(steps) - min(steps), 0.05)
        self.assertGreater(at[1][0], at[0][0])
        self.assertLess(at[1][1], at[0][1])  # y grows downwards in SVG

    def test_errors_say_where(self):
        good = {"name": "s", "points": [[1, 1]]}
        for chart, words in [
            ({}, "no series"),
            ({"series": [{"name": "s", "points": []}]}, 'series "s" has no points'),
            ({"series": [{"name": "s", "points": [[1, 1], [0, 1]]}]}, 'series "s", point 1: x is 0'),
            ({"y": {"scale": "log"}, "series": [{"name": "s", "points": [[1, -1]]}]}, "y is -1"),
            ({"series": [{"name": "s", "points": [[1, "1"]]}]}, "series[0].points[0]"),
            ({"series": [good], "bands": [{"name": "b"}]}, 'band "b" needs'),
            ({"series": [good], "bands": [{"name": "b", "y": [1, 2], "series": "z"}]}, 'no series "z"'),
            ({"series": [good], "tilte": ""}, '"tilte" is not known here'),
            ({"series": [good], "x": {"scale": "log3"}}, '"log3" is none of'),
            ("{", "parse error"),
        ]:
            done = draw(chart)
            self.assertEqual(done.returncode, 1, chart)
            self.assertEqual(done.stdout, b"")
            self.assertIn(words, done.stderr.decode())


if __name__ == "__main__":
    unittest.main()
