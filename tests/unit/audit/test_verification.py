import pytest

from redrive.audit.verification import (
    Check,
    find_check,
    has_passed,
    is_source_file,
    is_test_file,
)

TEST, TYPES, LINT, BUILD = Check.TEST, Check.TYPES, Check.LINT, Check.BUILD


@pytest.mark.parametrize(
    ("command", "check"),
    [
        ("pytest", TEST),
        ("pytest -q | tail -5", TEST),
        ("cd app && PYTHONPATH=. timeout 60 .venv/bin/pytest -x", TEST),
        ("bash -lc 'pytest -q'", TEST),
        ("python -m pytest tests", TEST),
        ("python3.12 -W error -B -m unittest", TEST),
        ("python tests/test_x.py", TEST),
        ("python manage.py test app", TEST),
        ("./run_tests.sh", TEST),
        ("bash scripts/test.sh", TEST),
        ("node --test", TEST),
        ("node tests/test-all.js", TEST),
        ("uv run pytest", TEST),
        ("uv run -m pytest", TEST),
        ("coverage run -m pytest", TEST),
        ("npx --yes vitest run", TEST),
        ("bundle exec rspec", TEST),
        ("npm test", TEST),
        ("npm run test:unit", TEST),
        ("pnpm -r test", TEST),
        ("bun test", TEST),
        ("go test ./...", TEST),
        ("cargo test --all", TEST),
        ("./gradlew :app:test", TEST),
        ("mvn -q verify", TEST),
        ("make test", TEST),
        ("mypy src", TYPES),
        ("npx tsc --noEmit", TYPES),
        ("cargo check", TYPES),
        ("ruff check .", LINT),
        ("npm run lint", LINT),
        ("go vet ./...", LINT),
        ("npm run build", BUILD),
        ("make all", BUILD),
        ("ruff check . && pytest", TEST),
    ],
)
def test_a_command_that_checks_is_told_by_its_program(command, check):
    assert find_check(command) is check


@pytest.mark.parametrize(
    "command",
    [
        "",
        "cat latest.txt",
        "python contest.py",
        "python latest.py",
        "grep -rn pytest .",
        "pip install pytest",
        "python -m pip install pytest",
        "python -c 'import pytest'",
        "python -",
        "python",
        "uv pip install pytest",
        "uv",
        "pytest --version",
        "pytest --collect-only",
        "which pytest",
        "echo pytest",
        "git commit -m 'pytest'",
        "cat > notes <<'EOF'\npytest\nEOF",
        "npm install --save-dev jest",
        "npm",
        "bash",
        "bash deploy.sh",
        "test -f pytest",
        "node server.js",
    ],
)
def test_a_command_that_only_names_one_checks_nothing(command):
    assert find_check(command) is None


@pytest.mark.parametrize(
    "output",
    [
        "",
        "5 passed in 0.1s",
        "test result: ok. 5 passed; 0 failed; 0 ignored",
        "3 examples, 0 failures",
        "Tests run: 3, Failures: 0, Errors: 0",
        "Found 0 errors",
        "# pass 3\n# fail 0",
        "Failed: 0, Passed: 2",
    ],
)
def test_an_output_without_a_failure_passed(output):
    assert has_passed(output, is_ok=True, exit_code=0)
    assert has_passed(output, is_ok=True, exit_code=None)


@pytest.mark.parametrize(
    "output",
    [
        "==== 3 failed, 2 passed in 1.2s ====",
        "FAILED tests/test_x.py::test_a - assert 0",
        "E   AssertionError",
        "test result: FAILED. 1 passed; 1 failed",
        "FAIL\texample/app\t0.1s",
        "Tests: 1 failed, 3 passed",
        "2 failing",
        "FAILURES!\nTests: 3, Assertions: 3, Failures: 1.",
        "[ERROR] Tests run: 3, Failures: 0, Errors: 2",
        "[INFO] BUILD FAILURE",
        "Failed!  - Failed:     1, Passed:     2",
        "** TEST FAILED **",
        "1..2\nok 1\nnot ok 2 - adds",
        "# pass 1\n# fail 2",
        " 2 pass\n 1 fail",
        "Found 2 errors in 1 file",
        "src/a.ts(1,1): error TS2322: no",
        "error[E0308]: mismatched types",
        "make: *** [test] Error 1",
        "Traceback (most recent call last):",
        "npm ERR! code 1",
        "no tests ran in 0.01s",
        "collected 0 items",
        "Ran 0 tests in 0.000s",
        "bash: pytest: command not found",
        "/usr/bin/python: No module named pytest",
    ],
)
def test_an_output_with_a_failure_did_not_pass_whatever_the_exit_code(output):
    assert not has_passed(output, is_ok=True, exit_code=0)


def test_an_error_and_an_exit_code_are_no_pass():
    assert not has_passed("5 passed", is_ok=False, exit_code=0)
    assert not has_passed("5 passed", is_ok=True, exit_code=1)


def test_only_the_end_of_an_output_is_read():
    assert has_passed("3 failed\n" + "x" * 9000 + "\n5 passed", is_ok=True, exit_code=0)


@pytest.mark.parametrize(
    "path",
    [
        "test_x.py",
        "x_test.go",
        "a.spec.ts",
        "app.test.tsx",
        "FooTest.java",
        "FooTests.cs",
        "TestFoo.java",
        "tests/helpers.py",
        "src/__tests__/a.js",
        "spec\\models\\a.rb",
        "conftest.py",
        "e2e/login.cy.ts",
    ],
)
def test_code_that_tests_is_told_by_its_name_or_folder(path):
    assert is_test_file(path)


@pytest.mark.parametrize(
    "path",
    [
        "latest.txt",
        "tests/latest.txt",
        "latest.py",
        "contest.py",
        "Contest.java",
        "attest.go",
        "src/testament.py",
        "greatest/hits.py",
        "README.md",
        "",
    ],
)
def test_other_files_are_no_tests(path):
    assert not is_test_file(path)


def test_documents_and_data_are_no_code():
    assert is_source_file("src/a.py")
    assert is_source_file("A.JAVA")
    assert not any(map(is_source_file, ("README.md", "data.json", "Makefile", "")))
