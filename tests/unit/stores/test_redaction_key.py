import stat
import sys
from pathlib import Path

import pytest

from redrive.errors import StoreError, UsageError
from redrive.stores import redaction_key
from redrive.stores.redaction_key import KEY_BYTES, load_key, locate_key


def no_home():
    raise UsageError("this user has no home folder")


@pytest.fixture
def home(tmp_path):
    return lambda: tmp_path


def test_the_key_is_made_once_for_its_user_alone(home, tmp_path):
    first = load_key({}, home, platform="linux")
    path = tmp_path / ".config" / "redrive" / "redaction.key"
    assert first.key == path.read_bytes()
    assert len(first.key) == KEY_BYTES
    assert first.problem == ""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_key({}, home, platform="linux") == first
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("platform", "env", "wanted"),
    [
        ("linux", {}, ".config/redrive/redaction.key"),
        ("linux", {"XDG_CONFIG_HOME": "relative"}, ".config/redrive/redaction.key"),
        ("darwin", {}, "Library/Application Support/redrive/redaction.key"),
        ("win32", {}, "AppData/Roaming/redrive/redaction.key"),
    ],
)
def test_the_key_lies_among_the_users_settings(home, tmp_path, platform, env, wanted):
    assert locate_key(env, home, platform) == tmp_path / wanted


def test_the_environment_names_another_place(home, tmp_path):
    named = str(tmp_path / "k")
    assert locate_key({"REDRIVE_REDACTION_KEY_FILE": named}, no_home, "linux") == Path(named)
    assert locate_key({"XDG_CONFIG_HOME": named}, no_home, "linux").parts[-3] == "k"
    assert locate_key({"APPDATA": named}, no_home, "win32").parts[-3] == "k"


@pytest.mark.skipif(sys.platform == "win32", reason="modes are those of POSIX")
def test_a_key_that_others_may_read_is_refused(home, tmp_path):
    path = tmp_path / "k"
    path.write_bytes(b"k" * KEY_BYTES)
    path.chmod(0o640)
    with pytest.raises(StoreError, match="mode 0640") as refused:
        load_key({"REDRIVE_REDACTION_KEY_FILE": str(path)}, home)
    assert "chmod 600" in refused.value.hint


@pytest.mark.parametrize(("size", "said"), [(0, "0 bytes"), (31, "31 bytes"), (33, "more than 32")])
def test_a_key_of_another_length_is_refused(home, tmp_path, size, said):
    path = tmp_path / "k"
    path.write_bytes(b"k" * size)
    path.chmod(0o600)
    with pytest.raises(StoreError, match=said) as refused:
        load_key({"REDRIVE_REDACTION_KEY_FILE": str(path)}, home)
    assert "REDRIVE_REDACTION_KEY_FILE" in refused.value.hint


def test_a_folder_in_the_keys_place_is_refused(home, tmp_path):
    with pytest.raises(StoreError):
        load_key({"REDRIVE_REDACTION_KEY_FILE": str(tmp_path)}, home)


def test_where_no_key_can_be_stored_one_serves_the_process(monkeypatch, home, tmp_path):
    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(redaction_key, "_make", refuse)
    first, second = (load_key({}, home, platform="linux") for _ in range(2))
    assert "Read-only file system" in first.problem
    assert first.key != second.key
    assert "no home" in load_key({}, no_home, platform="linux").problem


def test_the_key_that_another_process_made_first_is_kept(home, tmp_path):
    path = tmp_path / "k"
    load_key({"REDRIVE_REDACTION_KEY_FILE": str(path)}, home)
    before = path.read_bytes()
    redaction_key._make(path)
    assert path.read_bytes() == before
