"""A scripted model and a store to record agents of libraries with, and the local engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.capture import manifest
from redrive.models import local
from tests.chat_server import Bench, open_bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Open one whose sessions name no packages: to look through them takes half a second."""
    monkeypatch.setattr(manifest, "list_packages", lambda modules: {})
    with open_bench(tmp_path, code=Path(__file__).parent) as opened:
        yield opened


@pytest.fixture(scope="module")
def engine() -> Iterator[local.LocalEngine]:
    """The local engine; the test is skipped where it is not installed."""
    if not local.is_installed():
        pytest.skip(f"the local model is not installed: {local.INSTALL_HINT}")
    with local.LocalEngine() as started:
        yield started
