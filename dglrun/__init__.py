"""dglrun: partitions graphs, dispatches the parts and launches DGL training inside job images.

`from dglrun import progress` is for training scripts; all else is dglrun's own.
"""


def progress(epoch: object = None, loss: object = None, percent: object = None) -> None:
    """Tell how far a training script is; shown in `status.progress` of its DGLJob.

    What rank 0 tells counts. In other ranks, and outside of a job, nothing happens. It never raises and
    waits for nobody; of many calls in a row the last one is shown.

    Args:
        epoch: Number of the epoch, from 0.
        loss: Loss; anything that `float` takes.
        percent: Share of the training that is done, from 0 to 100.
    """
    from dglrun.agent import script_progress  # noqa: PLC0415 - what the operator's images have of dglrun lacks it

    script_progress.tell({"epoch": epoch, "loss": loss, "percent": percent})
