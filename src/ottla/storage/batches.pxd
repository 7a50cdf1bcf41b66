# C types for batches.py (Cython's augmenting file): the logic stands there, only types stand here.
import cython

from ottla cimport native

cdef int _MAGIC
cdef int _MAGIC_POSITION
cdef int _LENGTH_POSITION


@cython.locals(data="const unsigned char *", magic=cython.int, base_offset=cython.longlong)
cpdef object parse_header(object view, Py_ssize_t start, object position)

@cython.locals(
    headers=list, data="const unsigned char *", position=cython.Py_ssize_t,
    end=cython.Py_ssize_t, size=cython.longlong, least=cython.int,
)
cpdef list whole_batches(object view)
