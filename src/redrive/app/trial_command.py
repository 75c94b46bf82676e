"""A command as a workflow: what it is started with, and what it leaves as its output.

Knows the variables that a command finds its run in. Must not know how it is confined.

Source: DESIGN.md §6; docs/workflows.md "Commands".
"""

import os
import re
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import UNSET, Raw

from redrive import canonical
from redrive.app.confined_agent import KEY_VARIABLES, NO_KEY
from redrive.app.trial_confinement import WORKSPACE, RunPlace, confine
from redrive.app.trial_context import upstream_of
from redrive.app.trial_loading import place_command
from redrive.app.trial_mcp_endpoint import MCP
from redrive.app.trial_messages import Failure
from redrive.app.trial_ports import EpisodeJob
from redrive.app.trial_processes import ProcessEnd, ProcessPlan, describe_end
from redrive.app.trial_state import RunEnd
from redrive.capture.proxy import Proxy
from redrive.capture.route import CONTROL
from redrive.errors import ContainmentError
from redrive.sandbox.confinement import Bind
from redrive.sandbox.loopback import LOOPBACK_ORIGIN, shim_command

TASK_FILE = "/redrive/task.json"
OUTPUT_FOLDER = "/redrive/out"
_OUTPUT = "output.json"
# The base URL of each kind of API is found in these; the first model of the plan is the default.
_BASES: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
}
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def plan_command(job: EpisodeJob, place: RunPlace, proxy: Proxy, wall_s: float) -> ProcessPlan:
    """Plan the command of a workflow: in the run's copy of the workspace, which it may change.

    A word that names a file beside the workflow's own becomes its absolute path.

    Raises:
        UsageError: the workflow's folder cannot be shown.
    """
    task, out = place.folder / "task.json", _output_folder(place)
    task.write_bytes(bytes(job.task.input))
    out.mkdir(mode=0o700)
    words = place_command(job.workflow.spec.command, place.code)
    confinement = confine(
        place,
        wall_s=wall_s,
        seed=job.run.seed,
        readable=(Bind(str(task), TASK_FILE),),
        writable=(Bind(str(place.workspace), WORKSPACE), Bind(str(out), OUTPUT_FOLDER)),
        environment=_environment(job, proxy),
        cwd=WORKSPACE,
        command=words[0],
    )
    python = os.path.realpath(sys.executable)
    return ProcessPlan(confinement, lambda channel: (shim_command(python, channel, words), b""))


def _environment(job: EpisodeJob, proxy: Proxy) -> Mapping[str, str]:
    found = dict.fromkeys(KEY_VARIABLES, NO_KEY)
    for model in reversed(job.models):
        url = LOOPBACK_ORIGIN + proxy.path_for(upstream_of(model.plan.name))
        found[f"REDRIVE_MODEL_{_variable(model.plan.name)}_URL"] = url
        found |= dict.fromkeys(_BASES.get(model.api, ()), url)
    if job.models:
        found["REDRIVE_MODEL"] = job.models[0].plan.name
    return {
        **found,
        "REDRIVE_TASK": TASK_FILE,
        "REDRIVE_OUTPUT": f"{OUTPUT_FOLDER}/{_OUTPUT}",
        "REDRIVE_SEED": str(job.run.seed),
        "REDRIVE_MCP_URL": f"{LOOPBACK_ORIGIN}{proxy.path_for(CONTROL)}/{MCP}",
    }


def _variable(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _output_folder(place: RunPlace) -> Path:
    return place.folder / "out"


def read_end(ended: ProcessEnd, place: RunPlace) -> RunEnd | None:
    """Read what a command came to; `None` where something else ended it.

    Its output is what it wrote to `$REDRIVE_OUTPUT`, else its standard output as text.

    Raises:
        ContainmentError: it was not started.
    """
    result = ended.result
    if not ended.report.is_started and result.exit_code is not None:
        why = ended.report.fault or describe_end(result)
        raise ContainmentError(f"the command did not start in the sandbox: {why}")
    if result.exit_code is None:
        return None
    if result.exit_code:
        return RunEnd(failure=Failure("exit", describe_end(result)))
    most_bytes = place.limits.output_bytes
    data = read_file(_output_folder(place) / _OUTPUT, most_bytes)
    if data is None:
        if result.is_output_cut:
            return RunEnd(failure=Failure("OverflowError", "its outputs are too long"))
        text = result.stdout.decode("utf-8", "replace")
        return RunEnd(Raw(canonical.encode(text)))
    if len(data) > most_bytes:
        return RunEnd(failure=Failure("OverflowError", "its output is too long"))
    with suppress(ValueError):
        return RunEnd(canonical.take_json(data))
    return RunEnd(UNSET, Failure("ValueError", "what it wrote to $REDRIVE_OUTPUT is no JSON"))


def read_file(path: Path, most_bytes: int) -> bytes | None:
    """Read a file that a run wrote, one byte more than allowed at most; no link is followed.

    Returns:
        `None` where there is no such file, or it is empty or none.
    """
    try:
        descriptor = os.open(path, _FILE_FLAGS)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most_bytes + 1) or None
