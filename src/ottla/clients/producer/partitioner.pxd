# C types for partitioner.py (Cython's augmenting file): the logic is in the .py file.
import cython

cdef unsigned int _MULTIPLIER
cdef unsigned int _SEED
cdef unsigned int _MASK


@cython.locals(
    length=cython.Py_ssize_t, value=cython.uint, whole=cython.Py_ssize_t,
    position=cython.Py_ssize_t, part=cython.uint,
)
cpdef unsigned int murmur2(const unsigned char[::1] data)
