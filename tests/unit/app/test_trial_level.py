import pytest

from redrive.app.trial_level import find_level, run_at
from redrive.errors import ContainmentError
from redrive.sandbox.bubblewrap import probe
from redrive.sandbox.confinement import Confinement


def test_the_level_is_the_one_that_is_proven() -> None:
    assert find_level() == probe().name


@pytest.mark.parametrize("level", ["none", "", "magic"])
def test_nothing_runs_at_a_level_that_is_not_there(level: str, tmp_path) -> None:
    with pytest.raises(ContainmentError, match="nothing is run"):
        run_at(level, ("/bin/touch", str(tmp_path / "ran")), Confinement())
    assert not (tmp_path / "ran").exists()
