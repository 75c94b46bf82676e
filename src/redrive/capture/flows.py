"""Which flow of execution something belongs to, and what it follows there.

A flow is one line of work: the main agent, a sub-agent, a thread or task with a conversation of its
own. Knows contexts, threads, tasks and conversations. Must not know events, stores or the wire.

Three things tell the flow, the surest first:

1. the agent names it (`session.flow(NAME)`, or a header at the proxy);
2. the context that acts: one that a flow began in stays with it;
3. the conversation: a request that goes on where a flow's request ended belongs to that flow. At a
   proxy, where no context tells more, so does one with the same model, instructions and tools,
   unless another one of that flow is still on its way: then two agents are at work.

Else it is a flow of its own. What a new thread or task does before its first request is held until
that request tells its flow.

A rerun tells flows by the same rules, so equal runs have equal flows. Where the rules leave it open
(a new context, a proxy), the flow whose next recorded request this is goes first: answers come at
once in a rerun, and who was first by chance is not.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any

from redrive import canonical
from redrive.capture.conversation import Conversation
from redrive.record.event import MAIN_ACTOR

Held = Callable[["Flow"], None]


@dataclass(eq=False, slots=True)
class Flow:
    """One flow of execution.

    Attributes:
        name: its actor.
        parent: node that its first node hangs off; absent for `main`.
        last_node: newest node of the flow.
        in_flight: requests whose answer has not ended.
        conversations: (conversation, exchange id) of its requests, in order.
        n_entered: contexts that named it and have not left it.
        holder: the thread or task that first acted in it after inheriting it, if one did.
    """

    name: str
    parent: str | None = None
    last_node: str | None = None
    in_flight: int = 0
    conversations: list[tuple[Conversation, str]] = field(default_factory=list)
    n_entered: int = 0
    holder: "_Owner | None" = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing has happened in it yet, and nobody has begun to act in it."""
        return self.last_node is None and not self.conversations and self.holder is None

    def latest(self) -> Conversation | None:
        """Give the conversation of its newest request."""
        return self.conversations[-1][0] if self.conversations else None

    def opens_like(self, conversation: Conversation) -> bool:
        """Say whether nothing is on its way here, and what there was has the same opening."""
        latest = self.latest()
        return latest is not None and not self.in_flight and latest.opening == conversation.opening


@dataclass(eq=False, slots=True)
class _Scope:
    """A stretch of execution: who acts in it, its flow once known, and whose it inherits.

    `is_within` says that a tool runs in it; `claimed` is the flow that it is taken for in a rerun
    until its first request settles it.
    """

    owner: "_Owner"
    flow: Flow | None
    inherited: Flow
    inherited_from: "_Owner | None" = None
    is_within: bool = False
    claimed: Flow | None = None
    held: list[Held] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Owner:
    """A thread, and the asyncio task that runs in it; texts where both are another process's."""

    thread: int | str
    task: "weakref.ref[asyncio.Task[Any]] | str | None"


_remote_owner: ContextVar[_Owner | None] = ContextVar("redrive_remote_owner", default=None)


def act_as(thread: str, task: str | None) -> None:
    """Let this context act for a thread, and a task in it, of another process."""
    _remote_owner.set(_Owner(thread, task))


def _current_owner() -> _Owner:
    remote = _remote_owner.get()
    if remote is not None:
        return remote
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        task = None
    return _Owner(threading.get_ident(), None if task is None else weakref.ref(task))


