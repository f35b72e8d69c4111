"""How the lengths of many steps are spread, and what differed in the slowest."""
