"""The process that policies run in: loads them behind the nets, and replays session by session.

Knows the messages, the store (read-only, opened before the seal) and the nets. Must not decide
anything about a report. It is started by `policy_pool`, and killed when a policy does not end.

Source: DESIGN.md §7 "Purity".
"""

import mmap
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from redrive import canonical
from redrive.app.hook_policy import HOOK, HookCode, HookPolicy
from redrive.app.policy_judging import LivePolicy
from redrive.app.policy_messages import (
    Answer,
    Finished,
    FromWorker,
    Load,
    Loaded,
    Outside,
    PolicyCode,
    Run,
    decode_to_worker,
    frame,
    raw_bytes,
    split_frame,
)
from redrive.app.policy_session import NOBODY, SessionReplay
from redrive.compare.policy_report import PolicyFault
from redrive.errors import PluginError, PurityFault, RedriveError, TamperError
from redrive.policies.inferences import INFERENCES
from redrive.record.event import Event
from redrive.record.places import build_places
from redrive.record.session import EventReader, MemoryReader, SessionIndex, build_index
from redrive.record.trajectory import build_trajectory
from redrive.replay.folding import build_plan
from redrive.replay.policy import Policy, PolicySpec, read_spec
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import State
from redrive.sandbox.limits import end_with, set_limits
from redrive.sandbox.loading import fault_place, import_declared, import_policy
from redrive.sandbox.refused import LET_THROUGH
from redrive.sandbox.sealed import Sealed
from redrive.sandbox.standins import seal
from redrive.stores.port import Store
from redrive.stores.sqlite import open_store

STATUS_WORDS = 4
_READ_BYTES = 1 << 16
_decode_event = msgspec.json.Decoder(Event).decode


