"""Single shapes of history; random ones are in tests/property/test_policy_folding.py."""

from redrive.record.event import Kind, ModelResponse, ToolCall, ToolResult, UserMessage
from redrive.record.places import build_places
from redrive.record.session import build_index
from redrive.replay.folding import build_plan
from tests.policy_sessions import make_event

USER = (Kind.USER_MESSAGE, UserMessage("u"))
ANSWER = (Kind.MODEL_RESPONSE, ModelResponse("a"))
CALL = (Kind.TOOL_CALL, ToolCall("t"))
RESULT = (Kind.TOOL_RESULT, ToolResult())


def plan(*shapes):
    """Plan nodes given as (kind and payload, parent's number, further fields)."""
    events = [
        make_event(seq, *part, parent_id=None if parent is None else f"n{parent}", **fields)
        for seq, (part, parent, fields) in enumerate(shapes)
    ]
    return build_plan(build_places(build_index("s", lambda: events)))


def before(made, seq):
    """List the seqs folded before one."""
    (stage,) = [n for n, seqs in enumerate(made.stages) if seq in seqs]
    found = list(made.stages[stage])[: list(made.stages[stage]).index(seq)]
    while (stage := made.parents[stage]) >= 0:
        found = [*made.stages[stage], *found]
    return found


def test_below_a_piece_beside_the_first_one_lies_the_whole_decision():
    piece = {"group": "g"}
    made = plan((USER, None, {}), (CALL, 0, piece), (CALL, 0, piece), (USER, 2, {}))
    assert before(made, 3) == [0, 1, 2]


def test_a_result_aside_lies_on_every_path_through_its_decision():
    made = plan((USER, None, {}), (CALL, 0, {}), (RESULT, 1, {}), (RESULT, 1, {}), (USER, 2, {}))
    assert before(made, 4) == [0, 1, 2, 3]
    assert list(made.seqs()) == [0, 1, 2, 3, 4]


def test_a_rewind_leaves_the_other_branch_out():
    made = plan((USER, None, {}), (ANSWER, 0, {}), (USER, 1, {}), (USER, 0, {}))
    assert before(made, 3) == [0]
    assert before(made, 2) == [0, 1]


def test_the_main_path_passes_over_a_sub_agent_whose_own_path_begins_with_itself():
    sub = {"actor": "ag"}
    shapes = (USER, None, {}), (CALL, 0, {}), (USER, 1, sub), (ANSWER, 2, sub)
    made = plan(*shapes, (RESULT, 3, {}), (USER, 3, {}))
    assert before(made, 3) == [2]
    assert before(made, 4) == [0, 1]
    assert before(made, 5) == [0, 1, 4]


def test_pieces_far_apart_stay_one_decision_however_many_there_are():
    """Each piece lies below a user message below the piece before: asked in O(log n) each."""
    shapes = [(CALL, None, {"group": "g"})]
    for number in range(0, 600, 2):
        shapes += [(USER, number, {}), (CALL, number + 1, {"group": "g"})]
    made = plan(*shapes, (USER, 600, {}))
    assert before(made, 601) == [*range(0, 601, 2), *range(1, 600, 2)]


def test_the_last_answer_of_a_turn_ends_it():
    made = plan((USER, None, {}), (ANSWER, 0, {}), (USER, 1, {}), (ANSWER, 2, {}), (CALL, 3, {}))
    assert list(made.ends) == [-1, 1, -1, -1, -1]
