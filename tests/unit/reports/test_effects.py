import msgspec

from redrive.reports.effects import effect_lines, totals_lines
from redrive.reports.views import AskedBy, EffectTotals, EffectView, Excerpt

HOSTILE = "\x1b[2J\n\u202e"
ENTRY = EffectView(
    seq=1,
    actor="main",
    category="command",
    tool="Bash",
    basis="table",
    status="ok",
    on_live_path=True,
    what=Excerpt("ls"),
)


def told(*entries):
    return "\n".join(effect_lines(entries))


def test_an_effect_says_what_when_who_and_why():
    asked = AskedBy("decision", 7, Excerpt("I list the files"))
    entry = msgspec.structs.replace(
        ENTRY,
        ts="T",
        step=3,
        exit_code=0,
        node_id="n",
        asked_by=asked,
        details=("in /tmp",),
        network_hints=("curl",),
        writing_hints=("rm", "> x"),
    )
    assert told(entry, entry).split("\n")[3:] == [
        "T  step 3  main  command  Bash  ok, exit 0  node n",
        "    $ ls",
        "    in /tmp",
        "    reaches the network: curl",
        "    changes files: rm, > x",
        "    asked by decision: I list the files",
        "",
        "T  step 3  main  command  Bash  ok, exit 0  node n",
        "    $ ls",
        "    in /tmp",
        "    reaches the network: curl",
        "    changes files: rm, > x",
        "    asked by: the same",
    ]


def test_what_is_not_as_usual_is_marked():
    text = told(
        msgspec.structs.replace(
            ENTRY,
            category="other",
            basis="undeclared",
            on_live_path=False,
            inherited=True,
            provider_side=True,
            what=Excerpt(""),
        )
    )
    assert (
        "[discarded path; copied from the parent session; run by the provider;"
        " undeclared tool, counts as unsafe]" in text
    )
    assert "no time recorded  before step 1" in text
    assert "(no arguments recorded)" in text
    assert "asked by: nothing recorded" in text


def test_nothing_from_a_recording_reaches_the_terminal_raw():
    text = told(
        msgspec.structs.replace(
            ENTRY,
            actor=HOSTILE,
            tool=HOSTILE,
            status=HOSTILE,
            node_id=HOSTILE,
            what=Excerpt(HOSTILE),
            details=(HOSTILE,),
            network_hints=(HOSTILE,),
            writing_hints=(HOSTILE,),
            asked_by=AskedBy("user", 1, Excerpt(HOSTILE)),
        )
    )
    assert not {"\x1b", "\u202e"} & set(text)
    assert len(text.split("\n")) == 9


def test_totals_say_what_was_left_out():
    totals = EffectTotals(
        {"command": 2, "approval": 1}, 1, 3, 2, 0, {"odd": 1, "": 1}, {"Read": 4}, 1
    )
    assert list(totals_lines(totals)) == [
        "",
        "Totals    2 commands, 1 approval",
        "          2 failed",
        "          1 on discarded paths",
        "          3 copied from the parent session, not run here",
        "Unsafe    undeclared tools: odd 1, (no name) 1",
        "Not shown only read: Read 4",
        "Judged by table of known tools, version 1",
    ]
    assert list(totals_lines(EffectTotals({}, 0, 0, 0, 0, {}, {}, 1)))[1] == "Totals    no effects"


def test_a_prompt_is_no_users_word():
    asked = AskedBy("agent", 1, Excerpt("look"))
    text = told(msgspec.structs.replace(ENTRY, asked_by=asked))
    assert "asked by the agent that started this flow: look" in text
