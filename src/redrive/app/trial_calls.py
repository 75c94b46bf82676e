"""Where every call of a tool in a run ends up: may it run, who runs it, what is recorded.

Knows the tools that passed the check and nothing else: a name that is none of them has no way to
run here. Must not know processes (`ToolRunner`) or the wire.

Source: DESIGN.md §6 "a run-bound capability per tool handle".
"""

import asyncio
import hmac
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from redrive import canonical
from redrive.app.trial_messages import CallTold
from redrive.app.trial_state import RunState
from redrive.audit.effects import Effect, parse_effect
from redrive.audit.eligibility import EligibleWorkflow
from redrive.audit.workflow import ToolSpec
from redrive.capture.ports import CallObserver
from redrive.capture.recording import RecordingBackend
from redrive.errors import quote
from redrive.record.event import Kind, ToolPermission
from redrive.replay.trial_values import DeniedCall

BY = "redrive"
SIMULATED = "tool.simulated"
Place = Callable[[Callable[[], Any]], Any]
"""Runs something where the call comes from, so that it is recorded in its flow."""


class Ran(msgspec.Struct, frozen=True):
    """How a tool's run ended: its result or error, and what it tried beside and may not."""

    told: CallTold
    denied: tuple[DeniedCall, ...] = ()


class ToolRunner(Protocol):
    """Runs a tool that may run."""

    async def run(self, tool: ToolSpec, arguments: Mapping[str, Any]) -> Ran:
        """Run it; an error of the tool, or of what it runs in, is an answer."""
        ...


class ToolDesk:
    """Takes the calls of one run.

    Args:
        eligible: what may be called.
        state: of the run.
        runner: runs what may run.
        backend: gives the session's backend.
    """

    def __init__(
        self,
        eligible: EligibleWorkflow,
        state: RunState,
        runner: ToolRunner,
        backend: Callable[[], RecordingBackend],
    ) -> None:
        # Whoever made the workflow eligible: a function that is unsafe is not held here.
        self._tools = {
            name: tool
            for name, tool in eligible.tools.items()
            if tool.id in eligible.simulated or parse_effect(tool.effect) is not Effect.UNSAFE
        }
        self._simulated = eligible.simulated
        self._state = state
        self._runner = runner
        self._backend = backend
        ids = {tool.id for tool in self._tools.values()}
        self._capabilities = {tool: secrets.token_urlsafe(24) for tool in ids}

    @property
    def tools(self) -> Mapping[str, ToolSpec]:
        """Name as called → the tool that it stands for."""
        return self._tools

    @property
    def capabilities(self) -> Mapping[str, str]:
        """Name as called → the right to call it, in this run alone."""
        return {name: self._capabilities[tool.id] for name, tool in self._tools.items()}

    async def call(self, name: str, capability: str, arguments: bytes, at: Place) -> CallTold:
        """Take a call; a refused one is recorded, whatever the caller makes of it.

        Args:
            name: as called.
            capability: the caller's right.
            arguments: the text of a JSON object.
            at: see `Place`.
        """
        reason = self._refusal(name, capability)
        if reason is not None:
            await asyncio.to_thread(at, partial(self.deny, name, reason))
            return CallTold(denied=reason)
        if not self._state.count_tool():
            return CallTold(denied="no more tool calls")
        try:
            taken = canonical.take_json(arguments)
            given = canonical.decode_value(bytes(taken))
        except ValueError:
            taken, given = Raw(b"null"), None
        if not isinstance(given, dict):
            return CallTold(error=("TypeError", f"{name}: its arguments are no JSON object"))
        if not self._state.count_told(len(arguments)):
            return CallTold(denied="the run has sent too much")
        return await self._run(name, given, taken, at)

    def deny(self, name: str, reason: str) -> None:
        """Note and record a call that goes nowhere; in the context that it comes from."""
        if not self._state.deny(name, reason):
            return
        payload = ToolPermission(decision="denied", by=BY, tool=name[:512], reason=reason)
        self._backend().add_event(Kind.TOOL_PERMISSION, payload)

    def _refusal(self, name: str, capability: str) -> str | None:
        tool = self._tools.get(name)
        if self._state.is_over:
            return "the run has ended"
        if tool is None:
            return f"{quote(name)} is none of the tools that this workflow may call"
        expected = self._capabilities[tool.id].encode()
        if not hmac.compare_digest(expected, capability.encode("utf-8", "surrogatepass")):
            return f"the caller holds no right of this run to call {quote(name)}"
        return None

    async def _run(
        self, name: str, given: Mapping[str, Any], arguments: Raw, at: Place
    ) -> CallTold:
        tool = self._tools[name]
        begin = partial(
            self._backend().begin_call,
            name,
            tool.effect,
            arguments,
            is_unsafe=parse_effect(tool.effect) is Effect.UNSAFE,
        )
        observer = await asyncio.to_thread(at, begin)
        ran = await self._runner.run(tool, given)
        if not self._state.count_told(len(ran.told.result or b"")):
            ran = Ran(CallTold(error=("MemoryError", "the run has recorded too much")), ran.denied)
        await asyncio.to_thread(at, partial(self._tell, tool, observer, ran))
        return ran.told

    def _tell(self, tool: ToolSpec, observer: CallObserver, ran: Ran) -> None:
        told = ran.told
        for denied in ran.denied:
            self.deny(denied.tool, denied.reason)
        if told.error is not None:
            observer.raised(*told.error)
        else:
            observer.returned(Raw(told.result or b"null"))
        if tool.id in self._simulated:
            self._state.simulate(tool.id)
            self._backend().note(SIMULATED, {"tool": tool.id})
