"""JSON with the interpreter's own C code alone.

An agent starts with every command, and on a Cortex-A9 most of its start is importing. The json package loads re and
enum and compiles patterns; that alone takes as long as Python's own start. The C code's names are no public interface,
so where they are not as they have been since Python 3.8, the package takes its place.
"""

try:
    from _json import encode_basestring, make_encoder, make_scanner
except ImportError:
    make_scanner = None

BLANK = " \t\n\r"


class _Rules:
    """What json.JSONDecoder() tells the scanner."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}.__getitem__


def _unknown(value):
    raise TypeError("{} has no JSON".format(type(value).__name__))


def loads(text):
    """The value of a JSON text. Raises ValueError."""
    if make_scanner is not None:
        text = text.strip(BLANK)
        try:
            value, end = make_scanner(_Rules)(text, 0)
            if end == len(text):
                return value
        except (StopIteration, ValueError, SystemError):
            pass  # SystemError: it finds the class of its error only once the package is loaded
    import json

    return json.loads(text)  # and this says what is wrong


def dumps(value):
    """``value`` as one line of JSON, its keys in their order, letters as they are."""
    if make_scanner is None:
        import json

        return json.dumps(value, ensure_ascii=False)
    return "".join(make_encoder({}, _unknown, encode_basestring, None, ": ", ", ", False, False, True)(value, 0))
