"""Lets a test that runs as root try the same as an ordinary user, in a process of its own."""

import atexit
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import redrive

USER = 65534
_ROOT = Path(__file__).resolve().parent.parent
_SYSTEM_PYTHON = "/usr/bin/python3"
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
_CHECK = "import sys, redrive.sandbox.door, tests; print(tuple(sys.version_info[:2]))"
# What redrive itself imports; the others are found through the path, where they can be read.
_PACKAGES = ("msgspec", "orjson", "rapidfuzz", "rfc8785", "zstandard", "h11", "click")


@cache
def find_command() -> tuple[tuple[str, ...], dict[str, str]] | None:
    """Find how an ordinary user runs a Python that can import redrive and these tests.

    Root's own interpreter often lies where nobody else may look; the system's does if it is of the
    same version, as it then loads the same packages, in an environment made for it.

    Returns:
        Words in front of an interpreter's options, and its environment; `None` where there is none.
    """
    if os.geteuid() != 0:
        return None
    packages = (
        str(_ROOT),
        str(Path(redrive.__file__).parent.parent),
        sysconfig.get_path("platlib"),
    )
    environment = _ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(packages)}
    for python in (sys.executable, _SYSTEM_PYTHON):
        done = _run((python, "-W", "ignore", "-c", _CHECK), environment)
        if done is not None and done.stdout.strip() == str(tuple(sys.version_info[:2])).encode():
            own = python if python == sys.executable else _make_environment(python)
            return (own, "-W", "ignore"), environment
    return None


def _make_environment(python: str) -> str:
    """Make a virtual environment that holds what a confined process imports; give its Python."""
    folder = Path(tempfile.mkdtemp(prefix="redrive-ordinary-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    subprocess.run((python, "-m", "venv", "--without-pip", folder), check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    target = folder / "lib" / version / "site-packages"
    # As an editable install does it: what a line names is shown inside as well.
    (target / "redrive.pth").write_text(f"{Path(redrive.__file__).parent.parent}\n")
    for package in _PACKAGES:
        try:
            found = files(package) or ()
        except PackageNotFoundError:
            continue
        for file in found:
            place = target / file
            if ".." not in file.parts and file.suffix != ".pyc":
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), place)
    return str(folder / "bin" / "python3")


def run_as_ordinary_user(words: Sequence[str], timeout_s: float = 120.0) -> bytes:
    """Run a Python with these options as an ordinary user, and give what it prints.

    Raises:
        AssertionError: it fails; with what it said.
    """
    found = find_command()
    assert found is not None
    done = _run((*found[0], *words), found[1], timeout_s)
    assert done is not None
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def _run(
    command: Sequence[str], environment: dict[str, str], timeout_s: float = 30.0
) -> "subprocess.CompletedProcess[bytes] | None":
    try:
        return subprocess.run(
            command,
            cwd=_ROOT,
            env=environment,
            user=USER,
            group=USER,
            extra_groups=(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
        )
    except OSError:
        return None
