"""What can go wrong between a pod and the API server, by what can be done about it."""


class ApiError(Exception):
    """The API server gave no usable answer; the message says to which request and why."""


class Unavailable(ApiError):
    """Worth another try: no connection, a timeout, throttling or an error of the server.

    Attributes:
        retry_after: Seconds that the server asked to wait, None when it did not say.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Forbidden(ApiError):
    """The pod's service account may not do this."""


class NotFound(ApiError):
    """No such object."""


class Expired(ApiError):
    """The resource version of a watch is too old: list again (HTTP 410)."""


class Refused(ApiError):
    """The server understood the request and refused it for another reason (any other 4xx)."""


class NotInCluster(ApiError):
    """The process has no service account or does not know where the API server is."""
