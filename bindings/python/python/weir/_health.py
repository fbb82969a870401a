"""Health of the traffic and findings, as typed results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Rtt:
    """Round trips: their number, and the shortest, the mean and the longest, seconds; None without one."""

    count: int
    min_s: float | None
    mean_s: float | None
    max_s: float | None


@dataclass(frozen=True)
class TcpFigures:
    """Figures of TCP segments, of one end or of all. docs/reference/health.md has the rule of each."""

    packets: int
    payload: int
    retransmitted: int
    retransmitted_bytes: int
    fast: int
    spurious: int
    repeated: int
    out_of_order: int
    duplicate_acks: int
    zero_windows: int
    resets: int
    gaps: int
    untimed: int
    rtt: Rtt

    @classmethod
    def _of(cls, json: dict[str, Any]) -> Self:
        names = (name for name in cls.__dataclass_fields__ if name != "rtt")
        return cls(**{name: json[name] for name in names}, rtt=Rtt(**json["rtt"]))


@dataclass(frozen=True)
class Conversation:
    """A TCP conversation: its ends, of which `src` is the client if the begin was seen (`begun`), and the figures of what `src` sent and received."""

    src: str
    sport: int
    dst: str
    dport: int
    start: str
    end: str
    begun: bool
    handshake_s: float | None
    sent: TcpFigures
    received: TcpFigures


@dataclass(frozen=True)
class Tcp:
    """Health of TCP: numbers of conversations, the sum of their figures, and the worst of them."""

    conversations: int
    midway: int
    capacity: int
    evicted: int
    evicted_retransmitted: int
    unjudged: int
    sum: TcpFigures
    rows: list[Conversation]

    @classmethod
    def _of(cls, json: dict[str, Any]) -> Self:
        def row(row: dict[str, Any]) -> Conversation:
            ends = {side: TcpFigures._of(row[side]) for side in ("sent", "received")}
            return Conversation(**row | ends)

        names = ("conversations", "midway", "capacity", "evicted", "evicted_retransmitted", "unjudged")
        return cls(**{name: json[name] for name in names}, sum=TcpFigures._of(json), rows=[row(one) for one in json["top"]])


@dataclass(frozen=True)
class Times:
    """Times of answers: their number, and the median (within 7 %), the mean and the longest, seconds; None without one."""

    count: int
    median_s: float | None
    mean_s: float | None
    max_s: float | None


@dataclass(frozen=True)
class DnsFigures:
    """Figures of DNS transactions. `name` is the server or the name; None for all. `codes` has the number of answers by response code."""

    name: str | None
    queries: int
    retransmitted: int
    repeated: int
    unanswered: int
    codes: dict[str, int]
    times: Times

    @classmethod
    def _of(cls, json: dict[str, Any]) -> Self:
        names = ("queries", "retransmitted", "repeated", "unanswered", "codes")
        name = json.get("server", json.get("name"))
        return cls(name=name, **{name: json[name] for name in names}, times=Times(**json["times"]))


@dataclass(frozen=True)
class Dns:
    """Health of DNS: the sum, the servers with the most queries, and the names that were slow, failed or stayed without an answer."""

    unasked: int
    unread: int
    capacity: int
    evicted_queries: int
    evicted_names: int
    evicted_servers: int
    sum: DnsFigures
    servers: list[DnsFigures]
    slow: list[DnsFigures]
    failing: list[DnsFigures]
    unanswered: list[DnsFigures]

    @classmethod
    def _of(cls, json: dict[str, Any]) -> Self:
        numbers = ("unasked", "unread", "capacity", "evicted_queries", "evicted_names", "evicted_servers")
        lists = {"servers": "servers", "slow": "slow", "failing": "failing", "unanswered": "unanswered_names"}
        rows: dict[str, Any] = {name: [DnsFigures._of(row) for row in json[member]] for name, member in lists.items()}
        return cls(**{name: json[name] for name in numbers}, sum=DnsFigures._of(json), **rows)


@dataclass(frozen=True)
class Finding:
    """What began ("begin") or ended ("end"), or goes on at the end of the measurement ("open"); `host` None is the whole link.

    `figure` of the last window and `most` of all are in `unit`; `row` says the counts in words.
    """

    number: int
    kind: str
    state: str
    host: str | None
    begin: str
    last: str
    figure: float
    most: float
    unit: str
    row: str

    @classmethod
    def _of(cls, json: dict[str, Any]) -> Self:
        return cls(**{name: json[name] for name in cls.__dataclass_fields__})
