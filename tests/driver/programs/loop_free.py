"""Frees all that it allocates, step by step.

usage: loop_free.py [STEPS]
"""

import sys

import driver


def train_step():
    """One step, whose memory ends with it."""
    return driver.Buffer(8 << 20).address


def main():
    """Runs the steps."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    driver.start()
    for _ in range(steps):
        train_step()
    print(f"{steps} steps")


if __name__ == "__main__":
    main()
