"""What each worker of a run is started with: its grants as binds, its secrets, its way out.

Knows grants, the run's place and the kinds of workers. Starts nothing.

Source: DESIGN.md §6 "only the declared grants".
"""

import time
from collections.abc import Mapping
from functools import partial
from itertools import count

from redrive.app.trial_confinement import PROXY_PORT, RunPlace, confine, python_command
from redrive.app.trial_forwarder import OnDenied, forward
from redrive.app.trial_grants import show_grants
from redrive.app.trial_loading import place_command
from redrive.app.trial_mcp import McpCommand
from redrive.app.trial_mcp_tool import McpToolWorker
from redrive.app.trial_messages import WorkerSetup
from redrive.app.trial_processes import ProcessPlan, setup_start
from redrive.app.trial_state import RunState
from redrive.app.trial_worker_process import PythonWorker, ToolWorker
from redrive.audit.workflow import NO_GRANTS, Grants, McpSpec, ToolSpec, WorkflowSpec
from redrive.audit.workflow_checks import MCP_PREFIX, servers_of
from redrive.errors import UsageError
from redrive.sandbox.confinement import Confinement

SIMULATORS = "simulators"
_MODULE = "redrive.app.trial_worker"
_PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy")


class WorkerPlans:
    """Makes the workers of one run, not started.

    Args:
        place: of the run.
        state: of the run.
        spec: of the workflow.
        simulated: ids of tools of which the simulator is held.
        deadline_s: when the run ends, on the monotonic clock.
        seed: of the run.
        on_denied: told of places of the network that are not granted.

    Attributes:
        made: relative paths that were made in the workspace.
    """

    def __init__(
        self,
        place: RunPlace,
        state: RunState,
        spec: WorkflowSpec,
        *,
        simulated: frozenset[str],
        deadline_s: float,
        seed: int,
        on_denied: OnDenied,
    ) -> None:
        self.made: set[str] = set()
        self._place = place
        self._state = state
        self._servers = {server.name: server for server in servers_of(spec)}
        self._simulated = simulated
        self._deadline_s = deadline_s
        self._seed = seed
        self._on_denied = on_denied
        self._frames = count(1)

    def key_of(self, tool: ToolSpec) -> str:
        """Name the worker that runs a tool: simulators share one, and so do a server's tools."""
        if tool.id in self._simulated:
            return SIMULATORS
        return tool.origin if tool.origin.startswith(MCP_PREFIX) else tool.id

    def make(self, tool: ToolSpec) -> ToolWorker:
        """Make the worker of a tool.

        Raises:
            UsageError: its grants cannot be shown, or its server is not declared.
        """
        key = self.key_of(tool)
        if key.startswith(MCP_PREFIX):
            server = self._servers.get(key.removeprefix(MCP_PREFIX))
            if server is None:
                raise UsageError(f"no MCP server is declared for {tool.id}")
            return self._make_server(server)
        grants = NO_GRANTS if key == SIMULATORS else tool.grants
        setup = WorkerSetup(
            channel=0,
            code=self._place.code,
            tools=tuple(sorted(self._simulated)) if key == SIMULATORS else (tool.id,),
            is_simulated=key == SIMULATORS,
            port=PROXY_PORT if grants.network else 0,
            most_bytes=self._place.limits.output_bytes,
        )
        return PythonWorker(
            ProcessPlan(self._confine(grants), setup_start(python_command(_MODULE), setup)),
            self._place.run,
            partial(forward, granted=grants.network, on_denied=self._on_denied),
            self._place.limits.output_bytes,
        )

    def _make_server(self, server: McpSpec) -> ToolWorker:
        command = place_command(server.command, self._place.code)
        port = PROXY_PORT if server.grants.network else 0
        confinement = self._confine(server.grants, command[0])
        process = McpCommand(server.name, command, confinement, self._place.level, port)
        return McpToolWorker(process, server.grants.network, self._on_denied)

    def _confine(self, grants: Grants, command: str = "") -> Confinement:
        place = self._place
        frame = place.folder / f"frame-{next(self._frames)}"
        shown = show_grants(grants, place.workspace, frame, place.inside)
        self.made.update(shown.made)
        return confine(
            place,
            wall_s=self._deadline_s - time.monotonic(),
            seed=self._seed,
            readable=shown.readable,
            writable=shown.writable,
            environment=self._environment(grants),
            cwd=place.inside,
            command=command,
        )

    def _environment(self, grants: Grants) -> Mapping[str, str]:
        caller = self._place.caller
        found = {name: caller[name] for name in grants.secrets if name in caller}
        for name in grants.secrets:
            if name not in caller:
                self._state.note(f"the variable {name}, which a tool is granted, is not set")
        if grants.network:
            url = f"http://127.0.0.1:{PROXY_PORT}"
            for name in _PROXY_NAMES:
                found |= {name: url, name.upper(): url}
        return found