class Channel:
    """Frames over two descriptors, by functions taken hold of before the seal."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read, self._write = os.read, os.write
        self._read_fd, self._write_fd = read_fd, write_fd
        self._buffer = bytearray()

    def send(self, message: FromWorker) -> None:
        """Write one message whole."""
        data = memoryview(frame(message))
        while data:
            data = data[self._write(self._write_fd, data) :]

    def receive(self) -> Any:
        """Wait for the next message; `None` at the end."""
        while (data := split_frame(self._buffer)) is None:
            part = self._read(self._read_fd, _READ_BYTES)
            if not part:
                return None
            self._buffer += part
        return decode_to_worker(data)


class Worker:
    """Loads policies once, then replays the sessions that it is given."""

    def __init__(self, channel: Channel, load: Load) -> None:
        self._channel = channel
        self._load = load
        self._status = _open_status(load.status_fd)
        self._count = 0
        self._store: Store | None = (
            None
            if load.store is None
            else open_store(Path(load.store), create=False, read_only=True)
        )
        self._policies: list[LivePolicy] = []
        self._hooks: dict[int, HookPolicy] = {}
        self._numbers: list[int] = []  # of the policies that were loaded, among those asked for

    def prepare(self) -> Loaded:
        """Import libraries, seal the process, load the policies."""
        beat = self._beat_for(NOBODY)
        broken = self._load.broken
        faults = [broken.get(number) for number in range(len(self._load.policies))]
        for number, code in enumerate(self._load.policies):
            beat(number, NOBODY)
            try:
                import_declared(() if faults[number] else code.libraries)
            except PluginError as error:
                faults[number] = PolicyFault("error", error.message, error.where)
        beat(NOBODY, NOBODY)
        if self._load.memory_bytes:
            set_limits(self._load.memory_bytes)
        sealed = seal()
        specs: list[PolicySpec | None] = []
        wrong: list[tuple[str, str] | None] = []
        for number, code in enumerate(self._load.policies):
            beat(number, NOBODY)
            found = faults[number] or self._find_policy(sealed, code)
            faults[number] = found if isinstance(found, PolicyFault) else None
            wrong.append((found.message, found.hint) if isinstance(found, PluginError) else None)
            specs.append(found.spec if isinstance(found, LivePolicy) else None)
            if isinstance(found, LivePolicy):
                if not isinstance(code.hook, UnsetType):
                    self._hooks[len(self._policies)] = _hook_of(code)
                self._policies.append(found)
                self._numbers.append(number)
        beat(NOBODY, NOBODY)
        return Loaded(tuple(specs), tuple(faults), tuple(wrong), tuple(LET_THROUGH))

    def _find_policy(
        self, sealed: Sealed, code: PolicyCode
    ) -> LivePolicy | PolicyFault | PluginError:
        """Load a policy; code that breaks down is a fault, a wrong declaration an error."""
        found: LivePolicy | PolicyFault | PluginError
        try:
            found = _load_policy(sealed, code)
        except PurityFault as error:
            found = PolicyFault("stand-in", error.what, error.where)
        except PluginError as error:
            found = PolicyFault("error", error.message, error.where) if error.where else error
        # Taken here, or the next policy would be blamed for them.
        violations = sealed.take_violations()
        if violations and not isinstance(found, PolicyFault):
            first = violations[0]
            what = f"{first.what}, and swallowed the refusal"
            found = PolicyFault("stand-in", what, f"{first.file}:{first.line}")
        return found

    def replay(self, run: Run) -> Finished:
        """Replay one session; what is wrong with its record is told, not raised."""
        try:
            index, reader, head = self._open(run)
        except RedriveError as error:
            return _unreplayable(run, error)
        except msgspec.DecodeError as error:
            return Finished(run.session_id, run.number, error=f"no event: {error}")
        plan = build_plan(build_places(index))
        session = SessionReplay(
            run.session_id,
            plan,
            reader,
            self._policies,
            ask=self._ask_for(run.session_id),
            beat=self._beat_for(run.number),
            dropped=run.dropped,
            recheck_all=self._load.recheck_all,
        )
        try:
            outcomes = session.run(run.only)
        except RedriveError as error:
            return _unreplayable(run, error, head)
        except Exception as error:  # noqa: BLE001 - stderr is sealed: this alone tells of it
            what = _fault_of_ours(error)
            return Finished(run.session_id, run.number, head, error=what)
        path = build_trajectory(index).node_path
        return Finished(run.session_id, run.number, head, path, len(index), outcomes)

    def _open(self, run: Run) -> tuple[SessionIndex, EventReader, str]:
        if run.lines is not None:
            events = [_decode_event(line) for line in run.lines]
            return build_index(run.session_id, lambda: events), MemoryReader(events), ""
        if self._store is None:
            raise RedriveError("no store is open")
        row = self._store.get_row(run.session_id)
        return self._store.index(run.session_id), self._store.reader(run.session_id), row.head

    def _beat_for(self, session: int) -> Any:
        status = self._status

        def beat(policy: int, seq: int) -> None:
            self._count += 1
            if status is not None:
                status[1], status[2], status[3] = session, policy, seq
                status[0] = self._count

        return beat

    def _ask_for(self, session_id: str) -> Any:
        def ask(policy: int, kind: str, name: str, event: PolicyEvent, state: State) -> Raw | str:
            ref, asked = f"{session_id}#{event.id}", self._numbers[policy]
            if kind == HOOK:
                # As a text, since it may hold lone surrogates, which no frame does.
                told = self._hooks[policy].request(event, state).decode()
                request = Raw(msgspec.json.encode(told))
                return self._outside(Outside(asked, kind, name, ref, request))
            if self._load.is_strict:
                return f"strict mode, and no recorded inference {name}"
            inference = INFERENCES.get(name)
            if inference is None:
                return f"no inference named {name}"
            question = inference.ask(event, state)
            # A model is asked in UTF-8, which holds no half of a surrogate pair.
            question = replace(question, text=canonical.escape_surrogates(question.text))
            request = Raw(canonical.encode(question))
            return self._outside(Outside(asked, kind, name, ref, request))

        return ask

    def _outside(self, question: Outside) -> Raw | str:
        """Ask the replay, and wait for its answer."""
        self._channel.send(question)
        answer = self._channel.receive()
        if not isinstance(answer, Answer) or isinstance(answer.value, UnsetType):
            return getattr(answer, "missing", None) or "no answer"
        return answer.value


def _unreplayable(run: Run, error: RedriveError, head: str = "") -> Finished:
    is_tampered = isinstance(error, TamperError)
    return Finished(run.session_id, run.number, head, error=error.message, is_tampered=is_tampered)


def _fault_of_ours(error: Exception) -> str:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = (
        "" if last is None else f" at {last.tb_frame.f_globals.get('__name__')}:{last.tb_lineno}"
    )
    return f"a fault of redrive itself: {type(error).__name__}: {error}{place}".split("\n")[0]


def _open_status(descriptor: int | None) -> memoryview | None:
    """Map the status that the watchdog reads: count, session, policy, seq, as 64-bit words."""
    if descriptor is None:
        return None
    return memoryview(mmap.mmap(descriptor, STATUS_WORDS * 8)).cast("q")


def _hook_of(code: PolicyCode) -> HookPolicy:
    return HookPolicy(msgspec.json.decode(raw_bytes(code.hook), type=HookCode))


def _load_policy(sealed: Sealed, code: PolicyCode) -> LivePolicy:
    if code.code is None:
        hook = _hook_of(code)
        return LivePolicy(lambda: lambda: _hook_of(code), read_spec(hook), lambda _: "", sealed)
    source, compiled = code.code, dict[str, CodeType]()
    files = (source.file, *[file for file, _ in source.siblings.values()])

    def load() -> Callable[[], Any]:
        loaded = import_policy(
            sealed, source, code.attribute, libraries=code.libraries, compiled=compiled
        )
        return loaded if isinstance(loaded, type) else lambda: loaded

    def place(trace: TracebackType | None) -> str:
        file, line = fault_place(trace, *files)
        return f"{file}:{line}"

    make = load()
    try:
        with sealed:
            policy = make()
        if isinstance(policy, Policy):
            return LivePolicy(load, read_spec(policy), place, sealed)
    except (PluginError, PurityFault):
        raise
    except BaseException as error:
        what = f"cannot be made: {type(error).__name__}: {error}".split("\n")[0]
        raise PluginError(what, where=place(error.__traceback__)) from error
    raise PluginError(
        f"{code.attribute} in {code.source} is no policy",
        hint="derive it from redrive.policy.Policy",
    )


def main() -> int:
    """Serve until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.set_int_max_str_digits(4300)
    channel = Channel(os.dup(0), os.dup(1))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    load = channel.receive()
    if not isinstance(load, Load):
        return 1
    if load.lifeline_fd is not None:
        end_with(load.lifeline_fd)
    worker = Worker(channel, load)
    channel.send(worker.prepare())
    while isinstance(message := channel.receive(), Run):
        finished = worker.replay(message)
        try:
            channel.send(finished)
        except (TypeError, ValueError, OverflowError) as error:  # it has no JSON form: none is sent
            what = _fault_of_ours(error)
            channel.send(Finished(message.session_id, message.number, error=what))
    return 0


if __name__ == "__main__":
    sys.exit(main())
