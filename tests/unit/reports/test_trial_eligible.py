from redrive.audit.eligibility import Refusal
from redrive.reports.trial_eligible import EligibleView, ReachedTool, eligible_lines

LOOK = ReachedTool("look", "pure", ("wf@1", "look"), "python", refused=False, simulated=False)
PUSH = ReachedTool(
    *("push", "unsafe", ("wf@1", "exec", "push"), "mcp:x"),
    refused=True,
    simulated=False,
    grants={"network": ("a:1", "b:2"), "secrets": ("KEY",)},
    hints={"readOnlyHint": True},
)


def view(*tools: ReachedTool, **more: object) -> EligibleView:
    fields = {
        "workflow": "wf@1",
        "eligible": True,
        "refusals": (),
        "tools": tools,
        "simulated": (),
        "kind": "python",
        "source": "wf.py:x",
        "digest": None,
        "isolation": "bubblewrap",
    }
    return EligibleView(**(fields | more))  # type: ignore[arg-type]


def test_every_tool_is_a_row_and_every_refusal_has_its_chain() -> None:
    refusal = Refusal("push", "unsafe", ("wf@1", "exec", "push"), "declared unsafe")
    assert list(eligible_lines(view(LOOK, PUSH, eligible=False, refusals=(refusal,)))) == [
        "wf@1  NOT ELIGIBLE",
        "  python, wf.py:x; isolation here: bubblewrap",
        "",
        "  tool  effect           chain               grants",
        "  look  pure             wf@1 → look",
        "  push  unsafe  refused  wf@1 → exec → push  "
        "network a:1, b:2; secrets KEY; hints (not believed): readOnlyHint=True",
        "",
        "1 refusal; no run was started",
        "  push  unsafe: declared unsafe",
        "      wf@1 → exec → push",
    ]


def test_a_column_without_a_word_is_left_out_and_simulated_ones_are_said() -> None:
    assert list(eligible_lines(view(LOOK)))[3] == "  tool  effect  chain"
    fake = ReachedTool("push", "unsafe", ("wf@1", "push"), "python", refused=False, simulated=True)
    lines = list(eligible_lines(view(fake, simulated=("push",))))
    assert "simulated  wf@1 → push" in lines[4]
    assert lines[-1] == "simulated, and so is all that rests on it: push"
    assert list(eligible_lines(view()))[-1] == "  it reaches no declared tool"


def test_names_from_a_user_s_code_cannot_move_the_terminal() -> None:
    evil = "a\x1b[2J\nb"
    refusal = Refusal(evil, "undeclared", ("wf@1", evil), evil)
    lines = list(eligible_lines(view(source=evil, eligible=False, refusals=(refusal,))))
    assert all(line.isprintable() for line in lines)
