"""Writable folders are measured while a run lasts and once more at its end, at both levels."""

import pytest

from redrive.sandbox.confinement import DEFAULT_PATH, MIB, Bind, ConfinedResult, Confinement, Limits
from redrive.sandbox.door import LEVELS, find_levels, run_at

PROVEN = find_levels()
FILL = "i=0; while [ $i -lt 40 ]; do head -c 500000 /dev/zero > $i; i=$((i+1)); done; "


@pytest.fixture(params=LEVELS)
def inside(request):
    if not PROVEN[request.param].is_proven:
        pytest.skip(f"no proven sandbox here: {PROVEN[request.param].reason}")

    def run(script: str, folder: str, most_bytes: int | None) -> ConfinedResult:
        confinement = Confinement(
            writable=(Bind(folder),),
            cwd=folder,
            environment={"PATH": DEFAULT_PATH},
            limits=Limits(disk_bytes=most_bytes, wall_s=60),
        )
        return run_at(request.param, ("/bin/sh", "-c", script), confinement)

    return run


def test_a_run_that_fills_the_disk_is_ended(inside, tmp_path):
    done = inside(f"{FILL} sleep 60", str(tmp_path), 2 * MIB)
    assert (done.is_disk_full, done.exit_code, done.is_timeout) == (True, None, False)
    assert not (tmp_path / "never").exists()


def test_a_run_that_fills_the_disk_and_ends_at_once_is_marked(inside, tmp_path):
    done = inside("head -c 3000000 /dev/zero > big", str(tmp_path), 2 * MIB)
    assert (done.is_disk_full, done.exit_code) == (True, None)


def test_files_without_a_name_count(inside, tmp_path):
    script = "exec 9> f; rm f; head -c 3000000 /dev/zero >&9; sleep 60"
    done = inside(script, str(tmp_path), 2 * MIB)
    assert (done.is_disk_full, done.is_timeout) == (True, False)


def test_empty_files_without_end_are_too_much(inside, tmp_path):
    script = "i=0; while :; do : > $i; i=$((i+1)); done"
    done = inside(script, str(tmp_path), MIB)
    assert (done.is_disk_full, done.is_timeout) == (True, False)


def test_within_the_budget_or_without_one_nothing_is_ended(inside, tmp_path):
    for most_bytes in (40 * MIB, None):
        done = inside(FILL, str(tmp_path), most_bytes)
        assert (done.is_disk_full, done.exit_code) == (False, 0)
