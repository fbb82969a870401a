"""Sends packets through a cable, and captures them at its other end: live.py SOURCE SINK FILE"""

import select
import sys

import numpy as np
import weir

SOURCE, SINK, FILE = sys.argv[1:]

with weir.open(SOURCE, filter="udp", columns=["dst_port", "time"], marks={"dns": "port 53"}, latency=0.01, kernel_filter=False) as source:
    assert source.next(0.05) is None
    sink = weir.Sink(SINK)
    sent = 0
    frames = []
    got = []
    ports = []
    with weir.open(FILE, batch_size=64) as packets:
        for batch in packets:
            frames += [bytes(batch.frame(i)) for i in range(len(batch))]
            sink.send(batch)
            sent += len(batch)
            while sum(map(len, ports)) < sent:
                one = source.next(5.0)
                assert one is not None, "nothing came in 5 s"
                got += [bytes(one.frame(i)) for i in range(len(one))]
                ports.append(one["dst_port"])
                assert np.array_equal(one["dns"], one["dst_port"] == 53)
                assert (one["time"] > 1_600_000_000_000_000_000).all()
                # A view of a frame holds a slot of the ring.
                view = one.frame(0)
                try:
                    one.release()
                    raise AssertionError("released with a view")
                except BufferError:
                    view.release()
                one.release()
    counts = sink.close()
    assert counts.written == counts.given == sent and counts.refused == 0, counts
    assert got == frames, (len(got), len(frames))
    source.stop()
    assert sum(map(len, source)) == 0
    counts = source.close()
assert counts.received == counts.passed + counts.filtered + counts.denied + counts.dropped, counts
assert counts.passed == sent and counts.dropped == 0 and counts.is_final, counts
# A program that polls has all packets, although batches are not full.
with weir.open(SOURCE, filter="udp", latency=0.2) as source, weir.Sink(SINK) as sink, weir.open(FILE, limit=100) as packets:
    for batch in packets:
        sink.send(batch)
    found, silent = 0, 0
    while found < 100:
        assert select.select([source], [], [], 5)[0], f"{found} of 100 packets, and nothing to read"
        while (one := source.next(0)) is not None:
            found += len(one)

# A program that holds all batches is told.
with weir.open(SOURCE, filter="udp", ring=1 << 20, latency=0.01) as source, weir.Sink(SINK) as sink:
    held = []
    with weir.open(*[FILE] * 8) as packets:
        for batch in packets:
            sink.send(batch)
    try:
        held.extend(source)
        raise AssertionError(f"{len(held)} batches, and no end")
    except BufferError as error:
        assert "holds all" in str(error), error
    held.clear()

# By packet sockets a batch is a block of the ring, even if it holds one packet.
if SOURCE.startswith("af_packet"):
    with weir.open(SOURCE, filter="udp", latency=0.01) as source, weir.Sink(SINK) as sink, weir.open(FILE, limit=1) as packets:
        (packet,) = packets
        held = []
        try:
            for _ in range(1000):
                sink.send(packet)
                one = source.next(2.0)
                assert one is not None, f"{len(held)} batches, and nothing came in 2 s"
                held.append(one)
            raise AssertionError("a ring of 1000 blocks")
        except BufferError as error:
            assert "holds all" in str(error), error
        # 32 MiB in blocks of 128 KiB: packets wait in a block for half of the latency, and a block holds a frame of 64 KiB.
        assert len(held) == 256, len(held)
        held.clear()
        del one

print(sent, "sent and captured")
