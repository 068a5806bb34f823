"""Stands in for the training programs of upstream's tests: the ranks meet at the address that the operator gave
them, as the real ones do, and take a few steps together."""

import os
import socket
import sys
import time

PATIENCE = 60.0


def rendezvous():
    """This rank, the number of ranks, and where they meet; None for a program of one rank."""
    env = os.environ
    if "COORDINATOR_ADDRESS" in env:
        place = (env["COORDINATOR_ADDRESS"], int(env["COORDINATOR_PORT"]))
        return int(env["PROCESS_ID"]), int(env["NUM_PROCESSES"]), place
    if "PADDLE_MASTER" in env:
        host, port = env["PADDLE_MASTER"].rsplit(":", 1)
        # In Paddle the process that listens at the address assigns the ranks.
        own = socket.gethostbyname(socket.gethostname())
        rank = 0 if resolved(host) == own else 1
        return rank, int(env["PADDLE_NNODES"]), (host, int(port))
    if "MASTER_ADDR" in env:
        place = (env["MASTER_ADDR"], int(env["MASTER_PORT"]))
        return int(env["RANK"]), int(env["WORLD_SIZE"]), place
    return 0, 1, None


def retry(call):
    """Calls `call` until it no longer raises `OSError`, and returns its result."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except OSError as error:
            if time.monotonic() > end:
                raise
            print(f"retrying: {error}", flush=True)
            time.sleep(0.2)


def resolved(host):
    return retry(lambda: socket.gethostbyname(host))


def meet(rank, size, place):
    """Returns once every rank has reached rank 0, and keeps the connections."""
    if size == 1:
        return []
    if rank == 0:
        server = socket.create_server(("", place[1]), backlog=size)
        server.settimeout(PATIENCE)
        return [server.accept()[0] for _ in range(size - 1)]
    return [retry(lambda: socket.create_connection((resolved(place[0]), place[1]), timeout=5))]


def main():
    rank, size, place = rendezvous()
    print(f"rank {rank} of {size}, meets at {place}: {sys.argv[1:]}", flush=True)
    connections = meet(rank, size, place)
    for step in range(3):
        for connection in connections:
            connection.sendall(b"g")
        for connection in connections:
            connection.settimeout(PATIENCE)
            assert connection.recv(1) == b"g", "a peer has left"
        print(f"step {step} loss {1 / (step + 1):.3f}", flush=True)


main()
