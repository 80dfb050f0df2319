"""The error that is shown to people as it is, without a traceback."""


class UserError(Exception):
    """Something outside this program is not as it should be.

    The message is one paragraph: which file, field or record, what was expected,
    what was found, and what to do.
    """


class TransientError(UserError):
    """Something that may be over when somebody tries again, as a server that fails."""
