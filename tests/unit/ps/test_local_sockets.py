"""The handshake by which the members of a job connect: only members are let in."""

import socket
import threading
from contextlib import suppress

import pytest

from mpistrat.errors import CommunicationTimeoutError, PeerLostError
from mpistrat.ps.transport import local_sockets
from mpistrat.ps.transport.local_sockets import LocalListener, connect_local
from mpistrat.ps.transport.roles import Member

LONG_S = 20.0
ME, PEER = Member("ps", 0, 3), Member("worker", 1, 7)


def connect(listener, shown=b""):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(listener.name)
    sock.sendall(shown)
    return sock


def is_closed(sock):
    sock.settimeout(LONG_S)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_peers_come_in_whoever_else_stands_in_the_door():
    with LocalListener(2) as listener:
        silent = [connect(listener), connect(listener, listener.token), connect(listener, b"\0")]
        wrong = connect(listener, bytes(16) + (7).to_bytes(4, "little"))
        other = connect(listener, listener.token + (8).to_bytes(4, "little"))
        connect(listener).close()
        peer = connect_local(listener.name, listener.token, 7, ME, LONG_S)
        found = listener.accept({7: PEER}, LONG_S)
        assert list(found) == [7]
        peer.sendall(b"hello")
        assert found[7].recv(5) == b"hello"
        assert is_closed(wrong)
        assert is_closed(other)
    assert all(map(is_closed, silent))
    found[7].close()
    peer.close()


def test_a_crowd_of_strangers_keeps_nobody_out():
    with LocalListener(1) as listener:
        crowd = []
        is_over = threading.Event()

        def come():
            with suppress(OSError):  # when the listener is gone
                while not is_over.is_set() and len(crowd) < 300:
                    crowd.append(connect(listener))

        stranger = threading.Thread(target=come)
        stranger.start()
        peers = []
        knocking = threading.Thread(
            target=lambda: peers.append(
                connect_local(listener.name, listener.token, 7, ME, LONG_S)
            )
        )
        knocking.start()
        found = listener.accept({7: PEER}, LONG_S)
        is_over.set()
        assert list(found) == [7]
    stranger.join(LONG_S)
    knocking.join(LONG_S)
    for sock in [*crowd, *peers, *found.values()]:
        sock.close()


def test_who_has_shown_its_token_makes_no_room():
    with LocalListener(1) as listener:
        peer = connect(listener, listener.token + (7).to_bytes(4, "little"))
        crowd, found = [], {}
        listener._accept([7], found)
        for _ in range(70):  # without a look at what any of them has shown
            crowd.append(connect(listener))
            listener._accept([7], found)
        assert list(found) == [7]
        peer.sendall(b"hello")
        assert found[7].recv(5) == b"hello"
        found[7].sendall(b"there")
        assert peer.recv(5) == b"there"
    for sock in [peer, *crowd, *found.values()]:
        sock.close()


def test_who_had_to_make_room_before_it_could_show_its_token_comes_again(monkeypatch):
    plainly, crowd = local_sockets._connect, []

    def slowly(sock, name, timeout_s):
        plainly(sock, name, timeout_s)
        if not crowd:
            crowd.extend(connect(listener) for _ in range(70))
            assert is_closed(sock)

    with LocalListener(1) as listener:
        monkeypatch.setattr(local_sockets, "_connect", slowly)
        found = {}
        accepting = threading.Thread(
            target=lambda: found.update(listener.accept({7: PEER}, LONG_S))
        )
        accepting.start()
        peer = connect_local(listener.name, listener.token, 7, ME, LONG_S)
        accepting.join(LONG_S)
        assert list(found) == [7]
    for sock in [peer, *crowd, *found.values()]:
        sock.close()


def test_who_does_not_come_is_named():
    with (
        LocalListener(1) as listener,
        pytest.raises(CommunicationTimeoutError, match=r"worker 1 \(rank 7\)"),
    ):
        listener.accept({7: PEER}, 0.05)


def test_a_member_that_has_ended_is_named():
    with LocalListener(1) as listener:
        pass
    with pytest.raises(PeerLostError, match=r"ps 0 \(rank 3\) has ended") as caught:
        connect_local(listener.name, listener.token, 7, ME, LONG_S)
    assert caught.value.rank == 3


def test_a_member_that_accepts_nobody_is_named():
    with LocalListener(1) as listener:
        crowd = []

        def fill():
            while len(crowd) < 10_000:
                crowd.append(connect_local(listener.name, listener.token, 7, ME, 0.05))

        with pytest.raises(CommunicationTimeoutError, match=r"ps 0 \(rank 3\)"):
            fill()
    for sock in crowd:
        sock.close()
