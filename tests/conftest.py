"""What every test may ask for: where recordings lie, and how hard Hypothesis looks."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# A shared machine is slow now and then: time is measured by benchmarks, not by a deadline here.
settings.register_profile("default", deadline=None, max_examples=40, print_blob=True)
settings.register_profile("soak", parent=settings.get_profile("default"), max_examples=2000)
settings.load_profile("soak" if os.environ.get("REDRIVE_SOAK") == "full" else "default")


def pytest_collection_finish() -> None:
    """Keep what stays to the end, thousands of tests among it, out of every later collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def collected_garbage() -> Iterator[None]:
    """Collect a file's garbage at its end.

    What it left open is told there, and not in whichever test happens to run when Python collects.
    """
    yield
    gc.collect()


@pytest.fixture(scope="session", autouse=True)
def redaction_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the tests, and the processes that they start, from the user's own redaction key."""
    path = tmp_path_factory.mktemp("key") / "redaction.key"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDRIVE_REDACTION_KEY_FILE", str(path))
        yield path


@pytest.fixture(scope="session", autouse=True)
def heeded_signals() -> Iterator[None]:
    """Heed what `nohup` and a shell's `&` make a process ignore: tests send it to themselves.

    A process that is started by a test inherits it as well.
    """
    usual = {
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
        signal.SIGQUIT: signal.SIG_DFL,
    }
    ignored = [number for number in usual if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, usual[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of the case suite; see its SCHEMA.md."""
    return ROOT / "tests" / "cases"


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of third-party recordings; the test is skipped where there is none."""
    named = os.environ.get("REDRIVE_SAMPLES")
    folder = Path(named) if named else ROOT.parent / "shared" / "samples"
    if not folder.is_dir():
        pytest.skip("no third-party samples: set REDRIVE_SAMPLES")
    return folder
