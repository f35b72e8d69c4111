"""Patterns by which budgets and waivers name benchmarks."""

import re
from fnmatch import fnmatchcase


def matches(benchmark: str, pattern: str) -> bool:
    """Whether the pattern of a budget or a waiver is for `benchmark`."""
    # Names of parametrised tests hold brackets, which a pattern reads otherwise.
    return benchmark == pattern or fnmatchcase(benchmark, pattern)


def could_match(pattern: str, target: str, *, several: bool) -> bool:
    """Whether `pattern` matches a benchmark that `target` has, or may have of `several`.

    The names of several, "target/...", are known once they ran: what their pattern says up to its
    first special character has to fit.
    """
    if matches(target, pattern):
        return True
    if not several:
        return False
    plain, inside = re.split(r"[*?\[]", pattern, maxsplit=1)[0], f"{target}/"
    if plain == pattern:
        return pattern.startswith(inside)
    return plain.startswith(inside) or inside.startswith(plain)
