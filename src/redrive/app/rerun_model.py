"""Lets a live model answer the requests of an agent that runs again.

Knows a model and the recorded decisions beside which its own are laid. Must not know what is served
besides.
"""

from collections.abc import Callable

from redrive.app.answering import ask_model, serve_reply
from redrive.capture.ports import SentRequest, ServedAnswer
from redrive.compare.rerun_decisions import LiveDecision, compare_decision
from redrive.record.decisions import JSON_CONTENT
from redrive.record.event import Event
from redrive.record.session import SessionIndex
from redrive.replay.ports import Model, ModelReply
from redrive.replay.rerun_exchange import AskLive


class LiveModel:
    """Answers requests with a model; `decisions` is what it decided, in the order asked.

    Args:
        model: who answers.
        index: of the recorded session.
        read_event: gives its events by seq, in any thread.
        mode: where in an answer a decision stands.
    """

    def __init__(
        self, model: Model, index: SessionIndex, read_event: Callable[[int], Event], mode: str
    ) -> None:
        self.decisions: list[LiveDecision] = []
        self._model = model
        self._index = index
        self._read_event = read_event
        self._mode = mode

    def answer(self, request: SentRequest, asked: AskLive) -> ServedAnswer:
        """Answer one request in the bytes of its API.

        Raises:
            ModelError: the model refused, failed, or gave half an answer.
            UsageError: the model cannot send such a request.
        """
        number = len(self.decisions) + 1
        reply = ask_model(self._model, request, number)
        self._note(asked, reply)
        return serve_reply(request, _as_sent(reply, self._mode), number)

    def _note(self, asked: AskLive, reply: ModelReply) -> None:
        recorded = None
        if asked.recorded is not None and asked.recorded.response is not None:
            node = self._index.event_node[asked.recorded.seq]
            seqs = [seq for seq, other in enumerate(self._index.event_node) if other == node]
            recorded = [self._read_event(seq) for seq in seqs]
        self.decisions.append(compare_decision(asked.flow, asked.step, recorded, reply))


def _as_sent(reply: ModelReply, mode: str) -> ModelReply:
    """Under `json_content` a decision travels as the text that it is."""
    if mode != JSON_CONTENT:
        return reply
    return ModelReply(text=reply.text, model=reply.model, usage=reply.usage)
