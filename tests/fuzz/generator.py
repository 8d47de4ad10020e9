"""The cases of a run, by seed and number."""

import random

from tests.fuzz import acts, mutants, wild
from tests.fuzz.cases import Case, Submission, rng_of

WILD_EVERY = 4
"""Each so manieth case is a wild one, the others are mutants."""
BLOCKED_EVERY, BLOCKED_FIRST = 1_000, 330
FLOOD_EVERY, FLOOD_FIRST = 2_500, 210
"""A flood leaves 180 MB in etcd until that compacts, minutes later."""
PLAYED_SHARE = 0.15
"""Mutants that are played as well, where the operator accepts them."""


def case(seed: int, number: int) -> Case:
    """Return one case of a seed; the same whatever was drawn before."""
    rng, name = rng_of(seed, number), f"f-{number}"
    return _make(rng, name, number).numbered(number)


def _make(rng: random.Random, name: str, number: int) -> Case:
    if number % FLOOD_EVERY == FLOOD_FIRST:
        return wild.flood(rng, name)
    if number % BLOCKED_EVERY == BLOCKED_FIRST:
        return wild.thousand_blocked(rng, name)
    if number % WILD_EVERY == 0:
        return wild.OFTEN[number // WILD_EVERY % len(wild.OFTEN)](rng, name)
    return mutant(rng, name)


def mutant(rng: random.Random, name: str) -> Case:
    """A good job with something wrong, now and then played."""
    body, what = mutants.mutant(rng, name)
    steps = acts.life(until=rng.randint(1, 6)) if rng.random() < PLAYED_SHARE else ()
    return Case(0, "mutant", what, name, (Submission.of(body),), steps)
