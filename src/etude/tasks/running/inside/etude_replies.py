"""Runs graded code in a child process from a parent that the code can't reach and that alone speaks to the host.

    python -c <this text>     `(nonce, setup, batches)` as a Python literal on stdin; a line `<nonce> <number> <reply>` on stdout for each reply

The child is forked before the parent reads its stdin, so it never holds the nonce or a batch of requests that has not come yet. The
parent's memory and descriptors are closed to it (PR_SET_DUMPABLE is 0). Each batch carries a token that its replies must repeat. A reply
with another token, or one too many, ends the child, and the line `<nonce> -1` says that none of its replies counts; `<nonce> -2` says that
the memory can't be closed here. Each reply leaves at once: what came before a loop or an exit counts. A child that a signal kills takes the
parent along by the same signal, so that the host sees how it ended.

A batch is a list of requests: `(module, function, args)`, or `(group, source)` of an interactive example where `setup` is `(module, paths)`.
A reply is the `repr` of a string: the value's own `repr` or `!` and the exception's name for a call, the literal `(output, exception)` for
an example.
"""

import os
import sys

MOST_REPLY_BYTES = 1 << 17  # of a reply as it is sent: in ASCII, with escapes
MOST_TOKEN_BYTES = 64  # before it
MOST_OUTPUT_CHARS = 8000  # of one example
DUMPABLE = 4  # prctl(2)


def main():
    requests_read, requests_write = os.pipe()
    replies_read, replies_write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(requests_write)
        os.close(replies_read)
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        serve(requests_read, replies_write)
    os.close(requests_read)
    os.close(replies_write)
    with open(0, "rb", closefd=False) as stream:
        nonce, setup, batches = eval(stream.read())  # the host's own words
    if not memory_closed():  # no request was sent yet: no code under grading has run
        say(nonce + " -2")
        os._exit(1)
    honest = ask(nonce, setup, batches, requests_write, replies_read)
    os.close(requests_write)
    if not honest:
        os.kill(child, 9)
    status = os.waitpid(child, 0)[1]
    os.set_blocking(replies_read, False)
    if not honest or left_over(replies_read):
        say(nonce + " -1")
    elif os.WIFSIGNALED(status):
        die_of(os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


def memory_closed():
    import ctypes

    return ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0) == 0


def ask(nonce, setup, batches, requests, replies):
    """One batch after the other; False where the child spoke out of turn."""
    rest, number = b"", 0
    for batch in batches:
        token = os.urandom(8).hex()
        try:
            send(requests, repr((token, setup, batch)))
        except BrokenPipeError:
            return True
        for _ in batch:
            line, mark, rest = rest.partition(b"\n")
            while not mark and len(line) <= MOST_REPLY_BYTES + MOST_TOKEN_BYTES:
                part = os.read(replies, 1 << 16)
                if not part:
                    return True  # it ended without a reply, or was killed in the middle of one
                line, mark, rest = (line + part).partition(b"\n")
            sender, _, reply = line.partition(b" ")
            if not mark or sender != token.encode():
                return False
            say("{} {} {}".format(nonce, number, reply.decode("ascii", "replace")))
            number += 1
        if rest:
            return False
    return True


def left_over(replied):
    try:
        return os.read(replied, 1)
    except BlockingIOError:  # a process that the code left behind still holds the other end
        return b""


def say(line):
    """Ordinary prints of the code under test share this stream; a frame begins a line whatever they left."""
    write_all(1, b"\n" + line.encode("ascii", "backslashreplace") + b"\n")


def send(fd, text):
    write_all(fd, text.encode("ascii", "backslashreplace") + b"\n")


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data) :]


def die_of(number):
    import signal

    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def serve(requests_read, replying):
    """In the child, until there are no more requests. The interpreter's own functions are taken before any code under grading runs."""
    show, load, literal, transmit, leave, flush, place = ascii, __import__, eval, send, os._exit, sys.stdout.flush, {}
    shared = {"__name__": "__main__"}
    try:
        with open(requests_read, "rb", closefd=False) as requests:
            for line in requests:
                token, setup, batch = literal(line)
                for request in batch:
                    text = show(
                        called(load, *request) if setup is None else shown(load, place, shared, setup, *request)
                    )
                    if len(text) > MOST_REPLY_BYTES:
                        text = show("!TooLong")
                    flush()
                    transmit(replying, token + " " + text)
    except SystemExit as error:
        leave(status_of(error.code))
    except BaseException as error:  # noqa: BLE001 - this is the program's top level
        sys.excepthook(type(error), error, error.__traceback__)
        leave(1)
    leave(0)


def status_of(code):
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    return 1


def called(load, module, function, args, show=repr):
    try:
        return show(getattr(load(module), function)(*args))
    except Exception as error:  # noqa: BLE001 - however it ends is its behaviour
        return "!" + type(error).__name__


def shown(load, place, shared, setup, group, source, show=repr):
    """An example's output and exception, as doctest takes them. Each group starts from the module's names; without one, all share theirs."""
    import io
    import traceback

    module, paths = setup
    sys.path[:0] = [path for path in paths if path not in sys.path]
    if module and module not in place:
        load(module)
        place[module] = dict(vars(sys.modules[module]))
    space = place.setdefault((group,), dict(place[module])) if module else shared
    out, captured, raised = sys.stdout, io.StringIO(), None
    kind, error_type = traceback.format_exception_only, Exception
    sys.stdout, sys.displayhook = captured, sys.__displayhook__
    try:
        exec(compile(source, "<example>", "single"), space)
    except error_type as error:
        raised = kind(type(error), error)[-1]
    finally:
        sys.stdout = out
    return show(
        (
            io.StringIO.getvalue(captured)[:MOST_OUTPUT_CHARS],
            None if raised is None else str(raised)[:MOST_OUTPUT_CHARS],
        )
    )


main()
