"""The rerun document: what `redrive rerun --json` prints, as one value.

Knows the JSON contract. Must not know how anything in it was found. Equal inputs give equal bytes.

Source: DESIGN.md §8 "JSON contract"; issue "The recorder" §5.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, assert_never

import msgspec

from redrive import canonical
from redrive.audit.environment import FieldDifference, compare_environment
from redrive.compare.rerun_decisions import LiveDecision
from redrive.compare.rerun_difference import RerunDivergence
from redrive.compare.rerun_verdict import (
    EXIT_CODES,
    NOTES,
    CodeDigests,
    CodeState,
    Finding,
    judge_miss,
)
from redrive.replay.rerun import RerunState, Served, list_rest
from redrive.replay.rerun_items import (
    Item,
    RecordedCall,
    RecordedExchange,
    RecordedRead,
    RecordedValue,
)

SCHEMA = "redrive.rerun"
SCHEMA_VERSION = 1
_LISTED = 100
_CODE_FIELD = "code."

ControlFlow = Literal["proved", "not proved"]


class Code(msgspec.Struct, frozen=True):
    """The digests of the agent's code, and whether they are equal."""

    state: CodeState
    recorded: str | None
    now: str | None


class FlowCounts(msgspec.Struct, frozen=True):
    """How far one flow came: requests made, and requests recorded.

    `state` is `complete`, `stopped`, `not begun`, or `within a call`: it began and ended while a
    tool ran whose result was served.
    """

    name: str
    requests: int
    recorded_requests: int
    state: str


class Unserved(msgspec.Struct, frozen=True):
    """Something that the record holds and nobody asked for."""

    kind: str
    flow: str
    step: int
    node_id: str
    what: str


class Variant(msgspec.Struct, frozen=True):
    """What a rerun was given otherwise than the recorded run; absent: as the machine has it."""

    hash_seed: int | None = None
    time_zone: str | None = None
    n_cpus: int | None = None


class ProofRun(msgspec.Struct, frozen=True):
    """One rerun under a variant, and what it came to."""

    variant: Variant
    finding: Finding
    divergence: RerunDivergence | None


class Proof(msgspec.Struct, frozen=True):
    """Reruns under variants; `basis` is `proved_by_rerun` where all were identical."""

    runs: tuple[ProofRun, ...]
    basis: str | None


class AgentEnd(msgspec.Struct, frozen=True):
    """How the agent's code ended: `returned`, `raised` or `exited`, with error or exit code."""

    how: str
    error: str | None = None
    exit_code: int | None = None


class RerunDocument(msgspec.Struct, frozen=True):
    """The whole answer of the verb.

    Attributes:
        control_flow: `proved` where every read was served and compared; `not proved` where the
            agent read its own clock and dice.
        live_calls: requests that a live model answered; tools and anything else never run.
        decisions: with a live model, each decision beside the recorded one.
        unserved: the first 100; `n_unserved` counts all.
        isolation: what held the command, as the sandbox proved it; absent in this process.
    """

    schema: str
    schema_version: int
    session_id: str
    head: str
    finding: Finding
    identical: bool
    divergence: RerunDivergence | None
    control_flow: ControlFlow
    served: Served
    live_calls: int
    model: str | None
    decisions: tuple[LiveDecision, ...]
    flows: tuple[FlowCounts, ...]
    unserved: tuple[Unserved, ...]
    n_unserved: int
    code: Code
    environment: tuple[FieldDifference, ...]
    agent: AgentEnd
    variant: Variant
    proof: Proof | None
    isolation: str | None
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """What the verb exits with."""
        codes = [EXIT_CODES[self.finding]]
        if any(not decision.equal for decision in self.decisions):
            codes.append(EXIT_CODES[Finding.DIVERGENCE])
        if self.proof is not None:
            codes += [EXIT_CODES[run.finding] for run in self.proof.runs]
        return max(codes)


class RerunFacts(msgspec.Struct, frozen=True):
    """What the shell knows of one rerun beside its state.

    Attributes:
        head: the store's digest over the session as it was read.
        recorded_environment: the manifest in the record, where there is one.
        environment: the manifest of this rerun, where it is known.
        agent: how the agent's code ended.
        model: spec of the live model.
        is_reading: whether reads are served.
        variant: what was given otherwise.
        isolation: what held the command.
        notes: further ones, for people.
    """

    head: str
    agent: AgentEnd
    recorded_environment: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    model: str | None = None
    is_reading: bool = True
    variant: Variant = Variant()
    isolation: str | None = None
    notes: tuple[str, ...] = ()


