"""Sets marks in the recording of a trial, and reads those that came before a crash."""

import os
import socket


class Marks:
    """A mark is in the recording when `set` returns."""

    def __init__(self):
        path = os.environ.get("ROTPROOF_MARK_SOCKET")
        self.socket = None
        if path:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.connect(path)

    def set(self, text):
        if self.socket:
            self.socket.sendall(text.encode() + b"\n")
            assert self.socket.recv(3) == b"ok\n"


def acknowledged():
    """The number of the last transaction that was acknowledged before the crash; 0 if none was."""
    last = 0
    with open(os.environ["ROTPROOF_MARKS"]) as marks:
        for line in marks:
            if line.startswith("transaction "):
                last = max(last, int(line.split()[1]))
    return last