class FlowTracker:
    """Tells the flow of whoever calls. Not locked: the caller holds one lock around each call.

    Args:
        by_context: whether contexts mean something here. At a proxy they do not: there the
            conversation alone tells.
    """

    def __init__(self, *, by_context: bool) -> None:
        self.main = Flow(MAIN_ACTOR)
        self._flows = {MAIN_ACTOR: self.main}
        self._by_context = by_context
        self._unresolved: list[_Scope] = []
        self._scope: ContextVar[_Scope | None] = ContextVar("redrive_flow", default=None)
        if by_context:
            self._scope.set(_Scope(_current_owner(), self.main, self.main))

    def flows(self) -> list[Flow]:
        """List all flows, in order of appearance."""
        return list(self._flows.values())

    def enter(self, name: str) -> "Token[_Scope | None]":
        """Begin or resume a named flow in this context.

        A name that another context is in at this moment gets a number: two agents of one name that
        work at the same time are two flows.
        """
        flow, is_within = self._named(canonical.safe_text(name)), self.is_within_call()
        flow.n_entered += 1
        return self._scope.set(_Scope(_current_owner(), flow, flow, is_within=is_within))

    def leave(self, token: "Token[_Scope | None]") -> None:
        """Go back to the flow before."""
        scope = self._scope.get()
        if scope is not None and scope.flow is not None and scope.flow.n_entered:
            scope.flow.n_entered -= 1
        self._scope.reset(token)

    def bind(self, flow: Flow) -> "Token[_Scope | None]":
        """Make this context act in a flow until `unbind`, as a tool of it."""
        return self._scope.set(_Scope(_current_owner(), flow, flow, is_within=True))

    def unbind(self, token: "Token[_Scope | None]") -> None:
        """Undo `bind`; in another context than it was made in, nothing is to be undone."""
        try:
            self._scope.reset(token)
        except ValueError:
            return

    def is_within_call(self) -> bool:
        """Say whether a tool runs in this context, as far as contexts tell."""
        scope = self._scope.get()
        return scope is not None and scope.is_within

    def of_request(
        self, conversation: Conversation, name: str | None = None, expected: Sequence[str] = ()
    ) -> Flow:
        """Tell the flow of a request, which settles what its context did before.

        Args:
            conversation: what the request says.
            name: the flow that the agent itself named.
            expected: in a rerun, the flows whose next recorded request this is, in recorded order.
        """
        if name is not None:
            return self._named_at_proxy(name)
        if not self._by_context:
            found = self._of_record(expected, self.main)
            return found or self._of_conversation(conversation, self.main, is_free=True)
        scope = self._own_scope()
        if scope.flow is None:
            self._settle(scope, self._of_new_context(scope, conversation, expected))
        assert scope.flow is not None  # noqa: S101 - settled just now
        return scope.flow

    def _of_new_context(
        self, scope: _Scope, conversation: Conversation, expected: Sequence[str]
    ) -> Flow:
        inherited, claimed = scope.inherited, scope.claimed
        if claimed is not None and claimed is not inherited:
            return claimed
        holder = inherited.holder
        is_free = holder is None or holder in (scope.owner, scope.inherited_from)
        found = self._of_record(expected, inherited)
        return found or self._of_conversation(conversation, inherited, is_free=is_free)

    def of_act(self, expected: Callable[[], Sequence[str]]) -> Flow:
        """Tell the flow of an act in a rerun, which must be known at once.

        Args:
            expected: gives the flows that have not begun, and whose first act this is.
        """
        if not self._by_context:
            return self.main
        scope = self._own_scope()
        if scope.flow is not None:
            return scope.flow
        if scope.claimed is None:
            claimed = {other.claimed.name for other in self._unresolved if other.claimed}
            free = [name for name in expected() if name not in claimed]
            scope.claimed = self._of_record(free, scope.inherited) or scope.inherited
        return scope.claimed

    def _of_record(self, expected: Sequence[str], inherited: Flow) -> Flow | None:
        """Choose among the flows that a record expects: the inherited one, else the first."""
        if not expected:
            return None
        name = inherited.name if inherited.name in expected else expected[0]
        return self._flows.get(name) or self._new(name, inherited)

    def act(self, held: Held) -> None:
        """Do something in the flow of this context, now or as soon as its flow is known."""
        if not self._by_context:
            held(self.main)
            return
        scope = self._own_scope()
        if scope.flow is not None:
            held(scope.flow)
        else:
            scope.held.append(held)

    def settled(self) -> Flow:
        """Tell the flow of this context at once: what must be durable now cannot be held."""
        if not self._by_context:
            return self.main
        scope = self._own_scope()
        if scope.flow is None:
            self._settle(scope, scope.inherited)
        assert scope.flow is not None  # noqa: S101 - settled just now
        return scope.flow

    def current(self) -> Flow:
        """Tell the flow of this context as far as it is known: its own, else the inherited one."""
        if not self._by_context:
            return self.main
        scope = self._own_scope()
        return scope.inherited if scope.flow is None else scope.flow

    def settle_all(self) -> None:
        """Let everything that is still held happen in the flows that were inherited."""
        for scope in list(self._unresolved):
            self._settle(scope, scope.inherited)

    def _own_scope(self) -> _Scope:
        """Give the scope of this context; one of its own where it only inherited one."""
        found, owner = self._scope.get(), _current_owner()
        if found is not None and found.owner == owner:
            return found
        inherited = self.main if found is None else found.inherited
        if found is not None and found.flow is not None:
            inherited = found.flow
        if found is not None and found.flow is None and _is_below(owner, found.owner):
            return found  # a task that a task started before either asked anything
        scope = _Scope(owner, None, inherited)
        if found is not None:
            scope.inherited_from, scope.is_within = found.owner, found.is_within
        self._unresolved.append(scope)
        if inherited.is_idle:
            self._settle(scope, inherited)
        self._scope.set(scope)
        return scope

    def _settle(self, scope: _Scope, flow: Flow) -> None:
        scope.flow = flow
        flow.holder = flow.holder or scope.owner
        if scope in self._unresolved:
            self._unresolved.remove(scope)
        held, scope.held = scope.held, []
        for act in held:
            act(flow)

    def _of_conversation(
        self, conversation: Conversation, inherited: Flow, *, is_free: bool
    ) -> Flow:
        """Tell the flow of a request by its words; `is_free`: nobody else's flow was inherited."""
        latest = inherited.latest()
        if is_free if latest is None else conversation.continues(latest):
            return inherited
        if inherited.n_entered and not inherited.in_flight:
            return inherited  # the agent named it, and nobody else is at work in it
        for flow in reversed(self.flows()):
            known = flow.latest()
            if known is not None and conversation.continues(known):
                return flow
        for flow in () if self._by_context else self.flows():
            if flow.opens_like(conversation):
                return flow
        return self._new(f"flow-{len(self._flows) + 1}", inherited)

    def _named(self, name: str) -> Flow:
        flow, number = self._flows.get(name), 2
        while flow is not None and flow.n_entered:
            flow, number = self._flows.get(f"{name}-{number}"), number + 1
        if flow is not None:
            return flow
        taken = name in self._flows
        return self._new(f"{name}-{number - 1}" if taken else name, self.current())

    def _named_at_proxy(self, name: str) -> Flow:
        return self._flows.get(name) or self._new(name, self.main)

    def _new(self, name: str, parent: Flow) -> Flow:
        flow = Flow(name, parent=parent.last_node)
        self._flows[name] = flow
        return flow


def _is_below(owner: _Owner, other: _Owner) -> bool:
    """Say whether a task of the same thread acts where another task's scope was inherited."""
    return owner.thread == other.thread and other.task is not None
