# C types for request_header.py (Cython's augmenting file): the logic stands there, only types here.
import cython

from ottla.protocol.flat cimport read_nullable_text, reader_over, skip_tags
from ottla.protocol.walker cimport Reader

cdef dict _flexible_from


@cython.locals(reader=Reader, key=cython.int, version=cython.int, correlation_id=cython.int)
cpdef tuple split_header(object frame)
