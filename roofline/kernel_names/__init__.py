"""What the names of kernels tell: who wrote them, what they do, and how."""
