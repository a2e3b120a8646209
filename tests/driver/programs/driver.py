"""The driver through ctypes, for the sample programs: devices' memory as objects."""

import ctypes

_cuda = ctypes.CDLL("libcuda.so.1")
_cuda.cuMemAlloc_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_size_t]
_cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]
_cuda.cuCtxSetCurrent.argtypes = [ctypes.c_void_p]


def call(name, *args):
    """Calls a function of the driver's; raises if it fails."""
    result = getattr(_cuda, name)(*args)
    if result:
        raise RuntimeError(f"{name} gave {result}")


def start():
    """The first device, its primary context current."""
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


class Buffer:
    """Device memory that is freed with its object."""

    def __init__(self, size):
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), size)
        self.address = address.value

    def __del__(self):
        address, self.address = getattr(self, "address", 0), 0
        if address:
            call("cuMemFree_v2", address)
