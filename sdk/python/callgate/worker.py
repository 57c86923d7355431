"""The process the gate starts to run Python tools.

It takes calls, one JSON line each, from the stream socket whose descriptor
`CALLGATE_FD` names, runs the function an `entry` points at, and answers with
one JSON line. Standard output and error stay the tool's own: nothing a tool
prints can be mistaken for a reply.

    {"call":"7","tool":"greet","entry":"tools.sample:greet","input":{"name":"Ada"}}
    {"call":"7","progress":{"progress":1,"total":2}}
    {"call":"7","output":{"message":"Hello Ada"}}
    {"call":"7","error":{"type":"ValueError","message":"no such name"}}
    {"call":"7","ask":{"1.5f2c9a10":{"message":"Which name?","schema":{…}}}}
    {"call":"7","exit":3}

An answer to a call with `guarantees` may have `attempts`, what of it they stopped
(`[["no_network",""]]`), also where the tool went on. The last is a tool that ended itself; the worker lives on. Where
`CALLGATE_ISOLATION` is `call` it forks for each line instead: see `zygote.py`.

Left out on purpose: schemas, deadlines, size limits and confinement. Those are
the gate's, which does not trust this process. Kept small and almost free of
imports because both its start and its share of every call are paid in CPU; the
annotations are strings for the same reason.
"""

import os
import sys
from _thread import allocate_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional, Union

FD_VARIABLE = "CALLGATE_FD"
ISOLATION_VARIABLE = "CALLGATE_ISOLATION"
READ_BYTES = 64 * 1024
MESSAGE_CHARS_MAX = 16 * 1024
SLOT_MAX = 255

code: "Any" = None  # what may be imported from the workspace, as `imports.Code`


def main() -> "int":
    try:
        fd = int(os.environ.pop(FD_VARIABLE, ""))
        os.set_inheritable(fd, False)
        os.set_blocking(fd, True)
    except (ValueError, OSError):
        print("callgate worker: %s must name an open descriptor" % FD_VARIABLE, file=sys.stderr)
        return 2
    everywhere = narrow_path()
    hold_imports()
    if os.environ.pop(ISOLATION_VARIABLE, "") == "call":
        from callgate import zygote

        return zygote.main(sys.modules[__name__], fd, everywhere)
    sys.path[:] = everywhere
    arrange_path()
    serve(fd)
    return 0


def serve(fd: "int") -> "None":
    """Answer calls until the other end closes the stream."""
    wire = [fd]
    # A child that a tool forks must neither hold the stream open nor answer on it.
    os.register_at_fork(after_in_child=lambda: leave(wire))
    worker = Worker(wire)
    # Where `callgate.progress` finds it.
    sys.modules["callgate._running"] = worker  # type: ignore[assignment]
    pieces: "list[bytes]" = []  # of a line whose end has not come yet
    try:
        while True:
            data = os.read(wire[0], READ_BYTES)
            if not data:
                return  # an unfinished line was cut off by the end; it is not run
            *lines, rest = data.split(b"\n")
            if lines and pieces:
                pieces.append(lines[0])
                lines[0] = b"".join(pieces)
                pieces.clear()
            if rest:
                pieces.append(rest)
            for line in lines:
                line = line.strip()
                if line:
                    send(wire, worker.answer(line))
    except ConnectionError:
        return


class NeedsInput(BaseException):
    """Ends a run with a question. No `Exception`, which a tool may catch for other reasons."""

    def __init__(self, name: "str", question: "dict[str, Any]") -> "None":
        super().__init__(name)
        self.name = name
        self.question = question


