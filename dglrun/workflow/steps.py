"""What a run consists of: frozen steps which `--dry-run` prints and the executor performs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dglrun.agent.spec import Spec
from dglrun.contract.hostfile import Host

Argv = tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """A command on this pod.

    Attributes:
        argv: The command, run in the container's working folder.
        env: Added to this process's environment.
        title: What it is called when it fails; empty: by its command.
        seconds: Deadline; then it and what it has started here are ended. None: as long as it takes.
        sweep: Commands that end what it may have left on other pods, run side by side when it ends badly.
    """

    argv: Argv
    env: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    seconds: float | None = None
    sweep: tuple[Argv, ...] = ()


@dataclass(frozen=True)
class WriteText:
    """A text file on this pod.

    Attributes:
        path: Where; its folder is made if missing.
        text: What.
    """

    path: str
    text: str


@dataclass(frozen=True)
class ReadQuality:
    """Report the partition's quality that the workers have measured.

    Attributes:
        argv: Writes it as JSON on stdout (the report's partition.json); nothing if it was not measured.
    """

    argv: Argv


@dataclass(frozen=True)
class CheckPartition:
    """Look at a partition folder before it goes anywhere.

    Attributes:
        config: Its JSON.
        parts: How many parts it must have.
    """

    config: str
    parts: int


@dataclass(frozen=True)
class Assess:
    """Verify a checked partition where that is cheap or asked for, and report its quality.

    Attributes:
        verify: Fails the run when the partition does not hold; None: not asked for.
        serving: In the place of `verify` where that is too much: fails the run when DGL could not serve it.
        report: Writes the quality as JSON; its failure is told and forgotten.
        json: Where `report` writes.
        limit: Bytes of partition files up to which it is cheap; None: whatever the size.
    """

    verify: Run | None
    serving: Run
    report: Run
    json: str
    limit: int | None


@dataclass(frozen=True)
class AwaitContainer:
    """Wait until an init container of another pod is running.

    Attributes:
        pod: The pod.
        container: The init container.
        seconds: Deadline.
    """

    pod: str
    container: str
    seconds: float


@dataclass(frozen=True)
class Send:
    """Send files to another pod as one tar stream with checksums.

    Attributes:
        pod: Where to.
        argv: Receives the stream on stdin; entry names are appended.
        folder: Where the files lie here.
        part: Only this part and the JSON; None: the whole folder.
        under: Folder within the target that takes them, empty for the target itself.
        config: The partition's JSON, moved into place last.
    """

    pod: str
    argv: Argv
    folder: str
    config: str
    part: int | None = None
    under: str = ""


@dataclass(frozen=True)
class Supervise:
    """Start the supervisor of one worker and follow it.

    Attributes:
        host: The worker.
        argv: Begins a run.
        attach: Looks again at a run after its stream broke.
        spec: What the supervisor has to do.
    """

    host: Host
    argv: Argv
    attach: Argv
    spec: Spec


@dataclass(frozen=True)
class Collect:
    """Bring the files of a worker's output folder here.

    Attributes:
        host: The worker.
        argv: Writes the files as a tar stream with checksums on stdout.
        folder: Where they go.
    """

    host: Host
    argv: Argv
    folder: str


Preparation = Run | WriteText | ReadQuality | CheckPartition | Assess | AwaitContainer
Step = Preparation | Send | Supervise | Collect


@dataclass(frozen=True)
class PlanPhase:
    """A part of the run that ends before the next begins.

    Its steps run in order; copies to several pods, and several workers, side by side.

    Attributes:
        number: Of this phase, from 1.
        of: Number of phases of the whole job.
        title: As the log says it.
        stage: As the report says it (`dglrun.contract.report`).
        steps: What to do.
    """

    number: int
    of: int
    title: str
    stage: str
    steps: tuple[Step, ...]
