from redrive import errors, trial


def test_what_a_workflow_file_imports_is_what_the_face_lists() -> None:
    assert trial.__all__ == sorted(trial.__all__)
    assert all(hasattr(trial, name) for name in trial.__all__)


def test_the_denial_is_the_one_that_no_except_exception_catches() -> None:
    assert trial.EffectDenied is errors.EffectDenied
    assert not issubclass(trial.EffectDenied, Exception)
