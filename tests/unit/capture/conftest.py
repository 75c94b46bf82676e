from collections.abc import Iterator

import pytest

from redrive.capture.session import AgentSession
from tests.fake_backend import FakeBackend
from tests.loopback_server import LoopbackServer, run_server


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def session(backend: FakeBackend) -> AgentSession:
    return AgentSession(backend, session_id="redrive:test")


@pytest.fixture
def loopback() -> Iterator[LoopbackServer]:
    with run_server() as server:
        yield server
