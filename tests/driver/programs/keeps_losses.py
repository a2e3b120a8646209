"""Keeps every step's loss in a list, and with it its memory.

usage: keeps_losses.py [STEPS]
"""

import sys

import driver

MIB = 1 << 20


class Loss:
    """A number that holds on to the memory it was computed in."""

    def __init__(self, step):
        self.value = 1.0 / step
        self.buffer = driver.Buffer(MIB)


def train_step(step, losses):
    """One step; what it should not do is keep the object."""
    activations = driver.Buffer(8 * MIB)
    losses.append(Loss(step))
    del activations


def main():
    """Runs the steps."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    losses = []
    driver.start()
    for step in range(1, steps + 1):
        train_step(step, losses)
        print(f"step {step} loss {losses[-1].value:.4f}", flush=True)
    print(f"kept {len(losses)} losses")


if __name__ == "__main__":
    main()