class Worker:
    """Runs one line's call and words its reply; remembers what it has loaded."""

    NeedsInput = NeedsInput  # for `callgate.ask`

    def __init__(self, wire: "list[int]", bring: "Callable[[str], Any]" = __import__) -> "None":
        self.bring = bring
        self.loaded: "dict[str, Callable[..., Any]]" = {}
        self.wire = wire
        self.call: "Any" = None  # while its function runs
        self.answers: "dict[str, Any]" = {}  # of the caller's user, to earlier runs of this call
        self.asked = 0
        self.watch: "Any" = None  # `callgate.blocked`, once a call was held to a guarantee
        self.lock = allocate_lock()

    def tell(self, kind: "str", report: "dict[str, Any]") -> "None":
        """Send a report of the running call; a thread that outlived its call is not heard."""
        with self.lock:
            if self.call is not None and self.wire[0] >= 0:
                write(self.wire[0], encode({"call": self.call, kind: report}))

    def answer(self, line: "bytes") -> "bytes":
        reply = self.run(line)
        with self.lock:  # no report may follow the answer
            self.call = None
        return reply

    def run(self, line: "bytes") -> "bytes":
        call = None
        try:
            request = decode(line.decode())
            call = request["call"]
            entry = request["entry"]
            payload = request["input"]
            slots = request.get("slots")
            self.answers = request.get("answers", {})
            self.asked = 0
            guarantees = request.get("guarantees")
            target = self.loaded.get(entry)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            return failure(call, "ProtocolError", "not a call: %r" % error)
        if guarantees and self.watch is None:
            self.watch = watch()
        if guarantees and self.watch:
            self.watch.begin(guarantees)
        try:
            if target is None:
                target = self.loaded[entry] = load(entry, self.bring)
            self.call = call
            try:
                if slots is None:
                    reply = {"call": call, "output": finished(target(payload))}
                else:
                    reply = run_with_slots(call, target, payload, slots)
            except NeedsInput as asking:
                reply = {"call": call, "ask": {asking.name: asking.question}}
            reply.update(self.stopped(guarantees))
            try:
                return encode(reply)
            except (ValueError, TypeError, RecursionError) as error:
                raise TypeError("the result is not JSON: %s" % error) from None
        except SystemExit as error:
            return encode({"call": call, "exit": exit_code(error), **self.stopped(guarantees)})
        except BaseException as error:  # a tool's interrupt costs its own call only
            blocked = self.watch.guarantee(error, guarantees) if guarantees and self.watch else None
            report(error)
            text = text_of(error)
            if target is None:
                text = "entry `%s`: %s" % (entry, text)
            return failure(call, type(error).__name__, text, blocked, self.stopped(guarantees))

    def stopped(self, guarantees: "Any") -> "dict[str, Any]":
        """Attempts of the call that a guarantee stopped, as a member of the reply; mostly none."""
        attempts = self.watch.stopped() if guarantees and self.watch else None
        return {"attempts": attempts} if attempts else {}


def watch() -> "Any":
    """Begin to remember what tools try; nothing where a workspace hides our package."""
    try:
        from callgate import blocked

        blocked.watch()
        return blocked
    except Exception:
        return False


