"""What `make demo` runs: the main job on real input, every exit code checked.

1. A small agent really runs on a local language model and writes itself down. Its session is
   imported, audited and replayed: the same model decides again, on recorded tool results.
2. One recorded decision of a copy is edited. The copy is no longer what happened, and it shows.
3. A transcript of the kind that a coding agent leaves behind is audited: it cannot support a
   verdict, and the audit says what is missing.
4. Policies are replayed over all of these sessions: would a guard have fired?
5. An agent is recorded by one line of its code, and by none; then its own code runs again on the
   record, with the network off.
6. Three versions of a workflow are tried on two recorded tasks, in the sandbox. A fourth one, which
   would page someone, is refused before anything runs.

Without the local model's two wheels parts 1, 2, 5 and 6 are named and left out; without a sandbox
that is proven, the last step of part 5, and part 6.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redrive.models import local
from redrive.sandbox.bubblewrap import probe
from redrive.sandbox.door import find_level

HERE = Path(__file__).resolve().parent
TRANSCRIPT = "transcript.claude.jsonl"
TRANSCRIPT_SESSION = "claude_code:7c1f0a52-3e84-4d0b-9a6e-2b5d8c41f093"
SESSION = "interchange:log-agent-1-1"
EDITED = f"{SESSION}-edited"
TRIAL_TASKS = ("backup", "import")
MAX_LINES = 18
REPLAY = ("--model", "local", "--sampling", "recorded")


@dataclass
class Demo:
    """One run of the demo in a folder of its own; `faults` are the expectations that failed."""

    folder: Path
    faults: list[str] = field(default_factory=list)

    def run(self, shown: str, command: Sequence[str], exit_code: int, *words: str) -> None:
        """Run a command, print what it printed, and check its exit code and some of its words."""
        print(f"\n$ {shown}", flush=True)
        environment = os.environ | {"REDRIVE_STORE": str(self.folder / "store.db")}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        lines = (done.stdout + done.stderr).splitlines()
        for line in lines[:MAX_LINES]:
            print(f"  {line}")
        if len(lines) > MAX_LINES:
            print(f"  … {len(lines) - MAX_LINES} more lines")
        print(f"  → exit {done.returncode}", flush=True)
        if done.returncode != exit_code:
            self.faults.append(f"{shown}: exit {done.returncode}, expected {exit_code}")
        self.faults += [
            f"{shown}: no {word!r} in what it printed" for word in words if word not in done.stdout
        ]

    def redrive(self, arguments: Sequence[str], exit_code: int, *words: str) -> None:
        """Run one redrive command; see `run`."""
        command = [sys.executable, "-m", "redrive", *arguments]
        self.run(f"redrive {' '.join(arguments)}", command, exit_code, *words)

    def replay_a_fresh_session(self) -> bool:
        """Part 1; false where there is no session to go on with."""
        title("1. A real agent runs, is recorded, audited, and decides again")
        agent = [sys.executable, str(HERE / "log_agent.py"), "session.jsonl", "--seed", "1"]
        self.run("python examples/log_agent.py session.jsonl --seed 1", agent, 0)
        if self.faults:
            return False
        show_decisions(self.folder / "session.jsonl")
        self.redrive(["import", "session.jsonl"], 0, SESSION)
        self.redrive(["audit", SESSION], 0, "closed")
        self.redrive(["investigate", SESSION, *REPLAY], 0, "IDENTICAL_REPLAY")
        return True

    def replay_an_edited_copy(self) -> None:
        """Part 2: the first call with an argument gets another one in the record."""
        title("2. One recorded decision of a copy is edited")
        decision = write_edited_copy(self.folder / "session.jsonl", self.folder / "edited.jsonl")
        print(f"decision {decision} of edited.jsonl now holds another argument")
        self.redrive(["import", "edited.jsonl"], 0, EDITED)
        self.redrive(["diff", SESSION, EDITED], 1, f"decision {decision}")
        print(
            "\nThe model still decides what it decided then. The edited record has no answer to"
            "\nthat call, and another call's answer is never served in its place:"
        )
        self.redrive(["shadow", EDITED, *REPLAY], 3, "INSUFFICIENT_EVIDENCE")

    def audit_a_transcript(self) -> None:
        """Part 3: a vendor-format transcript is open in clock and PRNG, and says so."""
        title("3. A coding agent's transcript: what is missing for a verdict")
        shutil.copy(HERE / TRANSCRIPT, self.folder / TRANSCRIPT)
        self.redrive(["import", TRANSCRIPT], 0, TRANSCRIPT_SESSION)
        self.redrive(["show", TRANSCRIPT_SESSION, "--effects"], 0, "git commit")
        self.redrive(["audit", TRANSCRIPT_SESSION], 3, "clock", "prng")

    def record_an_agent(self) -> None:
        """Part 5: recorded from the inside it is closed; from the outside clock and dice lack."""
        title("5. An agent records itself, and runs again on its record")
        shutil.copy(HERE / "agent.py", self.folder)
        (self.folder / "pyproject.toml").touch()  # its code ends at this folder
        agent = [sys.executable, "agent.py"]
        recording = ["record", "--model", "local"]
        self.redrive([*recording, "--agent", "plain", "--", *agent, "--plain"], 0)
        self.redrive(["audit", "redrive:plain"], 3, "not captured", "clock, prng")
        self.redrive([*recording, "--", *agent], 0)
        self.redrive(["audit", "redrive:agent"], 0, "closed: all")
        if probe().is_proven:
            self.redrive(["rerun", "redrive:agent", "--", *agent], 0, "identical", "live calls: 0")
        else:
            print(f"no rerun here: {probe().reason}")

    def replay_policies(self) -> None:
        """Part 4: a shipped guard and a policy of one's own, on the sessions of the other parts."""
        title("4. Would a guard have fired in these sessions?")
        commands = HERE / "policies" / "wild_commands.jsonl"
        shutil.copy(commands, self.folder / commands.name)
        self.redrive(["import", commands.name], 0, "wild-commands")
        guard = ["policy", "replay", "--policy", "DangerousCommandGuard"]
        self.redrive(guard, 0, "fired 2 on the head path")
        shutil.copy(HERE / "policies" / "push_needs_test.py", self.folder)
        own = ["policy", "replay", "--policy", "push_needs_test.py:PushNeedsTest"]
        self.redrive([*own, "--fail-on-fire"], 1, "code changed, and no test has passed since")

    def try_new_versions(self) -> None:
        """Part 6: two tasks cannot decide the gate, and the plan and the report say so."""
        title("6. Would a new version have done better on the same tasks?")
        shutil.copy(HERE / "workflows.py", self.folder)
        shutil.copytree(HERE / "incidents", self.folder / "incidents")
        plan = (HERE / "trial.toml").read_text(encoding="utf-8")
        (self.folder / "trial.toml").write_text(shorten_plan(plan), encoding="utf-8")
        unsafe = "workflows.py:unsafe_workflow"
        self.redrive(["eligible", unsafe], 4, "page_someone  unsafe: declared unsafe")
        sessions = [f"incidents/sessions/{name}.jsonl" for name in TRIAL_TASKS]
        self.redrive(["import", *sessions], 0)
        self.redrive(["trial", "plan", "trial.toml"], 0, "3 variants × 2 tasks × 1 attempt = 6")
        self.redrive(["trial", "run", "trial.toml"], 3, "6 finished, 0 not run", "INCONCLUSIVE")
        report = ["trial", "report", "trial.toml", "--html", "trial.html"]
        self.redrive(report, 3, "Grader better-report (judge)")


