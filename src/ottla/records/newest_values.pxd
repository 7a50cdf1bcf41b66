# C types for newest_values.py (Cython's augmenting file): the logic stands there, only types here.
import cython

from ottla cimport native
from ottla.records cimport scan
from ottla.records.scan cimport Cursor, cursor_over

cdef int _UNUSUAL_FLAGS
cdef long long _UINT32
cdef int _HEADER
cdef int _OVERHEAD
cdef int _LENGTH_AT
cdef int _MAGIC_AT
cdef int _CRC_AT
cdef int _ATTRIBUTES_AT
cdef int _DELTA_AT
cdef int _COUNT_AT


@cython.locals(
    raw="const unsigned char *", end=cython.Py_ssize_t, next_offset=cython.longlong,
    taken=cython.longlong, is_unusual=cython.bint, cursor=Cursor, size=cython.longlong,
    base_offset=cython.longlong, flags=cython.longlong, count=cython.longlong,
    last=cython.longlong,
)
cpdef object collect_newest(
    dict newest, bytes data, Py_ssize_t position, long long first_offset, long long end_offset,
    long long max_count,
)


@cython.locals(
    size=cython.longlong, record_end=cython.Py_ssize_t, offset=cython.longlong,
    key_size=cython.longlong, key_start=cython.Py_ssize_t, value_size=cython.longlong,
    value_start=cython.Py_ssize_t, key=bytes,
)
cdef bint _collect(
    dict newest, const unsigned char *raw, Cursor cursor, long long base_offset,
    long long first_offset, long long count,
) except -1
