"""k covers the programs it promises to cover; nothing is promised where little is known."""

import dataclasses
import re

import numpy as np
import pytest

from solution.domain.codebook import encode
from solution.domain.graph import Graph
from solution.domain.vocabulary import OPTION_NAMES
from solution.serving.calibration import (
    FEW,
    Facts,
    Learned,
    Measure,
    check_promise,
    find_steps,
    learn,
    needed,
    quantile,
)
from solution.serving.calibration import measure as measure_learned
from solution.serving.record import Program
from solution.serving.words import describe_configs, list_layouts
from solution.system.errors import InputError
from tests.made.graphs import make_layout_graph


def make_programs(count: int, seed: int, *, graphs: int = 1, configs: int = 50) -> list[Program]:
    """Programs whose scores are their runtimes with noise."""
    generator = np.random.default_rng(seed)
    programs = []
    for number in range(count):
        nodes, noise = int(generator.integers(5, 500)), generator.uniform(0, 1)
        for size in range(graphs):
            runtimes = np.exp(generator.normal(0, 0.3, configs))
            scores = np.log(runtimes) + generator.normal(0, noise, configs)
            steps = find_steps(np.argsort(scores, kind="stable"), runtimes)
            programs.append(
                Program(
                    f"{seed}-{number}-{size}", f"{seed}-{number}", f"{seed}-{number}", "made",
                    nodes, 2 * nodes, nodes // 4, configs, steps, configs,
                )
            )  # fmt: skip
    return programs


def measure(facts: Facts, configs: int, programs: list[Program]) -> Measure:
    return measure_learned(facts, configs, Learned(programs))


def facts_of(program: Program) -> Facts:
    return Facts("other", program.nodes, program.edges, program.configurable)


@pytest.mark.parametrize("regret", [0.0, 0.02, 0.2])
def test_what_is_needed_is_what_a_search_finds(regret: float) -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        runtimes = generator.integers(10, 30, 20).astype(float)
        scores = generator.integers(0, 5, 20).astype(np.float32)
        ordered = runtimes[sorted(range(20), key=lambda config: (scores[config], config))]
        enough = (1 + regret) * runtimes.min() + 1e-9
        expected = next(k for k in range(1, 21) if ordered[:k].min() <= enough)
        steps = find_steps(np.argsort(scores, kind="stable"), runtimes)
        assert needed(steps, regret + 1e-12) == expected


def test_the_quantile_is_the_order_statistic_of_a_finite_sample() -> None:
    programs = make_programs(29, 0)
    ks = sorted(needed(program.steps, 0.02) for program in programs)
    for confidence in (0.5, 0.8, 0.9, 0.95):
        assert quantile(programs, 0.02, confidence) == ks[int(np.ceil(30 * confidence - 1e-9)) - 1]
    assert quantile(programs, 0.02, 0.97) is None
    assert quantile(programs[:8], 0.02, 0.9) is None
    assert quantile(programs[:9], 0.02, 0.9) == max(needed(p.steps, 0.02) for p in programs[:9])


@pytest.mark.parametrize("graphs", [1, 3])
def test_programs_of_folds_not_calibrated_on_are_covered(graphs: int) -> None:
    """Five folds, each covered by the k of the other four; many made collections, on average."""
    covered = []
    for seed in range(40):
        programs = make_programs(60, seed, graphs=graphs)
        names = sorted({program.group for program in programs})
        for fold in range(5):
            held = set(names[fold::5])
            k = quantile([p for p in programs if p.group not in held], 0.02, 0.9)
            assert k is not None
            covered += [needed(p.steps, 0.02) <= k for p in programs if p.group in held]
    assert 0.89 <= np.mean(covered) <= 0.95


def test_sizes_of_one_program_share_its_weight_even_if_folds_were_by_family() -> None:
    programs = [
        dataclasses.replace(program, group=f"family {number // 3 % 4}")
        for number, program in enumerate(make_programs(20, 0, graphs=3))
    ]
    alone = [dataclasses.replace(program, group=program.architecture) for program in programs]
    assert quantile(programs, 0.02, 0.9) == quantile(alone, 0.02, 0.9)
    facts = facts_of(programs[0])
    told = measure_learned(facts, 50, Learned(programs, by_family=True)).reason
    assert "20 programs" in told and "families" in told
    assert "families" not in measure(facts, 50, programs).reason


def test_an_unlike_program_is_abstained_from_in_words() -> None:
    programs = make_programs(30, 0)
    assert measure(facts_of(programs[3]), 50, programs).k is not None
    found = measure(Facts("other", 10**6, 10, 0), 50, programs)
    assert found.k is None and "those learned" in found.reason


