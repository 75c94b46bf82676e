"""Answers inferences: from the cache, else by asking the model once, and keeps what it said.

Knows models and the cache. Must not know policies or sessions. An answer is cached under a key of
everything that can change it: the question, the model, its version, and all sampling parameters.

Source: DESIGN.md §7 "Modes".
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from redrive import canonical
from redrive.app.policy_messages import Answer, Outside
from redrive.errors import ModelError, RecordError, UsageError
from redrive.policies.inferences import INFERENCES
from redrive.replay.inference import Question, inference_key
from redrive.replay.ports import Model, ModelFingerprint, ModelQuery
from redrive.stores.port import InferenceRow, PolicyTables

CHAT, MESSAGES = "openai.chat", "anthropic.messages"
SEED = 1
_KEY = re.compile(r"[0-9a-f]{64}")
_decode_question = msgspec.json.Decoder(Question).decode
_decode_row = msgspec.json.Decoder(InferenceRow).decode


class Asking:
    """Who answers inferences in one replay.

    Args:
        tables: where answers are kept.
        spec: the model's spec; absent: only the cache answers.
        model: opened, or absent with `is_offline`.
        is_offline: whether a miss is an error.
    """

    def __init__(
        self, tables: PolicyTables, spec: str | None, model: Model | None, *, is_offline: bool
    ) -> None:
        self._tables = tables
        self._spec = spec
        self._model = model
        self._is_offline = is_offline
        self._version: str | None = None
        self._has_version = False
        self.fingerprint: dict[str, Any] | None = None
        self.n_asked = self.n_cached = 0
        self._served: set[bytes] = set()

    def answer(self, outside: Outside) -> Answer:
        """Answer one inference.

        Raises:
            UsageError: no model was named; or, offline, the cache does not hold it: names the
                event.
            ModelError: the model failed.
        """
        question = _decode_question(bytes(outside.request))
        request = self._request(outside, question)
        row = self._tables.find_inference(inference_key(request))
        if row is None:
            row = self._ask(outside, question, request)
        else:
            self.n_cached += 1
        self._note(row)
        return Answer(value=Raw(row.value.encode()))

    def _request(self, outside: Outside, question: Question) -> dict[str, Any]:
        inference = INFERENCES[outside.name]
        if self._spec is None and self._is_offline:
            self._spec = self._only_spec(outside)
        if self._spec is None:
            raise UsageError(
                f"{outside.event_ref} needs the inference {outside.name}",
                hint="--model SPEC computes it, --offline reads the cache, --mode strict does"
                " without",
            )
        version = self._find_version(outside)
        return {
            "inference": outside.name,
            "inference_version": inference.version,
            "model": self._spec,
            **({} if version is None else {"model_version": version}),
            "temperature": 0,
            "seed": SEED,
            "max_tokens": question.max_tokens,
            "messages": _messages(question),
            "response_format": _format(question),
        }

    def _only_spec(self, outside: Outside) -> str:
        """Give the one model that the cache has answers of."""
        specs = sorted({row.spec for row in self._tables.inferences()})
        if len(specs) == 1:
            return specs[0]
        found = ", ".join(specs) or "none"
        raise UsageError(
            f"{outside.event_ref} needs the inference {outside.name}, and the cache has answers of"
            f" {len(specs)} models",
            hint=f"name one with --model: {found}",
        )

    def _find_version(self, outside: Outside) -> str | None:
        """Give the version that answers are pinned to: the engine's, or the cache's."""
        if not self._has_version:
            self._version = self._cached_version(outside) if self._is_offline else self._identify()
            self._has_version = True
        return self._version

    def _identify(self) -> str | None:
        identify = getattr(self._model, "identify", None)
        return None if identify is None else str(identify())

    def _cached_version(self, outside: Outside) -> str | None:
        rows = [row for row in self._tables.inferences() if row.spec == self._spec]
        versions = {msgspec.json.decode(row.request).get("model_version") for row in rows}
        if len(versions) > 1:
            known = ", ".join(sorted(str(version) for version in versions))
            raise UsageError(
                f"{outside.event_ref}: the cache holds several versions of {self._spec}: {known}",
                hint="use a store with the answers of one of them",
            )
        return versions.pop() if versions else None

    def _ask(self, outside: Outside, question: Question, request: dict[str, Any]) -> InferenceRow:
        if self._is_offline or self._model is None:
            raise UsageError(
                f"{outside.event_ref}: the cache has no answer of {self._spec} to {outside.name}",
                where=outside.event_ref,
                hint="run once without --offline, or import a cache with --cache FILE",
            )
        reply = self._model.decide(_query(self._model, question))
        try:
            value = INFERENCES[outside.name].read(reply.text)
        except ValueError as error:
            raise ModelError(
                f"{outside.event_ref}: {self._spec} answered {outside.name} with {error}",
                where=outside.event_ref,
            ) from error
        self.n_asked += 1
        served = reply.model or ModelFingerprint()
        row = InferenceRow(
            key=inference_key(request),
            name=outside.name,
            spec=str(self._spec),
            request=canonical.canonical(request).decode(),
            value=canonical.canonical(value).decode(),
            fingerprint=canonical.canonical(msgspec.to_builtins(served)).decode(),
        )
        self._tables.put_inferences([row])
        return row

    def _note(self, row: InferenceRow) -> None:
        """Note who answered; a second identity is kept beside the first."""
        one = canonical.encode(msgspec.json.decode(row.fingerprint))
        self._served.add(one)
        served = [msgspec.json.decode(found) for found in sorted(self._served)]
        self.fingerprint = {"spec": row.spec, "version": self._version, "served": served}


def _messages(question: Question) -> list[dict[str, str]]:
    return [
        {"role": "system", "content": question.system},
        {"role": "user", "content": question.text},
    ]


def _format(question: Question) -> dict[str, Any]:
    schema = {"name": "answer", "schema": question.answer_schema}
    return {"type": "json_schema", "json_schema": schema}


def _query(model: Model, question: Question) -> ModelQuery:
    """Write the question in the form that a model reads."""
    messages = _messages(question)
    common = {"temperature": 0, "max_tokens": question.max_tokens}
    api, body = None, None
    if CHAT in model.apis:
        api = CHAT
        shape = {"response_format": _format(question), "seed": SEED}
        body = {"model": "", "messages": messages, **common, **shape}
    elif MESSAGES in model.apis:
        api = MESSAGES
        body = {"model": "", "system": question.system, "messages": messages[1:], **common}
    return ModelQuery(
        decision=1,
        api=api,
        body=None if body is None else canonical.encode(body).decode(),
        prompt=f"{question.system}\n\n{question.text}",
        messages=tuple(messages),
    )


# --- the cache as a file


def dump_cache(tables: PolicyTables) -> Iterable[bytes]:
    """Yield every cached answer as one JSON line, by key.

    The texts that were judged are left out, since they are a recording's; their digest stands in
    their place. The key alone finds an answer again.
    """
    rows = sorted(tables.inferences(), key=lambda row: row.key)
    return (canonical.encode(msgspec.to_builtins(_without_texts(row))) + b"\n" for row in rows)


def _without_texts(row: InferenceRow) -> InferenceRow:
    request = canonical.decode_value(row.request)
    messages = request.pop("messages", None)
    if messages is not None:
        request["messages_sha256"] = canonical.value_digest(messages)
    return replace(row, request=canonical.canonical(request).decode())


def read_cache(tables: PolicyTables, path: Path) -> int:
    """Take the answers of a cache file into the store; an answer that is there stays.

    Returns:
        How many were new.

    Raises:
        RecordError: a line is no answer, or another answer than the store has under its key.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="--cache FILE") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = _decode_row(line)
            canonical.decode_value(row.value)
            request = canonical.decode_value(row.request)
        except (msgspec.DecodeError, ValueError) as error:
            raise RecordError(f"no cached answer: {error}", where=f"{path}:{number}") from error
        if not isinstance(request, dict) or not _KEY.fullmatch(row.key):
            raise RecordError("no cached answer: no request or key", where=f"{path}:{number}")
        known = tables.find_inference(row.key)
        if known is not None and known.value != row.value:
            raise RecordError(
                f"another answer than the store has under {row.key[:16]}…",
                where=f"{path}:{number}",
                hint="use a store without it",
            )
        if known is None:
            rows.append(row)
    return tables.put_inferences(rows)