def exit_code(error: "SystemExit") -> "int":
    """The code an interpreter would end with; what is no number goes to stderr, as there."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def load(entry: "str", bring: "Callable[[str], Any]") -> "Callable[..., Any]":
    """The function behind `package.module:function`.

    One declared with `@tool` brings its own way to be called with a payload;
    any other is handed the payload as it is.
    """
    module_name, colon, path = str(entry).partition(":")
    if not (module_name and colon and path):
        raise ValueError("not of the form module:function")
    bring(module_name)
    hidden = code.misses(module_name) if code is not None else None
    if hidden:
        raise ImportError(hidden)
    found: "Any" = sys.modules[module_name]
    for name in path.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError("not callable")
    function: "Callable[..., Any]" = getattr(found, "__callgate_call__", found)
    return function


def finished(output: "Any") -> "Any":
    """The output itself; what an `async def` tool returned is awaited first."""
    if output.__class__ is not dict and hasattr(output, "__await__"):
        import asyncio

        async def wait() -> "Any":
            return await output

        return asyncio.run(wait())
    return output


def run_with_slots(
    call: "Any", target: "Callable[..., Any]", payload: "Any", given: "dict[str, Any]"
) -> "dict[str, Any]":
    """Call a tool that sees the slots, and tell what it changed in them."""
    slots = {int(number): artifact for number, artifact in given.items()}
    before = {number: encode(artifact) for number, artifact in slots.items()}
    output = finished(target(payload, slots))
    changed = {}
    for number, artifact in slots.items():
        if type(number) is not int or not 0 <= number <= SLOT_MAX:
            raise TypeError("slot numbers are integers from 0 to %d, not %r" % (SLOT_MAX, number))
        if not isinstance(artifact, dict):
            raise TypeError("slot %d is not an object" % number)
        try:
            same = before.get(number) == encode(artifact)
        except (ValueError, TypeError, RecursionError) as error:
            raise TypeError("slot %d is not JSON: %s" % (number, error)) from None
        if not same:
            changed[str(number)] = artifact
    removed = [number for number in before if number not in slots]
    return {"call": call, "output": output, "slots": changed, "removed_slots": removed}


def failure(
    call: "Any",
    kind: "str",
    message: "str",
    blocked: "Optional[str]" = None,
    stopped: "Optional[dict[str, Any]]" = None,
) -> "bytes":
    # File names that are not UTF-8 reach messages as lone surrogates, which JSON must not carry.
    message = message[:MESSAGE_CHARS_MAX].encode("utf-8", "backslashreplace").decode()
    error = {"type": kind, "message": message}
    if blocked:
        error["blocked"] = blocked
    return encode({"call": call, "error": error, **(stopped or {})})


def report(error: "BaseException") -> "None":
    """Print the traceback, from the tool's first frame on, where the gate keeps stderr."""
    trace = error.__traceback__
    ours = report.__code__.co_filename.rpartition("worker")[0]
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    try:
        sys.__excepthook__(type(error), error.with_traceback(trace), trace)
    except Exception:
        pass  # a broken stderr must not cost the reply


def text_of(error: "BaseException") -> "str":
    try:
        return str(error)
    except Exception:
        return "(its message could not be read)"


def send(wire: "list[int]", reply: "bytes") -> "None":
    # What the tool printed must be there before its reply is.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    if wire[0] < 0:
        os._exit(1)  # a forked child came back out of the tool
    write(wire[0], reply)


def write(fd: "int", data: "bytes") -> "None":
    sent = os.write(fd, data)
    while sent < len(data):
        data = data[sent:]
        sent = os.write(fd, data)


def leave(wire: "list[int]") -> "None":
    fd, wire[0] = wire[0], -1
    try:
        os.close(fd)
    except OSError:
        pass


