"""What the reports on sessions show, as values: made by the use cases, written as text or JSON.

Knows shapes. Must not know where they come from. Times are RFC 3339 with nine decimals; an absent
field was not recorded. Texts are as recorded: whoever shows them escapes them.

Source: DESIGN.md §8.
"""

import msgspec

from redrive.record.event import Usage


class Excerpt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, cut where it is long; `chars` and `sha256` (of its UTF-8) then tell of the whole."""

    text: str
    chars: int | None = None
    sha256: str | None = None


class SessionView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session as a list shows it.

    `broken` says why a path does not reach its root, `damage` why stored events are no evidence.
    `recorder` is `recording` while the session is being recorded, and `ended early` where its
    recorder was killed or failed: what came after is not recorded.
    """

    session_id: str
    format: str
    revision: int
    head: str
    events: int
    thread: str
    first: str | None = None
    last: str | None = None
    task: str | None = None
    agent: str | None = None
    agent_version: str | None = None
    cwd: str | None = None
    git: str | None = None
    parent_session: str | None = None
    outcome: str | None = None
    model_calls: int | None = None
    tool_calls: int | None = None
    tool_results: int | None = None
    orphan_calls: int | None = None
    orphan_results: int | None = None
    branches: int | None = None
    inherited: int | None = None
    complete: bool | None = None
    broken: str | None = None
    damage: str | None = None
    recorder: str | None = None
    usage: Usage | None = None


class ThreadView(msgspec.Struct, frozen=True):
    """Sessions that are one conversation: resumed, forked, or another revision; oldest first."""

    thread: str
    sessions: tuple[str, ...]


class DamagedView(msgspec.Struct, frozen=True):
    """A session that the store holds damaged; where even its row is, nothing else tells of it."""

    session_id: str
    fault: str


class SessionList(msgspec.Struct, frozen=True):
    """Every stored session, oldest first, the threads that they form, and what is damaged."""

    sessions: tuple[SessionView, ...]
    threads: tuple[ThreadView, ...]
    damaged: tuple[DamagedView, ...] = ()


class ActorView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One flow of execution: how much it did, and the node of another flow it hangs off."""

    actor: str
    nodes: int
    decisions: int
    tool_calls: int
    head_node: str | None = None
    started_at: str | None = None


class BranchView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way that an actor's history took; see `redrive.record.branches.Branch`."""

    actor: str
    leaf: str
    steps: int
    own_steps: int
    state: str
    fork: str | None = None
    start: str | None = None
    last: str | None = None


class TimelineEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event that matters, in the order in which it happened."""

    seq: int
    actor: str
    kind: str
    what: str
    ts: str | None = None
    step: int | None = None
    node_id: str | None = None
    status: str | None = None
    discarded: bool = False
    inherited: bool = False


class CallView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call and its recorded answer.

    `status` is the result's, `denied`, `conflicting` or `no result`.
    """

    seq: int
    tool: str
    status: str
    arguments: Excerpt | None = None
    call_id: str | None = None
    result_seq: int | None = None
    exit_code: int | None = None
    result_bytes: int | None = None
    provider_side: bool = False


class MissingView(msgspec.Struct, frozen=True, rename={"input_class": "class"}):
    """One input that the record lacks."""

    input_class: str
    what: str


class ClosureMark(msgspec.Struct, frozen=True):
    """What the audit says of a step."""

    status: str
    decision_closed: bool
    missing: tuple[MissingView, ...] = ()


class StepView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision on the path that is shown."""

    step: int
    node_id: str
    ts: str | None = None
    model: str | None = None
    text: Excerpt | None = None
    reasoning: Excerpt | None = None
    calls: tuple[CallView, ...] = ()
    usage: Usage | None = None
    closure: ClosureMark | None = None
    inherited: bool = False


class AskedBy(msgspec.Struct, frozen=True):
    """The text that asked for an effect, and where it stands.

    `source` is `decision`, `reasoning`, `user`, or `agent`: the prompt that a sub-agent was given.
    """

    source: str
    seq: int
    text: Excerpt


class EffectView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One effect, or one approval, in the order in which it happened.

    Attributes:
        basis: on what the category rests: `table`, `declared`, `undeclared` or `recorded`.
        what: command line, path, URL or decision.
        details: further arguments that matter, such as the files that a patch names.
        network_hints: programs in a command line that reach the network.
        writing_hints: what in a command line changes files.
        status: `ok`, `error`, `denied`, `conflicting`, `no result`, or the source's own word.
    """

    seq: int
    actor: str
    category: str
    tool: str
    basis: str
    status: str
    on_live_path: bool
    what: Excerpt
    ts: str | None = None
    step: int | None = None
    node_id: str | None = None
    call_id: str | None = None
    exit_code: int | None = None
    details: tuple[str, ...] = ()
    network_hints: tuple[str, ...] = ()
    writing_hints: tuple[str, ...] = ()
    asked_by: AskedBy | None = None
    provider_side: bool = False
    inherited: bool = False


class EffectTotals(msgspec.Struct, frozen=True):
    """What the list of effects holds, and what it leaves out."""

    by_category: dict[str, int]
    not_live: int
    inherited: int
    failed: int
    denied: int
    undeclared_tools: dict[str, int]
    read_only_tools: dict[str, int]
    tools_version: int


class MatchView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line that a pattern matches.

    `field` names the place in the event, `line` is 1-based in that field, `start` and `end` are
    characters of `text`, which is cut around the match where the line is long.
    """

    session_id: str
    seq: int
    kind: str
    actor: str
    field: str
    line: int
    text: str
    start: int
    end: int
    ts: str | None = None
    step: int | None = None
    node_id: str | None = None
    tool: str | None = None
    discarded: bool = False
