"""Network traffic for Python: packets of captures and interfaces as columns, filtered and measured at native speed.

    import weir

    for batch in weir.open("trace.pcap", filter="udp"):
        print(len(batch), batch["wire_len"].sum())

A batch holds tens of thousands of packets. Its columns are NumPy arrays, read-only:

    time        time of capture, ns since 1970 (int64); the least int64 without a timestamp
    wire_len    length on the wire without FCS and preamble, bytes (uint32)
    captured    captured length, bytes (uint32)
    interface   index of the interface in its source (uint32)
    ip_version  4 or 6, and 0 for frames without IP (uint8)
    src4, dst4  address of IPv4 as a number, 10.0.0.1 being 0x0a000001; else 0 (uint32)
    src, dst    address, 16 bytes in network order, of IPv4 as ::ffff:a.b.c.d (uint8, 16 columns); in tables of Arrow: a text
    protocol    IP protocol number of the transport; 255 if it is unknown (uint8)
    src_port, dst_port
                port; 0 without one (uint16)
    tcp_flags   FIN being the lowest bit; 0 without TCP (uint8)
    vlan        identifier of the outermost VLAN tag; 65535 without one (uint16)
    network_offset, transport_offset, payload_offset
                offset in the frame of the IP header, of the transport header after extension headers, and of the payload of TCP, UDP,
                UDP-Lite, SCTP and DCCP, bytes; -1 if no byte of it was captured, and in fragments other than the first (int32)

Fields are read from the outermost IP packet. In tables of Arrow, pandas, polars and DuckDB absent fields are null, and wire_len and
captured are int64, so that their sums do not end at 4 GiB: polars adds a column up in the column's own type, and so do NumPy's
`np.add.at` and arithmetic with one array, where `.astype("int64")` helps; `.sum()` of an array counts in 64 bits.
Errors are Refused (a name, an expression or a setting is wrong, nothing was done) and Failed (the input or the output failed, packets
before the error were delivered). Their texts are the lines that the command prints. A line that names a flag, such as `--ring` or `--memory`,
means the setting of that name, `ring` or `memory`; `--merge` and `--sort` are values of `order`. Other flags are of the command alone.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from weir._weir import (
    FIELDS,
    Batch,
    Closed,
    Counts,
    Failed,
    Measurement,
    Recording,
    Refused,
    Region,
    Sink,
    SinkCounts,
    Source,
    WeirError,
    __version__,
)
from weir import _measure
from weir._health import Conversation, Dns, DnsFigures, Finding, Rtt, Tcp, TcpFigures, Times
from weir._measure import Answer
from weir._record import Recorder

__all__ = [
    "FIELDS",
    "Answer",
    "Batch",
    "Closed",
    "Conversation",
    "Counts",
    "Dns",
    "DnsFigures",
    "Failed",
    "Finding",
    "Recorder",
    "Refused",
    "Region",
    "Rtt",
    "Sink",
    "SinkCounts",
    "Source",
    "Tcp",
    "TcpFigures",
    "Times",
    "WeirError",
    "__version__",
    "measure",
    "open",
    "record",
    "windows",
]

Name = str | bytes | os.PathLike[str]
Time = int | datetime.datetime
T = TypeVar("T")


def _nanoseconds(what: str, seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not 0 <= seconds < 2**33:
        raise Refused(f"{what} {seconds:g}: it is a number of seconds from 0 to 2**33")
    return round(seconds * 1e9)


def _time(what: str, time: Time | None) -> int | None:
    """Nanoseconds since 1970. A time without a zone would mean another instant on each machine."""
    if time is None or isinstance(time, int):
        return time
    if not isinstance(time, datetime.datetime):
        raise Refused(f"{what} {time!r}: it is ns since 1970 as an int, or a datetime with a time zone")
    if time.tzinfo is None:
        raise Refused(f"{what} {time}: it has no time zone; write datetime(..., tzinfo=timezone.utc)")
    since = time - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def open(
    *sources: Name,
    filter: str = "",
    columns: Sequence[str] | None = None,
    marks: Mapping[str, str] | None = None,
    batch_size: int = 65_536,
    latency: float = 0.05,
    duration: float | None = None,
    limit: int | None = None,
    since: Time | None = None,
    until: Time | None = None,
    order: Literal["given", "merge", "sort"] = "given",
    invert: bool = False,
    inner: bool = False,
    resolve: bool = False,
    sets: Mapping[str, Name] | None = None,
    rules: str | None = None,
    connections: int = 65_536,
    dedup: int | None = None,
    dedup_within: float | None = None,
    direction: Literal["both", "in", "out"] = "both",
    promiscuous: bool = True,
    kernel_filter: bool = True,
    ring: int | None = None,
    wait: bool = False,
    busy_poll: bool = False,
    yes_take: Sequence[str] = (),
    workers: int = 0,
    batches: int | None = None,
) -> Source:
    """Opens sources: capture files, "-" for standard input, a record directory; or interfaces, such as "eth0" or "af_xdp:eth0:0".

    Iterate it for batches, use it in `with`, or hand it to a library that takes Arrow streams. It can be read once. Several threads may
    take batches, and each batch goes to one of them. Live packets need CAP_NET_RAW.

    filter      expression in the language of tcpdump; batches have the packets that match, and no others
    columns     names of the columns that are filled together, and that tables have;
                default: time, src, dst, protocol, src_port, dst_port, wire_len
    marks       name -> expression: a further column of bool for each, true where the expression matches
    batch_size  packets of a full batch. Each batch costs some microseconds in Python, which dominate below 4096 packets
    latency     longest time for which a packet of an interface waits for its batch to be full, seconds
    duration    time after which the source is stopped, seconds
    limit       number of packets, after which the source ends
    since, until
                the least and the greatest time of the packets: ns since 1970, or a datetime with a zone
    order       of several files: "given", one after another; "merge", merged in time order; "sort", sorted into time order
    invert      batches have the packets that do not match
    inner       the filter judges the innermost packet of a tunnel
    resolve     names of hosts in the filter are looked up
    sets        name -> file of a set of addresses, which expressions name as in "src @banned": an address, a prefix or a range a line;
                # begins a comment
    rules       rules of a firewall, in the language of `weir firewall`; packets that they deny are in no batch, and counted
    connections room for the states of connections, if a rule asks for them
    dedup       leave out packets with the bytes of one of so many packets that match, themselves included
    dedup_within
                leave out packets with the bytes of a packet up to so many seconds before
    direction   "in" or "out": packets that the interface receives or sends
    promiscuous also packets for other hosts
    kernel_filter
                the kernel filters, and packets that do not match cost next to nothing
    ring        memory for packets of an interface that were not taken yet, bytes; default 32 MiB. Batches that are held lie in it.
                AF_PACKET fills its blocks in turn (1 MiB each at most, less in a smaller ring and for a lower latency), and stops at
                a block in use: release batches about in their order
    wait        wait until the interface is there and up
    busy_poll   poll without sleep (AF_XDP and DPDK)
    yes_take    interfaces whose packets AF_XDP or DPDK may take away from this host, although they carry its default route or this login,
                or are ports of a bridge
    workers     threads that read and filter files; 0 for one for each processor
    batches     pieces of the source that may wait or be held, 4 or more; default 96 for files, of about 1 MiB each, and 4096 for
                interfaces. A batch takes a quarter of them, and of the ring, at most, so one of large packets has fewer than batch_size.
                While all are out, files are not read, and captures drop packets once the ring is full. A program that waits for a
                batch while it holds all pieces, or half of the ring, gets BufferError after a second
    """
    settings = _settings(locals())
    return _made(Source, _names(sources), settings)


def _names(sources: Sequence[Name]) -> list[str]:
    return [os.fsdecode(name) for name in sources]


#: Settings of a source that not all functions have, and their defaults.
_DEFAULTS: dict[str, Any] = {
    "marks": None,
    "columns": None,
    "batch_size": 65_536,
    "latency": 0.05,
    "duration": None,
    "limit": None,
    "since": None,
    "until": None,
    "order": "given",
    "invert": False,
    "inner": False,
    "rules": None,
    "connections": 65_536,
    "dedup": None,
    "dedup_within": None,
    "kernel_filter": True,
    "workers": 0,
    "batches": None,
}


def _interfaces(what: str, names: Sequence[str]) -> list[str]:
    if isinstance(names, str):
        raise Refused(f"{what} {names!r}: it is a list of names")
    return list(names)


def _settings(arguments: Mapping[str, Any]) -> dict[str, object]:
    """Settings of a source as the library takes them, from the arguments of a function: times in nanoseconds."""
    given: dict[str, Any] = {**_DEFAULTS, **arguments}
    if isinstance(given["columns"], str):
        raise Refused(f"columns {given['columns']!r}: it is a list of names")
    settings: dict[str, object] = given | {
        "marks": list((given["marks"] or {}).items()),
        "columns": None if given["columns"] is None else list(given["columns"]),
        "sets": [f"{name}={os.fsdecode(file)}" for name, file in (given["sets"] or {}).items()],
        "yes_take": _interfaces("yes_take", given["yes_take"]),
        "latency_ns": _nanoseconds("latency", given["latency"]),
        "duration_ns": _nanoseconds("duration", given["duration"]),
        "dedup_within_ns": _nanoseconds("dedup_within", given["dedup_within"]),
        "since_ns": _time("since", given["since"]),
        "until_ns": _time("until", given["until"]),
    }
    return settings


def _made(make: Callable[..., T], *arguments: object) -> T:
    """Calls the library, and names the setting whose value has a wrong type."""
    try:
        return make(*arguments)
    except TypeError as error:
        name = str(error).rpartition(".")[2]
        raise TypeError(f"{name}: {error.__cause__}" if error.__cause__ else str(error)) from None


def _measurement(
    sources: Sequence[Name],
    key: str | Sequence[str],
    duration: float | None,
    questions: dict[str, object],
    settings: dict[str, object],
) -> tuple[Measurement, str, float | None]:
    """A measurement, the name of its first key, and its duration."""
    keys = [key] if isinstance(key, str) else list(key)
    window = questions.pop("window")
    late = questions.pop("late")
    _nanoseconds("duration", duration)
    health = questions["health"]
    geo = questions["geo"]
    questions["health"] = [health] if isinstance(health, str) else list(health)  # type: ignore[call-overload]
    questions["geo"] = _names([geo] if isinstance(geo, (str, bytes, os.PathLike)) else geo)  # type: ignore[arg-type]
    questions |= {"keys": keys, "window_ns": _nanoseconds("window", window), "late_ns": _nanoseconds("late", late)}  # type: ignore[arg-type]
    return _made(Measurement, _names(sources), settings, questions), (keys or [""])[0], duration


def measure(
    *sources: Name,
    key: str | Sequence[str] = "5tuple",
    by: Literal["packets", "bytes", "peers", "ports", "contacts"] = "packets",
    top: int = 10,
    filter: str = "",
    duration: float | None = None,
    sketch: Literal["heavy", "exact", "cms", "cms-conservative", "sht", "mv", "rs", "rs-set"] = "heavy",
    memory: int | None = None,
    seed: int | None = None,
    since: Time | None = None,
    until: Time | None = None,
    order: Literal["given", "merge", "sort"] = "given",
    inner: bool = False,
    resolve: bool = False,
    sets: Mapping[str, Name] | None = None,
    dedup: int | None = None,
    dedup_within: float | None = None,
    geo: Name | Sequence[Name] = (),
    health: Literal["tcp", "dns", "mtu"] | Sequence[Literal["tcp", "dns", "mtu"]] = (),
    direction: Literal["both", "in", "out"] = "both",
    promiscuous: bool = True,
    kernel_filter: bool = True,
    ring: int | None = None,
    wait: bool = False,
    busy_poll: bool = False,
    yes_take: Sequence[str] = (),
    workers: int = 0,
) -> Answer:
    """Measures who uses the traffic of sources, to their end or for `duration` seconds, on all cores. Sources are named as for `open`.

    print(weir.measure("trace.pcap", key="src", by="bytes"))

    key       5tuple, conversation, src, dst, host, dport, service, vlan and others of weir help keys, prefixes such as src/24; several give a table each
    by        what makes a key large: packets, bytes, or its number of different peers, ports, or contacts (a peer with a port)
    top       most rows of a table
    filter    expression in the language of tcpdump
    duration  time after which reading ends, seconds. Without it, an interface is measured until Ctrl-C
    sketch    table that counts: heavy, the largest keys with bounds that hold; exact, every key while there is memory; or Count-Min
    memory    memory of each table, bytes; default: follows the caches (heavy, 1 to 4 MiB), or 4 MiB
    seed      seed of the hash functions; without it one is drawn, so that nobody can aim collisions
    inner     addresses and ports are read inside tunnels
    geo       databases in the MaxMind DB format, for the keys asn, country and network
    health    examine "tcp", "dns" or "mtu", or several: `answer.tcp`, `answer.dns`, `answer.json["health"]["mtu"]`
    ring      memory for packets of an interface, bytes

    The other settings are as in `open`. Raises Failed if a source cannot be read to its end: `error.answer` is the answer for the
    packets before the error.
    """
    settings = _settings(locals())
    questions: dict[str, object] = dict(
        by=by, top=top, changers=0, window=None, late=None, sketch=sketch, memory=memory, seed=seed, merge=None, geo=geo, health=health, findings=False
    )
    return _measure.summary(*_measurement(sources, key, duration, questions, settings))


def windows(
    *sources: Name,
    window: float,
    key: str | Sequence[str] = "5tuple",
    by: Literal["packets", "bytes", "peers", "ports", "contacts"] = "packets",
    top: int = 10,
    changers: int = 0,
    late: float | None = None,
    filter: str = "",
    duration: float | None = None,
    sketch: Literal["heavy", "exact", "cms", "cms-conservative", "sht", "mv", "rs", "rs-set"] = "heavy",
    memory: int | None = None,
    seed: int | None = None,
    since: Time | None = None,
    until: Time | None = None,
    order: Literal["given", "merge", "sort"] = "given",
    merge: bool | None = None,
    inner: bool = False,
    resolve: bool = False,
    sets: Mapping[str, Name] | None = None,
    dedup: int | None = None,
    dedup_within: float | None = None,
    geo: Name | Sequence[Name] = (),
    findings: bool = False,
    health: Literal["tcp", "dns", "mtu"] | Sequence[Literal["tcp", "dns", "mtu"]] = (),
    direction: Literal["both", "in", "out"] = "both",
    promiscuous: bool = True,
    kernel_filter: bool = True,
    ring: int | None = None,
    wait: bool = False,
    busy_poll: bool = False,
    yes_take: Sequence[str] = (),
    workers: int = 0,
) -> Iterator[Answer]:
    """Measures window by window: gives an answer for each window of `window` seconds of packet time, and then the summary.

    for answer in weir.windows("eth0", window=1, key="src"):
        print(answer)

    changers  rows of `answer.json["changers"]`: the keys that changed most since the window before
    late      time that a window waits for late packets, seconds; default 1 or the window; of interfaces 0.2
    findings  search each window, of 1 s or longer, for scans, floods, storms, losses and new hosts: `answer.findings`
    merge     whether several files are merged by the time of their packets; by default they are

    The other settings are as in `measure`. The measurement ends with the iteration. At most 64 windows of an interface wait to be taken;
    later ones are left out, and the next answer counts them as `json["left_out"]`.
    """
    settings = _settings(locals())
    questions: dict[str, object] = dict(
        by=by, top=top, changers=changers, window=window, late=late, sketch=sketch, memory=memory, seed=seed, merge=merge, geo=geo, health=health, findings=findings
    )
    return _measure.answers(*_measurement(sources, key, duration, questions, settings))


def record(
    *sources: Name,
    directory: Name,
    ram: int | None = None,
    disk: int | None = None,
    age: float | None = None,
    triggers: Mapping[str, str] | None = None,
    ready_rules: Sequence[str] = (),
    before: float = 10,
    after: float = 5,
    keep: str | None = None,
    cutoff: int | None = None,
    reserve: int | None = None,
    filter: str = "",
    resolve: bool = False,
    sets: Mapping[str, Name] | None = None,
    direction: Literal["both", "in", "out"] = "both",
    promiscuous: bool = True,
    ring: int | None = None,
    wait: bool = False,
    busy_poll: bool = False,
    yes_take: Sequence[str] = (),
) -> Recorder:
    """Keeps the packets of sources in RAM and on disk, and saves packets around triggers, as `weir record` does.

    with weir.record("eth0", directory="/var/cap", triggers={"rst": "tcp[13] & 4 != 0"}) as recorder:
        for saved in recorder:
            print(saved["file"])

    directory    is made if it is missing; `open`, `measure` and `weir query` read it, even during the recording
    ram          memory for packets, bytes; default 4 GiB, or a quarter of the free memory if that is less
    disk         largest size of the record on disk, bytes; without it there are only the files that triggers save
    age          longest time for which packets are kept, seconds
    triggers     name -> expression that fires it; without any there is one for `recorder.trigger`
    ready_rules  names of ready rules: "scan" fires for hosts whose contacts mostly stay unanswered or are refused
    before, after
                 packets of these times around a firing are saved, seconds
    keep         packets that triggers save: "all", "flow", "host" or an expression
    cutoff       bytes of each conversation that are kept
    reserve      bytes of the file system that stay free; default 1 GiB
    filter       packets that do not match are not recorded

    The other settings are as in `open`.
    """
    settings = _settings(locals())
    keeping = {
        "ram": ram,
        "disk": disk,
        "age_ns": _nanoseconds("age", age),
        "triggers": [f"{name}={expression}" for name, expression in (triggers or {}).items()] + [*ready_rules],
        "before_ns": _nanoseconds("before", before),
        "after_ns": _nanoseconds("after", after),
        "keep": keep,
        "cutoff": cutoff,
        "reserve": reserve,
        "resolve": resolve,
    }
    return Recorder(_made(Recording, _names(sources), os.fsdecode(directory), settings, keeping), _nanoseconds)
