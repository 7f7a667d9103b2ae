#!/bin/sh
# An all-reduce over 4 seats: each has a number for every place of a list, and all come to have the sums. Each seat listens on its own address
# of KOLO_HOSTS, and sends to the next one's, wherever that is; no site opens a port.
set -eu

mkdir -p all-reduce
cat > all-reduce/ring.py <<'END'
import os, socket, struct
rank, size = int(os.environ["KOLO_RANK"]), int(os.environ["KOLO_SIZE"])
hosts, port = os.environ["KOLO_HOSTS"].split(","), 29500
own = [float(rank + 1) * place for place in range(1000)]

listener = socket.create_server((hosts[rank], port))
to_next = socket.create_connection((hosts[(rank + 1) % size], port))
from_last, _ = listener.accept()
received = from_last.makefile("rb")

sums, passing = own[:], own
for _ in range(size - 1):
    to_next.sendall(struct.pack("<1000d", *passing))
    passing = struct.unpack("<1000d", received.read(8000))
    sums = [one + other for one, other in zip(sums, passing)]
print("the sum of place 999 is", sums[999])
END

kolo run -N 4 --per-host cpu=1 -t 10min --send all-reduce --port 29500 -- python3 ring.py
