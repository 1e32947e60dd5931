"""Connections between members on different machines: their bytes travel by MPI."""

import threading

import numpy as np
import pytest


def long_text(sender, receiver, nbytes):
    return np.random.default_rng([sender, receiver]).bytes(nbytes)


def received(sock, nbytes):
    """Return what comes in: `nbytes`, or less if the connection ends before."""
    data = bytearray()
    while len(data) < nbytes and (new := sock.recv(nbytes - len(data))):
        data += new
    return bytes(data)


@pytest.mark.mpi(ranks=3, timeout_s=30)
@pytest.mark.parametrize("nbytes", [1, (3 << 20) + 5])
def test_all_talk_to_all_at_once(nbytes):
    from mpi4py import MPI

    from mpistrat.ps.transport.mpi_tunnel import MpiTunnel

    comm = MPI.COMM_WORLD
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    tunnel = MpiTunnel(comm, dict.fromkeys(others, 0), 10.0)
    socks = tunnel.start()
    senders = []
    for rank, sock in socks.items():
        sock.settimeout(20.0)
        text = long_text(comm.rank, rank, nbytes)
        senders.append(threading.Thread(target=sock.sendall, args=(text,), daemon=True))
        senders[-1].start()
    for rank, sock in socks.items():
        assert received(sock, nbytes) == long_text(rank, comm.rank, nbytes)
    for one in senders:
        one.join(20.0)
    comm.barrier()
    for sock in socks.values():
        sock.close()
    tunnel.close()


@pytest.mark.mpi(ranks=2, timeout_s=30)
def test_what_was_sent_before_the_end_arrives_and_then_the_end():
    from mpi4py import MPI

    from mpistrat.ps.transport.mpi_tunnel import MpiTunnel

    comm, nbytes = MPI.COMM_WORLD, 5 << 20
    tunnel = MpiTunnel(comm, {1 - comm.rank: 0}, 10.0)
    sock = tunnel.start()[1 - comm.rank]
    sock.settimeout(20.0)
    if comm.rank == 0:
        sock.sendall(long_text(0, 1, nbytes))
        sock.close()
    else:
        assert received(sock, nbytes + 1) == long_text(0, 1, nbytes)
        sock.close()
    tunnel.close()
    comm.barrier()
