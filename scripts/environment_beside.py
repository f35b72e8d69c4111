"""Make a virtual environment that also has all packages of the interpreter that runs this.

    .venv/bin/python scripts/environment_beside.py build/integrations -r requirements.txt

What follows the folder is for pip, which installs only what is not there yet, and into the new
environment alone. So torch is not installed twice, and the first environment stays as it is.
"""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path


def main() -> None:
    folder, *requirements = sys.argv[1:]
    venv.create(folder, clear=True, symlinks=True)
    python = Path(folder, "bin", "python")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    # `addsitedir` and not the bare path: editable installs are .pth files in there.
    line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    Path(packages.stdout.strip(), "beside.pth").write_text(line)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *requirements], check=True)


if __name__ == "__main__":
    main()
