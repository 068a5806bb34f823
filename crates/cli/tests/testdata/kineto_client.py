"""Speaks with the engine as the client of Kineto in PyTorch 2.15 does, and writes a trace where it is asked to.

Rank 1 comes 20 ms late into every collective of its trace.
"""

import os
import socket
import struct
import time

rank = int(os.environ["RANK"])
folder = os.environ["KINETO_IPC_SOCKET_DIR"]
assert os.environ["KINETO_USE_DAEMON"] == "1"
assert "UPDATE_INTERVAL_SECS=1" in open(os.environ["KINETO_CONFIG"]).read()
client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
client.bind(f"{folder}/dynoconfigclient{rank}")
client.settimeout(10)


def ask(kinds: int) -> dict[str, str]:
    payload = struct.pack("<iiqii", kinds, 2, 0, os.getpid(), os.getppid())
    client.sendto(struct.pack("<Q32s", len(payload), b"req") + payload, f"{folder}/dynolog")
    answer = client.recv(4096)
    lines = answer[40:].decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def event(category: str, name: str, thread: int, start: int, duration: int) -> str:
    return (
        f'{{"ph":"X","cat":"{category}","name":"{name}","pid":{os.getpid()},"tid":{thread},'
        f'"ts":{start}.000,"dur":{duration}.000,"args":{{}}}}'
    )


def trace(steps: int) -> str:
    late, events = 20_000 * rank, []
    for step in range(steps):
        start = 1_000_000 + step * 40_000
        events.append(event("cpu_op", "aten::linear", 1, start, 9_000))
        events.append(
            event("user_annotation", "gloo:all_reduce", 3, start + 10_000 + late, 22_000 - late)
        )
        events.append(event("user_annotation", "Optimizer.step#SGD.step", 1, start + 39_000, 900))
    return '{"baseTimeNanoseconds":1700000000000000000,"traceEvents":[' + ",".join(events) + "]}"


if rank == 1:
    print("ready", flush=True)
# One that is asked before its first step records half a second, in which it may take a step.
first = [2] if "LATE" in os.environ else []
while True:
    asked = ask(2)
    if asked:
        steps = first.pop() if first else int(asked.get("ACTIVITIES_ITERATIONS", "9"))
        path = asked["ACTIVITIES_LOG_FILE"].replace(".json", f"_{os.getpid()}.json")
        assert path.startswith(os.environ["KINETO_ONDEMAND_TRACE_DIR"])
        ask(1)
        with open(path + ".tmp", "w") as file:
            file.write(trace(steps))
        os.rename(path + ".tmp", path)
    time.sleep(0.1)
