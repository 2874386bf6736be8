"""Restarts a training process that dies. With several workers, one lost worker ends all others.

Not here: what is lost, which is only the steps since the last checkpoint (`callbacks/resume.py`).
"""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

SUPERVISED = "JEM_TF_SUPERVISED"  # environment variable of a supervised process
# Exit codes after which there is no restart: success, a usage error, or stopped on purpose.
FINAL_CODES = (0, 2, 128 + signal.SIGINT, 128 + signal.SIGTERM)


def is_supervised() -> bool:
    """Whether a supervisor has started this process."""
    return SUPERVISED in os.environ


def exit_with_parent() -> None:
    """End this process when its supervisor ends, so that no training process is left behind."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def supervise(argv: list[str], restarts: int) -> int:
    """Run `jem-tf` with `argv`, restart it with `--resume` when it dies; return the exit code."""
    resume_argv = [flag for flag in argv if flag != "--overwrite"]
    if not any(flag.startswith("--resume") for flag in argv):
        resume_argv.append("--resume")
    for attempt in range(restarts + 1):
        code = _run(argv if attempt == 0 else resume_argv)
        if code in FINAL_CODES or attempt == restarts:
            return code
        pause = min(2**attempt, 30)
        print(
            f"The training ended with code {code}. Restart {attempt + 1} of {restarts} from its "
            f"last checkpoint in {pause} s.",
            file=sys.stderr,
            flush=True,
        )
        time.sleep(pause)
    raise AssertionError("unreachable")


def _run(argv: list[str]) -> int:
    command = [sys.executable, "-m", "jem_tf_cli", *argv]
    child = subprocess.Popen(command, env={**os.environ, SUPERVISED: "1"})

    def forward(number: int, _: Any) -> None:
        child.send_signal(number)

    previous = {n: signal.signal(n, forward) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        return child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
