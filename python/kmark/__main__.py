"""`python -m kmark …` is the command `kmark …` of this environment."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import sysconfig
from typing import Optional

#: Where the command lies, for a checkout.
VARIABLE = "KMARK_COMMAND"


def command() -> Optional[str]:
    """The one that came with this package: in the folder for scripts of the environment, or of the user."""
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    found = [os.environ.get(VARIABLE), *(str(pathlib.Path(folder, "kmark")) for folder in folders)]
    return next((path for path in found if path and os.access(path, os.X_OK)), None) or shutil.which("kmark")


def main() -> None:
    path = command()
    if path is None:
        sys.exit("kmark: the command is not installed beside this package; pip install the kmark wheel")
    # Python libraries run in this interpreter, unless somebody says otherwise.
    env = {"KMARK_PYTHON": sys.executable, **os.environ}
    sys.stdout.flush()
    try:
        os.execve(path, ["kmark", *sys.argv[1:]], env)
    except OSError as error:
        sys.exit(f"kmark: cannot start {path}: {error.strerror}")


if __name__ == "__main__":
    main()
