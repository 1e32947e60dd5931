"""Ask the ranks that others wait for: their last call and their Python stack.

A rank that computes does not listen, so each process of a job has a thread that does, and answers
for it. Ranks of one machine ask through a socket of the Unix domain that has no name in the file
system; the thread sleeps in the kernel until a question comes. Ranks of several machines ask by
MPI: there the thread looks once a second, which needs an MPI library with MPI_THREAD_MULTIPLE.
Who asks must know the number of the communicator, which its ranks alone do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpistrat.collectives.health import timeline
from mpistrat.collectives.health.peers import decode
from mpistrat.system.waiting import wait_until

if TYPE_CHECKING:
    from mpistrat.collectives.backends.control import Questions
    from mpistrat.collectives.checking.gate import Gate
    from mpistrat.collectives.checking.settings_check import Facts
    from mpistrat.collectives.health.communicator_state import Health

__all__ = ["Stacks", "main_stack", "start", "stop"]

_QUESTION = struct.Struct("<q")
_MOST_STACK, _MOST_ANSWER = 1200, 4096
_MOST_ASKED = 8
_LOOK_S = 1.0  # between looks for what cannot wake the thread
_LOOKS = 50  # in a row: MPI libraries take in a message or so in each, whosever it is
_NEAR_S, _FAR_S = 1.0, 2.5  # how long to wait for the answers of this machine, and of others


class _Listener:
    """The thread of this process that answers, and where to ask it."""

    def __init__(self) -> None:
        self.address = f"\0mpistrat-{os.getpid()}-{os.urandom(8).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._watched: dict[int, weakref.ref[Health]] = {}
        self._questions: dict[int, Questions] = {}
        self._is_looking = False
        self._lock = threading.Lock()
        # A daemon: it never keeps the program from ending.
        threading.Thread(target=self._serve, name="mpistrat stacks", daemon=True).start()

    def watch(self, health: Health, questions: Questions | None) -> None:
        """Answer what the ranks of a communicator ask, also by `questions` of other machines."""
        self._watched[health.uid] = weakref.ref(health)
        if questions is not None:
            with self._lock:
                self._questions[health.uid] = questions
        if (questions is not None or timeline.is_on()) and not self._is_looking:
            self._is_looking = True
            with contextlib.suppress(OSError):  # the buffer is full, so it wakes up anyway
                self._socket.sendto(b"", socket.MSG_DONTWAIT, self.address)

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread's
        while True:
            self._socket.settimeout(_LOOK_S if self._is_looking else None)
            try:
                question, asker = self._socket.recvfrom(_MOST_ANSWER)
            except TimeoutError:
                with contextlib.suppress(Exception):  # the program must not hear of this thread
                    self._look()
            except OSError:  # closed
                return
            else:
                with contextlib.suppress(Exception):  # such as: the asker is gone
                    self._reply(question, asker)

    def _reply(self, question: bytes, asker: Any) -> None:
        answer = self._answer(question)
        if answer and asker:
            self._socket.sendto(answer, socket.MSG_DONTWAIT, asker)

    def _look(self) -> None:
        timeline.flush()
        # `stop_questions` waits for this to end, after which MPI may be finalized.
        with self._lock:
            self._questions = {uid: one for uid, one in self._questions.items() if one.is_open}
            for questions in self._questions.values():
                for _ in range(_LOOKS):
                    if (question := questions.receive_question()) is not None:
                        questions.answer(question[0], self._answer(question[1]))

    def _answer(self, question: bytes) -> bytes:
        uid = _QUESTION.unpack(question)[0] if len(question) == _QUESTION.size else 0
        if uid not in self._watched:
            return b""
        asked = self._watched[uid]()
        last = "" if asked is None else _calls(asked, [h for h in self._alive() if h is not asked])
        return f"{last}is at\n{main_stack()}".encode()[:_MOST_ANSWER]

    def _alive(self) -> list[Health]:
        watched = [reference() for reference in list(self._watched.values())]
        return [health for health in watched if health is not None]

    def stop_questions(self) -> None:
        """Use MPI no more."""
        with self._lock:
            self._questions.clear()

    def close(self) -> None:
        """Forget the socket, in a forked child, which has no such thread."""
        self._socket.close()


def _calls(health: Health, others: Sequence[Health]) -> str:
    """Return the last call of one communicator, and what is under way in others."""
    last = health.call_log.recorder.last()
    text = f"came last to {last}; it " if last else ""
    for other in others:
        record = other.call_log.recorder.last()
        if record is not None and record.end_ns is None and not other.closed:
            text += f"is in another communicator's {record}, and "
    return text


def main_stack() -> str:
    """Return where the main thread is: its innermost frames, in at most 1.2 kB. **Local.**"""
    ident = threading.main_thread().ident
    frame = sys._current_frames().get(-1 if ident is None else ident)
    entries = traceback.format_stack(frame) if frame is not None else ["  (its end)\n"]
    text = ""
    for entry in reversed(entries):
        if len(text) + len(entry) > _MOST_STACK:
            break
        text = entry + text
    return text or entries[-1][:_MOST_STACK]


class Stacks:
    """How one communicator asks its ranks what they do."""

    def __init__(self, gate: Gate, facts: Sequence[Facts]) -> None:
        self._rank, self._question = gate.rank, _QUESTION.pack(gate.health.uid)
        self._names = gate.names
        self._addresses = [fact.address for fact in facts]
        self._hosts = [fact.host for fact in facts]
        self._questions = gate.control.questions if len(set(self._hosts)) > 1 else None
        if _listener is not None:
            _listener.watch(gate.health, self._questions)

    def ask(self, missing: Sequence[int]) -> str:
        """Return what the missing ranks do, in words, a paragraph for each. **Local.**"""
        asked = missing[:_MOST_ASKED]
        here = self._hosts[self._rank]
        near = [rank for rank in asked if self._hosts[rank] == here]
        far = [rank for rank in asked if self._hosts[rank] != here]
        found = {**self._ask_near(near), **self._ask_far(far, missing)}
        rows = [f"\nrank {self._names.of(rank)} {found[rank].rstrip()}" for rank in asked]
        if len(missing) > len(asked):
            rows.append(f"\n(and {len(missing) - len(asked)} ranks more)")
        return "".join(rows)

    def _ask_near(self, ranks: Sequence[int]) -> dict[int, str]:
        found = {}
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as desk:
            desk.bind("")  # the kernel picks an address
            waiting = {}
            for rank in ranks:
                address = self._addresses[rank]
                try:
                    desk.sendto(self._question, socket.MSG_DONTWAIT, address.encode())
                    waiting[address] = rank
                except ConnectionRefusedError:
                    found[rank] = "has ended"
                except OSError as error:
                    found[rank] = f"cannot be asked: {error}"
            found.update(_collect(desk, waiting))
        silent = f"did not answer within {_NEAR_S:.0f} s: it is stopped, or in C code with the GIL"
        return {rank: found.get(rank, silent) for rank in ranks}

    def _ask_far(self, ranks: Sequence[int], missing: Sequence[int]) -> dict[int, str]:
        """Ask ranks of other machines; one rank of each machine does."""
        here = self._hosts[self._rank]
        speaker = min(
            rank for rank, host in enumerate(self._hosts) if host == here and rank not in missing
        )
        questions = self._questions
        if questions is None:
            return dict.fromkeys(
                ranks, "is on another node; to ask, MPI_THREAD_MULTIPLE is needed"
            )
        if speaker != self._rank:
            name = self._names.of(speaker)
            return dict.fromkeys(ranks, f"is on another node; see what rank {name} shows")
        for rank in ranks:
            questions.ask(rank, self._question)
        found: dict[int, str] = {}

        def take_answers() -> bool:
            """Take in those that have come; return whether all have."""
            while (answer := questions.receive_answer()) is not None:
                found[answer[0]] = decode(answer[1])
            return len(found) >= len(ranks)

        wait_until(take_answers, _FAR_S, 0.01)
        silent = f"did not answer within {_FAR_S:.1f} s"
        return {rank: found.get(rank, silent) for rank in ranks}


def _collect(desk: socket.socket, waiting: dict[str, int]) -> dict[int, str]:
    """Receive one answer of each address, or as many as come in time."""
    found: dict[int, str] = {}
    end = time.monotonic() + _NEAR_S
    while len(found) < len(waiting) and (left := end - time.monotonic()) > 0:
        desk.settimeout(left)
        try:
            answer, source = desk.recvfrom(_MOST_ANSWER)
        except TimeoutError:
            break
        source = source.decode() if isinstance(source, bytes) else source
        if source in waiting:
            found[waiting[source]] = decode(answer)
    return found


_listener: _Listener | None = None


def start() -> str:
    """Let this process answer; return its address, or "" where that is impossible.

    **Local**, idempotent.
    """
    global _listener  # noqa: PLW0603 - a process has one
    if _listener is None:
        try:
            _listener = _Listener()
        except OSError:  # no Unix domain, or no names outside of the file system
            return ""
        os.register_at_fork(after_in_child=_forget)
    return _listener.address


def stop() -> None:
    """Use MPI no more: it is about to end. **Local.**"""
    if _listener is not None:
        _listener.stop_questions()


def _forget() -> None:
    global _listener  # noqa: PLW0603 - a process has one
    if _listener is not None:
        _listener.close()
        _listener = None
