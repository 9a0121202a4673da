"""Writes the array files of this folder that tests/suite/arrays.rs reads.

Made with numpy 2.4.6 and safetensors 0.8.0: python -m venv v && v/bin/pip install numpy==2.4.6 safetensors==0.8.0
&& v/bin/python arrays.py. Element k of an array is 7 k mod 250, or a hundredth of it.
"""

import numpy as np
from safetensors.numpy import save_file

SAMPLES = 12


def numbers(*shape):
    """7 k mod 250 for element k, in row-major order."""
    return (np.arange(np.prod(shape)) * 7 % 250).reshape(shape)


labels = np.arange(SAMPLES) % 3
np.savez_compressed(
    "arrays.npz",
    x=numbers(SAMPLES, 4, 3).astype("uint8"),
    y=labels.astype("int64"),
    x_test=numbers(5, 4, 3).astype("uint8"),
    y_test=np.zeros((5, 1), "uint8"),
)
np.savez(
    "plain.npz",
    images=np.asfortranarray(numbers(SAMPLES, 4, 3, 2) / 100),
    labels=labels.astype(">i2"),
    half=numbers(SAMPLES, 4).astype("float16"),
)
planes = (numbers(SAMPLES, 2, 4, 3) / 100).astype("float32")
save_file({"x": planes, "y": labels.astype("int32")}, "arrays.safetensors")
np.save("x.npy", (numbers(SAMPLES, 5) / 100).astype(">f4"))
np.save("y.npy", numbers(SAMPLES, 2) / 100)
