from redrive.compare.views import view_replayed
from redrive.record.signature import EMPTY_TEXT, DecisionSignature
from redrive.replay.exchange import ReplayedDecision
from redrive.replay.recorded import DecisionForm


def test_a_replayed_decision_that_equals_the_record_keeps_no_reply_to_show():
    signature = DecisionSignature(EMPTY_TEXT, (), is_final=True)
    decision = ReplayedDecision(1, signature, DecisionForm(EMPTY_TEXT), is_rebuilt=False)
    shown = view_replayed(decision)
    assert (shown.text, shown.calls, shown.is_final) == ("", (), True)
