"""What a step needs of energy, and what it costs."""

from gpuprof.reports import formatting
from gpuprof.reports.blocks import Fact
from gpuprof.roofline.analysis import Analysis
from gpuprof.roofline.prices import Prices, cost_per_step, prices

# Of so many tokens prices are told.
_MANY_TOKENS = 1_000_000
_MANY_STEPS = 1_000


def energy_facts(analysis: Analysis) -> tuple[Fact, ...]:
    """Joules of a step and a token, and their cost where gpuprof.toml gives a price."""
    facts = []
    found = analysis.energy
    if found is not None:
        words = [f"{found.power_watts:.0f} W in the timed steps, by this device's energy counter"]
        words.append(f"± {formatting.percent(found.uncertainty)}")
        if found.joules_per_token is not None:
            per_token = formatting.joules(found.joules_per_token) + " a token"
            words.insert(0, per_token)
        joules = formatting.joules(found.joules_per_step) + " a step"
        facts.append(Fact("Energy", joules, ", ".join(words)))
    paid = prices()
    cost = cost_per_step(analysis.steps, found, paid)
    if cost is not None:
        facts.append(Fact("Cost", *_cost_words(analysis, cost, paid)))
    return tuple(facts)


def _cost_words(analysis: Analysis, cost: float, paid: Prices) -> tuple[str, str]:
    at = []
    if paid.device_hour is not None:
        at.append(f"{_money(paid.device_hour, paid)} an hour of one device")
    if paid.kilowatt_hour is not None:
        at.append(f"{_money(paid.kilowatt_hour, paid)} a kWh")
    words = [f"at {' and '.join(at)}"]
    found = analysis.energy
    if found is not None and found.joules_per_token is not None:
        # A step has as many tokens as it needs more joules than one of them.
        of_tokens = cost * found.joules_per_token / found.joules_per_step * _MANY_TOKENS
        words.insert(0, f"{_money(of_tokens, paid)} a million tokens")
    return f"{_money(cost * _MANY_STEPS, paid)} a thousand steps", ", ".join(words)


def _money(amount: float, paid: Prices) -> str:
    return f"{formatting.significant(amount)} {paid.currency}".rstrip()
