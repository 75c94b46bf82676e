"""The agent in production: it answers eight incidents on the local model, and writes itself down.

What it wrote lies in `sessions`; a trial runs the same tasks again under other versions:

    python examples/incidents/record.py examples/incidents/sessions
"""

import json
import sys
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from redrive.models.local import LocalEngine

LOGS = Path(__file__).parent / "workspace"
INCIDENTS = {
    "backup": "The nightly backup failed.",
    "payment": "The payment page is down.",
    "mail": "No mail has left since noon.",
    "search": "Search finds nothing that is new.",
    "login": "Nobody can sign in.",
    "import": "The morning's feed was not imported.",
    "cache": "Every page is slow.",
    "report": "The daily report did not arrive.",
}
SYSTEM = 'You find the error code of an incident. Answer on one line, like {"code": "E08"}'
SAMPLING = {"temperature": 0, "top_p": 1, "seed": 1, "max_tokens": 32}


def main() -> None:
    """Answer every incident, a file each."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    with LocalEngine() as engine:
        for name, said in INCIDENTS.items():
            with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as out:
                answer(name, said, engine, out)


def answer(name: str, said: str, engine: LocalEngine, out: IO[str]) -> None:
    """Ask once for the code of an incident, and write down the question and the answer."""
    codes = sorted(json.loads((LOGS / "codes.json").read_text(encoding="utf-8")))
    schema = {"type": "object", "properties": {"code": {"enum": codes}}, "required": ["code"]}
    body = json.dumps(
        {
            "model": "smollm2",
            "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": said}],
            **SAMPLING,
            "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
        }
    )
    asked = now()
    given = post(f"{engine.url}/v1/chat/completions", body)
    write = {"id": f"incident-{name}", "task": json.dumps({"service": name, "said": said})}
    out.write(json.dumps({"type": "session", **write}) + "\n")
    decision = {
        "type": "decision",
        "id": "d1",
        "step": 1,
        "ts": asked,
        "model": {"requested": "smollm2", "fingerprint": engine.fingerprint},
        "sampling": SAMPLING,
        "request": {"api": "openai.chat", "body": body},
        "usage": {key: given["usage"][key] for key in ("prompt_tokens", "completion_tokens")},
        "output": {"text": given["choices"][0]["message"]["content"], "tool_calls": []},
    }
    out.write(json.dumps(decision) + "\n")
    out.write(json.dumps({"type": "end", "id": "e", "parent": "d1", "ts": now()}) + "\n")


def now() -> str:
    """Give the time as the format wants it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def post(url: str, body: str) -> dict[str, Any]:
    """Post a body to the engine, which listens on loopback."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(  # noqa: S310 - the engine's own address
        url, data=body.encode(), headers={"content-type": "application/json"}
    )
    with opener.open(request, timeout=120) as response:
        given: dict[str, Any] = json.load(response)
    return given


if __name__ == "__main__":
    main()
