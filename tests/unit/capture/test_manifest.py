import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive import canonical
from redrive.audit.environment import compare_environment
from redrive.capture import manifest
from redrive.capture.manifest import (
    Bounds,
    bare_url,
    build_manifest,
    count_cpus,
    digest_code,
    list_packages,
    name_time_zone,
)
from redrive.errors import UsageError

SECRET = "sk-planted-0123456789abcdef"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in ("agent.py", "lib/tools.py", ".hidden/x.py", "node_modules/y.py", "notes.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"NAME = {name!r}\n")
    return root


def test_a_manifest_is_json_and_equal_for_an_equal_environment(project: Path) -> None:
    first, second = build_manifest(project), build_manifest(project)
    assert compare_environment(first, second) == ()
    assert canonical.decode_value(canonical.encode(first)) == first
    assert list(first) == [
        "python",
        "platform",
        "packages",
        "git",
        "code",
        "endpoints",
        "engine",
        "time_zone",
        "cpu_count",
    ]


def run_manifest(project: Path, *args: str, **environment: str) -> dict[str, Any]:
    script = project / "agent.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom redrive import canonical\n"
        "from redrive.capture.manifest import build_manifest\n"
        "found = build_manifest(Path(__file__).parent, endpoints=['http://u:pw@h/v1?key=k'])\n"
        "sys.stdout.buffer.write(canonical.encode(found))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), *args],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
        timeout=60,
    )
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def test_no_argument_no_value_of_the_environment_and_no_path_of_the_machine_stands_in_it(
    project: Path,
) -> None:
    found = run_manifest(project, SECRET, MY_TOKEN=SECRET, TZ=SECRET, PYTHONHASHSEED="4711")
    text = canonical.encode(found).decode()
    for never in (SECRET, "4711", "u:pw", "key=k", str(project), str(Path.home()), "MY_TOKEN"):
        assert never not in text
    assert found["python"]["hash_seed"] == "set"
    assert found["endpoints"] == ["http://h/v1"]
    assert found["packages"]["msgspec"] == version("msgspec")


def test_hash_seed_time_zone_and_code_are_told_apart(project: Path) -> None:
    one = run_manifest(project, PYTHONHASHSEED="1", TZ="Europe/Berlin")
    (project / "lib" / "tools.py").write_text("NAME = 2\n")
    other = run_manifest(project, PYTHONHASHSEED="random", TZ="America/Sao_Paulo")
    assert [found.field for found in compare_environment(one, other)] == [
        "code.digest",
        "code.files.lib/tools.py",
        "python.hash_seed",
        "time_zone",
    ]


def test_packages_are_those_that_were_imported_sorted_and_without_the_recorder() -> None:
    found = list_packages({"pytest": pytest, "msgspec.json": msgspec, "os": os, "redrive": os})
    assert found == {"msgspec": version("msgspec"), "pytest": version("pytest")}


def test_a_package_without_metadata_is_of_unknown_version(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = {"half": ["half-installed"]}
    monkeypatch.setattr("importlib.metadata.packages_distributions", lambda: owners)
    assert list_packages({"half": os}) == {"half-installed": "unknown"}


def test_code_is_named_below_its_root_and_neither_hidden_nor_installed(project: Path) -> None:
    found = digest_code(project)
    assert list(found["files"]) == ["agent.py", "lib/tools.py"]
    assert found["files"]["agent.py"] == canonical.digest(b"NAME = 'agent.py'\n")
    assert found["digest"] == canonical.value_digest(found["files"])
    assert "cut" not in found


def test_loaded_files_come_first_where_not_all_are_read(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = type(os)("tools")
    loaded.__file__ = str(project / "lib" / "tools.py")
    monkeypatch.setitem(sys.modules, "tools_of_a_test", loaded)
    found = digest_code(project, Bounds(n_files=1))
    assert list(found["files"]) == ["lib/tools.py"]
    assert found["cut"] == ["1 files"]
    assert digest_code(project, Bounds(n_bytes=5))["cut"] == ["2 files"]


def test_folders_beyond_the_bound_are_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "_MAX_WALKED", 1)
    assert digest_code(project)["cut"] == ["folders"]


def test_a_file_that_cannot_be_read_is_said_and_is_no_error(project: Path) -> None:
    (project / "gone.py").symlink_to(project / "nowhere.py")
    assert digest_code(project)["files"]["gone.py"] == "unreadable"


@pytest.mark.skipif(sys.platform == "win32", reason="no such names")
def test_a_name_that_is_no_text_is_escaped(project: Path) -> None:
    (project / os.fsdecode(b"\xff.py")).write_text("")
    assert "\\udcff.py" in digest_code(project)["files"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "https://user:pass@api.example.org:8443/v1/?key=1#frag",
            "https://api.example.org:8443/v1",
        ),
        ("HTTP://LOCALHOST", "http://localhost"),
        ("http://[::1]:80/v1", "http://[::1]:80/v1"),
        ("http://h:port/", "unreadable"),
        ("http://[::1/", "unreadable"),
        ("user:pass@host", "unreadable"),
        ("/only/a/path", "unreadable"),
    ],
)
def test_an_endpoint_has_no_credentials(url: str, shown: str) -> None:
    assert bare_url(url) == shown


def test_engine_properties_are_kept_and_must_be_json(project: Path) -> None:
    assert build_manifest(project, engine={"build": "b1", "n": 2})["engine"] == {
        "build": "b1",
        "n": 2,
    }
    with pytest.raises(UsageError, match="not JSON"):
        build_manifest(project, engine={"x": object()})


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        ("UTC", "UTC"),
        ("secret3:30", "UTC-03:30"),
        ("XYZ-2", "UTC+02:00"),
        ("../../etc/passwd", "UTC+00:00"),
        ("Europe", "UTC+00:00"),
    ],
)
def test_a_time_zone_is_a_public_name_or_an_offset(
    zone: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert name_time_zone() == shown
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("link", "shown"), [("/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"), ("/etc/x", "UTC+00:00")]
)
def test_without_a_setting_the_systems_zone_is_named(
    link: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr("os.path.realpath", lambda _: link)
    monkeypatch.setattr("time.timezone", 0)
    assert name_time_zone() == shown


def test_cpus_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= count_cpus() <= (os.cpu_count() or 1)
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert count_cpus() == 1
