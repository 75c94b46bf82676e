from redrive.audit.gaps import make_gap
from redrive.audit.manifest import CLASSES, Manifest, fill_manifest, sum_manifests
from tests.helpers_sessions import SessionBuilder


def test_a_step_without_a_gap_has_the_manifest_of_the_session() -> None:
    whole = Manifest(environment="captured")
    assert fill_manifest(whole, ()) is whole


def test_a_gap_marks_its_class() -> None:
    gaps = [
        make_gap("nothing_sent", "request"),
        make_gap("missing_result", "c1", tool="t"),
        make_gap("no_seed", "seed"),
        make_gap("clock_not_captured", "clock", state="unknown"),
        make_gap("prng_not_captured", "prng", state="not captured"),
        make_gap("environment_differs", "python"),
        make_gap("environment_unknown", "environment"),
    ]
    assert fill_manifest(Manifest(), gaps) == Manifest(
        context="not_captured",
        tool_results="not_captured",
        sampling="not_captured",
        clock="unknown",
        prng="not_captured",
        environment="not_captured",
    )


def test_what_is_known_to_be_missing_outweighs_what_is_unknown() -> None:
    gaps = [
        make_gap("missing_clock_value", "now", name="now"),
        make_gap("clock_not_captured", "clock", state="unknown"),
    ]
    for order in (gaps, gaps[::-1]):
        assert fill_manifest(Manifest(), order).clock == "not_captured"


def test_states_are_summed_over_steps() -> None:
    counts = sum_manifests([Manifest(), Manifest(clock="unknown", environment="captured")])
    assert counts["clock"] == {"captured": 1, "not_captured": 0, "unknown": 1}
    assert counts["environment"] == {"captured": 1, "not_captured": 0, "unknown": 1}
    assert tuple(counts) == CLASSES


def test_an_audit_carries_a_manifest_per_step_and_its_sum() -> None:
    report = SessionBuilder().decision().read("prng", "jitter").decision().audit()
    assert [step.provenance.prng for step in report.steps] == ["not_captured", "captured"]
    assert report.provenance["prng"] == {"captured": 1, "not_captured": 1, "unknown": 0}
