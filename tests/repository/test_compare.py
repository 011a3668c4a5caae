"""benchmarks/compare.py and the ratios that the benchmarks share."""

import subprocess

import pytest

from benchmarks.compare import ALL, COMPARED, ROOT, compare, find_version
from benchmarks.measure import Ratio, Verdict, find_ratio


def test_the_interval_of_five_pairs_is_from_the_lowest_to_the_highest_ratio():
    pairs = [(2.0, 1.0), (3.0, 1.0), (4.0, 2.0), (1.0, 1.0), (9.0, 2.0)]
    assert find_ratio(pairs) == Ratio(2.0, 1.0, 4.5)


def test_of_many_pairs_one_that_was_disturbed_is_not_in_the_interval():
    pairs = [(1.0 + number / 100, 1.0) for number in range(11)] + [(50.0, 1.0)]
    ratio = find_ratio(pairs)
    assert ratio.low < ratio.median < ratio.high < 2


def test_a_limit_is_about_the_median_and_one_that_does_not_hold_is_remembered(capsys):
    verdict = Verdict()
    verdict.check("a round", Ratio(2.0, 1.0, 3.0), 1.5)
    verdict.check("a turn", Ratio(1.0, 0.9, 1.1), 1.5)
    assert verdict.end() == 1
    assert "a round" in capsys.readouterr().out.partition("DOES NOT HOLD")[0]


def test_every_benchmark_that_is_named_is_there():
    assert all((ROOT / f"benchmarks/{name}.py").is_file() for name in [*ALL, *COMPARED])


def test_two_versions_are_run_by_turns_and_told_by_their_ratio(capsys, monkeypatch):
    monkeypatch.setitem(COMPARED, "loop", ["--rounds", "500"])
    here = find_version(str(ROOT))
    compare("loop", here, here, pairs=1)
    shown = capsys.readouterr().out
    assert "loop: a round of 500" in shown
    assert "peak memory after 500 rounds" in shown


def test_a_commit_that_does_not_exist_is_an_error():
    with pytest.raises(subprocess.CalledProcessError, match="rev-parse"):
        find_version("no-such-commit")