def describe_rerun(
    state: RerunState,
    divergence: RerunDivergence | None,
    facts: RerunFacts,
    decisions: Sequence[LiveDecision] = (),
) -> RerunDocument:
    """Write the document of one rerun.

    Args:
        state: the rerun at its end.
        divergence: its first difference, described.
        facts: what else is known.
        decisions: with a live model, what it decided.
    """
    code = read_code(facts.recorded_environment, facts.environment)
    finding = judge_miss(state.miss, code.state, is_live=state.options.is_live)
    rest = list_rest(state)
    note = NOTES.get((finding, code.state))
    return RerunDocument(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        session_id=state.recorded.session_id,
        head=facts.head,
        finding=finding,
        identical=finding is Finding.IDENTICAL and facts.model is None,
        divergence=divergence,
        control_flow="proved" if facts.is_reading else "not proved",
        served=state.served,
        live_calls=state.served.live,
        model=facts.model,
        decisions=tuple(decisions),
        flows=tuple(_count_flows(state)),
        unserved=tuple(_unserved(state, rest[:_LISTED])),
        n_unserved=len(rest),
        code=Code(code.state, code.recorded, code.now),
        environment=_differences(facts),
        agent=facts.agent,
        variant=facts.variant,
        proof=None,
        isolation=facts.isolation,
        notes=(*((note,) if note else ()), *_doubtful_flows(state, finding), *facts.notes),
    )


def _doubtful_flows(state: RerunState, finding: Finding) -> tuple[str, ...]:
    """Say that flows which nobody named may have been taken for each other."""
    unnamed = [name for name in state.recorded.flows if name.startswith("flow-")]
    if finding is Finding.IDENTICAL or not unnamed:
        return ()
    return (f"{', '.join(unnamed[:5])}: told apart by their words; session.flow(NAME) is surer",)


def with_proof(document: RerunDocument, runs: Sequence[RerunDocument]) -> RerunDocument:
    """Add what reruns under variants came to; only reruns whose reads were served prove a basis."""
    proved = [ProofRun(run.variant, run.finding, run.divergence) for run in runs]
    is_proved = len(runs) > 1 and all(
        run.identical and run.control_flow == "proved" for run in (document, *runs)
    )
    proof = Proof(tuple(proved), "proved_by_rerun" if is_proved else None)
    return msgspec.structs.replace(document, proof=proof)


def read_code(recorded: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> CodeDigests:
    """Read the digest of the agent's code in two manifests; one that was cut says nothing."""
    return CodeDigests(_code_of(recorded), _code_of(now))


def _code_of(manifest: Mapping[str, Any] | None) -> str | None:
    code = None if manifest is None else manifest.get("code")
    if not isinstance(code, dict) or code.get("cut"):
        return None
    digest = code.get("digest")
    return digest if isinstance(digest, str) else None


def _differences(facts: RerunFacts) -> tuple[FieldDifference, ...]:
    """Name what else differs between both environments, of what both state, as evidence."""
    if facts.recorded_environment is None or facts.environment is None:
        return ()
    both = facts.recorded_environment.keys() & facts.environment.keys()
    sides = [
        {name: side[name] for name in both}
        for side in (facts.recorded_environment, facts.environment)
    ]
    found = compare_environment(*sides)
    return tuple(entry for entry in found if not entry.field.startswith(_CODE_FIELD))[:_LISTED]


def _count_flows(state: RerunState) -> Iterable[FlowCounts]:
    for name, recorded in state.recorded.flows.items():
        begun = state.flows.find(name)
        flow, n_recorded = state.flow(name), len(recorded.exchanges)
        if begun is None:
            word = "within a call" if recorded.is_within_call else "not begun"
        else:
            word = "complete" if flow.n_exchanges >= n_recorded else "stopped"
        yield FlowCounts(name, flow.n_asked, n_recorded, word)


def _unserved(state: RerunState, rest: Iterable[Item]) -> Iterable[Unserved]:
    flows = {item.seq: name for name, flow in state.recorded.flows.items() for item in flow.items()}
    for item in rest:
        kind, what = _name(item)
        yield Unserved(kind, flows[item.seq], item.step, item.node_id, what)


def _name(item: Item) -> tuple[str, str]:
    match item:
        case RecordedRead():
            return item.kind.value, item.name
        case RecordedCall():
            return "tool.call", item.tool
        case RecordedValue():
            return "value.derived", item.name
        case RecordedExchange():
            kind = "model.request" if item.is_model else "http.exchange"
            return kind, f"{item.method} {item.path}"
        case _ as never:
            assert_never(never)


def dump_rerun(document: RerunDocument) -> bytes:
    """Write the document as JSON; equal documents give equal bytes."""
    return canonical.encode(document)
