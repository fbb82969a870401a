"""Recordings of packets: `weir.record`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from weir._weir import Closed, Recording


class Recorder:
    """A recording of sources into a directory, in threads of its own, also after the object is forgotten: use it in `with`, or close it.

    Iterate it for the files that triggers save: a dict for each, as `weir record --json` prints it.
    """

    def __init__(self, recording: Recording, nanoseconds: Callable[[str, float | None], int | None]) -> None:
        self._recording = recording
        self._nanoseconds = nanoseconds

    def trigger(self, name: str | None = None, before: float | None = None, after: float | None = None) -> dict[str, Any]:
        """Saves packets from `before` seconds before now to `after` seconds after now, or for the times that the trigger has.

        If files are recorded, now is the timestamp of the latest recorded packet, and the call waits up to a second for the first packet.
        Without a name all triggers fire. Returns `{"type": "trigger", "fired": [...], "refused": {name: why}}`; raises Refused if none fired.
        """
        times = self._nanoseconds("before", before), self._nanoseconds("after", after)
        fired: dict[str, Any] = json.loads(self._recording.trigger(name, *times))
        return fired

    def status(self) -> dict[str, Any]:
        """The state, as `weir record --status` prints it."""
        state: dict[str, Any] = json.loads(self._recording.status())
        return state

    def next(self, timeout: float) -> dict[str, Any] | None:
        """Waits at most `timeout` seconds for the next saved file. Returns None if none came; raises StopIteration at the end."""
        text = self._recording.next(timeout)
        saved: dict[str, Any] | None = None if text is None else json.loads(text)
        return saved

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        while (saved := self.next(3600)) is None:
            pass
        return saved

    def stop(self) -> None:
        """Ends the recording early: what the sources received is recorded, and what triggers are saving is completed."""
        self._recording.stop()

    def remarks(self) -> list[str]:
        """Remarks for the user although nothing failed, a line each, since the last call."""
        return self._recording.remarks()

    def close(self) -> dict[str, Any]:
        """Ends and completes the recording, and returns its account. Raises Failed if a source or a file failed."""
        account: dict[str, Any] = json.loads(self._recording.close())
        return account

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        try:
            self._recording.close()
        except Closed:
            pass
