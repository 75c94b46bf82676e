"""Makes the recordings that are measured: the same ones each time, on every machine.

One generator per shape, without redrive: what is measured has no part in making its input.
"""

import json
import random
from collections.abc import Iterator

N_TOOLS = 20
PAYLOAD_CHARS = 500
REPEATED_SHARE = 0.1
REWIND_SHARE = 0.03
N_FAILING = 12
_SESSION = "5e55a000-0000-4000-8000-00000000be4c"
_WORDS = tuple(f"{word}{number}" for number in range(97) for word in ("state", "of", "the", "run"))


def text(dice: random.Random, chars: int) -> str:
    """Draw words of about `chars` characters in all."""
    return " ".join(dice.choices(_WORDS, k=chars // 7))[:chars]


def dump_line(value: object) -> bytes:
    """Write one JSON line."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def interchange_session(n_events: int) -> tuple[bytes, bytes]:
    """Make one session of `n_events` events and the script that decides as it did.

    Half of the events are decisions, half are tool calls with their answers; each carries a payload
    of 500 bytes, and a tenth of the calls repeat an earlier one.

    Returns:
        The interchange lines, and the lines of `shadow.jsonl`.
    """
    dice = random.Random(11)
    lines, script = [dump_line({"type": "session", "id": "bench", "task": "measure"})], []
    parent = None
    n_decisions = n_events // 2
    for step in range(1, n_decisions + 1):
        shown = dice.randrange(step) if dice.random() < REPEATED_SHARE else step
        name, args = f"tool_{shown % N_TOOLS}", {"path": f"src/m_{shown}.py", "limit": shown % 200}
        node, call_id = f"d{step}", f"c{step}"
        decision = {
            "type": "decision",
            "id": node,
            "parent": parent,
            "ts": timestamp(step),
            "step": step,
            "model": {"requested": "m-1", "served": "m-1", "fingerprint": "fp-1"},
            "sampling": {"temperature": 0.0, "top_p": 1.0, "seed": 7},
            "context": text(dice, PAYLOAD_CHARS),
            "output": {
                "text": "",
                "tool_calls": [{"call_id": call_id, "name": name, "args": args}],
            },
        }
        result = {
            "type": "tool_result",
            "id": f"r{step}",
            "parent": node,
            "ts": timestamp(step),
            "call_id": call_id,
            "name": name,
            "status": "ok",
            "result": text(dice, PAYLOAD_CHARS),
        }
        lines += (dump_line(decision), dump_line(result))
        script.append(dump_line({"tool_calls": [{"name": name, "args": args}]}))
        parent = f"r{step}"
    lines.append(dump_line({"type": "end", "id": "end", "parent": parent, "status": "success"}))
    return b"".join(lines), b"".join(script)


def timestamp(second: int) -> str:
    """Write a time of March 2026, `second` seconds after the first."""
    minutes, seconds = divmod(second, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"2026-03-{1 + days % 30:02d}T{hours:02d}:{minutes:02d}:{seconds:02d}.000Z"


def claude_lines(n_lines: int) -> Iterator[bytes]:
    """Yield a Claude Code session: calls and results of about 560 bytes, 3 % of them rewinds."""
    dice = random.Random(5)
    uuids: list[str] = []
    for number in range(n_lines):
        uuid = f"{dice.getrandbits(32):08x}-0000-4000-8000-{number:012d}"
        parent = uuids[-1] if uuids else None
        if number > 50 and number % 2 == 0 and dice.random() < 2 * REWIND_SHARE:
            parent = uuids[-dice.randrange(3, 40, 2)]  # a call hangs off an earlier result
        yield dump_line(_claude_line(dice, number, uuid, parent))
        uuids.append(uuid)


def _claude_line(
    dice: random.Random, number: int, uuid: str, parent: str | None
) -> dict[str, object]:
    tool_id = f"toolu_{number - number % 2:024d}"
    if number % 2:
        content = {"tool_use_id": tool_id, "type": "tool_result", "content": text(dice, 180)}
        message: dict[str, object] = {"role": "user", "content": [content]}
    else:
        call = {"type": "tool_use", "id": tool_id, "name": "Bash"}
        message = {
            "id": f"msg_{number:024d}",
            "type": "message",
            "role": "assistant",
            "model": "model-x",
            "content": [call | {"input": {"command": text(dice, 60)}}],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 3, "output_tokens": number % 900},
        }
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/repo",
        "sessionId": _SESSION,
        "version": "2.1.0",
        "gitBranch": "main",
        "type": "user" if number % 2 else "assistant",
        "message": message,
        "uuid": uuid,
        "timestamp": timestamp(number),
    }


def event_lines(session_id: str, n_events: int, seed: int) -> Iterator[bytes]:
    """Yield a session as a store keeps it: turns of calls and results, 3 % of the nodes rewinds.

    An event takes about 560 bytes. An answer and its call share a node; every tenth step begins a
    turn. Results fail now and then, and in one session of twelve several times in a row.
    """
    dice = random.Random(seed)
    nodes: list[str] = []
    seq = step = 0
    is_failing = seed % N_FAILING == 0
    parent: str | None = None
    while seq < n_events:
        if step % 10 == 0:
            steps = [("user.message", {"text": text(dice, 230)})]
        elif step % 2:
            call = {"tool": "Bash", "arguments": {"command": text(dice, 230)}}
            steps = [("model.response", {"text": text(dice, 220)}), ("tool.call", call)]
        else:
            is_bad = 20 < step < 32 if is_failing else dice.random() < 0.03
            result = {"status": "error" if is_bad else "ok", "result": text(dice, 200)}
            steps = [("tool.result", {**result, "tool": "Bash"})]
        node = f"{dice.getrandbits(32):08x}-0000-4000-8000-{len(nodes):012d}"
        if step > 12 and step % 2 and dice.random() < 2 * REWIND_SHARE:
            parent = nodes[-dice.randrange(2, 12)]
        for part, (kind, payload) in enumerate(steps[: n_events - seq]):
            line = _event_line(session_id, seq, node, part, kind, payload)
            if parent is not None:
                line["parent_id"] = parent
            line["ts_ns"] = (1772000000 + 20 * seq) * 10**9
            if kind.startswith("tool"):
                line["call_id"] = f"toolu_{(step + 1) // 2:024d}"
            yield dump_line(line)
            seq += 1
        nodes.append(node)
        parent = node
        step += 1


def _event_line(
    session_id: str, seq: int, node: str, part: int, kind: str, payload: dict[str, object]
) -> dict[str, object]:
    return {
        "id": f"{node}/{part + 1}" if part else node,
        "session_id": session_id,
        "seq": seq,
        "kind": kind,
        "node_id": node,
        "source": ["7" * 64, 600 * seq, 590],
        "payload": payload,
    }
