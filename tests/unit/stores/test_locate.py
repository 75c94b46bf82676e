"""Where the store lies, by precedence."""

from collections.abc import Callable
from pathlib import Path

import pytest

from redrive.errors import StoreError, UsageError
from redrive.stores.locate import find_cwd, find_home, locate_store, store_exists

HOME = Path("/Users/someone")


def at(folder: Path) -> Callable[[], Path]:
    """A way to find a folder."""
    return lambda: folder


def nowhere() -> Path:
    """A folder that must not be asked for."""
    raise AssertionError("asked for a folder that is not needed")


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    (tmp_path / ".redrive").mkdir()
    (tmp_path / ".redrive" / "store.db").touch()
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    return deep


def test_the_option_wins_over_everything(nested: Path) -> None:
    assert locate_store("x.db", {"REDRIVE_STORE": "/y.db"}, at(nested), at(HOME)) == nested / "x.db"


def test_the_variable_wins_over_the_nearest_folder(nested: Path) -> None:
    assert locate_store(None, {"REDRIVE_STORE": "/y.db"}, at(nested), at(HOME)) == Path("/y.db")


def test_the_nearest_folder_upwards_wins_over_the_users(nested: Path) -> None:
    found = locate_store(None, {"REDRIVE_STORE": ""}, at(nested), at(HOME))
    assert found == nested.parent.parent / ".redrive" / "store.db"


def test_a_nearer_folder_without_a_store_does_not_count(nested: Path) -> None:
    (nested / ".redrive").mkdir()
    assert locate_store(None, {}, at(nested), at(HOME)).parent.parent == nested.parent.parent


def test_a_tilde_is_the_home_folder(tmp_path: Path) -> None:
    assert locate_store("~/s.db", {}, at(tmp_path), at(HOME)) == HOME / "s.db"


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
    assert locate_store(None, env, at(tmp_path), at(HOME), platform=platform) == expected


def test_an_empty_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--store is empty"):
        locate_store("", {}, at(tmp_path), at(HOME))


def test_folders_that_are_not_needed_are_not_asked_for(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    assert locate_store(store, {}, nowhere, nowhere) == tmp_path / "s.db"
    assert locate_store(None, {"REDRIVE_STORE": store}, nowhere, nowhere) == tmp_path / "s.db"
    found = locate_store(None, {"XDG_DATA_HOME": "/data"}, at(tmp_path), nowhere, platform="linux")
    assert found == Path("/data/redrive/store.db")


def test_a_user_without_a_home_folder_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    with pytest.raises(UsageError, match="no home folder") as caught:
        find_home()
    assert "--store" in caught.value.hint
    monkeypatch.undo()
    monkeypatch.setenv("HOME", "")
    with pytest.raises(UsageError, match="HOME is empty"):
        find_home()
    monkeypatch.setenv("HOME", "/Users/someone")
    assert find_home() == HOME


def test_a_current_folder_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(Path, "cwd", fail)
    with pytest.raises(UsageError, match="no longer exists"):
        find_cwd()


def test_a_place_that_cannot_be_looked_up_is_a_store_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not store_exists(tmp_path / "s.db")
    assert store_exists(tmp_path)

    def fail(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", fail)
    with pytest.raises(StoreError, match="Permission denied"):
        store_exists(tmp_path / "s.db")
