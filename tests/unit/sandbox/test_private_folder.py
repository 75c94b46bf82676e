import os

from redrive.sandbox.private_folder import locked, open_private_folder, sweep


def test_a_private_folder_is_its_owners_alone_and_is_removed_with_what_is_in_it():
    with open_private_folder("redrive-test-") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "a" / "b").mkdir(parents=True)
    assert not folder.exists()


def test_folders_that_a_killed_run_left_behind_are_removed_and_no_others(tmp_path):
    for name in ("redrive-test-left", "redrive-test-used", "redrive-run-other"):
        (tmp_path / name / "deep").mkdir(parents=True)
    sweep(str(tmp_path), "redrive-test-")
    assert len(os.listdir(tmp_path)) == 3
    with locked(str(tmp_path / "redrive-test-used")):
        sweep(str(tmp_path), "redrive-test-", left_s=-60.0)
    assert sorted(os.listdir(tmp_path)) == ["redrive-run-other", "redrive-test-used"]
