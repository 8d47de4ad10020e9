"""The cases of a seed: the same each time, and as deep, large and many as they claim."""

import functools
import json
from collections import Counter

import pytest

from dgl_operator.runtime.kinds import Kind
from tests.fuzz import acts, children, generator, mutants, wild
from tests.fuzz.cases import Case, Expect, rng_of
from tests.fuzz.json_text import depth
from tests.support.played_job import SCHEDULER

SEED = 7


@functools.cache
def cases() -> tuple[Case, ...]:
    return tuple(generator.case(SEED, number) for number in range(500))


def of_kind(kind: str) -> Case:
    return next(case for case in cases() if case.kind == kind)


def test_a_seed_gives_the_same_cases_whatever_was_drawn_before() -> None:
    """So that one case of a long run can be repeated alone."""
    first = [generator.case(SEED, number) for number in range(60)]

    again = [generator.case(SEED, number) for number in reversed(range(60))]

    assert first == again[::-1]


def test_another_seed_gives_other_cases() -> None:
    """A fresh seed explores something new."""
    ours, others = ([generator.case(seed, number).what for number in range(60)] for seed in (1, 2))

    assert sum(one == other for one, other in zip(ours, others, strict=True)) < 20


def test_five_hundred_cases_have_every_wild_kind() -> None:
    """The gate's run misses none."""
    found = Counter(case.kind for case in cases())

    assert found["mutant"] > 300
    assert len(found) == 1 + len(wild.OFTEN) + 2


@pytest.mark.parametrize(
    ("least", "most"), [(150, 200), (1_100, 1_100), (9_000, 9_000), (9_900, 9_900)], ids=str
)
def test_a_deep_job_has_the_levels_that_it_claims(least: int, most: int) -> None:
    """Below the few of a job itself; of an odd number of levels lists of objects have one less."""
    own = {"template": 5, "pod spec": 6, "container": 8}
    make = wild.deep(least, 0 if most == least else most)
    for number in range(20):
        found = make(rng_of(SEED, number), "x")
        number_told, _, place = found.what.partition(" levels: ")
        claimed = int(number_told.replace(",", ""))
        missing = claimed % 2 if place.startswith("lists of objects") else 0
        above = next(levels for holder, levels in own.items() if place.endswith(holder))

        assert least <= claimed <= most
        assert depth(found.submissions[0].body) == above + claimed - missing


def test_old_seeds_repeat_the_deep_jobs_of_one_depth() -> None:
    """A draw of the only number there is would change all that are drawn after it."""
    found = [wild.deep(1_100)(rng_of(SEED, number), "x").what for number in (0, 2)]

    assert found == [
        "1,100 levels: lists under an unknown key of Worker's container",
        "1,100 levels: lists of objects under an unknown key of Worker's pod spec",
    ]


def test_a_large_job_has_about_a_megabyte() -> None:
    """Near to what the API server takes at most."""
    sizes = [len(wild.large(rng_of(SEED, number), "x").submissions[0].body) for number in range(8)]

    assert min(sizes) > 1_300_000
    assert max(sizes) < 1_550_000


def test_a_flood_is_two_hundred_config_maps_of_almost_a_megabyte() -> None:
    """And one job, whose label they carry."""
    found = of_kind("200 ConfigMaps of 0.9 MB")
    kinds = Counter(each.kind for each in found.submissions)

    assert kinds == {Kind.JOB: 1, Kind.CONFIG_MAP: 200}
    assert all(len(each.body) > 900_000 for each in found.submissions if each.kind is Kind.CONFIG_MAP)


def test_a_long_value_has_seventy_thousand_characters() -> None:
    """More than a message of a condition takes."""
    assert all(
        len(wild.long_values(rng_of(SEED, number), "x").submissions[0].body) > 70_000 for number in range(30)
    )


def test_no_mutant_gets_pods_that_a_node_would_run() -> None:
    """Whatever was done to the scheduler's name."""
    for number in range(400):
        body, _ = mutants.mutant(rng_of(SEED, number), "x")
        for role in _objects(_objects(body.get("spec")).get("dglReplicaSpecs")).values():
            pod = _objects(_objects(_objects(role).get("template")).get("spec"))
            assert not pod or pod.get("schedulerName") not in (None, "", "default-scheduler")
            assert not isinstance(pod.get("nodeName"), str)


def _objects(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def test_a_mutant_differs_from_good_jobs_in_what_it_names() -> None:
    """One change that is named for most of them."""
    whats = [mutants.mutant(rng_of(SEED, number), "x")[1] for number in range(200)]

    assert all(whats)
    assert sum("; " not in what for what in whats) > 100


def test_mutations_reach_every_part_of_a_job() -> None:
    """Of each role, and of the pod template as the Kubernetes client knows it."""
    whats = " ".join(mutants.mutant(rng_of(SEED, number), "x")[1] for number in range(1500))

    parts = (
        "cleanPodPolicy",
        "Launcher",
        "Worker",
        "Partitioner",
        "env.0",
        "resources.limits",
        "volumeMounts",
    )
    assert [part for part in parts if part not in whats] == []


def test_a_good_job_stays_unmarked_by_its_mutants() -> None:
    """Builders share parts, which no mutation may reach."""
    before = json.dumps(mutants.good(rng_of(SEED, 1), "x"))

    for number in range(100):
        mutants.mutant(rng_of(SEED, number), "x")

    assert json.dumps(mutants.good(rng_of(SEED, 1), "x")) == before


def test_foreign_children_never_bear_a_name_of_the_innocent_job() -> None:
    """With the UID forged as well they could not be told from its own."""
    for number in range(200):
        _, body, _ = children.foreign(rng_of(SEED, number), "x")
        assert not body["metadata"]["name"].startswith(children.INNOCENT)


def test_relabelled_jobs_have_to_end_with_their_launcher() -> None:
    """Their last act is the launcher's success."""
    found = of_kind("relabelled pod")

    assert found.expect is Expect.END
    assert found.acts[-1] == acts.END


def test_pods_of_played_jobs_are_left_to_nobody() -> None:
    """No scheduler takes them."""
    assert SCHEDULER in of_kind("good job").submissions[0].body.decode()
