"""What an MCP observer writes down beside calls: who is there, what could not be read, how often.

Knows the notes `mcp.…` and their bounds. Must not know which message leads to which note.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Raw

from redrive import canonical
from redrive.capture.json_members import find_members, text_in

MAX_DAMAGE_NOTES = 100
_MAX_METHODS = 100
_META_VERSION = "io.modelcontextprotocol/protocolVersion"
_META_SERVER = "io.modelcontextprotocol/serverInfo"
_META_CLIENT = "io.modelcontextprotocol/clientInfo"


class Side(StrEnum):
    """Who sent a message."""

    CLIENT = "client"
    SERVER = "server"


class NoteReporter(Protocol):
    """Is told what is written down."""

    def note(self, name: str, fields: Mapping[str, Any], call_id: str | None = None) -> None:
        """Take a fact of a kind of its own."""
        ...


class Notes:
    """The notes of one connection.

    Args:
        server: the name that the user gave the server.
        reporter: who is told.

    Attributes:
        n_unreadable: messages of the server that were not understood, and may have been answers.
    """

    def __init__(self, server: str, reporter: NoteReporter) -> None:
        self.n_unreadable = 0
        self._server = server
        self._reporter = reporter
        self._known: dict[str, Any] = {}
        self._counts: dict[Side, Counter[str]] = {side: Counter() for side in Side}
        self._n_damaged = 0

    def add(self, name: str, fields: Mapping[str, Any]) -> None:
        """Write a note, with the server's name."""
        self._reporter.note(f"mcp.{name}", {"server": self._server} | dict(fields))

    def count(self, side: Side, what: str) -> None:
        """Count a message by its method or shape; of too many methods, the rest under one name."""
        counts = self._counts[side]
        counts[what if what in counts or len(counts) < _MAX_METHODS else "other"] += 1

    def damage(self, side: Side, n_bytes: int, reason: str, data: bytes) -> None:
        """Note what was passed on and not understood, at most a hundred times; count the rest.

        Args:
            side: who sent it.
            n_bytes: of the message; 0 where it was understood, and only its place was not.
            reason: what is wrong with it.
            data: the message, where it is at hand.
        """
        self._n_damaged += 1
        self.n_unreadable += side is Side.SERVER and bool(n_bytes)
        if self._n_damaged <= MAX_DAMAGE_NOTES:
            fields: dict[str, Any] = {"from": side.value, "bytes": n_bytes, "reason": reason}
            if data:
                fields["sha256"] = canonical.digest(data)
            self.add("damage", fields)

    def close(self, reason: str, n_unanswered: int) -> None:
        """Sum up."""
        fields: dict[str, Any] = {"reason": reason}
        fields |= {f"from_{side.value}": dict(self._counts[side]) for side in Side}
        fields |= {"n_unanswered": n_unanswered, "n_unreadable": self.n_unreadable}
        self.add("closed", fields)

    # --- who is there --------------------------------------------------------------------------
    def learn_server(self, params: Raw, result: Raw) -> None:
        """Learn from a handshake, or from what a server without one says when it is asked."""
        asked, fields = find_members(params), find_members(result)
        meta = find_members(fields.get("_meta"))
        known: dict[str, Any] = {
            "info": meta.get(_META_SERVER, fields.get("serverInfo")),
            "protocol": text_in(fields, "protocolVersion"),
            "client": asked.get("clientInfo"),
            "capabilities": fields.get("capabilities"),
        }
        instructions = text_in(fields, "instructions")
        if instructions is not None:
            known["instructions_sha256"] = canonical.text_digest(instructions)
        self._learn(known)

    def learn_meta(self, fields: Mapping[str, Raw]) -> None:
        """Learn what messages of 2026-07-28 say of themselves, where there is no handshake."""
        meta = find_members(fields.get("_meta"))
        known = {"info": meta.get(_META_SERVER), "client": meta.get(_META_CLIENT)}
        self._learn(known | {"protocol": text_in(meta, _META_VERSION)})

    def _learn(self, known: Mapping[str, Any]) -> None:
        news = {
            key: value
            for key, value in known.items()
            if value is not None and not _same(self._known.get(key), value)
        }
        if news:
            self._known |= news
            self.add("server", self._known)


def _same(known: Any, value: Any) -> bool:
    if isinstance(known, Raw) and isinstance(value, Raw):
        return bytes(known) == bytes(value)
    return bool(known == value)
