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
