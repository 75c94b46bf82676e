"""Turns a replay's commands into model queries, and answers them from the store and a model.

Knows recorded requests and the model's needs. Decides nothing of a replay: the machine in
`redrive.replay.shadow` does. The evidence side reads the store and never opens a socket.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from redrive import canonical
from redrive.app.opening import OpenedSession
from redrive.audit.renderers import render_json_v1
from redrive.errors import UsageError
from redrive.record.event import ModelRequest, payload_of
from redrive.record.pairing import Pairing
from redrive.record.trajectory import Trajectory
from redrive.replay.exchange import AskModel
from redrive.replay.ports import Model, ModelQuery, ModelReply, Override
from redrive.replay.rebuild import apply_overrides, read_messages, read_turns, rebuild_body
from redrive.replay.reconstruct import Frame, reconstruct_body

_SAMPLING_FIELDS = ("temperature", "seed")


@dataclass(slots=True)
class Asker:
    """Asks one model for the decisions of one run.

    Attributes:
        session: the recorded session.
        trajectory: the path that is replayed.
        pairing: which result answers which call on it.
        model: who is asked.
        wanted: sampling values to set; one that the recorded body has already is no override.
        mode: how decisions are read.
        frame: of a reconstruction: what stands around the messages of a request that is built.
        overrides: what was in fact changed, each value once, in the order first met.
    """

    session: OpenedSession
    trajectory: Trajectory
    pairing: Pairing
    model: Model
    wanted: Sequence[Override]
    mode: str
    frame: Frame | None = None
    overrides: list[Override] = field(default_factory=list)

    def decide(self, command: AskModel) -> ModelReply:
        """Answer one command with the model.

        Raises:
            UsageError: the model needs a request that the record does not hold.
            ModelError: the model refused, failed, or gave half an answer.
        """
        query = self._query(command)
        self._note(query.overrides)
        reply = self.model.decide(query)
        self._note(reply.overrides)
        return reply

    def _note(self, overrides: Iterable[Override]) -> None:
        self.overrides += [entry for entry in overrides if entry not in self.overrides]

    def _query(self, command: AskModel) -> ModelQuery:
        if not self.model.reads_context:
            return ModelQuery(command.decision, recorded_model=command.recorded_model)
        request = self._request(command)
        api, body = self._body(command, request)
        overrides = self._overrides(request, body)
        return ModelQuery(
            decision=command.decision,
            api=api,
            body=body if body is None else apply_overrides(body, overrides),
            prompt=self._prompt(command, request, body),
            messages=self._messages(command),
            overrides=overrides,
            is_rebuilt=command.is_rebuilt,
            recorded_model=command.recorded_model,
            sampling=request.sampling,
        )

    def _prompt(self, command: AskModel, request: ModelRequest, body: str | None) -> str | None:
        """Give the recorded text, else the history as `json@1` writes it; bodies need neither."""
        if not command.is_rebuilt and (request.context or body) is not None:
            return request.context or body
        return None if self.model.apis else render_json_v1(self._history(command)).decode()

    def _request(self, command: AskModel) -> ModelRequest:
        seq = command.base if command.request is None else command.request
        if seq is None:
            return ModelRequest()
        payload: ModelRequest = payload_of(next(self.session.reader.read_events((seq,))))
        return payload

    def _body(self, command: AskModel, request: ModelRequest) -> tuple[str | None, str | None]:
        """Give API and body: as recorded, rebuilt from a recorded one, or built of the history."""
        if request.body is None:
            if self.model.apis and self.frame is not None:
                api = self.model.apis[0]
                frame = msgspec.structs.replace(
                    self.frame, model=self.frame.model or request.model or _served(command)
                )
                return api, reconstruct_body(api, frame, self._some_history(command))
            if self.model.apis:
                raise UsageError(
                    f"decision {command.decision} has no recorded request to send to"
                    f" {self.model.spec}",
                    where=f"{self.session.row.session_id}, decision {command.decision}",
                    hint="record `request` {api, body} with each decision, or use a script",
                )
            return None, None
        if not command.is_rebuilt or request.api is None:
            return request.api, request.body
        turns = read_turns(command.turns, self.session.reader)
        return request.api, rebuild_body(request.api, request.body, turns, mode=self.mode)

    def _overrides(self, request: ModelRequest, body: str | None) -> tuple[Override, ...]:
        """Choose the wanted values that differ from the recorded ones."""
        if not self.wanted:
            return ()
        if body is None:
            sampling = request.sampling
            recorded = {
                name: getattr(sampling, name) if sampling is not None else None
                for name in _SAMPLING_FIELDS
            }
        else:
            try:
                value = canonical.decode_value(body)
            except ValueError:
                value = None
            recorded = value if isinstance(value, dict) else {}
        return tuple(
            entry for entry in self.wanted if not _is_equal(recorded.get(entry.name), entry.value)
        )

    def _messages(self, command: AskModel) -> tuple[dict[str, object], ...]:
        """Give the neutral history to models that read no request body."""
        return () if self.model.apis else self._history(command)

    def _some_history(self, command: AskModel) -> tuple[dict[str, object], ...]:
        messages = self._history(command)
        if not any(message["content"] for message in messages):
            raise UsageError(
                f"decision {command.decision}: nothing that was said before it is recorded, so no"
                " request can be built",
                where=self.session.row.session_id,
                hint="a script reads no context",
            )
        return messages

    def _history(self, command: AskModel) -> tuple[dict[str, object], ...]:
        """Read what was said before a decision; the task comes first where no user said it."""
        reader = self.session.reader
        turns = read_turns(command.turns, reader)
        first = command.decision - len(command.turns)
        messages = read_messages(self.trajectory, self.pairing, reader, first, turns)
        task = None if self.session.started is None else self.session.started.task
        if task is None or (messages and messages[0]["role"] == "user"):
            return messages
        return ({"role": "user", "content": task}, *messages)


def _served(command: AskModel) -> str | None:
    return None if command.recorded_model is None else command.recorded_model.served


def _is_equal(recorded: object, wanted: object) -> bool:
    is_number = isinstance(recorded, int | float) and not isinstance(recorded, bool)
    return is_number and recorded == wanted


def default_overrides(*, is_recorded: bool, seed: int | None) -> tuple[Override, ...]:
    """Give the sampling that one run sets: temperature 0 and the seed, unless recorded is kept.

    Raises:
        UsageError: recorded sampling and a seed of its own exclude each other.
    """
    if is_recorded and seed is not None:
        raise UsageError("--seed changes what --sampling recorded keeps", hint="give one of them")
    if is_recorded:
        return ()
    entries = (Override("temperature", 0),)
    return entries if seed is None else (*entries, Override("seed", seed))
