"""Checks of the package over a capture file, against a reader of its own: checks.py FILE, a pcap of Ethernet with microseconds."""

import contextlib
import faulthandler
import gc
import os
import select
import signal
import struct
import sys
import tempfile
import threading
import time
import unittest

import numpy as np
import weir

FILE = sys.argv.pop(1)


def records(path):
    """Packets of a pcap file: time, length on the wire, bytes."""
    with open(path, "rb") as file:
        yield from parsed(file.read())


def parsed(data):
    at = 24
    while at < len(data):
        seconds, micros, captured, wire = struct.unpack_from("=IIII", data.ljust(at + 16, b"\0"), at)
        yield (seconds * 1_000_000 + micros) * 1000, wire, data[at + 16 : at + 16 + captured]
        at += 16 + captured


def fields(frame):
    """Fields of a frame of Ethernet, with at most one VLAN tag, by offsets: the naive twin of the columns."""
    found = dict(ip_version=0, src4=0, dst4=0, src=bytes(16), dst=bytes(16), protocol=255, src_port=0, dst_port=0, tcp_flags=0, vlan=65535)
    found |= dict(network_offset=-1, transport_offset=-1, payload_offset=-1)
    at = 12
    if frame[12:14] == b"\x81\x00":
        found["vlan"] = struct.unpack_from("!H", frame, 14)[0] & 4095
        at = 16
    kind, ip = frame[at : at + 2], frame[at + 2 :]
    if kind == b"\x08\x00":
        src, dst, transport = ip[12:16], ip[16:20], ip[(ip[0] & 15) * 4 :]
        found |= dict(ip_version=4, protocol=ip[9], src4=int.from_bytes(src), dst4=int.from_bytes(dst))
        found |= dict(src=bytes(10) + b"\xff\xff" + src, dst=bytes(10) + b"\xff\xff" + dst)
    elif kind == b"\x86\xdd":
        transport = ip[40:]
        found |= dict(ip_version=6, protocol=ip[6], src=ip[8:24], dst=ip[24:40])
    else:
        return found
    network = at + 2
    transport_at = len(frame) - len(transport)
    header = {6: (transport[12] >> 4) * 4, 17: 8}.get(found["protocol"], len(transport))
    found |= dict(network_offset=network, transport_offset=transport_at)
    if header < len(transport):
        found["payload_offset"] = transport_at + header
    if found["protocol"] in (6, 17):
        found["src_port"], found["dst_port"] = struct.unpack_from("!HH", transport)
    if found["protocol"] == 6:
        found["tcp_flags"] = transport[13]
    return found


MAPPED = bytes(10) + b"\xff\xff"
RECORDS = list(records(FILE))
FIELDS = [fields(frame) for _, _, frame in RECORDS]
# As libpcap means it: behind a tag an expression without `vlan` matches nothing.
PLAIN = [i for i, of in enumerate(FIELDS) if of["vlan"] == 65535]
UDP = [i for i in PLAIN if FIELDS[i]["protocol"] == 17]


def text(address):
    """An address as Arrow has it; None without one."""
    import ipaddress

    if address == bytes(16):
        return None
    six = ipaddress.IPv6Address(address)
    return str(six.ipv4_mapped or six)


