"""A process that starts a training again when it dies: one lost worker ends all the others.

Not here: what is lost, which is nothing but the steps since the last checkpoint (`callbacks/`).
"""

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

CHILD = "JEM_TF_SUPERVISED"
FINAL = (0, 2, 128 + signal.SIGINT, 128 + signal.SIGTERM)  # done, a mistake, or stopped on purpose


def needed() -> bool:
    """Whether there is no supervisor yet."""
    return CHILD not in os.environ


def follow_parent() -> None:
    """End with the supervisor, however it ends: no training is left behind that nobody knows."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def supervise(argv: list[str], restarts: int) -> int:
    """Run `jem-tf` with `argv`, again with `--resume` whenever it dies; its last exit code."""
    again = [flag for flag in argv if flag != "--overwrite"]
    if not any(flag.startswith("--resume") for flag in argv):
        again.append("--resume")
    for attempt in range(restarts + 1):
        code = _run(argv if attempt == 0 else again)
        if code in FINAL or attempt == restarts:
            return code
        pause = min(2**attempt, 30)
        print(
            f"The training ended with code {code}. Start {attempt + 1} of {restarts} from its last "
            f"checkpoint, in {pause} s.",
            file=sys.stderr,
            flush=True,
        )
        time.sleep(pause)
    raise AssertionError("unreachable")


def _run(argv: list[str]) -> int:
    command = [sys.executable, "-m", "jem_tf", *argv]
    child = subprocess.Popen(command, env={**os.environ, CHILD: "1"})

    def forward(number: int, _: Any) -> None:
        child.send_signal(number)

    before = {n: signal.signal(n, forward) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code
