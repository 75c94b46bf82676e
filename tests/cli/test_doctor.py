"""What `doctor` says of an installation."""


def test_a_healthy_installation_is_ok(redrive, cases):
    done = redrive("doctor")
    assert done.code == 0
    assert "not made yet" in done.out
    redrive.imported(cases / "25-polled-identical-calls/session.jsonl")
    document = redrive.json("doctor")
    assert document["ok"] is True
    findings = {finding["what"]: finding for finding in document["findings"]}
    assert findings["store"]["detail"].endswith(": 1 session")
    for name in ("claude_code", "codex", "interchange", "openinference", "otel_genai"):
        assert findings[f"redrive.importers {name}"]["is_ok"]
    assert findings["redrive.renderers json@1"]["is_ok"]
    assert findings["local model"]["is_optional"]


def test_a_broken_store_is_named(redrive):
    redrive.store.write_bytes(b"not a database at all" * 100)
    done = redrive("doctor")
    assert done.code == 6
    assert "FAIL  store" in done.out
    assert redrive.json("doctor", code=6)["ok"] is False


def test_each_level_of_the_sandbox_is_shown_with_its_proofs(redrive):
    document = redrive.json("doctor")
    sandbox = document["sandbox"]
    assert list(sandbox["levels"]) == ["bubblewrap", "landlock"]
    proven = [name for name, level in sandbox["levels"].items() if level["is_proven"]]
    assert sandbox["level"] == (proven or ["none"])[0]
    findings = {finding["what"]: finding for finding in document["findings"]}
    for name, level in sandbox["levels"].items():
        finding = findings[f"sandbox {name}"]
        assert finding["is_ok"] is level["is_proven"]
        for word in (*level["missing"], *(proof["what"] for proof in level["proofs"])):
            assert word in finding["detail"] or not level["is_proven"]


def test_without_bubblewrap_the_next_level_is_named(redrive, monkeypatch, tmp_path):
    full = redrive.json("doctor")["sandbox"]
    monkeypatch.setenv("PATH", str(tmp_path))
    found = redrive.json("doctor")["sandbox"]
    assert found["levels"]["bubblewrap"]["reason"] == "there is no bubblewrap here"
    has_landlock = full["levels"]["landlock"]["is_proven"]
    assert found["level"] == ("landlock" if has_landlock else "none")
