"""`python -m gpuprof` is the `gpuprof` command."""

import sys

from gpuprof.profiler.cli import main

sys.exit(main())
