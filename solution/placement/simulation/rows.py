"""Names of the rows of the event loop's matrices."""

# Rows of `nodes` (6, nodes) int64: the node's kind, its kernel (called after its last node), its
# device; the first node of a kernel and the next of each, -1 at the end; edges that it awaits.
KIND, KERNEL, DEVICE, FIRST, NEXT, WAITING = range(6)
# Rows of `costs` (7, nodes) float64; the last five are a kernel's.
OUTPUT, RESIDENT, SECONDS, LEVEL, READY, START, END = range(7)
# Rows of `devices` (2, devices) float64; of `queues` (3, devices) int64.
USED, PEAK = range(2)
BASE, SIZE, RUNNING = range(3)
EVENTS, SENT = range(2)  # `counts` (2,) int64
