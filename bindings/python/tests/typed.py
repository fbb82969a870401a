"""Checks of health, findings, places, duplicates and other addresses: typed.py FILE, a pcap of Ethernet."""

import os
import sys
import tempfile
import unittest

import weir

FILE = sys.argv.pop(1)


class Typed(unittest.TestCase):
    def test_health_and_findings_are_typed(self):
        asked = {"health": ["tcp", "dns"], "dedup_within": 1e6, "workers": 1}
        *parts, last = weir.windows(FILE, FILE, window=10, findings=True, **asked)
        for answer in (*parts, last):
            health = answer.json["health"]
            self.assertEqual(answer.tcp.sum.packets, health["tcp"]["packets"])
            ends = [[row.src, row.sport, row.sent.rtt.count] for row in answer.tcp.rows]
            self.assertEqual(ends, [[row["src"], row["sport"], row["sent"]["rtt"]["count"]] for row in health["tcp"]["top"]])
            self.assertEqual(answer.dns.sum.queries, health["dns"]["queries"])
            self.assertTrue(all(finding.state in ("begin", "end", "open") for finding in answer.findings))
        self.assertGreaterEqual(last.json["dropped"].get("duplicates", 0) + last.json.get("duplicates", 0), last.passed)
        plain = weir.measure(FILE)
        self.assertEqual((plain.tcp, plain.dns, plain.findings), (None, None, []))
        for settings, words in (
            ({"health": "udp"}, "health 'udp': it is tcp, dns or mtu"),
            ({"key": "country"}, "needs a database of addresses"),
            ({"key": "country", "geo": FILE}, "not a whole file in the MaxMind DB format"),
            ({"dedup": 1}, "no number of packets from 2"),
            ({"dedup": 5, "dedup_within": 1}, "exclude each other"),
        ):
            self.assertRaisesRegex(weir.Refused, words, weir.measure, FILE, **settings)

    def test_a_sink_writes_other_addresses(self):
        with tempfile.TemporaryDirectory() as directory:
            key, out = os.path.join(directory, "key"), os.path.join(directory, "out.pcap")
            with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(bytes(range(32)))
            with weir.Sink(out, anonymize=key, shift_ns=1_000_000_000) as sink:
                for batch in weir.open(FILE, dedup=2):
                    sink.send(batch)
            ours, theirs = ({row["src"] for row in weir.measure(name, key="src", top=1000)} for name in (out, FILE))
            self.assertTrue(ours and not ours & theirs)
            first = [next(weir.open(name))["time"][0] for name in (out, FILE)]
            self.assertEqual(first[0] - first[1], 1_000_000_000)
            self.assertRaisesRegex(weir.Refused, "anonymize", weir.Sink, out, payload=3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
