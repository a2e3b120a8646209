"""Products of matrices and convolutions, with what is usually done to their results in the same pass, and
with weights as a codec keeps them: docs/products.md.

    import cenote.compute

    y = cenote.compute.product(x, w.T, bias=b, activation="gelu", residual=x)
    weights = cenote.codec.encode(w, format="int4", group=128)
    y = cenote.compute.product(x, weights, transpose_b=True)        # decoded on the way in, never in memory

Arrays are NumPy's or torch's tensors, and what is made is of the same kind; all of one call lie in one
place. A tensor on a GPU stays there: work is enqueued on the stream that is current, and nothing waits.
Arrays in the host's memory are multiplied by one thread, as a reference. torch's autograd sees nothing.
"""

from typing import Any, Optional, Sequence, Union

from cenote._tasks import ConvTask, ProductTask

__all__ = ["conv2d", "product"]


def product(
    a: Any,
    b: Any,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    row_scale: Any = None,
    col_scale: Any = None,
    c: Any = None,
    beta: float = 1.0,
    bias: Any = None,
    activation: Optional[str] = None,
    residual: Any = None,
    dtype: Optional[str] = None,
    out: Any = None,
    kernel: Optional[str] = None,
    copy: bool = False,
) -> Any:
    """activation(alpha * row_scale * col_scale * (a @ b) + beta * c + bias) + residual, in this order, with
    sums of 32 bits, rounded once.

    `a` and `b`: matrices of one type, float32, float16, bfloat16 or int8, each transposed first where
    `transpose_a` or `transpose_b` is True. They are read where they lie if the elements of a row or, as
    of x.T, those of a column are neighbours; the other matrices only if those of a row are. Other
    strides are a ValueError, or copied if `copy` is True. `b` may be a cenote.codec.Encoded: its first
    dimension is the rows, the rest the columns, and it is decoded to a's type, float16 or bfloat16.

    `row_scale`, `col_scale`: float32, one for each row or column of the result. `bias`: one for each
    column, float32 or of the result's type. `activation`: "relu", "gelu" or "gelu_tanh". `c`, `residual`: of
    the result's shape and type, and may be `out` itself.

    The result is a new array of `dtype`: "fp32"; "fp16" or "bf16", of operands of this type or of int8;
    "int32", of int8, with nothing else done to it. None: a's, of int8 "int32". Or it goes to `out`, which
    overlaps nothing else. In NumPy bfloat16 is ml_dtypes'. `kernel`: a name of docs/products.md, on a GPU.

    cenote.Error: what the library refuses: shapes or types that do not go together, what overlaps `out`.
    """
    task = ProductTask(
        a,
        b,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        alpha=alpha,
        dtype=dtype,
        out=out,
        copy=copy,
    )
    task.add(
        bias=bias,
        activation=activation,
        residual=residual,
        c=c,
        beta=beta,
        row_scale=row_scale,
        col_scale=col_scale,
    )
    task.take(kernel)
    return task.run()


def conv2d(
    input: Any,
    weight: Any,
    *,
    bias: Any = None,
    activation: Optional[str] = None,
    residual: Any = None,
    stride: Union[int, Sequence[int]] = 1,
    padding: Union[int, Sequence[int]] = 0,
    dilation: Union[int, Sequence[int]] = 1,
    out: Any = None,
    kernel: Optional[str] = None,
    copy: bool = False,
) -> Any:
    """activation(the convolution + bias) + residual, channels last: `input` is [image][y][x][channel],
    `weight` [filter][y][x][channel], the result [image][y][x][filter], all of one type, float32, float16
    or bfloat16.

    They are read where they lie if they have no gaps, as x.permute(0, 2, 3, 1) of one of torch's tensors in
    channels_last. Other strides are a ValueError, or copied if `copy` is True. `stride`, `padding` (zeros,
    on both sides) and `dilation`: a number, or one for rows and one for columns. `bias`: one for each
    filter, of this type or float32. `residual`, `out`: of the result's shape and type; else all as of
    product().
    """
    task = ConvTask(
        input,
        weight,
        bias=bias,
        activation=activation,
        residual=residual,
        stride=stride,
        padding=padding,
        dilation=dilation,
        out=out,
        copy=copy,
    )
    task.take(kernel)
    return task.run()
