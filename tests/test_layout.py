"""The layout of the tests: each long module has a test file of the same name."""

from paths import ROOT

PACKAGE, TESTS = ROOT / "src" / "caloric", ROOT / "tests"
LONG = 100  # lines
# Long modules without a test file of the same name, with the reason.
EXCEPTIONS: dict[str, str] = {}


def untested(package, tests):
    """Return the long modules of a package without a test file of the same name."""
    return {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path.stem != "__init__"
        and len(path.read_text("utf-8").splitlines()) > LONG
        and not (tests / path.relative_to(package).parent / f"test_{path.stem}.py").exists()
    }


def test_long_modules_have_a_test_file_of_the_same_name():
    assert untested(PACKAGE, TESTS) == set(EXCEPTIONS)


def test_a_module_without_a_test_file_is_detected(tmp_path):
    package, tests = tmp_path / "package", tmp_path / "tests"
    for directory in (package / "part", tests / "part"):
        directory.mkdir(parents=True)
    for name in ("tested", "untested", "__init__"):
        (package / "part" / f"{name}.py").write_text("pass\n" * (LONG + 1))
    (package / "part" / "short.py").write_text("pass\n" * LONG)
    (tests / "part" / "test_tested.py").touch()
    (tests / "test_untested.py").touch()  # in another directory
    assert untested(package, tests) == {"part/untested.py"}
