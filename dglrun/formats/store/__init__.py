"""Files where users keep them: a folder that this machine mounts, S3, or what else pyarrow.fs opens.

`place("s3://bucket/prefix")` gives a `Place`, and so does an absolute path. What is written there appears
whole or not at all. Failures are `StoreError`s of one line; `retried` repeats those that may pass.
"""

from dglrun.errors import StoreError, StoreFailure
from dglrun.formats.store.file_backend import Stat, Sum
from dglrun.formats.store.place import Place, is_uri, place
from dglrun.formats.store.received import bytes_read
from dglrun.formats.store.retry import retried

__all__ = ["Place", "Stat", "StoreError", "StoreFailure", "Sum", "bytes_read", "is_uri", "place", "retried"]