def arrange_path() -> "None":
    """The workspace last, so that nothing in it hides a module of the standard library or an
    installed one; this SDK before it, and never this file's own folder.

    Before all come the folders of a pack, whose modules may have the names of others', and
    which nobody writes. Started as a file, Python puts the folder of this one first, and a
    tool's `import client` would then find ours.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    workspace, sdk = os.getcwd(), os.path.dirname(here)
    pack = arguments()[1]
    others = [folder for folder in sys.path if folder not in ("", here, workspace, sdk)]
    sys.path[:] = [*pack, *others, sdk, workspace]
    sys.dont_write_bytecode = sys.dont_write_bytecode or bool(pack)


def arguments() -> "tuple[Optional[str], list[str]]":
    """The code that may be imported from the workspace, where the gate names it; the folders of
    a pack."""
    if sys.argv[1:2] == ["--imports"]:
        return sys.argv[2], sys.argv[3:]
    return None, sys.argv[1:]


def hold_imports() -> "None":
    """Import no more of the workspace than the gate names, here and in interpreters that tools
    start."""
    global code
    named, pack = arguments()
    if named is None:
        return
    here = os.path.dirname(os.path.abspath(__file__))
    place = os.path.join(here, "imports.py")
    text = globals().get("FILES", {}).get("callgate.imports")
    if text is None:
        with open(place, encoding="utf-8") as file:
            text = file.read()
    imports: "Any" = type(sys)("callgate_imports")
    exec(compile(text, place, "exec"), imports.__dict__)
    code = imports.install(named, [os.path.dirname(here), *pack])
    guard = os.path.join(here, "guard")
    # Where our text came with the command, `here` is a folder of the workspace.
    if os.path.isabs(__file__) and os.path.isdir(guard):
        earlier = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([guard, earlier] if earlier else [guard])
        os.environ[imports.VARIABLE] = named


def narrow_path() -> "list[str]":
    """Only the standard library and this SDK, so that no tool's module is taken for one of
    theirs; the path as it was."""
    everywhere, standard = list(sys.path), os.path.dirname(os.__file__)
    sys.path[:] = [path for path in everywhere if path == standard or path.startswith(standard + "/lib-")]
    if os.path.isabs(__file__):  # else our text came with the command, and the package with it
        sys.path.append(os.path.dirname(os.path.dirname(__file__)))
    return everywhere


def as_json(value: "Any") -> "Any":
    """What the encoder asks for values JSON has no word for: decimals, dataclasses and enums.

    Such a value can only exist once its module was imported, so this imports none.
    """
    enum = sys.modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum):
        return value.value
    decimal = sys.modules.get("decimal")
    if decimal is not None and isinstance(value, decimal.Decimal):
        return number(value)
    if hasattr(type(value), "__dataclass_fields__"):
        fields = sys.modules["dataclasses"].fields(value)
        return {field.name: getattr(value, field.name) for field in fields}
    raise TypeError("a value of type %s" % type(value).__name__)


def number(value: "Any") -> "Union[int, float]":
    """A decimal as a number of JSON (P-9); beyond a double there is none."""
    if not value.is_finite() or value.adjusted() > 308:
        raise TypeError("the decimal %s" % value)
    return int(value) if value == value.to_integral_value() else float(value)


def refuse_constant(word: "str") -> "Any":
    raise ValueError("%s is not JSON" % word)


def fast_codec() -> "tuple[Callable[[str], Any], Callable[[Any], bytes]]":
    """Decoder and encoder straight on the C core of `json`.

    Importing `json` itself brings in `re` and what that needs: nearly half of
    the worker's own start. Where the core is missing or has changed its shape,
    the probe at the end fails and `plain_codec` serves instead.
    """
    core: "Any" = __import__("_json")

    class Settings:
        strict = True
        object_hook = None
        object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = staticmethod(refuse_constant)
        memo: "dict[str, str]" = {}

    scan = core.make_scanner(Settings)
    # Without markers a value that contains itself ends in RecursionError, not in a hang.
    words = core.make_encoder(None, as_json, core.encode_basestring, None, ":", ",", False, False, False)
    join = "".join

    def decode(text: "str") -> "Any":
        try:
            value, end = scan(text, 0)
            if end == len(text):
                return value
        except (StopIteration, ValueError, SystemError):
            pass
        # The core words its errors with the help of `json`, and ends in a
        # SystemError where that was never imported.
        return plain_codec()[0](text)

    def encode(value: "Any") -> "bytes":
        return (join(words(value, 0)) + "\n").encode()

    probe: "Any" = {"a": [1, -2.5, "é\n", None, True], "b": {}}
    if decode(encode(probe).decode().strip()) != probe:
        raise ValueError("the C core of json answers differently here")
    return decode, encode


def plain_codec() -> "tuple[Callable[[str], Any], Callable[[Any], bytes]]":
    """The same two functions by way of the `json` module."""
    import json

    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=as_json)

    def encode(value: "Any") -> "bytes":
        return (encoder.encode(value) + "\n").encode()

    return decoder.decode, encode


try:
    decode, encode = fast_codec()
except Exception:
    decode, encode = plain_codec()


def finish(code: "int") -> "None":
    """End now: a thread that a tool left running must not keep the process."""
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code)


if __name__ == "__main__":
    finish(main())
