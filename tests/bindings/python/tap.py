# SPDX-License-Identifier: GPL-2.0-only
"""Run the tests of a module, or those whose names contain a word, and print TAP."""
import sys
import traceback
import unittest
from types import TracebackType
from typing import Any

_Error = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


class _Tap(unittest.TestResult):
    """Prints a line for each test, and the errors of it and of its parts."""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._texts: list[str] = []

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        name = test.id().removeprefix("__main__.")
        print("not ok" if self._texts else "ok", self.testsRun, name, flush=True)
        for line in "\n".join(self._texts).splitlines():
            print(f"# {line}", flush=True)

    def _failed(self, error: _Error) -> None:
        self._texts.append("".join(traceback.format_exception(error[1])))

    def addError(self, test: unittest.TestCase, err: _Error) -> None:
        super().addError(test, err)
        self._failed(err)

    def addFailure(self, test: unittest.TestCase, err: _Error) -> None:
        super().addFailure(test, err)
        self._failed(err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err:
            self._texts.append(str(subtest))
            self._failed(err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._texts.append(f"skipped: {reason}")


def _tests(suite: unittest.TestSuite, words: list[str]) -> list[unittest.TestCase]:
    found = []
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            found += _tests(test, words)
        elif not words or any(word in test.id() for word in words):
            found.append(test)
    return found


def main() -> None:
    """Run the tests of __main__; exits with 1 if one failed."""
    tests = _tests(unittest.defaultTestLoader.loadTestsFromName("__main__"), sys.argv[1:])
    print(f"1..{len(tests)}")
    result = _Tap()
    unittest.TestSuite(tests).run(result)
    sys.exit(not result.wasSuccessful() or not tests or bool(result.skipped))
