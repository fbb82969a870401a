"""Tables of other libraries, which are imported when they are asked for. Batches and sources give them Arrow, without a copy."""

from __future__ import annotations

import html
import importlib
from types import ModuleType
from typing import Any

#: Packets that a notebook shows of a batch.
SHOWN = 10


def library(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is not installed: pip install {name}, or weir[{name.removeprefix('py')}]") from error


def batch_to_arrow(batch: Any) -> Any:
    return library("pyarrow").record_batch(batch)


def source_to_arrow(source: Any) -> Any:
    return library("pyarrow").table(source)


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
