"""Turns the lines of a Codex rollout into drafts, one chain in file order.

Knows what each item and message of a rollout means. Must not know files, counts or stores.

Model items between other items are one decision (`group`). `event_msg` lines repeat content for a
screen: they give usage, exit codes, permissions and errors, never a second message or result.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from redrive import canonical
from redrive.canonical import get_field
from redrive.importers.codex_counts import find_total_tokens
from redrive.importers.codex_lines import (
    CALL_ITEMS,
    OUTPUT_ITEMS,
    CopiedPrefix,
    RolloutLine,
)
from redrive.importers.codex_payloads import (
    Ending,
    read_call,
    read_ending,
    read_error,
    read_permission,
    read_result,
    read_session,
    read_texts,
    read_turn,
    read_usage,
    read_user,
)
from redrive.importers.draft import Draft
from redrive.importers.lines import Record
from redrive.record.event import (
    FLAG_INHERITED,
    ContextReplaced,
    Damage,
    Kind,
    ModelResponse,
    Note,
    Payload,
    raw_of,
)
from redrive.record.session import FLAG_META

_MAX_ENDINGS = 1024
_ERRORS = frozenset({"error", "stream_error"})


class _Part(msgspec.Struct, frozen=True, gc=False):
    """One draft of a line, before it has a place."""

    kind: Kind
    payload: Payload
    call_id: str | None = None
    group: str | None = None
    in_chain: bool = True
    is_meta: bool = False


@dataclass(slots=True)
class RolloutReading:
    """What is remembered from line to line: a few values, and how recent commands ended."""

    session: str
    prefix: CopiedPrefix
    last_node: str | None = None
    last_line: tuple[int, int] = (0, 0)
    model: str | None = None
    n_runs: int = 0
    is_run_open: bool = False
    is_started: bool = False
    total_tokens: int | None = None
    endings: dict[str, Ending] = field(default_factory=dict)

    def damage(self, item: Damage) -> Draft:
        """Turn unreadable bytes into a draft."""
        return Draft(
            self.session, f"damage:{item.offset}", Kind.DAMAGE, item, item.offset, item.bytes
        )

    def record(self, record: Record, line: RolloutLine) -> Iterator[Draft]:
        """Turn one line into its drafts; those of the conversation share one node."""
        node = self._name(record)
        parent = self.last_node
        flags = record.flags + ((FLAG_INHERITED,) if self.prefix.is_copy else ())
        for number, part in enumerate(self._parts(line), start=1):
            if part.in_chain:
                self.last_node = node
            yield Draft(
                session=self.session,
                id=node if number == 1 else f"{node}/{number}",
                kind=part.kind,
                payload=part.payload,
                offset=record.offset,
                length=record.length,
                node_id=node if part.in_chain else "",
                parent_id=parent if part.in_chain else None,
                ts_ns=line.ts_ns,
                call_id=None if part.call_id is None else canonical.safe_text(part.call_id),
                group=part.group,
                flags=(*flags, FLAG_META) if part.is_meta else flags,
            )

    def _name(self, record: Record) -> str:
        """Name a record by its line, and by its place on it where several were found there."""
        line, count = self.last_line
        self.last_line = (record.line, count + 1 if line == record.line else 1)
        count = self.last_line[1]
        return f"line:{record.line}" if count == 1 else f"line:{record.line}.{count}"

    def _parts(self, line: RolloutLine) -> Iterator[_Part]:
        match line.kind:
            case "session_meta":
                yield from self._session_meta(line)
            case "turn_context":
                yield self._turn_context(line)
            case "compacted":
                yield _compacted(line)
            case "response_item":
                yield from self._item(line)
            case "event_msg":
                yield self._message(line)
            case _:
                yield _note(line)

    def _session_meta(self, line: RolloutLine) -> Iterator[_Part]:
        if self.is_started:
            yield _note(line)
            return
        self.is_started = True
        yield _Part(Kind.SESSION_STARTED, read_session(line.payload), in_chain=False)
        instructions = line.payload.get("base_instructions", line.payload.get("instructions"))
        if isinstance(instructions, dict):
            instructions = instructions.get("text")
        if isinstance(instructions, str) and instructions:
            message = read_user({"role": "system", "content": instructions})
            yield _Part(Kind.USER_MESSAGE, message, is_meta=True)

    def _turn_context(self, line: RolloutLine) -> _Part:
        self.model = get_field(line.payload, "model", str) or self.model
        return _Part(Kind.NOTE, read_turn(line.payload), in_chain=False)

    def _item(self, line: RolloutLine) -> Iterator[_Part]:
        opens = line.is_model_item and not self.is_run_open
        self.is_run_open = line.is_model_item
        self.n_runs += opens
        if line.is_model_item:
            yield from self._model_item(line, opens=opens)
        elif line.item in OUTPUT_ITEMS:
            call_id = get_field(line.payload, "call_id", str)
            ending = None if call_id is None else self.endings.pop(call_id, None)
            yield _Part(Kind.TOOL_RESULT, read_result(line.payload, ending), call_id)
        elif line.item in ("message", "agent_message"):
            message = read_user(line.payload)
            yield _Part(Kind.USER_MESSAGE, message, is_meta=_is_meta(message.role, message.text))
        else:
            yield _note(line, in_chain=True)

    def _model_item(self, line: RolloutLine, *, opens: bool) -> Iterator[_Part]:
        group = f"run:{self.n_runs}"
        if line.item == "reasoning":
            texts = read_texts(line.payload.get("summary")), read_texts(line.payload.get("content"))
            reasoning = "\n\n".join(filter(None, texts)) or None
            response = ModelResponse(reasoning=reasoning, model=self.model)
            yield _Part(Kind.MODEL_RESPONSE, response, group=group)
        elif line.item == "message":
            response = ModelResponse(text=read_texts(line.payload.get("content")), model=self.model)
            yield _Part(Kind.MODEL_RESPONSE, response, group=group)
        else:
            if opens:
                yield _Part(Kind.MODEL_RESPONSE, ModelResponse(model=self.model), group=group)
            call_id = get_field(line.payload, "call_id", str)
            if call_id is None and line.item not in CALL_ITEMS:
                call_id = get_field(line.payload, "id", str)
            yield _Part(Kind.TOOL_CALL, read_call(line.item, line.payload), call_id, group)

    def _message(self, line: RolloutLine) -> _Part:
        payload = line.payload
        if line.item == "token_count":
            return self._token_count(line)
        if line.item in _ERRORS:
            return _Part(Kind.MODEL_ERROR, read_error(payload))
        if line.item == "turn_aborted":
            note = Note(label="turn_aborted", text=get_field(payload, "reason", str))
            return _Part(Kind.NOTE, note)
        permission = read_permission(line.item, payload)
        if permission is not None:
            call_id, decision = permission
            return _Part(Kind.TOOL_PERMISSION, decision, call_id)
        if line.item == "thread_settings_applied":
            settings = get_field(payload, "thread_settings", dict) or {}
            self.model = get_field(settings, "model", str) or self.model
        self._keep_ending(line)
        return _note(line)

    def _token_count(self, line: RolloutLine) -> _Part:
        """Give a run its usage, as one more piece of its answer; a repeated total is a note."""
        total = find_total_tokens(line)
        usage = read_usage(line.payload)
        if total is None or total == self.total_tokens or usage is None or not self.n_runs:
            self.total_tokens = self.total_tokens if total is None else total
            return _note(line)
        self.total_tokens = total
        response = ModelResponse(model=self.model, usage=usage)
        return _Part(Kind.MODEL_RESPONSE, response, group=f"run:{self.n_runs}")

    def _keep_ending(self, line: RolloutLine) -> None:
        call_id = get_field(line.payload, "call_id", str)
        ending = read_ending(line.item, line.payload)
        if call_id is None or ending is None:
            return
        self.endings[call_id] = ending
        if len(self.endings) > _MAX_ENDINGS:
            del self.endings[next(iter(self.endings))]


def _compacted(line: RolloutLine) -> _Part:
    """Keep the history that replaced the context; older writers give a summary text alone."""
    history = get_field(line.payload, "replacement_history", list)
    after = history if history is not None else get_field(line.payload, "message", str)
    replaced = ContextReplaced(after=UNSET if after is None else raw_of(after))
    return _Part(Kind.CONTEXT_REPLACED, replaced)


def _note(line: RolloutLine, *, in_chain: bool = False) -> _Part:
    """Name a line that no rule understands; its content stays in the source."""
    label = f"{line.kind}:{line.item}" if line.item else line.kind
    return _Part(Kind.NOTE, Note(label=label), in_chain=in_chain)


_HARNESS_TEXTS = (
    "# AGENTS.md instructions",
    "<environment_context>",
    "<permissions instructions>",
    "<skill>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_instructions>",
    "<user_shell_command>",
)


def _is_meta(role: str, text: str) -> bool:
    """Say whether the harness wrote a message, not the user."""
    return role != "user" or text.startswith(_HARNESS_TEXTS)
