"""A script that trains a small model for as many steps as it is told to.

By hand: importing torch.optim takes a new interpreter longer than importing torch.
"""

import textwrap
from pathlib import Path

TRAINING = """
import os, signal, sys, threading, time
import torch
model = torch.nn.Linear(8, 8)
def train(steps):
    for _ in range(steps):
        model(torch.randn(2, 8)).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
"""
# Fewer steps than by default, so that tests are quick.
FEW = ("--warmup", "1", "--timed", "2", "--profiled", "1")


def write(folder: Path, source: str) -> str:
    """Write the script, which goes on with `source`; returns its name."""
    (folder / "script.py").write_text(TRAINING + textwrap.dedent(source))
    return "script.py"