def make_families(sizes: list[int], count: int = 10) -> list[Program]:
    """Programs of families; those of a family have about the family's size."""
    return [
        dataclasses.replace(program, group=f"family of {nodes}", nodes=nodes + number % count)
        for nodes in sizes
        for number, program in enumerate(make_programs(count, nodes))
    ]


def test_a_program_as_far_as_held_out_families_were_gets_a_number() -> None:
    """The models that ranked a family in calibration knew no program nearer than other families."""
    programs = [
        dataclasses.replace(program, edges=10, configurable=10)
        for program in make_families([1000, 10_000, 40_000])
    ]
    largest = max(program.nodes for program in programs)
    learned = Learned(programs)
    assert learned.gap == pytest.approx(np.log(10_001 / 1001))
    for times, is_told in ((0.99, True), (1.01, False)):
        beyond = int(largest * np.exp(learned.gap * times))
        found = measure_learned(Facts("other", beyond, 10, 10), 50, learned)
        assert (found.k is not None) == is_told, found.reason


def test_distances_are_what_a_search_over_other_groups_finds() -> None:
    for count in (40, FEW + 40):
        generator = np.random.default_rng(count)
        programs = [
            dataclasses.replace(program, group=str(generator.integers(7)))
            for program in make_programs(count, 0)
        ]
        sizes = np.log1p([[p.nodes, p.edges, p.configurable] for p in programs])
        groups = np.array([program.group for program in programs])
        nearest = [
            np.sqrt(((sizes[groups != group] - size) ** 2).sum(axis=1)).min()
            for size, group in zip(sizes, groups, strict=True)
        ]
        assert Learned(programs).gap == pytest.approx(max(nearest))


def test_programs_of_the_same_search_and_models_count_where_ones_own_give_no_number() -> None:
    few, many = make_programs(5, 0), make_programs(30, 1)
    names = ("layout:xla:random", "layout:nlp:random", "layout:nlp:default")
    programs = dict(zip(names, (few, many, make_programs(30, 2)), strict=True))
    net = {"net": 1.0}
    asked = Facts(few[0].architecture, 1, 1, 1)
    learned = learn(programs, dict.fromkeys(names, net), by_family=True)
    told = measure_learned(asked, 50, learned["layout:xla:random"])
    assert told.k == quantile(few + many, 0.02, 0.9)
    assert "35 programs of 35 families" in told.reason and "5 programs" in told.reason
    # one's own programs suffice: no others count
    own = measure_learned(facts_of(many[0]), 50, learned["layout:nlp:random"])
    assert own == measure_learned(facts_of(many[0]), 50, Learned(many, by_family=True))
    assert learned["layout:nlp:default"].wider is None
    # other models: no others count
    apart = learn(programs, {**dict.fromkeys(names, net), "layout:nlp:random": {"trees": 1.0}})
    assert measure_learned(asked, 50, apart["layout:xla:random"]).k is None


def test_a_program_far_from_what_its_own_models_know_gets_no_number_from_others() -> None:
    """That other collections have programs of its size does not help: its models know none."""
    programs = {
        "layout:xla:random": make_families([1000, 3000]),
        "layout:nlp:random": make_families([50_000, 100_000]),
    }
    learned = learn(programs, dict.fromkeys(programs, {"net": 1.0}))
    large = facts_of(programs["layout:nlp:random"][0])
    assert measure_learned(large, 50, learned["layout:nlp:random"]).k is not None
    found = measure_learned(large, 50, learned["layout:xla:random"])
    assert found.k is None and "unlike those learned" in found.reason


def test_between_its_own_distance_and_that_of_others_a_program_gets_the_larger_k() -> None:
    """So that k never falls with the distance, and beyond both there is none."""
    near = [dataclasses.replace(p, edges=1, configurable=1) for p in make_families([1000, 1100])]
    far = [dataclasses.replace(p, edges=1, configurable=1) for p in make_families([10, 40_000])]
    learned = learn(
        {"a:random": near, "b:random": far}, dict.fromkeys(("a:random", "b:random"), {})
    )
    own, wider = learned["a:random"], learned["a:random"].wider
    assert wider is not None and own.gap < 1 < wider.gap
    largest = max(program.nodes for program in near)
    ks = [
        measure_learned(Facts("other", int(largest * np.exp(distance)), 1, 1), 50, own).k
        for distance in (0.0, 1.0, wider.gap * 1.01)
    ]
    expected = max(quantile(near, 0.02, 0.9) or 0, quantile([*near, *far], 0.02, 0.9) or 0)
    assert ks == [quantile(near, 0.02, 0.9), expected, None]
    empty = learn({"a:random": [], "b:random": far}, dict.fromkeys(("a:random", "b:random"), {}))
    assert measure_learned(facts_of(far[0]), 50, empty["a:random"]).k is None


