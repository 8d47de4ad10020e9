"""What a training script that runs on this pod, in a Skip job, says of its progress."""

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from dglrun.agent import PROGRESS_VARIABLE
from dglrun.agent.script_progress import EVERY_SECONDS, ProgressFile
from dglrun.agent.spec import PROGRESS_FILE
from dglrun.workflow.steps import Run


@contextlib.contextmanager
def followed(step: Run, take: Callable[[Mapping[str, object]], None]) -> Iterator[Run]:
    """Within it the values that the command tells are taken, if the plan gives it a file for them.

    Args:
        step: The command as planned.
        take: Takes the values; called in another thread.

    Yields:
        The command with the file's name.
    """
    with contextlib.ExitStack() as stack:
        if step.env.get(PROGRESS_VARIABLE) == PROGRESS_FILE:
            try:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dglrun-"))
            except OSError:  # no place can be written: the training goes on without
                step = replace(step, env={**step.env, PROGRESS_VARIABLE: ""})
            else:
                path = Path(folder, "progress.json")
                stack.callback(_follow(path, take))
                step = replace(step, env={**step.env, PROGRESS_VARIABLE: str(path)})
        yield step


def _follow(path: Path, take: Callable[[Mapping[str, object]], None]) -> Callable[[], None]:
    """Look at the file from now on; returns what ends that, after a last look."""
    file, over = ProgressFile(path), threading.Event()

    def follow() -> None:
        is_last = False
        while not is_last:
            is_last = over.wait(EVERY_SECONDS)
            if values := file.news(time.monotonic(), is_last):
                take(values)

    thread = threading.Thread(target=follow, name="progress", daemon=True)
    thread.start()

    def end() -> None:
        over.set()
        thread.join()

    return end
