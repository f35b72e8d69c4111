"""The gate's verdicts in words: for a terminal, a pull request, and what reads test results."""