def test_more_configurations_than_were_seen_widen_k() -> None:
    programs = make_programs(30, 0)
    few, many = (measure(facts_of(programs[0]), n, programs) for n in (50, 500))
    assert few.k is not None
    assert many.k == 10 * few.k and "widened" in many.reason
    assert measure(facts_of(programs[0]), 2, programs).k == min(2, few.k)
    beyond = measure(facts_of(programs[0]), 1000, programs)
    assert beyond.k is None and "1,000" in beyond.reason and "50" in beyond.reason


@pytest.mark.parametrize(
    ("confidence", "shown"), [(0.9, "90%"), (0.29, "29%"), (0.995, "99.5%"), (0.9999, "99.99%")]
)
def test_a_confidence_is_shown_with_all_its_digits(confidence: float, shown: str) -> None:
    facts = Facts("other", 9, 9, 1)
    assert f" {shown}:" in measure_learned(facts, 9, Learned([]), 0.02, confidence).reason


@pytest.mark.parametrize(("regret", "confidence", "words"), [
    (-0.1, 0.9, "regret is -0.1, expected from 0 to 1"),
    (2.0, 0.9, "regret is 2, expected from 0 to 1: 2% or 0.02"),
    (0.02, 90.0, "confidence is 90, expected between 0 and 1: 90% or 0.9"),
])  # fmt: skip
def test_what_cannot_be_promised_is_said(regret: float, confidence: float, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)) as caught:
        check_promise(regret, confidence)
    assert ("regret" in str(caught.value)) != ("confidence" in str(caught.value))


def with_layouts(layouts: np.ndarray) -> Graph:
    configs = encode(layouts.reshape(4, 3, 18))
    return dataclasses.replace(make_layout_graph(0), configs=configs, runtimes=None)


def test_layouts_are_named_where_they_differ_from_the_programs() -> None:
    layouts = np.full((4, 3, 3, 6), -1, np.int8)
    layouts[1, 0, 0, :2] = 1, 0  # of the dot's output, as it is: row-major
    layouts[2, 0, 0, :2] = 0, 1
    layouts[2, 1, 1, :2] = 0, 1
    layouts[3, 0, :, :2] = (0, 1), (1, 0), (0, 1)
    graph = with_layouts(layouts)
    assert describe_configs(graph, np.arange(4)) == [
        "as the compiler has it",
        "as the compiler has it, asked for at dot 2",
        "dot 2 output {0,1}; reshape 5 input {0,1}",
        "dot 2 output {0,1} kernel {0,1}",
    ]


def test_the_whole_of_a_configuration_is_all_that_it_asks_for() -> None:
    """Also what the compiler would do anyway: other configurations, other words."""
    layouts = np.full((4, 3, 3, 6), -1, np.int8)
    layouts[1, 0, 0, :2] = 1, 0  # as it is
    layouts[2, 0, :, :2] = (0, 1), (1, 0), (0, 1)
    layouts[3, :, 0, :2] = 1, 0
    graph = with_layouts(layouts)
    dot, other, reshape = graph.configurable
    assert list_layouts(graph, np.arange(4)) == [
        [],
        [(dot, "output", [1, 0])],
        [(dot, "output", [0, 1]), (dot, "input", [1, 0]), (dot, "kernel", [0, 1])],
        [(node, "output", [1, 0]) for node in (dot, other, reshape)],
    ]
    lines = describe_configs(graph, np.arange(4), whole=True)
    assert lines[:3] == [
        "as the compiler has it", "dot 2 output {1,0}",
        "dot 2 output {0,1} input {1,0} kernel {0,1}",
    ]  # fmt: skip
    assert lines[3].count(" output {1,0}") == 3 and len(set(lines)) == 4


def test_options_are_named_where_they_are_not_the_compilers_own() -> None:
    graph = make_layout_graph(0, configs=2)
    options = np.zeros((2, len(OPTION_NAMES)), np.int8)
    options[1, :2] = 2, 1
    graph = dataclasses.replace(graph, options=options)
    assert describe_configs(graph, np.arange(2)) == [
        "as the compiler has it", "library_fusions dot, products own_loops",
    ]  # fmt: skip