class Columns(unittest.TestCase):
    def test_columns_are_those_of_a_naive_reader(self):
        for batch_size in (1, 7, 4096, 65536):
            limit = 300 if batch_size == 1 else None
            row = 0
            with weir.open(FILE, columns=weir.FIELDS, batch_size=batch_size, limit=limit) as source:
                for batch in source:
                    self.assertLessEqual(len(batch), batch_size)
                    together = batch.columns("vlan", "src_port")
                    self.assertTrue(np.array_equal(together["vlan"], batch["vlan"]) and len(together) == 2)
                    for name in weir.FIELDS:
                        column = batch[name]
                        self.assertEqual(len(column), len(batch))
                        self.assertFalse(column.flags.writeable)
                        here = range(row, row + len(batch))
                        if name in ("time", "wire_len", "captured"):
                            which = ("time", "wire_len", "captured").index(name)
                            expected = [(t, w, len(f))[which] for t, w, f in (RECORDS[i] for i in here)]
                        elif name == "interface":
                            expected = [0] * len(batch)
                        elif name in ("src", "dst"):
                            self.assertEqual(column.tobytes(), b"".join(FIELDS[i][name] for i in here))
                            continue
                        else:
                            expected = [FIELDS[i][name] for i in here]
                        self.assertTrue(column.tolist() == expected, name)
                    row += len(batch)
            self.assertEqual(row, limit or len(RECORDS))

    def test_frames_are_the_bytes_of_the_file(self):
        row = 0
        for batch in weir.open(FILE, batch_size=5000):
            for region in batch.regions():
                self.assertFalse(region.memory.flags.writeable)
                for i, (offset, captured) in enumerate(zip(region.offsets.tolist(), region.captured.tolist())):
                    frame = RECORDS[row + region.first_row + i][2]
                    self.assertEqual(region.memory[offset : offset + captured].tobytes(), frame)
            for i in (0, len(batch) // 2, -1):
                self.assertEqual(batch.frame(i), RECORDS[row + i % len(batch)][2])
            del region
            row += len(batch)
        self.assertEqual(row, len(RECORDS))

    def test_a_filter_leaves_what_matches(self):
        rows = []
        with weir.open(FILE, filter="udp", columns=["src_port"], batch_size=1000) as source:
            for batch in source:
                self.assertTrue(len(batch) == 1000 or len(rows) + len(batch) == len(UDP))
                rows += batch["src_port"].tolist()
                self.assertEqual(batch.frame(-1), RECORDS[UDP[len(rows) - 1]][2])
            counts = source.counts
        self.assertEqual(rows, [FIELDS[i]["src_port"] for i in UDP])
        self.assertEqual((counts.received, counts.passed), (len(RECORDS), len(UDP)))
        self.assertEqual(counts.received, counts.passed + counts.filtered + counts.denied + counts.dropped)

    def test_marks_are_columns(self):
        marks = {"is_udp": "udp", "low": "src port 40000", "none": "udp port 1"}
        found = {name: [] for name in marks}
        for batch in weir.open(FILE, filter="ip or ip6", marks=marks):
            self.assertEqual(batch.names[-3:], list(marks))
            for name in marks:
                self.assertEqual(batch[name].dtype, bool)
                found[name] += batch[name].tolist()
        ip = [FIELDS[i] for i in PLAIN if FIELDS[i]["ip_version"] > 0]
        self.assertEqual(found["is_udp"], [of["protocol"] == 17 for of in ip])
        self.assertEqual(found["low"], [of["src_port"] == 40000 for of in ip])
        self.assertFalse(any(found["none"]))

    def test_a_set_has_the_verdicts_of_its_members(self):
        def is_member(address):
            return address[:12] == MAPPED and address[12:15] == b"\x0a\0\0" and address[15] in (1, 4, 5) or address[0] >= 128

        sets = {"banned": FILE + ".banned"}
        with open(sets["banned"], "w") as file:
            file.write("10.0.0.1\n10.0.0.4-10.0.0.5 # two\n8000::/1\n")
        members = [i for i in PLAIN if FIELDS[i]["ip_version"] > 0 and is_member(FIELDS[i]["src"])]
        self.assertGreater(len(members), 1000)
        batches = weir.open(FILE, filter="src @banned", columns=["time"], sets=sets)
        self.assertEqual([t for batch in batches for t in batch["time"].tolist()], [RECORDS[i][0] for i in members])
        batches = weir.open(FILE, filter="udp", marks={"is_banned": "src @banned"}, sets=sets)
        marked = [bit for batch in batches for bit in batch["is_banned"].tolist()]
        self.assertEqual(marked, [i in set(members) for i in UDP])
        self.assertEqual(weir.measure(FILE, filter="src @banned", sets=sets).passed, len(members))
        self.assertEqual([*weir.windows(FILE, window=1, filter="src @banned", sets=sets)][-1].passed, len(members))
        directory = FILE + ".banned-record"
        with weir.record(FILE, directory=directory, ram=32 << 20, disk=64 << 20, reserve=1, filter="src @banned", sets=sets) as recorder:
            self.assertRaises(StopIteration, lambda: [recorder.next(30.0) for _ in range(3)])
        self.assertEqual(sum(map(len, weir.open(directory, filter="src @banned", sets=sets))), len(members))

    def test_wrong_sets_are_told_with_the_words_of_the_command(self):
        bad = FILE + ".bad"
        with open(bad, "w") as file:
            print("10.0.0.1\n\nwww", file=file)
        good = {"good": os.devnull}
        wrong = [
            (dict(filter="src @bad", sets={"bad": bad}), f'^--set bad: {bad}: line 3: "www" is not an address, prefix or range of addresses$'),
            (dict(filter="src @a", sets={"a": FILE + ".none"}), f"^--set a: {FILE}.none: no such file$"),
            (dict(filter="", sets=good), "^--set good: no expression names a set: write src @good, host @good or net @good$"),
            (dict(filter="src @goof", sets=good), 'there is no set "@goof": those given are @good$'),
            (dict(filter="src @good"), 'there is no set "@good": no set is defined'),
            (dict(filter="src @a", sets={"a b": bad}), "is not a name of a set"),
        ]
        for settings, words in wrong:
            for ask in (weir.open, weir.measure):
                with self.assertRaisesRegex(weir.Refused, words):
                    ask(FILE, **settings)
            with self.assertRaisesRegex(weir.Refused, words):
                weir.record(FILE, directory=FILE + ".none-record", ram=32 << 20, **settings)
        self.assertFalse(os.path.exists(FILE + ".none-record"))

    def test_rules_deny_and_can_be_replaced(self):
        with weir.open(FILE, rules="drop proto udp\ndefault pass\n") as source:
            rows = sum(map(len, source))
            counts = source.counts
        denied = sum(of["protocol"] == 17 for of in FIELDS)
        self.assertEqual((rows, counts.denied, counts.passed), (len(RECORDS) - denied, denied, len(RECORDS) - denied))
        with weir.open(FILE, rules="default pass\n") as source:
            source.set_rules("default drop\n")
            with self.assertRaisesRegex(weir.Refused, "line 1"):
                source.set_rules("nonsense\n")
        with weir.open(FILE) as source, self.assertRaisesRegex(weir.Refused, "without rules"):
            source.set_rules("default pass\n")


class Lifetime(unittest.TestCase):
    def test_views_hold_the_batch(self):
        batch = next(weir.open(FILE))
        view, array = batch.frame(0), batch.regions()[0].memory
        length = batch["wire_len"]
        for alive in ("2 views", "1 views"):
            with self.assertRaisesRegex(BufferError, alive):
                batch.release()
            if alive == "2 views":
                view.release()
        del array
        batch.release()
        batch.release()
        for use in (lambda: batch.frame(0), lambda: batch["vlan"], lambda: batch.regions()):
            self.assertRaisesRegex(weir.Closed, "released", use)
        # Columns were copied out of the packets.
        self.assertEqual(length[0], RECORDS[0][1])

    def test_a_view_outlives_its_batch_and_source(self):
        source = weir.open(FILE)
        view = next(source).frame(3)
        source.close()
        del source
        gc.collect()
        self.assertEqual(view, RECORDS[3][2])

    def test_a_frame_of_a_released_batch_is_refused(self):
        batch = next(weir.open(FILE))
        with batch.frame(0) as view:
            owner = view.obj
        batch.release()
        self.assertRaisesRegex(weir.Closed, "released", memoryview, owner)

    def test_an_exception_in_a_with_block_is_not_hidden(self):
        with self.assertRaises(KeyError), next(weir.open(FILE)) as batch:
            view = batch.frame(0)
            raise KeyError("mine")
        view.release()
        batch.release()

    def test_names_steer_no_terminal(self):
        with self.assertRaises(weir.Failed) as caught:
            weir.open("\x1b[31mnone\u202e.pcap")
        self.assertNotIn("\x1b", str(caught.exception))
        self.assertNotIn("\u202e", str(caught.exception))

    def test_frames_are_read_only(self):
        with next(weir.open(FILE)) as batch, batch.frame(0) as view:
            self.assertTrue(view.readonly)
            with self.assertRaises(TypeError):
                view[0] = 1

    def test_held_batches_starve_the_source_and_are_counted(self):
        with weir.open(FILE, FILE, FILE, batches=4) as source:
            held = []
            with self.assertRaisesRegex(BufferError, "holds all 4 pieces"):
                held.extend(source)
            self.assertGreater(source.counts.starved, 0)
            seen = sum(map(len, held))
            self.assertLess(seen, 3 * len(RECORDS))
            self.assertIsNone(source.next(0.01))
            held.clear()
            # Nothing was lost.
            self.assertEqual(seen + sum(map(len, source)), 3 * len(RECORDS))

    def test_a_closed_source_is_refused_and_its_counts_stay(self):
        source = weir.open(FILE)
        last = source.close()
        self.assertTrue(last.is_final)
        self.assertEqual((source.counts, source.close()), (last, last))
        self.assertRaisesRegex(weir.Closed, "closed", next, source)
        self.assertRaisesRegex(weir.Closed, "closed", source.stop)

    def test_an_exception_in_the_loop_closes_the_source(self):
        with self.assertRaises(ZeroDivisionError), weir.open(FILE, batch_size=10) as source:
            for _ in source:
                1 / 0
        self.assertTrue(source.counts.is_final)

    def test_memory_does_not_grow_with_batches(self):
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def read():
            for batch in weir.open(FILE, batch_size=4096):
                batch["src4"], batch.frame(0), batch._repr_html_()

        for _ in range(3):
            read()
        before = resident()
        for _ in range(20):
            read()
        self.assertLess(resident() - before, 16 << 20)

    def test_a_fork_is_refused_and_ends_cleanly(self):
        source = weir.open(FILE)
        batch = next(source)
        sink = weir.Sink("null")
        child = os.fork()
        if child == 0:
            code = 0
            for use in (lambda: next(source), lambda: batch["vlan"], lambda: batch.frame(0), lambda: sink.counts, source.close):
                try:
                    use()
                    code = 1
                except weir.Closed as error:
                    code |= 0 if "fork" in str(error) else 2
            # The objects are dropped here, and no thread of the parent is waited for.
            del source, batch, sink
            gc.collect()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        self.assertEqual(len(batch) + sum(map(len, source)), len(RECORDS))

    def test_several_threads_share_a_source(self):
        source = weir.open(FILE, batch_size=500)
        rows = []

        def work():
            for batch in source:
                rows.extend(batch["time"].tolist())

        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(sorted(rows), sorted(t for t, _, _ in RECORDS))


class Sources(unittest.TestCase):
    def test_wrong_settings_are_told(self):
        import datetime

        wrong = [
            (dict(filter="port port"), "expression 'port port'"),
            (dict(columns=["src", "sorce"]), "no column 'sorce'"),
            (dict(columns=[]), "columns is empty"),
            (dict(columns=["src", "src"]), "named twice"),
            (dict(marks={"src": "udp"}), "name of a column"),
            (dict(batch_size=0), "batch_size 0"),
            (dict(order="best"), "order 'best'"),
            (dict(direction="up"), "direction 'up'"),
            (dict(latency=-1), "latency -1"),
            (dict(latency=float("nan")), "latency nan"),
            (dict(columns="time"), "list of names"),
            (dict(since=1.5), "since 1.5: it is ns"),
            (dict(connections=2**40, rules="default pass"), "connections"),
            (dict(duration=1e300), "duration"),
            (dict(batches=5000), "batches: 5000"),
            (dict(batches=3), "4 are the least"),
            (dict(workers=5000), "workers: 5000"),
            (dict(since=datetime.datetime(2026, 1, 1)), "no time zone"),
            (dict(rules="nonsense"), "the rules"),
        ]
        for settings, words in wrong:
            with self.assertRaisesRegex(weir.Refused, words):
                weir.open(FILE, **settings)
        self.assertRaisesRegex(weir.Refused, "no name", weir.open)
        self.assertRaisesRegex(weir.Failed, "nowhere.pcap: no such file", weir.open, "nowhere.pcap")
        self.assertRaisesRegex(weir.Refused, "unknown capture method", weir.open, "af_paket:eth0")
        self.assertRaises(TypeError, weir.open, 7)
        self.assertRaisesRegex(TypeError, "batch_size: ", weir.open, FILE, batch_size=-1)
        self.assertRaisesRegex(TypeError, "filter: ", weir.open, FILE, filter=b"tcp")
        self.assertRaisesRegex(weir.Refused, "timeout", weir.open(FILE).next, -1.0)

    def test_a_cut_file_gives_what_is_good_and_then_fails(self):
        with open(FILE, "rb") as file:
            good = file.read(100_000)
        path = FILE + ".cut"
        with open(path, "wb") as file:
            file.write(good)
        source = weir.open(path)
        rows = 0
        with self.assertRaisesRegex(weir.Failed, "packet .*, offset "):
            for batch in source:
                rows += len(batch)
        self.assertEqual(rows, source.counts.received)
        whole = 24
        for i, (_, _, frame) in enumerate(RECORDS):
            whole += 16 + len(frame)
            if whole > len(good):
                break
        self.assertEqual(rows, i)
        self.assertRaises(StopIteration, next, source)

    def test_several_files_come_one_after_another_or_by_time(self):
        times = [t for t, _, _ in RECORDS]
        found = [t for batch in weir.open(FILE, FILE) for t in batch["time"].tolist()]
        self.assertTrue(found == times + times)
        found = [t for batch in weir.open(FILE, FILE, order="merge") for t in batch["time"].tolist()]
        self.assertTrue(found == sorted(times + times))

    def test_another_filter_judges_from_then_on(self):
        source = weir.open(FILE, FILE, FILE, batches=4, batch_size=100)
        numbers = {next(source).filter}
        number = source.set_filter("udp")
        for batch in source:
            numbers.add(batch.filter)
            if batch.filter == number:
                self.assertTrue((batch["protocol"] == 17).all())
        self.assertEqual(numbers, {0, number})
        self.assertRaisesRegex(weir.Refused, "port port", weir.open(FILE).set_filter, "port port")

    def test_a_pipe_is_waited_for_with_timeout_and_poll(self):
        path = FILE + ".pipe"
        os.mkfifo(path)
        with open(FILE, "rb") as file:
            head = file.read(50_000)

        def write():
            with open(path, "wb") as pipe:
                pipe.write(head[:24])
                pipe.flush()
                waiting.wait()
                pipe.write(head)

        waiting = threading.Event()
        writer = threading.Thread(target=write)
        writer.start()
        source = weir.open(path, duration=30, latency=0.01)
        self.assertIsNone(source.next(0.05))
        self.assertEqual(select.select([source], [], [], 0)[0], [])
        head = head[24:]
        waiting.set()
        self.assertEqual(select.select([source], [], [], 20)[0], [source])
        rows = 0
        with self.assertRaises(weir.Failed):
            for batch in source:
                rows += len(batch)
        self.assertGreater(rows, 100)
        writer.join()

    def test_duration_ends_a_source(self):
        path = FILE + ".slow"
        os.mkfifo(path)
        writer = threading.Thread(target=lambda: open_and_wait(path, done))
        done = threading.Event()
        writer.start()
        begun = time.monotonic()
        source = weir.open(path, duration=0.2)
        self.assertEqual(sum(map(len, source)), 0)
        self.assertGreaterEqual(time.monotonic() - begun, 0.2)
        done.set()
        writer.join()


def open_and_wait(path, done):
    with open(path, "wb") as pipe, open(FILE, "rb") as file:
        pipe.write(file.read(24))
        pipe.flush()
        done.wait()


class Sinks(unittest.TestCase):
    def test_a_mask_chooses_what_is_written(self):
        path = FILE + ".out.pcap"
        # Part of a batch of the library is in one batch here, and part in another.
        for batch_size in (97, 65536):
            with weir.open(FILE, filter="ip or ip6", batch_size=batch_size) as source:
                sink = weir.Sink(path)
                for batch in source:
                    sink.send(batch, batch["protocol"] == 17)
                counts = sink.close()
            self.assertTrue([frame for _, _, frame in records(path)] == [RECORDS[i][2] for i in UDP])
            self.assertEqual((counts.given, counts.written, counts.refused, counts.lost), (len(UDP), len(UDP), 0, 0))

    def test_all_packets_without_a_mask(self):
        path = FILE + ".out.pcap"
        with weir.open(FILE, batch_size=1000) as source, weir.Sink(path) as sink:
            for batch in source:
                sink.send(batch)
        self.assertTrue(list(records(path)) == RECORDS)
        self.assertRaisesRegex(weir.Closed, "closed", sink.close)

    def test_a_sink_without_packets_is_a_file_that_can_be_read(self):
        for name in (".none.pcap", ".none.pcapng"):
            weir.Sink((FILE + name).encode()).close()
            self.assertEqual(list(weir.open(FILE + name)), [])

    def test_wrong_masks_and_names_are_told(self):
        source = weir.open(FILE)
        batch = next(source)
        sink = weir.Sink("null")
        for mask in (np.ones(3, bool), np.ones(len(batch)), np.ones((len(batch), 1), bool)):
            self.assertRaisesRegex(weir.Refused, "mask", sink.send, batch, mask)
        sink.send(batch, [True] * len(batch))
        self.assertEqual(sink.close().written, len(batch))
        self.assertRaisesRegex(weir.WeirError, "read", weir.Sink, FILE)
        source.close()
        self.assertRaises(weir.WeirError, weir.Sink, "/nowhere/a.pcap")


class Tables(unittest.TestCase):
    COLUMNS = ["time", "src", "dst", "src4", "protocol", "src_port", "dst_port", "ip_version", "vlan", "tcp_flags", "wire_len"]

    def expected(self):
        rows = []
        for (t, wire, _), of in zip(RECORDS, FIELDS):
            none = lambda value, when: None if when else value  # noqa: E731
            rows.append((
                t, text(of["src"]), text(of["dst"]), none(of["src4"], of["ip_version"] != 4),
                none(of["protocol"], of["protocol"] == 255), none(of["src_port"], of["src_port"] == 0),
                none(of["dst_port"], of["dst_port"] == 0), none(of["ip_version"], of["ip_version"] == 0),
                none(of["vlan"], of["vlan"] == 65535), none(of["tcp_flags"], of["protocol"] != 6), wire, of["protocol"] == 17 and of["vlan"] == 65535,
            ))
        return rows

    def open(self, **settings):
        return weir.open(FILE, columns=self.COLUMNS, marks={"is_udp": "udp"}, **settings)

    def test_arrow_has_what_the_naive_reader_finds(self):
        import pyarrow as pa

        table = self.open(batch_size=4096).to_arrow()
        table.validate(full=True)
        self.assertEqual(table.schema.field("time").type, pa.timestamp("ns", "UTC"))
        columns = [table[name].cast(pa.int64()) if name == "time" else table[name] for name in table.column_names]
        self.assertTrue(list(zip(*(column.to_pylist() for column in columns))) == self.expected())
        batch = next(self.open()).to_arrow()
        batch.validate(full=True)
        self.assertEqual(batch.schema, table.schema)
        # Another library may keep a table longer than its batch.
        source = self.open()
        kept = [one.to_arrow() for one in source]
        source.close()
        self.assertEqual(pa.Table.from_batches(kept)["src"].to_pylist(), table["src"].to_pylist())

    def test_polars_pandas_and_duckdb_agree(self):
        import duckdb
        import pandas
        import polars

        expected = self.expected()
        frame = self.open().to_polars()
        self.assertEqual(frame["src"].to_list(), [row[1] for row in expected])
        self.assertEqual(frame["time"].cast(polars.Int64).to_list(), [row[0] for row in expected])
        panda = self.open().to_pandas()
        self.assertEqual([None if pandas.isna(of) else of for of in panda["src_port"]], [row[5] for row in expected])
        source = self.open(batch_size=1000)
        found = duckdb.sql("select protocol, count(*), sum(wire_len), count(src_port) from source group by 1 order by 1").fetchall()
        sums = {}
        for row in expected:
            sum_ = sums.setdefault(row[4], [0, 0, 0])
            sum_[0] += 1
            sum_[1] += row[10]
            sum_[2] += row[5] is not None
        self.assertEqual({row[0]: list(row[1:]) for row in found}, sums)
        frames = [batch.to_polars() for batch in self.open()]
        self.assertTrue(polars.concat(frames).equals(frame))

    def test_offsets_are_signed_and_null_without_a_header(self):
        import polars

        source = weir.open(FILE, columns=["network_offset", "transport_offset", "payload_offset"])
        for batch, table in ((batch, batch.to_polars()) for batch in source):
            for name in batch.names:
                self.assertEqual((batch[name].dtype, table[name].dtype), (np.dtype(np.int32), polars.Int32))
                self.assertEqual(table[name].to_list(), [None if at < 0 else at for at in batch[name].tolist()])

    def test_sums_of_lengths_do_not_end_at_four_gigabytes(self):
        import duckdb
        import pandas
        import polars
        import pyarrow.compute

        lengths = [2**32 - 1, 2**32 - 1, 60, 2**31]
        pcap = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
        pcap += b"".join(struct.pack("=IIII", 1, 0, 60, wire) + bytes(60) for wire in lengths)
        with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
            file.write(pcap)
            file.flush()

            def opened():
                return weir.open(file.name, columns=["wire_len", "captured"])

            batch = next(opened())
            self.assertEqual(batch["wire_len"].tolist(), lengths)
            self.assertEqual((int(batch["wire_len"].sum()), int(batch["captured"].sum())), (sum(lengths), 240))
            frame = opened().to_polars()
            self.assertEqual(frame.dtypes, [polars.Int64, polars.Int64])
            self.assertEqual(frame["wire_len"].sum(), sum(lengths))
            self.assertEqual(frame.select((polars.col("captured") - polars.col("wire_len")).sum()).item(), 240 - sum(lengths))
            by = polars.col("captured")
            self.assertEqual(frame.group_by(by).agg(polars.col("wire_len").sum())["wire_len"].to_list(), [sum(lengths)])
            self.assertEqual(frame["wire_len"].cum_sum().to_list()[-1], sum(lengths))
            panda = opened().to_pandas()
            self.assertEqual(int(panda["wire_len"].sum()), sum(lengths))
            self.assertEqual(panda.groupby("captured")["wire_len"].sum().tolist(), [sum(lengths)])
            self.assertIsInstance(panda, pandas.DataFrame)
            self.assertEqual(pyarrow.compute.sum(opened().to_arrow()["wire_len"]).as_py(), sum(lengths))
            packets = opened()
            self.assertEqual(duckdb.sql("select sum(wire_len), max(wire_len) from packets").fetchall(), [(sum(lengths), 2**32 - 1)])
            self.assertIn(str(2**32 - 1), packets._repr_html_() + batch._repr_html_())
            with weir.open(file.name) as source:
                for _ in source:
                    pass
                self.assertEqual(source.counts.bytes, sum(lengths))
            self.assertEqual(weir.measure(file.name, key="src").bytes, sum(lengths))

    def test_a_capsule_that_nobody_takes_is_freed(self):
        batch = next(self.open())
        for _ in range(200):
            batch.__arrow_c_array__()
            batch.__arrow_c_schema__()
        weir.open(FILE).__arrow_c_stream__()

    def test_a_failure_in_a_stream_has_its_line(self):
        import pyarrow as pa

        path = FILE + ".short"
        with open(FILE, "rb") as file, open(path, "wb") as out:
            out.write(file.read(50_000))
        reader = pa.RecordBatchReader.from_stream(weir.open(path))
        with self.assertRaisesRegex(OSError, "packet .*, offset "):
            while True:
                reader.read_next_batch()

    def test_a_table_of_a_damaged_file_is_kept(self):
        path = FILE + ".torn"
        with open(FILE, "rb") as file, open(path, "wb") as out:
            out.write(file.read(50_000))
        rows = weir.measure(FILE).received and sum(1 for _ in records(path))
        for convert in ("to_arrow", "to_polars", "to_pandas"):
            with self.assertRaisesRegex(weir.Failed, "packet .*, offset ") as caught:
                getattr(weir.open(path), convert)()
            self.assertEqual(len(caught.exception.table), rows - 1)

    def test_a_source_is_one_table(self):
        for convert in ("to_arrow", "to_polars", "to_pandas"):
            source = self.open(filter="udp port 1")
            self.assertEqual(len(getattr(source, convert)()), 0)
            self.assertRaisesRegex(weir.Closed, "read to its end", getattr(source, convert))
            self.assertRaisesRegex(weir.Closed, "read to its end", source.__arrow_c_stream__)

    def test_a_notebook_shows_tables(self):
        import html.parser

        source = self.open()
        shown = next(source)._repr_html_()
        parser = html.parser.HTMLParser()
        cells = []
        parser.handle_data = cells.append
        parser.feed(shown)
        self.assertEqual(cells[: len(self.COLUMNS) + 1], [*self.COLUMNS, "is_udp"])
        self.assertIn(text(FIELDS[0]["src"]) or "10", "".join(cells))
        self.assertIn("received", source._repr_html_())
        self.assertIn(FILE, repr(source))


@contextlib.contextmanager
def a_signal(number, handler=signal.default_int_handler):
    """A signal that comes soon. The process ends with a traceback if it interrupts nothing."""
    old = signal.signal(number, handler)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), number))
    timer.start()
    faulthandler.dump_traceback_later(20, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    timer.join()
    signal.signal(number, old)


class Waiting(unittest.TestCase):
    def test_ctrl_c_ends_a_wait_for_the_reader_of_a_pipe(self):
        path = FILE + ".full.pcap"
        os.mkfifo(path)
        with a_signal(signal.SIGINT):
            self.assertRaises(KeyboardInterrupt, weir.Sink, path)
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        sink = weir.Sink(path)
        given = 0
        begun = time.monotonic()
        # The failure of the sink does not hide the interrupt.
        with a_signal(signal.SIGINT), self.assertRaises(KeyboardInterrupt), weir.open(FILE, batch_size=20_000) as source, sink:
            for batch in source:
                given += len(batch)
                sink.send(batch)
        self.assertLess(time.monotonic() - begun, 5)
        # Whole packets are in the pipe, and at most a part of one behind them.
        got = list(parsed(b"".join(iter(lambda: os.read(pipe, 1 << 20), b""))))
        whole = sum(record == expected for record, expected in zip(got, RECORDS))
        self.assertIn(len(got) - whole, (0, 1))
        counts = sink.counts
        self.assertEqual((counts.given, counts.written, counts.refused, counts.lost), (given, whole, 0, given - whole))
        self.assertGreater(counts.lost, 0)
        # The header of a file waits too.
        sink = weir.Sink(path)
        full = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(full, bytes(4096))
        with a_signal(signal.SIGINT):
            self.assertRaises(KeyboardInterrupt, sink.close)
        os.close(full)
        os.close(pipe)

    def test_a_signal_without_an_exception_ends_no_wait(self):
        path = FILE + ".slow.pcap"
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        got, refused = [], []

        def read():
            while data := os.read(pipe, 1 << 20):
                got.append(data)

        def handler(*_):
            try:
                sink.counts
            except RuntimeError as error:
                refused.append(str(error))
            os.set_blocking(pipe, True)
            reader.start()

        reader = threading.Thread(target=read)
        sink = weir.Sink(path)
        with a_signal(signal.SIGUSR1, handler), sink:
            for batch in weir.open(FILE):
                sink.send(batch)
        reader.join()
        os.close(pipe)
        self.assertRegex(refused[0], "signal handler")
        self.assertTrue(list(parsed(b"".join(got))) == RECORDS)
        self.assertEqual((sink.counts.written, sink.counts.lost), (len(RECORDS), 0))

    def test_ctrl_c_ends_a_table_of_a_silent_source(self):
        import duckdb
        import polars
        import pyarrow

        path = FILE + ".silent"
        os.mkfifo(path)
        # With one thread DuckDB reads in the main thread, which gets the signals.
        database = duckdb.connect(config={"threads": 1})
        for read in (pyarrow.table, polars.DataFrame, lambda source: database.sql("select count(*) from source").fetchall()):
            done = threading.Event()
            writer = threading.Thread(target=open_and_wait, args=(path, done))
            writer.start()
            source = weir.open(path)
            begun = time.monotonic()
            with a_signal(signal.SIGINT), self.assertRaises(KeyboardInterrupt):
                # The library may raise an exception of its own first.
                with contextlib.suppress(Exception):
                    read(source)
                threading.Event().wait(60)
            self.assertLess(time.monotonic() - begun, 5)
            done.set()
            writer.join()

    def test_ctrl_c_and_duration_end_a_wait_for_an_interface(self):
        calls = [lambda **of: weir.open("none0", wait=True, **of), lambda **of: weir.measure("none0", wait=True, **of)]
        for call in calls:
            timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            self.assertRaises(KeyboardInterrupt, call)
            timer.join()
            begun = time.monotonic()
            self.assertRaisesRegex(weir.Failed, "stopped", call, duration=0.2)
            self.assertGreaterEqual(time.monotonic() - begun, 0.2)


class Measurements(unittest.TestCase):
    def sums(self, numbers, name):
        """Packets and bytes of each key, by a naive count."""
        sums = {}
        for i in numbers:
            if FIELDS[i]["ip_version"] > 0:
                one = sums.setdefault(text(FIELDS[i][name]), [0, 0])
                one[0] += 1
                one[1] += RECORDS[i][1]
        return sums

    def ranked(self, sums, by, top):
        return sorted(sums.items(), key=lambda item: -item[1][by])[:top]

    def test_rows_are_those_of_a_naive_count(self):
        everything = range(len(RECORDS))
        for by, number in (("packets", 0), ("bytes", 1)):
            answer = weir.measure(FILE, key="src", by=by, sketch="exact", top=8)
            expected = self.ranked(self.sums(everything, "src"), number, 8)
            self.assertEqual([row["src"] for row in answer], [key for key, _ in expected])
            self.assertEqual([[row["packets"], row["bytes"]] for row in answer.rows], [sums for _, sums in expected])
            self.assertEqual((answer.received, answer.passed, answer.bytes), (len(RECORDS), len(RECORDS), sum(w for _, w, _ in RECORDS)))
            self.assertEqual(answer.received, answer.passed + answer.filtered + answer.denied + sum(answer.dropped.values()))
        pairs = {(text(it["src"]), text(it["dst"])) for it in FIELDS if it["ip_version"] > 0}
        peers = {row["src"]: row["peers"] for row in weir.measure(FILE, key="src", by="peers", top=1 << 20, memory=64 << 20)}
        self.assertEqual(peers, {src: sum(src == one for one, _ in pairs) for src, _ in pairs})

    def test_bounds_hold(self):
        truth = self.sums(range(len(RECORDS)), "src")
        for sketch in ("heavy", "cms", "cms-conservative"):
            answer = weir.measure(FILE, key="src", sketch=sketch, memory=64 << 10, top=100)
            self.assertGreaterEqual(len(answer), 9)
            for row in answer:
                self.assertTrue(row["lower"] <= truth[row["src"]][0] <= row["upper"], (sketch, row, truth[row["src"]]))

    def test_windows_are_those_of_a_naive_count(self):
        found = list(weir.windows(FILE, window=20, key=["src", "dport"], sketch="exact", top=5, filter="udp"))
        self.assertEqual([answer.is_summary for answer in found], [False] * (len(found) - 1) + [True])
        windows = {}
        for i in UDP:
            windows.setdefault(RECORDS[i][0] // 20_000_000_000, []).append(i)
        self.assertEqual(len(found), len(windows) + 1)
        for answer, (_, numbers) in zip(found, sorted(windows.items())):
            self.assertEqual((answer.passed, list(answer.tables)), (len(numbers), ["src", "dport"]))
            expected = self.ranked(self.sums(numbers, "src"), 0, 5)
            self.assertEqual([row["packets"] for row in answer], [sums[0] for _, sums in expected])
        self.assertEqual(found[-1].passed, len(UDP))

    def test_tables_for_other_libraries_and_people(self):
        answer = weir.measure(FILE, key=["src", "dport"], top=4)
        for table in (answer.to_pandas(), answer.to_polars(), answer.to_arrow().to_pandas()):
            self.assertEqual(list(table["packets"]), [row["packets"] for row in answer.rows])
        self.assertEqual(len(answer.to_polars("dport")), len(answer.tables["dport"]))
        self.assertIn(answer[0]["src"], repr(answer))
        self.assertIn(f"<td>{answer[0]['src']}</td>", answer._repr_html_())

    def test_wrong_questions_are_told(self):
        wrong = [
            (dict(key="sorc"), "unknown key 'sorc'"), (dict(key=[]), "no key"), (dict(by="size"), "by 'size'"),
            (dict(sketch="best"), "sketch 'best'"), (dict(memory=10), "^--memory 10 .*too small"), (dict(filter="port port"), "port port"),
            (dict(duration=-1), "duration -1"),
        ]
        for settings, words in wrong:
            with self.assertRaisesRegex(weir.Refused, words):
                weir.measure(FILE, **settings)
        self.assertRaisesRegex(weir.Refused, "window", weir.windows, FILE, window=0)
        self.assertRaisesRegex(weir.Failed, "nowhere.pcap: no such file", weir.measure, "nowhere.pcap")

    def test_a_cut_file_fails_with_what_was_good(self):
        path = FILE + ".half"
        with open(FILE, "rb") as file, open(path, "wb") as out:
            out.write(file.read(100_000))
        with self.assertRaisesRegex(weir.Failed, "packet .*, offset ") as caught:
            weir.measure(path)
        self.assertGreater(caught.exception.answer.received, 1000)
        self.assertIn("offset", caught.exception.answer.json["fault"])

    def test_an_iteration_that_is_left_ends_the_measurement(self):
        threads = len(os.listdir("/proc/self/task"))
        for answer in weir.windows(FILE, FILE, FILE, window=1, merge=False):
            break
        gc.collect()
        del answer
        for _ in range(100):
            if len(os.listdir("/proc/self/task")) <= threads:
                return
            time.sleep(0.05)
        self.fail("threads are left")


class Recordings(unittest.TestCase):
    def test_a_record_holds_the_packets_of_the_source(self):
        directory = FILE + ".record"
        with weir.record(FILE, directory=directory, ram=32 << 20, disk=64 << 20, reserve=1, filter="udp") as recorder:
            self.assertRaises(StopIteration, lambda: [recorder.next(30.0) for _ in range(3)])
            self.assertEqual(recorder.status()["recorded"], len(UDP))
            account = recorder.close()
        self.assertEqual((account["received"], account["fault"]), (len(RECORDS), None))
        found = [bytes(batch.frame(i)) for batch in weir.open(directory) for i in range(len(batch))]
        self.assertTrue(found == [RECORDS[i][2] for i in UDP])
        since, until = RECORDS[UDP[100]][0], RECORDS[UDP[900]][0]
        rows = sum(map(len, weir.open(directory, since=since, until=until)))
        self.assertEqual(rows, sum(since <= RECORDS[i][0] <= until for i in UDP))
        import datetime

        one = datetime.datetime.fromtimestamp(since / 1e9, datetime.timezone.utc)
        micros = datetime.timedelta(microseconds=(since // 1000) % 1_000_000)
        self.assertEqual(sum(map(len, weir.open(directory, since=one.replace(microsecond=0) + micros, until=until))), rows)
        self.assertEqual(weir.measure(directory, key="src").passed, len(UDP))

    def test_a_trigger_saves_what_was_around_it(self):
        directory = FILE + ".saved"
        at = UDP[len(UDP) // 2]
        expression = f"udp and src port {FIELDS[at]['src_port']} and dst port {FIELDS[at]['dst_port']}"
        with weir.record(FILE, directory=directory, ram=32 << 20, triggers={"one": expression}, before=1, after=0.5) as recorder:
            saved = list(recorder)
        self.assertGreater(len(saved), 0)
        self.assertTrue(all(os.path.exists(one["file"]) for one in saved), saved)

    def test_wrong_settings_are_told(self):
        wrong = [(dict(triggers={"one": "port port"}), "trigger one"), (dict(filter="port port"), "port port"),
                 (dict(before=-1), "before -1"), (dict(ram=1), "")]
        for settings, words in wrong:
            with self.assertRaisesRegex(weir.Refused, words):
                weir.record(FILE, directory=FILE + ".none", **settings)
        self.assertFalse(os.path.exists(FILE + ".none"))


unittest.main(verbosity=2)
