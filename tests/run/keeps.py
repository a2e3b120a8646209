"""Keeps a block for each step, as a list of losses does; for the tests of `cenote run`."""

import ctypes
import sys

cu = ctypes.CDLL("libcuda.so.1")  # gives up the interpreter's lock for each call


def need(result):
    if result:
        sys.exit(f"the driver says {result}")


def loss():
    block = ctypes.c_uint64()
    need(cu.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20)))  # THE LINE
    return block


def main():
    context = ctypes.c_void_p()
    need(cu.cuInit(0))
    need(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    need(cu.cuCtxSetCurrent(context))
    losses = []
    for _ in range(5):
        losses.append(loss())


main()
