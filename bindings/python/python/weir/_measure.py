"""Answers about the traffic: `weir.measure`, `weir.windows`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from weir import _tables
from weir._health import Dns, Finding, Tcp
from weir._weir import Failed, Measurement

#: Columns of a key, in the order of a table.
KEYS = (
    *("src", "dst", "host", "name", "sport", "dport", "service", "proto", "app", "mac", "smac", "dmac"),
    *("vlan", "mpls", "vni", "ethertype", "dscp", "ttl", "tcpflags", "size", "interface", "direction"),
)
#: Columns of figures; a table has two of packets and bytes, or one number of elements with their answers.
FIGURES = ("packets", "bytes", "peers", "ports", "contacts", "unanswered", "refused")


class Answer:
    """Totals of some traffic, and tables of its largest keys, in which each figure has its bound.

    json      the whole answer, as `weir measure --json` gives it
    rows      the table of the first key: packets and bytes of each key, `lower` and `upper` bounds of the figure that ranks;
              with `by` peers, ports or contacts their number, and how many were `unanswered` and `refused` (None: unknown)
    tables    the same for each key, by its name
    received, passed, filtered, denied, dropped, bytes
              the totals: received = passed + filtered + denied + the sum of dropped, which has a number for each cause
    flows     the estimated number of flows; `json["flows"]["bound"]` has its error
    missing   what is outside the table: `at_most` is what any key that is not listed may weigh
    start, end
              times of the window, or of the first and the last packet; None without a packet
    tcp, dns  health of the conversations and of the transactions, as `Tcp` and `Dns`; None unless `health` asks for it
    findings  what began or ended since the answer before, as a list of `Finding`; the summary also has open findings
    is_summary
              whether the answer is about all packets, and not about one window
    """

    def __init__(self, answer: dict[str, Any], key: str, is_summary: bool, findings: list[Finding]) -> None:
        self.json = answer
        self.is_summary = is_summary
        tops = answer.get("tops") or {key: answer["top"]}
        self.tables: dict[str, list[dict[str, Any]]] = {name: [_row(row) for row in top] for name, top in tops.items()}
        self.received: int = answer["received"]
        self.passed: int = answer["passed"]
        self.filtered: int | None = answer["filtered"]
        self.denied: int = answer["denied"]
        self.dropped: dict[str, int] = answer["dropped"]
        self.bytes: int = answer["bytes"]
        self.flows: int = answer["flows"]["estimate"]
        self.missing: dict[str, Any] = answer["missing"]
        self.start: str | None = answer["start"]
        self.end: str | None = answer["end"]
        health = answer.get("health", {})
        self.tcp: Tcp | None = Tcp._of(health["tcp"]) if "tcp" in health else None
        self.dns: Dns | None = Dns._of(health["dns"]) if "dns" in health else None
        self.findings = findings

    @property
    def rows(self) -> list[dict[str, Any]]:
        return next(iter(self.tables.values()))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.rows[number]

    def to_arrow(self, key: str | None = None) -> Any:
        """The table of a key, by default of the first key, as a pyarrow.Table."""
        return _tables.library("pyarrow").Table.from_pylist(self._rows(key))

    def to_polars(self, key: str | None = None) -> Any:
        """The table of a key as a polars.DataFrame."""
        return _tables.library("polars").DataFrame(self._rows(key))

    def to_pandas(self, key: str | None = None) -> Any:
        """The table of a key as a pandas.DataFrame."""
        return _tables.library("pandas").DataFrame(self._rows(key))

    def _rows(self, key: str | None) -> list[dict[str, Any]]:
        return self.rows if key is None else self.tables[key]

    def _heading(self) -> str:
        lost = sum(self.dropped.values()) + self.json.get("lost_before", 0)
        # A capture counts what it drops, and of files the summary says whether they have a counter.
        is_known = self.is_summary or any(cause != "late" for cause in self.dropped)
        is_recorded = not self.json.get("loss_not_recorded", False)
        loss = "no loss, " if is_recorded else "loss not recorded, "
        loss = f"{lost:,} lost, " if lost else loss if is_known else ""
        return f"{self.passed:,} packets, {self.bytes:,} bytes, {loss}about {self.flows:,} flows"

    def __repr__(self) -> str:
        lines = [self._heading()]
        for key, rows in self.tables.items():
            cells = [_shown(row) for row in rows]
            if not cells:
                continue
            titles = list(cells[0])
            widths = [max(len(title), *(len(row[title]) for row in cells)) for title in titles]
            lines.append(f"by {key}:")
            for row in (dict(zip(titles, titles)), *cells):
                lines.append("  " + "  ".join(row[title].rjust(width) for title, width in zip(titles, widths)))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        text = f"<p>{self._heading()}</p>"
        for key, rows in self.tables.items():
            cells = [_shown(row) for row in rows]
            if cells:
                text += f"<p>by {key}</p>" + _tables.table_html(list(cells[0]), [list(row.values()) for row in cells])
        return text


def _row(top: Mapping[str, Any]) -> dict[str, Any]:
    """A row without objects inside. A port that is not there is None."""
    row = {name: None if top[name] == "-" else top[name] for name in KEYS if name in top}
    figures = {name: top[name] for name in FIGURES if name in top}
    return row | figures | {"lower": top["bound"]["lower"], "upper": top["bound"]["upper"]}


def _shown(row: Mapping[str, Any]) -> dict[str, str]:
    cells = {name: "" if row[name] is None else str(row[name]) for name in KEYS if name in row}
    figures = {name: "" if row[name] is None else f"{row[name]:,}" for name in FIGURES if name in row}
    bound = "exact" if row["lower"] == row["upper"] else f"{row['lower']:,} to {row['upper']:,}"
    return cells | figures | {"bound": bound}


def answers(measurement: Measurement, key: str, duration: float | None) -> Iterator[Answer]:
    """The answers of a measurement: windows, if there are any, and the summary. The end of the iteration ends the measurement.

    A source that fails raises Failed after the summary, which then has a `fault`.
    """
    until = math.inf if duration is None else time.monotonic() + duration
    try:
        while True:
            try:
                found = measurement.next(min(max(until - time.monotonic(), 0), 3600))
            except StopIteration:
                return
            if found is not None:
                findings = [Finding._of(json.loads(finding)) for finding in found[2]]
                yield Answer(json.loads(found[1]), key, found[0], findings)
            if time.monotonic() >= until:
                measurement.stop()
                until = math.inf
    finally:
        measurement.close()


def summary(measurement: Measurement, key: str, duration: float | None) -> Answer:
    """The last answer. **Raises** Failed if a source could not be read to its end; the exception has the `answer`."""
    last = None
    try:
        for last in answers(measurement, key, duration):
            pass
    except Failed as error:
        error.answer = last  # type: ignore[attr-defined]
        raise
    assert last is not None, "a measurement ends with its summary"
    return last
