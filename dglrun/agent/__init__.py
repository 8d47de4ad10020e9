"""The agent of one worker: starts its servers and trainers, tells how they end, leaves nothing behind.

Standard library only and nothing imported early: it starts once for each worker, and its start is part of
the time until the first trainer runs.
"""

import signal

RUN_FOLDER = ".dglrun"
"""Name within a workspace, made or not: in the environment of MPI ranks it tells whose they are."""
CAUSES_VARIABLE = "DGLRUN_CAUSES"
"""Environment: the folder that takes `<pid>.json`, written by a process that ends badly (script_runner)."""
PROGRESS_VARIABLE = "DGLRUN_PROGRESS"
"""Environment: the file in which rank 0 says how far it is (script_progress)."""
LAST_SECONDS = 5.0
"""How long the exit handlers of a script that has failed may run, once the cause is recorded."""
STACKS_SIGNAL = signal.SIGUSR1
"""Upon it a process that script_runner runs writes the stacks of its threads to stderr."""
