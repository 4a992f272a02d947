"""A sample of the mutants campaign; the whole of it is ``python -m tests.vivado.mutants``."""

from __future__ import annotations

from tests.vivado import mutants

SAMPLE = 24
# Of so few, chance alone moves the rates: the bounds of the campaign are held on the campaign.
SAMPLE_RULES_AT_LEAST, SAMPLE_GOLDEN_AT_LEAST = 0.75, 0.90


def test_sample_of_mutants() -> None:
    chosen = mutants.choose(mutants.DEFAULT_SEED, mutants.DEFAULT_COUNT)
    sample = chosen[:: max(1, len(chosen) // SAMPLE)]
    assert len({mutant.kind for mutant in sample}) == len(mutants.QUOTAS)
    told: list[str] = []
    noticed, survivors = mutants.campaign(sample, told.append)
    rules, everything = mutants.rates(noticed)
    story = "\n".join(told)
    assert [str(m) for m in survivors if not mutants.reason_for(m)] == [], story
    assert rules >= SAMPLE_RULES_AT_LEAST, story
    assert everything >= SAMPLE_GOLDEN_AT_LEAST, story


def test_the_campaign_has_at_least_80_and_is_the_same_every_time() -> None:
    chosen = mutants.choose(mutants.DEFAULT_SEED, mutants.DEFAULT_COUNT)
    assert len(chosen) >= 80 and chosen == mutants.choose(mutants.DEFAULT_SEED, mutants.DEFAULT_COUNT)
    assert chosen != mutants.choose(mutants.DEFAULT_SEED + 1, mutants.DEFAULT_COUNT)
