"""What a run consists of: frozen steps, which the executor performs in the order written.

A step holds all that its execution depends on: commands, folders, deadlines, limits. `--dry-run` prints the
same values. The executor adds no rule of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dglrun.agent.spec import Spec
from dglrun.contract.hostfile import Host

Argv = tuple[str, ...]


@dataclass(frozen=True)
class Cleanup:
    """Commands that end what a failed command may have left on other pods; best effort.

    Attributes:
        commands: One for each pod.
        limit: How many run at the same time.
        seconds: Deadline of each, and of all together.
    """

    commands: tuple[Argv, ...]
    limit: int
    seconds: float


@dataclass(frozen=True)
class Run:
    """Run a command to its end, on this pod or, through another command, on other pods.

    Its output is the log; the newest line is the progress of the phase's stage.

    Attributes:
        argv: The command, run in the container's working folder.
        env: Added to this process's environment.
        title: What it is called when it fails; empty: by its command.
        seconds: Deadline; then it and what it has started here are ended. None: as long as it takes.
        via: What starts `argv` elsewhere: `kubectl exec` in a pod, or mpirun on several. Empty: it runs here.
        pods: Where `via` starts it.
        ranks: How many MPI ranks `via` starts. None: it is not MPI.
        folders: Made first. If that fails, the command reports what it lacks.
        cleanup: Done when the command fails or is stopped.
    """

    argv: Argv
    env: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    seconds: float | None = None
    via: Argv = ()
    pods: tuple[str, ...] = ()
    ranks: int | None = None
    folders: tuple[str, ...] = ()
    cleanup: Cleanup | None = None


@dataclass(frozen=True)
class WriteText:
    """Write a text file on this pod.

    Attributes:
        path: Where; its folder is made if missing.
        text: What.
    """

    path: str
    text: str


@dataclass(frozen=True)
class CheckPartition:
    """Check that the partition's JSON is valid and that the files of all parts exist.

    The steps that name the same JSON use what this one has read.

    Attributes:
        config: The partition's JSON.
        parts: How many parts it must have.
    """

    config: str
    parts: int


@dataclass(frozen=True)
class IfKept:
    """Perform steps only where the store has the partition already, or only where it has not.

    Attributes:
        reference: What a look into the store, a step before, has written.
        missing: Steps where there was none: they make the partition.
        kept: Steps where there was one.
    """

    reference: str
    missing: "tuple[Step, ...]" = ()
    kept: "tuple[Step, ...]" = ()


@dataclass(frozen=True)
class CheckKept:
    """Check that a reference names a kept partition; steps that name the reference use what it says.

    Attributes:
        reference: The reference.
        parts: How many parts the partition must have.
    """

    reference: str
    parts: int


@dataclass(frozen=True)
class ReportKept:
    """Put a kept partition's quality, as it was measured when it was made, into the job's report.

    Attributes:
        reference: The reference to it.
    """

    reference: str


@dataclass(frozen=True)
class ReadReference:
    """Copy a reference from a worker, where the look into the store was made.

    Attributes:
        pod: The worker.
        path: The reference there, and here.
        argv: Writes it on stdout.
        seconds: How long a pod that cannot be reached is tried again.
    """

    pod: str
    path: str
    argv: Argv
    seconds: float


@dataclass(frozen=True)
class VerifyPartition:
    """Verify a checked partition; the run fails when it is wrong.

    A partition without DGL's `part_graph` files has a form that only DGL reads: it is not verified.

    Attributes:
        config: The partition's JSON.
        proof: Proves the whole partition.
        serving: Runs instead where the files are larger than `limit`: can DGL serve the parts?
        limit: Bytes; None: `proof` runs whatever the size.
    """

    config: str
    proof: Run
    serving: Run
    limit: int | None


@dataclass(frozen=True)
class MeasureQuality:
    """Measure a checked partition's quality (edge cut, balance, halo) and put it into the job's report.

    It says there whether a step before has proved the partition. A failure is a note in the log.

    Attributes:
        config: The partition's JSON.
        measure: Writes the quality as JSON.
        json: Where.
    """

    config: str
    measure: Run
    json: str


@dataclass(frozen=True)
class ReadQuality:
    """Put the partition's quality that the workers have measured into the job's report.

    A failure is a note in the log.

    Attributes:
        pod: The worker that has it.
        json: Where it has it; the file is missing if it was not measured.
        argv: Writes it on stdout, or nothing.
        seconds: Deadline.
    """

    pod: str
    json: str
    argv: Argv
    seconds: float


@dataclass(frozen=True)
class AwaitContainer:
    """Wait until an init container of another pod is running, for as long as the pod is alive.

    Attributes:
        pod: The pod.
        container: The init container.
        seconds: How long the API server may be away.
    """

    pod: str
    container: str
    seconds: float


@dataclass(frozen=True)
class Send:
    """Send the files of a checked partition to a pod that cannot pull, as one tar stream with checksums.

    The partition's JSON is put into place last.

    Attributes:
        pod: Where to.
        argv: Receives the stream on stdin; entry names are appended.
        config: The partition's JSON, in the folder of all its files; or the reference to a kept partition.
        part: Send the files of this part and the JSON; None: those of all parts.
        target: Folder on the pod in which `argv` unpacks.
        under: Folder within `target` that takes the files and is replaced as a whole; empty: `target` itself.
        seconds: How long a pod that cannot be reached is tried again.
    """

    pod: str
    argv: Argv
    config: str
    part: int | None
    target: str
    under: str
    seconds: float


@dataclass(frozen=True)
class Puller:
    """A pod that pulls files of a partition.

    Attributes:
        pod: Which.
        ip: Its address; empty: the API server is asked.
        argv: Starts the receiver there, which takes its order on stdin and goes on by itself.
        part: It gets the files of this part and the JSON; None: those of all parts.
        target: Folder in which they appear, the JSON last.
    """

    pod: str
    ip: str
    argv: Argv
    part: int | None
    target: str


@dataclass(frozen=True)
class Serve:
    """Serve the files of a checked partition to pods that pull them over TLS, until all have theirs.

    To a pod that sees the folder of the files, nothing is sent: it links to them. Of a kept partition
    the reference is served, by which a worker takes its part from the store itself.

    Keys are made for this step alone. A receiver that is not heard of is started again, and goes on where it
    was.

    Attributes:
        owner: This pod, which serves.
        config: The partition's JSON, in the folder of all its files; or the reference.
        pullers: Who pulls.
        limit: How many pull at the same time.
        starts: How many are started at the same time; each start is a process here.
        connections: How many each has.
        keeps_sums: Whether the sums of all blocks stay with the files, for whom they are served to next.
        seconds: Deadline without any progress of a pod; while there is some, it may take any time.
        marker: Name of a file that lies beside the JSON meanwhile, by which a pod notices that it sees it.
    """

    owner: str
    config: str
    pullers: tuple[Puller, ...]
    limit: int
    starts: int
    connections: int
    keeps_sums: bool
    seconds: float
    marker: str = ""


@dataclass(frozen=True)
class InParallel:
    """Perform steps at the same time; a failure of one is a failure of all.

    Attributes:
        steps: Each is a process that holds a stream through the API server.
        limit: How many at the same time.
        ends_all: Whether the first failure leaves the other steps undone; else each is performed to its end,
            and the failure that came first in their order is that of all.
    """

    steps: "tuple[Send | Collect, ...]"
    limit: int
    ends_all: bool = True


@dataclass(frozen=True)
class WorkerAgent:
    """The agent of one worker: the process there that starts, watches and ends the others.

    Attributes:
        host: The worker.
        argv: Starts it; from then on launcher and agent talk over a connection of their own.
        spec: What it does: files to write, servers and trainers to start, its lease.
    """

    host: Host
    argv: Argv
    spec: Spec


@dataclass(frozen=True)
class StartAgents:
    """Start the agents of all workers, and wait until each is ready.

    Each is handed keys that are made for this run; then it and the launcher talk over TLS. An agent is ready
    when it has found its own address and free ports and has written DGL's ip_config. It then waits for
    `Train`. Without a heartbeat for the lease of its spec an agent ends the processes of its worker; one that
    cannot be reached for its lease is lost. From here on a failed run stops all workers.

    Attributes:
        agents: By worker.
        limit: How many are started at the same time; each start is a process here.
        seconds: Deadline for all to be ready.
        attempts: How often a start is tried that fails; where a stream breaks, it is tried until `seconds`.
        heartbeat: Seconds between heartbeats, at most.
        settle_seconds: How long a first failure waits for others, among which the root cause is looked for.
        stop_seconds: How long a run that fails waits until all workers have stopped.
    """

    agents: tuple[WorkerAgent, ...]
    limit: int
    seconds: float
    attempts: int
    heartbeat: float
    settle_seconds: float
    stop_seconds: float


@dataclass(frozen=True)
class CheckpointKeeper:
    """The process that keeps the checkpoints of one pod's ranks.

    Attributes:
        pod: Which.
        ip: Its address.
        argv: Starts it; the pod's agent does, or, where there is none, this dglrun.
        folders: The folder of each rank there (`DGL_CHECKPOINT_DIR`), by the rank's name.
    """

    pod: str
    ip: str
    argv: Argv
    folders: Mapping[str, str]


@dataclass(frozen=True)
class KeepCheckpoints:
    """Bring back the checkpoints that were kept; from then on keep what the ranks leave in their folders.

    The step ends when all is back. What is in a rank's folder already stays as it is, so that the step can be
    performed again, with new agents, when a worker was replaced. Rounds begin on all workers at the same
    moment; files that are gone from their folders are forgotten when all ranks have ended a round. The last
    round is when the processes have ended and before the agents leave, however they have ended, unless a
    signal ends the run.

    Attributes:
        owner: This pod, which begins the rounds.
        keepers: Who keeps.
        ranks: Trainers in all.
        folder: Where the files are kept here, in a folder for each rank.
        place: Where they are kept instead; the keepers reach it by themselves. Empty: here.
        every: Seconds between the beginnings of two rounds, at least.
        rate: Bytes per second that each keeper sends, at most; the last round has no bound.
        seconds: Deadline for what is brought back, and for the last round.
        absent_seconds: How long the last round waits for a keeper that cannot be reached.
    """

    owner: str
    keepers: tuple[CheckpointKeeper, ...]
    ranks: int
    folder: str
    place: str
    every: float
    rate: float
    seconds: float
    absent_seconds: float


@dataclass(frozen=True)
class Train:
    """Tell the agents to start servers and trainers, and wait until all trainers have ended with 0.

    The first failure of a process or of a worker stops all workers and fails the run. At the end the agents
    count the files of their output folders and leave. The newest line of worker 0's trainer 0 is the progress
    of the phase's stage.

    Attributes:
        workers: The pods, whose agents have been started.
        world_size: Trainers on all workers together; their ranks are 0 to world_size - 1.
        servers_seconds: How long servers may run after all trainers have ended; then they are stopped.
        hang_seconds: The training fails when no process on any worker was active for so long, as far as the
            specs of the agents say what counts. None: it may take any time.
        stacks_seconds: How long it waits then for the stacks of all processes.
    """

    workers: tuple[str, ...]
    world_size: int
    servers_seconds: float
    hang_seconds: float | None = None
    stacks_seconds: float = 10.0


@dataclass(frozen=True)
class ReportStage:
    """Report that a stage of the job has begun (`status.progress`).

    Attributes:
        stage: Which (`dglrun.contract.report`).
        message: What happens.
    """

    stage: str
    message: str


@dataclass(frozen=True)
class Collect:
    """Copy the files of a worker's output folder here, with checksums; nothing if its agent counted none.

    Attributes:
        pod: The worker.
        source: The folder there.
        argv: Writes the files as a tar stream on stdout.
        marker: Name of a file that lies in `folder_if_first` meanwhile: a worker that sees it in `source` has
            the launcher's own folder, on a shared volume, and sends nothing.
        folder: Where they go.
        folder_if_first: Where they go instead when no worker with a lower index has files.
        seconds: How long a pod that cannot be reached is tried again.
        seconds_if_lost: The same for a worker whose agent was lost, so that nobody counted its files.
    """

    pod: str
    source: str
    argv: Argv
    marker: str
    folder: str
    folder_if_first: str
    seconds: float
    seconds_if_lost: float


Step = (
    Run
    | WriteText
    | CheckPartition
    | IfKept
    | CheckKept
    | ReportKept
    | ReadReference
    | VerifyPartition
    | MeasureQuality
    | ReadQuality
    | AwaitContainer
    | Send
    | Serve
    | InParallel
    | StartAgents
    | KeepCheckpoints
    | Train
    | ReportStage
    | Collect
)


@dataclass(frozen=True)
class PlanPhase:
    """A part of the run that ends before the next begins. Its steps are performed in the order written.

    `at_end` follows the steps, whether these have succeeded or failed. After a failure it changes nothing of
    how the run ends: what fails in it is a note in the log. A signal that ends the run leaves it out.

    Attributes:
        number: Of this phase, from 1.
        of: Number of phases of the whole job.
        pod: Whose dglrun performs it.
        title: As the log says it.
        stage: As the report says it (`dglrun.contract.report`).
        steps: What to do.
        at_end: What to do then, however the steps have ended.
    """

    number: int
    of: int
    pod: str
    title: str
    stage: str
    steps: tuple[Step, ...]
    at_end: tuple[Step, ...] = ()
