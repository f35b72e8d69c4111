"""Let programs die under gpuprof in every phase and in every way, as tests/support/deaths.py lists.

    python scripts/try_deaths.py [PART OF A NAME]

Each must end as without gpuprof, with a capture or one line that says why there is none. Takes
about a quarter of an hour for all on two cores. Exits with 1 where one does not.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]

from deaths import deaths, problems  # noqa: E402

# Waiting for ever is one way to fail.
_MOST_SECONDS: Final = 120


def main() -> int:
    # After `nohup`, and in the background of a shell, they would end nothing.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    wanted = " ".join(sys.argv[1:])
    chosen = [death for death in deaths() if wanted in death.name]
    failed = 0
    for number, death in enumerate(chosen, start=1):
        with tempfile.TemporaryDirectory(prefix="deaths-") as folder:
            found = problems(death, Path(folder), _run)
        failed += bool(found)
        print(f"{number}/{len(chosen)} {death.name}: {'; '.join(found) or 'right'}", flush=True)
    print(f"{failed} of {len(chosen)} wrong")
    return int(failed > 0)


def _run(folder: Path, arguments: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_MOST_SECONDS,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
