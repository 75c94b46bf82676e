import pytest

from redrive.app.trial_level import find_level, run_at
from redrive.errors import ContainmentError, UsageError
from redrive.sandbox import door
from redrive.sandbox.confinement import Confinement


def test_the_level_is_the_one_that_is_proven() -> None:
    assert find_level() == door.find_level().name


@pytest.mark.parametrize("level", ["none", "", "magic"])
def test_nothing_runs_at_a_level_that_is_not_there(level: str, tmp_path) -> None:
    with pytest.raises((ContainmentError, UsageError), match=r"nothing is run|no sandbox level"):
        run_at(level, ("/bin/touch", str(tmp_path / "ran")), Confinement())
    assert not (tmp_path / "ran").exists()
