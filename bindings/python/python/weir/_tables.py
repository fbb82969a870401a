"""Tables of other libraries, which are imported at their first use. Batches and sources give them Arrow, without a copy."""

from __future__ import annotations

import html
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from weir._weir import Failed

#: Packets that a notebook shows of a batch.
SHOWN = 10


def library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is not installed: pip install {name}") from error


def batch_to_arrow(batch: Any) -> Any:
    return library("pyarrow").record_batch(batch)


class _Nothing:
    """No packets, with the columns of a source."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._source._empty_stream()


def _collected(source: Any, one: Callable[[Any], Any], several: Callable[[list[Any]], Any]) -> Any:
    """A table of all packets that are left. If the source cannot be read to its end, Failed has the table of the packets before the error."""
    tables: list[Any] = []
    try:
        for batch in source:
            tables.append(one(batch))
            batch.release()
    except Failed as error:
        error.table = several(tables or [one(_Nothing(source))])  # type: ignore[attr-defined]
        raise
    return several(tables or [one(_Nothing(source))])


def source_to_arrow(source: Any) -> Any:
    arrow = library("pyarrow")
    return _collected(source, arrow.table, arrow.concat_tables)


def source_to_polars(source: Any) -> Any:
    polars = library("polars")
    return _collected(source, polars.DataFrame, polars.concat)


def source_to_pandas(source: Any) -> Any:
    pandas = library("pandas")
    return _collected(source, to_pandas, lambda frames: pandas.concat(frames, ignore_index=True))


def to_polars(of: Any) -> Any:
    return library("polars").DataFrame(of)


def to_pandas(of: Any) -> Any:
    frame = library("pandas").DataFrame
    if hasattr(frame, "from_arrow"):
        return frame.from_arrow(of)
    return library("pyarrow").table(of).to_pandas()


def table_html(names: list[str], rows: list[list[str]]) -> str:
    """A table for a notebook. Whatever comes from packets is escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def batch_to_html(batch: Any) -> str:
    columns = batch._head(SHOWN)
    rows = [["" if cell is None else cell for cell in row] for row in zip(*columns)]
    more = f"<p>{len(rows)} of {len(batch):,} packets</p>" if len(batch) > len(rows) else f"<p>{len(batch):,} packets</p>"
    return table_html(batch.names, rows) + more
