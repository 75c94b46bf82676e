"""Makes a model of a plain Python callable.

Knows two shapes of callables: `complete(prompt, config)` and `step(messages)`. Must not know where
the callable comes from. A callable gets copies: what it does to them changes no recording and no
later query.

Source: DESIGN.md §5 "Models".
"""

import contextlib
import copy
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from redrive import canonical
from redrive.canonical import get_field
from redrive.errors import ModelError, PluginError, RedriveError, UsageError
from redrive.models.options import ModelOptions
from redrive.models.resend import json_calls
from redrive.record.event import raw_of
from redrive.replay.ports import CallAsked, ModelQuery, ModelReply

Complete = Callable[[str, Mapping[str, Any]], object]
StepFn = Callable[[list[dict[str, Any]]], object]
_CONFIG_KEYS = (
    *("model", "temperature", "top_p", "top_k", "min_p", "seed", "stop"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "response_format"),
)
_EXPECTED = 'a text, {"tool", "arguments"}, {"tool_calls": […]} or {"text", "final"}'


class CallableModel:
    """Asks a function; an exception of its own becomes one line that names file and line.

    Args:
        spec: what reports call the model.
        function: gets a private copy of the query.
        decisions: `tool_calls` or `json_content`; how an answer that is a plain text is read.
    """

    reads_context = True
    apis: tuple[str, ...] = ()

    def __init__(self, spec: str, function: Callable[[ModelQuery], object], decisions: str) -> None:
        self.spec = spec
        self._function = function
        self._decisions = decisions

    def decide(self, query: ModelQuery) -> ModelReply:
        """Call the function and make a reply of what it returned.

        Raises:
            PluginError: the function raised; names its file and line.
            ModelError: it returned something else than a decision.
        """
        started = time.monotonic()
        returned = call_plugin(self.spec, self._function, copy_query(query))
        if isinstance(returned, ModelReply):
            return returned
        reply = read_reply(
            returned, self._decisions, where=f"{self.spec}, decision {query.decision}"
        )
        return msgspec.structs.replace(reply, latency_s=time.monotonic() - started)

    def close(self) -> None:
        """Hold nothing, release nothing."""


def from_complete(
    function: Complete, *, spec: str = "python:complete", options: ModelOptions | None = None
) -> CallableModel:
    """Make a model of `complete(prompt, config)`.

    Args:
        function: gets the recorded context text and a mapping of what was recorded or overridden
            of model, temperature, top_p, top_k, min_p, seed, stop, max_tokens and the like. Returns
            a text, or a decision as `read_reply` describes.
        spec: what reports call the model.
        options: `seed` is the config's default; `decisions` says how a text is read.
    """
    settings = options or ModelOptions()

    def ask(query: ModelQuery) -> object:
        return function(_prompt_of(query), config_of(query, settings))

    return CallableModel(spec, ask, settings.decisions)


def from_step_fn(
    function: StepFn, *, spec: str = "python:step", options: ModelOptions | None = None
) -> CallableModel:
    """Make a model of a step function.

    Args:
        function: gets the messages so far, oldest first, as {role, content, tool_calls?, call_id?};
            returns a decision as `read_reply` describes.
        spec: what reports call the model.
        options: `decisions` says how a text is read.
    """
    settings = options or ModelOptions()
    return CallableModel(spec, lambda query: function(list(query.messages)), settings.decisions)


def copy_query(query: ModelQuery) -> ModelQuery:
    """Copy what a callable could change in a query."""
    return msgspec.structs.replace(
        query, messages=copy.deepcopy(query.messages), sampling=copy.deepcopy(query.sampling)
    )


def call_plugin(name: str, function: Callable[..., object], *arguments: object) -> object:
    """Call code that is not ours; redrive's own errors pass, and what it prints goes to stderr.

    Raises:
        PluginError: it raised something else, or wanted to end the process; one line with
            file:line of its innermost frame.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return function(*arguments)
    except (RedriveError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PluginError(
            f"{name} raised {type(error).__name__}: {_one_line(error)}", where=_place_of(error)
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _place_of(error: BaseException) -> str:
    """Name the innermost frame outside this file; a syntax error names its own place."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _prompt_of(query: ModelQuery) -> str:
    prompt = query.body if query.prompt is None else query.prompt
    if prompt is None:
        raise UsageError(
            "no recorded context to complete",
            where=f"decision {query.decision}",
            hint="use a step function, or a script",
        )
    return prompt


def config_of(query: ModelQuery, options: ModelOptions) -> dict[str, Any]:
    """Gather the sampling parameters of a query: later sources win.

    Returns:
        Plain values by name: the default seed, the recorded parameters, those of the recorded body,
        then the overrides. What none of them states is absent.
    """
    config: dict[str, Any] = {} if options.seed is None else {"seed": options.seed}
    if query.recorded_model is not None and query.recorded_model.requested is not None:
        config["model"] = query.recorded_model.requested
    if query.sampling is not None:
        stated = msgspec.to_builtins(query.sampling)
        extra = stated.pop("extra", {})
        config |= {key: value for key, value in (extra | stated).items() if value is not None}
    config |= _config_in(query.body)
    return config | {override.name: override.value for override in query.overrides}


def _config_in(body: str | None) -> dict[str, Any]:
    try:
        fields = canonical.decode_value(body or "{}")
    except ValueError:
        return {}
    if not isinstance(fields, dict):
        return {}
    return {key: fields[key] for key in _CONFIG_KEYS if fields.get(key) is not None}


def read_reply(returned: object, decisions: str, *, where: str) -> ModelReply:
    """Read what a callable returned.

    Args:
        returned: a text; or a dict with `tool` and `arguments`, or `tool_calls` (each with `name`
            or `tool`, and `args`, `arguments` or `args_json`), or `text`; with an optional `final`.
            Without `final`, an answer without calls is final.
        decisions: with `json_content` a plain text may hold the call.
        where: the place for errors.

    Raises:
        ModelError: it is none of these.
    """
    if isinstance(returned, str):
        calls = json_calls(returned, decisions)
        return ModelReply(text=returned, calls=calls, is_final=not calls)
    if not isinstance(returned, dict) or not {"tool", "tool_calls", "text"} & returned.keys():
        raise ModelError(
            f"a model returned {type(returned).__name__}", where=where, hint=f"expected {_EXPECTED}"
        )
    listed = [returned] if "tool" in returned else returned.get("tool_calls") or []
    calls = tuple(_call(call, where) for call in listed)
    final = get_field(returned, "final", bool)
    text = get_field(returned, "text", str) or ""
    return ModelReply(text=text, calls=calls, is_final=not calls if final is None else final)


def _call(call: object, where: str) -> CallAsked:
    fields = call if isinstance(call, dict) else {}
    name = get_field(fields, "name", str) or get_field(fields, "tool", str)
    if not name:
        raise ModelError("a model returned a tool call without a name", where=where)
    call_id = get_field(fields, "call_id", str)
    text = get_field(fields, "args_json", str)
    for key in ("arguments", "args"):
        if key in fields:
            return CallAsked(name, arguments=_raw(fields[key], where), call_id=call_id)
    return CallAsked(name, arguments_text=text, call_id=call_id)


def _raw(arguments: object, where: str) -> msgspec.Raw:
    try:
        canonical.canonical(arguments)  # refuses what is no JSON, such as a set
        return raw_of(arguments)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"a model returned arguments that are no JSON: {error}", where=where
        ) from error
