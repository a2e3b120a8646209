"""Products and convolutions (include/cenote/product.h), for those who have addresses: the
structures, and calls with them. Checked against the header by tests/python/test_layout.py."""

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, Tuple, Union

from cenote._codec import Codec, Matrix, Parts
from cenote._device import Device
from cenote._lib import check, declare

#: cen_dtype, of what can be multiplied or comes out.
DTYPES = {"int8": 3, "int32": 7, "fp16": 13, "bf16": 14, "fp32": 15}
#: cen_activation.
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3}


class Product(ctypes.Structure):
    """cen_product."""

    _fields_ = [
        ("size", c_size_t),
        ("a", Matrix),
        ("b", Matrix),
        ("d", Matrix),
        ("transpose_a", c_bool),
        ("transpose_b", c_bool),
        ("activation", c_int),
        ("alpha", c_float),
        ("beta", c_float),
        ("c", Matrix),
        ("residual", Matrix),
        ("bias", c_uint64),
        ("bias_dtype", c_int),
        ("row_scale", c_uint64),
        ("col_scale", c_uint64),
        ("kernel", c_char_p),
        ("b_codec", POINTER(Codec)),
        ("b_parts", Parts),
    ]


class ProductKernel(ctypes.Structure):
    """cen_product_kernel."""

    _fields_ = [
        ("name", c_char_p),
        ("tile", c_uint32 * 3),
        ("stages", c_uint32),
        ("blocks", c_uint32),
        ("threads", c_uint32),
        ("shared_bytes", c_uint32),
    ]


class Conv(ctypes.Structure):
    """cen_conv."""

    _fields_ = [
        ("size", c_size_t),
        ("dtype", c_int),
        ("input", c_uint64),
        ("weight", c_uint64),
        ("output", c_uint64),
        ("residual", c_uint64),
        ("bias", c_uint64),
        ("bias_dtype", c_int),
        ("images", c_uint32),
        ("height", c_uint32),
        ("width", c_uint32),
        ("channels", c_uint32),
        ("filters", c_uint32),
        ("filter_height", c_uint32),
        ("filter_width", c_uint32),
        ("stride", c_uint32 * 2),
        ("padding", c_uint32 * 2),
        ("dilation", c_uint32 * 2),
        ("activation", c_int),
        ("kernel", c_char_p),
    ]


PROTOTYPES: Dict[str, Tuple[Any, List[Any]]] = {
    "cen_product_run": (c_int, [c_void_p, POINTER(Product), c_size_t]),
    "cen_product_on_host": (c_int, [POINTER(Product)]),
    "cen_product_list": (
        c_int,
        [c_void_p, POINTER(Product), POINTER(ProductKernel), c_size_t, POINTER(c_size_t)],
    ),
    "cen_conv_output": (c_int, [POINTER(Conv), POINTER(c_uint32), POINTER(c_uint32)]),
    "cen_conv_run": (c_int, [c_void_p, POINTER(Conv), c_size_t]),
    "cen_conv_on_host": (c_int, [POINTER(Conv)]),
    "cen_conv_list": (
        c_int,
        [c_void_p, POINTER(Conv), POINTER(ProductKernel), c_size_t, POINTER(c_size_t)],
    ),
}


_function = declare(PROTOTYPES)


def run(device: Device, task: Union[Product, Conv], stream: int = 0) -> None:
    """Enqueues it; what it names must stay until the stream got there."""
    task.size = ctypes.sizeof(task)
    name = "cen_product_run" if isinstance(task, Product) else "cen_conv_run"
    check(_function(name)(device.handle, ctypes.byref(task), stream))


def run_on_host(task: Union[Product, Conv]) -> None:
    """Does it in this process's memory."""
    task.size = ctypes.sizeof(task)
    name = "cen_product_on_host" if isinstance(task, Product) else "cen_conv_on_host"
    check(_function(name)(ctypes.byref(task)))


def output_sides(task: Conv) -> Tuple[int, int]:
    """Rows and columns of a convolution's output."""
    task.size = ctypes.sizeof(task)
    height, width = c_uint32(), c_uint32()
    check(_function("cen_conv_output")(ctypes.byref(task), ctypes.byref(height), ctypes.byref(width)))
    return height.value, width.value


def kernels(device: Device, task: Union[Product, Conv]) -> List[str]:
    """Names of the kernels that can do it, the one that would be taken first."""
    task.size = ctypes.sizeof(task)
    name = "cen_product_list" if isinstance(task, Product) else "cen_conv_list"
    found, count = (ProductKernel * 16)(), c_size_t()
    check(_function(name)(device.handle, ctypes.byref(task), found, 16, ctypes.byref(count)))
    return [kernel.name.decode() for kernel in found[: count.value]]
