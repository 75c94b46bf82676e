"""The process that policies run in: loads them behind the nets, and replays session by session.

Knows the messages, the store (read-only, opened before the seal) and the nets. Must not decide
anything about a report. It is started by `policy_pool`, and killed when a policy does not end.

Source: DESIGN.md §7 "Purity".
"""

import mmap
import os
import signal
import sys
from collections.abc import Callable, MutableSequence
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
    NOBODY,
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
    policy_word,
    raw_bytes,
    split_frame,
)
from redrive.app.policy_recording import Recording, held_recording, open_recording
from redrive.app.policy_session import SessionReplay
from redrive.compare.policy_report import PolicyFault
from redrive.errors import PluginError, PurityFault, RedriveError, TamperError
from redrive.policies.inferences import INFERENCES
from redrive.record.trajectory import build_trajectory
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

STATUS_BYTES = 8
_READ_BYTES = 1 << 16
_decode_event = msgspec.json.Decoder(PolicyEvent).decode


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
        broken = self._load.broken
        faults = [broken.get(number) for number in range(len(self._load.policies))]
        for number, code in enumerate(self._load.policies):
            self._status[0] = policy_word(number)
            try:
                import_declared(() if faults[number] else code.libraries)
            except PluginError as error:
                faults[number] = PolicyFault("error", error.message, error.where)
        self._status[0] = policy_word(NOBODY)
        if self._load.memory_bytes:
            set_limits(self._load.memory_bytes)
        sealed = seal()
        specs: list[PolicySpec | None] = []
        wrong: list[tuple[str, str] | None] = []
        for number, code in enumerate(self._load.policies):
            self._status[0] = policy_word(number)
            found = faults[number] or self._find_policy(sealed, code)
            faults[number] = found if isinstance(found, PolicyFault) else None
            wrong.append((found.message, found.hint) if isinstance(found, PluginError) else None)
            specs.append(found.spec if isinstance(found, LivePolicy) else None)
            if isinstance(found, LivePolicy):
                if not isinstance(code.hook, UnsetType):
                    self._hooks[len(self._policies)] = _hook_of(code)
                self._policies.append(found)
                self._numbers.append(number)
        self._status[0] = policy_word(NOBODY)
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
            recording, head = self._open(run)
        except RedriveError as error:
            return _unreplayable(run, error)
        except msgspec.DecodeError as error:
            return Finished(run.session_id, run.number, error=f"no event: {error}")
        try:
            session = SessionReplay(
                recording,
                self._policies,
                ask=self._ask_for(run.session_id),
                status=self._status,
                dropped=run.dropped,
                recheck_all=self._load.recheck_all,
            )
            outcomes = session.run(run.only)
            has_found = any(outcome.fires for outcome in outcomes)
            path = build_trajectory(recording.index).node_path if has_found else ()
        except RedriveError as error:
            return _unreplayable(run, error, head)
        except Exception as error:  # noqa: BLE001 - stderr is sealed: this alone tells of it
            what = _fault_of_ours(error)
            return Finished(run.session_id, run.number, head, error=what)
        return Finished(run.session_id, run.number, head, path, len(recording), outcomes)

    def _open(self, run: Run) -> tuple[Recording, str]:
        if run.lines is not None:
            return held_recording(run.session_id, [_decode_event(line) for line in run.lines]), ""
        if self._store is None:
            raise RedriveError("no store is open")
        return open_recording(self._store, run.session_id)

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


def _open_status(descriptor: int | None) -> MutableSequence[int]:
    """Map the status that the watchdog reads: one 64-bit word, see `policy_word`."""
    if descriptor is None:
        return [0]
    words: Any = memoryview(mmap.mmap(descriptor, STATUS_BYTES)).cast("q")
    return words  # type: ignore[no-any-return]


def _checked_spec(policy: Policy) -> PolicySpec:
    spec = read_spec(policy)
    unknown = [name for name in spec.needs if name not in INFERENCES]
    if unknown:
        raise PluginError(
            f"policy {spec.name}: no inference {unknown[0]!r}",
            hint=f"known: {', '.join(INFERENCES)}",
        )
    return spec


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
            return LivePolicy(load, _checked_spec(policy), place, sealed)
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
