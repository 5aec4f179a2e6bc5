"""How messages travel between processes: frames of JSON behind their length, with a cap; and cells as JSON.

A frame is four bytes of length, big-endian, then that many bytes of JSON. Whoever reads never blocks on half a frame:
bytes go into `Frames` as they come, whole frames come out.
"""

from __future__ import annotations

import dataclasses
import json
import socket
from typing import Any

from fsibench.errors import UsageError
from fsibench.harness.events import MalformedMessage
from fsibench.harness.plan import Cell

# The largest valid message is an artifact, functions on a grid: about a megabyte.
MOST_BYTES = 16 * 2**20
READ_BYTES = 1 << 16
_LENGTH = 4


def pack(message: bytes) -> bytes:
    """A message as a frame."""
    if len(message) > MOST_BYTES:
        raise UsageError(f"a report of {len(message) / 1e6:.0f} MB is too large; at most {MOST_BYTES / 1e6:.0f} MB travel.")
    return len(message).to_bytes(_LENGTH, "big") + message


def pack_json(content: Any) -> bytes:
    return pack(json.dumps(content).encode())


class Frames:
    """Collects bytes, gives whole frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete; a frame that claims to be too large is a `MalformedMessage`."""
        self._bytes += data
        whole = []
        while len(self._bytes) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._bytes[:_LENGTH], "big")
            if end > _LENGTH + MOST_BYTES:
                raise MalformedMessage(f"a frame claims {end - _LENGTH} bytes; at most {MOST_BYTES} are read")
            if len(self._bytes) < end:
                break
            whole.append(bytes(self._bytes[_LENGTH:end]))
            del self._bytes[:end]
        return whole

    @property
    def unfinished(self) -> bool:
        """Whether half a frame is left."""
        return bool(self._bytes)


class Channel:
    """One end of a socket between two of our own processes: JSON messages, each with at most one descriptor."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.descriptors: list[int] = []  # received and not yet taken
        self._frames = Frames()

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, content: Any, descriptors: tuple[int, ...] = ()) -> None:
        frame = pack_json(content)
        sent = socket.send_fds(self.socket, [frame], descriptors)
        self.socket.sendall(frame[sent:])

    def receive(self) -> list[Any]:
        """The messages that are complete after one read; an end of file is an `EOFError`."""
        data, descriptors, _, _ = socket.recv_fds(self.socket, READ_BYTES, 1)
        self.descriptors += descriptors
        if not data:
            raise EOFError("the other end of the channel is closed")
        return [json.loads(frame) for frame in self._frames.feed(data)]

    def close(self) -> None:
        self.socket.close()


def cell_to_json(cell: Cell) -> str:
    return json.dumps(dataclasses.asdict(cell))


def cell_from_json(text: str) -> Cell:
    content = json.loads(text)
    content["keep"] = tuple(content["keep"])
    content["options"] = tuple((key, _tuples(value)) for key, value in content["options"])
    return Cell(**content)


def _tuples(value: Any) -> Any:
    """JSON has lists only; options hold tuples, which can be hashed."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
