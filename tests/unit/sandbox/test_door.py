"""The best proven level is taken, the next where it is closed, and nothing runs where none is."""

import os

import pytest

from redrive.errors import ContainmentError, UsageError
from redrive.sandbox import bubblewrap, door, proof
from redrive.sandbox.confinement import Bind, Confinement
from redrive.sandbox.door import find_level, find_levels, run_at, run_confined
from redrive.sandbox.proof import prove_landlock

needs_bubblewrap = pytest.mark.skipif(
    not bubblewrap.probe().is_proven, reason=f"no bubblewrap: {bubblewrap.probe().reason}"
)
needs_landlock = pytest.mark.skipif(
    not prove_landlock().is_proven, reason=f"no Landlock: {prove_landlock().reason}"
)


@pytest.fixture
def no_landlock(monkeypatch):
    prove_landlock.cache_clear()
    monkeypatch.setattr(proof, "find_obstacle", lambda: "Landlock is off")
    yield
    prove_landlock.cache_clear()


@needs_bubblewrap
def test_bubblewrap_is_the_first_choice():
    assert find_level() == bubblewrap.probe()
    assert find_level().name == "bubblewrap"
    assert run_confined(("/bin/sh", "-c", "echo $HOME"), Confinement()).exit_code == 0


@needs_landlock
def test_a_bubblewrap_hidden_from_the_path_leads_to_landlock(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_level().name == "landlock"
    done = run_confined(("/bin/sh", "-c", "echo $HOME"), Confinement())
    assert b"redrive-landlock-" in done.stdout


def test_with_both_closed_nothing_runs(monkeypatch, tmp_path, no_landlock):
    monkeypatch.setenv("PATH", str(tmp_path))
    level = find_level()
    assert (level.name, level.is_proven) == ("none", False)
    assert "no bubblewrap" in level.reason
    assert "Landlock is off" in level.reason
    writable = Confinement(writable=(Bind(str(tmp_path)),))
    for at in (None, "landlock", "bubblewrap", "none"):
        argv = ("/bin/sh", "-c", f"echo x > {tmp_path}/ran")
        with pytest.raises(ContainmentError, match="nothing is run"):
            run_confined(argv, writable) if at is None else run_at(at, argv, writable)
    assert not os.listdir(tmp_path)


def test_a_level_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no sandbox level 'docker'"):
        run_at("docker", ("touch", f"{tmp_path}/ran"), Confinement())
    assert not os.listdir(tmp_path)


@needs_landlock
@needs_bubblewrap
@pytest.mark.parametrize("name", door.LEVELS)
def test_every_proof_of_a_level_has_its_control(name):
    level = find_levels()[name]
    assert (level.name, level.is_proven, level.reason) == (name, True, "")
    assert len(level.proofs) == len(proof.ATTEMPTS) == 10
    assert all(one.is_contained and one.has_control for one in level.proofs)
