"""Single attacks: each test that has the mark `row` is one, of a section and a row of its table.

`python -m tests.attacks.rows` makes all of them, and prints how many were survived; options are
pytest's, such as -n 2, -v or -k words. `--by-row` prints the rows as well.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# How many attacks a section has at least.
SECTIONS = {
    "npz": 227,
    "store": 114,
    "runs": 64,
    "recipes, CSV": 131,
    "HLO": 32,
    "trust, numerics": 13,
}
# Tests of other rooms that are attacks of the last section as well, by what they attack.
ELSEWHERE = {
    "a run's record joined: a name in it is executed": (
        "sessions/test_earlier_runs.py::test_a_name_in_somebody_elses_record_is_never_executed",
    ),
    "links inside somebody's run": (
        "sessions/test_earlier_runs.py::test_links_in_somebody_elses_run_are_not_followed",
    ),
    "the kind of a model: imported by its name": (
        "serving/test_hostile.py::test_a_kind_that_is_not_in_the_table",
    ),
    "unpacking downloads": (
        "kaggle/test_archive.py::test_an_archive_that_is_not_to_be_trusted_is_refused",
        "kaggle/test_archive.py::test_a_bomb_that_lies_about_its_size_is_refused",
        "kaggle/test_archive.py::test_a_link_that_lies_in_the_way_is_not_followed",
    ),
    "permissions": ("system/test_files.py::test_the_umask_says_who_may_read_what_is_written",),
    "folders inside a folder that is renamed: synced": (
        "system/test_files.py::test_a_folder_is_synced_with_all_folders_in_it",
    ),
    "properties: Kendall's tau, top-k": (
        "domain/test_metrics.py::test_kendall_tau_is_brute_force",
        "domain/test_metrics.py::test_top_k_is_brute_force",
    ),
    "properties: ListMLE, ordered pairs": (
        "models/nets/test_losses.py::test_list_mle_is_the_likelihood_of_the_order",
        "models/nets/test_losses.py::test_pairwise_hinge_is_the_mean_over_ordered_pairs",
    ),
    "properties: mean rank, order of rows, ratios of weights, monotone changes": (
        "ensembles/test_rank_average.py::test_ranks_are_those_of_brute_force",
        "ensembles/test_rank_average.py::test_the_order_of_the_rows_does_not_matter",
        "ensembles/test_rank_average.py::test_only_the_ratios_of_weights_matter",
        "ensembles/test_rank_average.py::test_a_monotone_change_inside_a_graph_changes_nothing",
        "ensembles/test_methods.py::test_a_monotone_change_inside_a_graph_changes_no_rank_method",
        "ensembles/test_methods.py::test_the_merge_is_that_of_brute_force",
    ),
    "properties: padding of transposes": (
        "features/test_padding.py::test_repairing_twice_is_repairing_once",
        "features/test_padding.py::test_only_zeros_become_padding_and_only_at_the_end_of_a_list",
    ),
}
ROWS_ELSEWHERE = {name: words for words, names in ELSEWHERE.items() for name in names}
LAST = "trust, numerics"
ROW, BY_ROW = "row", "--by-row"
Outcome = tuple[str, str, str]  # section, row, what became of one attack


def mark_row(section: str, words: str) -> pytest.MarkDecorator:
    """An attack of this section; `words` say what is done."""
    assert section in SECTIONS
    return pytest.mark.row(section, words)


def of(section: str) -> Callable[[str], pytest.MarkDecorator]:
    """`mark_row` of one section."""
    return partial(mark_row, section)


def tabulate(outcomes: Iterable[Outcome], *, by_row: bool = False) -> str:
    """A line a section: attacks, survived; with `by_row` one for each of its rows, too."""
    made, survived = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for section, words, outcome in outcomes:
        for key in ((section, words), (section, ""), ("all", "")):
            made[key] += 1
            survived[key] += outcome == "passed"
    lines = [f"{'section':18}{'at least':>10}{'attacks':>10}{'survived':>10}"]
    for section, least in {**SECTIONS, "all": sum(SECTIONS.values())}.items():
        rows = sorted(words for name, words in made if name == section and words)
        for words in ["", *rows] if by_row else [""]:
            key = section, words
            first = f"{'':28}" if words else f"{section:18}{least:>10}"
            lines.append(f"{first}{made[key]:>10}{survived[key]:>10}  {words}".rstrip())
    return "\n".join(lines)


def name_attack(item: pytest.Item) -> None:
    """Let the report of a test say which attack it was, in whatever process it is made."""
    name = item.path.relative_to(TESTS).as_posix() + "::" + item.name.partition("[")[0]
    if name in ROWS_ELSEWHERE:
        item.add_marker(mark_row(LAST, ROWS_ELSEWHERE[name]))
    for mark in item.iter_markers(ROW):
        item.user_properties.append((ROW, list(mark.args)))


def list_outcomes(reporter: pytest.TerminalReporter) -> list[Outcome]:
    """What became of the attacks that were made; of those that are only listed, nothing did."""
    if reporter.config.option.collectonly:
        assert reporter._session is not None
        own = [item.user_properties for item in reporter._session.items]
        return [(*words, "") for properties in own for name, words in properties if name == ROW]
    return [
        (section, words, outcome)
        for outcome in ("passed", "failed", "error", "skipped")
        for report in reporter.stats.get(outcome, ())
        if isinstance(report, pytest.TestReport)  # a file that cannot be read has none
        for name, (section, words) in report.user_properties
        if name == ROW
    ]


if __name__ == "__main__":
    places = [str(TESTS / place) for place in ("attacks", *ROWS_ELSEWHERE)]
    sys.exit(pytest.main([*places, "-q", "-m", ROW, *sys.argv[1:]]))
