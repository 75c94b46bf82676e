"""Where the store lies, by precedence."""

from pathlib import Path

import pytest

from redrive.errors import UsageError
from redrive.stores.locate import locate_store

HOME = Path("/home/someone")


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    (tmp_path / ".redrive").mkdir()
    (tmp_path / ".redrive" / "store.db").touch()
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    return deep


def test_the_option_wins_over_everything(nested: Path) -> None:
    assert locate_store("x.db", {"REDRIVE_STORE": "/y.db"}, nested, HOME) == nested / "x.db"


def test_the_variable_wins_over_the_nearest_folder(nested: Path) -> None:
    assert locate_store(None, {"REDRIVE_STORE": "/y.db"}, nested, HOME) == Path("/y.db")


def test_the_nearest_folder_upwards_wins_over_the_users(nested: Path) -> None:
    found = locate_store(None, {"REDRIVE_STORE": ""}, nested, HOME)
    assert found == nested.parent.parent / ".redrive" / "store.db"


def test_a_nearer_folder_without_a_store_does_not_count(nested: Path) -> None:
    (nested / ".redrive").mkdir()
    assert locate_store(None, {}, nested, HOME).parent.parent == nested.parent.parent


def test_a_tilde_is_the_home_folder(tmp_path: Path) -> None:
    assert locate_store("~/s.db", {}, tmp_path, HOME) == HOME / "s.db"


@pytest.mark.parametrize(
    ("platform", "env", "expected"),
    [
        ("linux", {}, HOME / ".local/share/redrive/store.db"),
        ("linux", {"XDG_DATA_HOME": "/data"}, Path("/data/redrive/store.db")),
        ("linux", {"XDG_DATA_HOME": "relative"}, HOME / ".local/share/redrive/store.db"),
        ("darwin", {}, HOME / "Library/Application Support/redrive/store.db"),
        ("win32", {}, HOME / "AppData/Local/redrive/store.db"),
        ("win32", {"LOCALAPPDATA": "/local"}, Path("/local/redrive/store.db")),
    ],
)
def test_without_any_the_users_data_folder_is_taken(
    tmp_path: Path, platform: str, env: dict[str, str], expected: Path
) -> None:
    assert locate_store(None, env, tmp_path, HOME, platform=platform) == expected


def test_an_empty_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--store is empty"):
        locate_store("", {}, tmp_path, HOME)
