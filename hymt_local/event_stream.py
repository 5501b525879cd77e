"""The events of a translation as Server-Sent Events: one name per kind, one line of JSON each.

Written by the resident server, read by `client`; both ends are this program, so that a stream comes through unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from hymt_local.events import (
    Cancelled,
    Event,
    Failed,
    Finished,
    ModelLoaded,
    ModelLoading,
    PromptProgress,
    SegmentDone,
    Started,
    TextDelta,
)

EVENT_KINDS: Mapping[str, type[Event]] = {
    "loading": ModelLoading,
    "loaded": ModelLoaded,
    "started": Started,
    "progress": PromptProgress,
    "token": TextDelta,
    "segment": SegmentDone,
    "done": Finished,
    "error": Failed,
    "cancelled": Cancelled,
}
"""Name in the stream -> what its data is."""
EVENT_NAMES: Mapping[type[Event], str] = {kind: name for name, kind in EVENT_KINDS.items()}
MEDIA_TYPE = "text/event-stream"
PING = b": ping\n\n"
"""A comment: keeps the connection and says nothing."""


def encode_event(index: int, event: Event) -> bytes:
    """Return one event; `index` counts from 0 and comes back as `Last-Event-ID`."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (index, EVENT_NAMES[type(event)].encode(), msgspec.json.encode(event))


def decode_event(name: str, data: bytes) -> Event | None:
    """Return the event, or None for a kind that this version does not know.

    Raises:
        msgspec.DecodeError: the data is not that of the kind.
    """
    kind = EVENT_KINDS.get(name)
    if kind is None:
        return None
    event: Event = msgspec.json.decode(data, type=kind)
    return event


def decode_events(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a stream that comes line by line, with or without line ends.

    Raises:
        msgspec.DecodeError: what comes is not a stream of this program.
    """
    name, data = "", b""
    for line in lines:
        field, _, value = line.rstrip(b"\r\n").partition(b": ")
        if field == b"event":
            name = value.decode("ascii", "replace")
        elif field == b"data":
            data = value
        elif not field and name:
            event = decode_event(name, data)
            name, data = "", b""
            if event is not None:
                yield event
