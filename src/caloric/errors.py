"""The one error that means: the input was wrong, not the program."""


class InputError(ValueError):
    """What a caller passed cannot be used; the message says what is wrong and what to do."""
