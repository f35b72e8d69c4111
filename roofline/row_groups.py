"""Rows in groups that agree in several numbers: quicker by sorting than by hashing them."""

import numpy as np

from gpuprof.collectors.call_tree.nesting import Integers


def row_groups(*keys: Integers) -> tuple[Integers, Integers]:
    """An order in which rows with equal `keys` follow each other, and where in it a group begins.

    Groups are in the order of their keys. Nearly no time is lost on keys that are nearly in order.
    """
    order = np.lexsort(keys[::-1])
    begins = np.ones(len(order), np.bool_)
    ordered = [key[order] for key in keys]
    begins[1:] = np.any([key[1:] != key[:-1] for key in ordered], axis=0)
    return order, np.flatnonzero(begins)