def shorten_plan(text: str) -> str:
    """Leave out every task of the example's plan but two."""
    kept = tuple(f'"interchange:incident-{name}"' for name in TRIAL_TASKS)
    lines = text.splitlines(keepends=True)
    return "".join(
        line
        for line in lines
        if not line.lstrip().startswith('"interchange:') or line.lstrip().startswith(kept)
    )


def title(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}\n{'─' * len(text)}", flush=True)


def decisions_in(path: Path) -> list[dict[str, Any]]:
    """Read the decision lines of a session file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["type"] == "decision"]


def show_decisions(path: Path) -> None:
    """Print what the agent decided, a line per step."""
    for line in decisions_in(path):
        print(f"  step {line['step']}: {' '.join(line['output']['text'].split())}")


def write_edited_copy(source: Path, target: Path) -> int:
    """Copy a session under another id, with one argument of one decision replaced.

    Returns:
        The ordinal of the decision that was edited.
    """
    lines = [json.loads(line) for line in source.read_text().splitlines()]
    lines[0]["id"] += "-edited"
    edited = next(
        line
        for line in lines
        if line["type"] == "decision" and '"read_log"' in line["output"]["text"]
    )
    decision = json.loads(edited["output"]["text"])
    other = {"backup.log": "web.log", "web.log": "backup.log"}
    decision["arguments"]["name"] = other[decision["arguments"]["name"]]
    edited["output"]["text"] = json.dumps(decision)
    target.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return int(edited["step"])


def main() -> int:
    """Run the parts that can run here; 0 where every expectation held."""
    with tempfile.TemporaryDirectory(prefix="redrive-demo-") as folder:
        demo = Demo(Path(folder))
        if not local.is_installed():
            print(
                f"The local model is not installed, so parts 1, 2, 5 and 6 are left out.\n"
                f"To see them: {local.INSTALL_HINT}"
            )
        elif demo.replay_a_fresh_session():
            demo.replay_an_edited_copy()
        demo.audit_a_transcript()
        demo.replay_policies()
        if local.is_installed():
            demo.record_an_agent()
            if find_level().is_proven:
                demo.try_new_versions()
            else:
                print(f"\nPart 6 is left out, no sandbox is proven here: {find_level().reason}")
    for fault in demo.faults:
        print(f"\nNOT AS EXPECTED: {fault}")
    if not demo.faults:
        print("\nEvery exit code and verdict was as expected.")
    return int(bool(demo.faults))


if __name__ == "__main__":
    sys.exit(main())
